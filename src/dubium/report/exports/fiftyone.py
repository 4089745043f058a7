"""A folder that FiftyOne imports: COCO's layout (`data/` and `labels.json`), written without starting FiftyOne.

`Dataset.from_dir(FOLDER, COCODetectionDataset, label_types="segmentations")` reads it; `share` and `nats` become
attributes of the regions.
"""

import shutil
from pathlib import Path

from dubium.data.image_files import read_image
from dubium.errors import DubiumError
from dubium.files import write_atomically, written_atomically
from dubium.report.exports.coco import coco_json, coco_text
from dubium.report.exports.regions import ExportRegions, image_file_name
from dubium.run.store import Row

LABELS = "labels.json"


def write_fiftyone(regions: ExportRegions, folder: Path) -> int:
    """Write the folder; the number of its images. The labels come first: by them a stopped export's folder is known."""
    results = regions.results
    names = {row.id: image_file_name(row) for row in results.rows(results.explained, pictures=False)}
    write_atomically(folder / LABELS, coco_text(coco_json(regions, names)))
    for row in results.rows(results.explained):
        copy_image(row, folder / "data" / names[row.id])
    return len(names)


def copy_image(row: Row, path: Path) -> None:
    """The image's file, or, for an image of a dataset, the picture of it in the results."""
    if row.path is not None and is_readable_image(row.path):
        with written_atomically(path) as beside:
            shutil.copyfile(row.path, beside)
    elif row.thumbnail is not None:
        write_atomically(path, row.thumbnail)


def is_readable_image(path: str) -> bool:
    """Whether a path in the results leads to an image: results of somebody else's may name any file here."""
    try:
        read_image(path)
    except (DubiumError, OSError):
        return False
    return True
