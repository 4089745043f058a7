"""Figures of the paper, drawn again."""

from dubium.reproduce.entries import Entry

FIGURES: dict[str, Entry] = {}
