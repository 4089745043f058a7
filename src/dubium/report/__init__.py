"""Pages, plots and pictures, from the results store alone."""

from dubium.report.page import write_page
from dubium.report.png import write_pngs

__all__ = ["write_page", "write_pngs"]
