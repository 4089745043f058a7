"""Foreign text in a terminal: names of files and classes are shown as they are, and command nothing."""

import unicodedata
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.text import Text

TURNS = frozenset("\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")  # the direction of writing


def printable(text: object, *, keep: str = "") -> str:
    """Text whose control characters, escape sequences among them, and changes of direction are written as escapes.

    Args:
        keep: control characters that stay.
    """
    return "".join(
        character.encode("unicode_escape", "surrogatepass").decode()
        if character not in keep and (unicodedata.category(character) in ("Cc", "Cs") or character in TURNS)
        else character
        for character in str(text)
    )


def text_cell(text: object, style: str = "") -> "Text":
    """The same for a table; brackets in it are no markup."""
    from rich.text import Text

    return Text(printable(text), style=style)
