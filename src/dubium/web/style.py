"""The look of the explorer: the report's colours and rules, in Gradio's words."""

from importlib.resources import files
from typing import Any

from dubium.report.page import page_style

DARK = "@media (prefers-color-scheme: dark) {\n  :root {"
FONTS = {"font": ["system-ui", "sans-serif"], "font_mono": ["ui-monospace", "monospace"]}
COLOURS = {
    "background_fill_primary": "card", "background_fill_secondary": "card", "block_background_fill": "card",
    "block_border_color": "line", "block_label_background_fill": "card", "block_label_text_color": "soft",
    "block_title_text_color": "soft", "body_background_fill": "paper", "body_text_color": "ink",
    "body_text_color_subdued": "soft", "border_color_accent": "epistemic", "border_color_primary": "line",
    "button_secondary_background_fill": "track", "button_secondary_background_fill_hover": "line",
    "button_secondary_text_color": "ink", "checkbox_background_color": "card", "checkbox_border_color": "line",
    "checkbox_background_color_selected": "epistemic", "checkbox_border_color_selected": "epistemic",
    "checkbox_label_background_fill": "track", "checkbox_label_background_fill_hover": "line",
    "checkbox_label_background_fill_selected": "track", "checkbox_label_text_color": "ink",
    "checkbox_label_text_color_selected": "ink", "color_accent_soft": "track", "input_background_fill": "card",
    "input_border_color": "line", "input_border_color_focus": "epistemic", "panel_background_fill": "card",
    "slider_color": "epistemic",
}  # fmt: skip
"""Which of the report's colours each of Gradio's is; light and dark are the report's affair."""


def explorer_theme(gr: Any) -> Any:
    """Gradio's plainest theme with the report's colours."""
    named = {name: f"var(--{colour})" for name, colour in COLOURS.items()}
    dark = {f"{name}_dark": value for name, value in named.items()}
    return gr.themes.Base(**FONTS, radius_size="md").set(block_radius="0.6rem", **named, **dark)


def explorer_style() -> str:
    """The report's rules for what is inside `.du`, and the explorer's own; Gradio says by a class that it is dark."""
    style = page_style(".du {{ {} }}").replace(DARK, ".dark { & {", 1)
    return style + files("dubium.web").joinpath("explorer.css").read_text("utf-8")
