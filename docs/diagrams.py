"""Draws the pages' Mermaid diagrams while the site is built, so that no page fetches a script."""

import base64
import re

import mermaidx

WIDE_LABELS = '%%{init: {"flowchart": {"wrappingWidth": 270}}}%%\n'  # names of files are not cut


def draw_mermaid(source, language, css_class, options, md, **attributes):
    """The HTML of a ```mermaid block: a picture of its own, which the styles of the page do not reach."""
    svg = str(mermaidx.render(WIDE_LABELS + source).svg())
    width = re.search(r'viewBox="\S+ \S+ (\S+)', svg).group(1)
    data = base64.b64encode(svg.replace('width="100%"', f'width="{width}"', 1).encode()).decode()
    return f'<div class="diagram"><img alt="Diagram" src="data:image/svg+xml;base64,{data}"></div>'
