"""The rows and regions that an export is made of."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from dubium.files import short_file_name
from dubium.run.row import RegionRow, Row, regions_of_row
from dubium.run.store import Results, class_name


@dataclass(frozen=True)
class ExportRegions:
    """A run's results, and which regions of them are meant."""

    results: Results
    kind: str
    level: float | None = None
    smooth: float | None = None

    def explained(self) -> Iterator[tuple[Row, list[RegionRow]]]:
        """Explained rows in the order of the store, with their bright regions, the largest share first."""
        for row in self.results.rows(self.results.explained):
            yield row, self.bright_regions(row)

    def bright_regions(self, row: Row) -> list[RegionRow]:
        """A row's regions without the remainder."""
        found = regions_of_row(row, self.kind, level=self.level, smooth=self.smooth)
        return [region for region in found if not region.is_remainder]

    def class_name(self, index: int) -> str:
        return class_name(self.results.about["classes"], index)


def image_file_name(row: Row) -> str:
    """What an image is called in other tools: its file's name, with its number in front where there is no file."""
    return f"{row.id:06}.png" if row.path is None else f"{row.id:06}-{short_file_name(PurePath(row.path).name)}"
