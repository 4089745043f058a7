"""The kinds of uncertainty. No torch here: the command line names them without importing it."""

from typing import Literal

Kind = Literal["total", "aleatoric", "epistemic"]
KINDS: tuple[Kind, ...] = ("total", "aleatoric", "epistemic")
