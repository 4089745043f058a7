"""Fences the examples of docstrings, which Markdown would take for quotations."""

import re
from textwrap import dedent

import griffe

EXAMPLE = re.compile(r"(?:^Examples?:\n)?(^ *>>> .*\n?(?:^(?!\s*$).*\n?)*)", re.MULTILINE)


class FencedExamples(griffe.Extension):
    """Puts a fence around each paragraph that starts with `>>>`."""

    def on_object(self, *, obj, **_kwargs):
        if obj.docstring is not None:
            obj.docstring.value = fence_examples(obj.docstring.value)


def fence_examples(text):
    """The text with its examples as `pycon` blocks."""
    return EXAMPLE.sub(lambda found: f"```pycon\n{dedent(found.group(1)).rstrip()}\n```\n", text)
