"""COCO's JSON: an image for each explained one, an annotation with a run-length mask for each bright region."""

import json
from pathlib import Path
from typing import Any

from dubium.files import write_atomically
from dubium.report.exports.regions import ExportRegions, image_file_name
from dubium.run.row import RegionRow, Row

DESCRIPTION = "Regions of "  # how the file begins, by which an earlier export is known


def write_coco(regions: ExportRegions, path: Path) -> int:
    """Write the file; the number of its annotations."""
    content = coco_json(regions)
    write_atomically(path, coco_text(content))
    return len(content["annotations"])


def coco_text(content: dict[str, Any]) -> str:
    """JSON on one line: masks are long lists of numbers."""
    return json.dumps(content, allow_nan=False) + "\n"


def coco_json(regions: ExportRegions, names: dict[int, str] | None = None) -> dict[str, Any]:
    """What the file holds. `names` are those of image files by id, where they are not the images' own."""
    images, annotations = list[dict[str, Any]](), list[dict[str, Any]]()
    for row, bright in regions.explained():
        name = (names or {}).get(row.id) or row.path or image_file_name(row)
        images.append({"id": row.id, "file_name": name, "width": row.image_width, "height": row.image_height})
        annotations += [coco_annotation(row, region, len(annotations) + n) for n, region in enumerate(bright, 1)]
    method = regions.results.about["settings"]["method"]
    return {
        "info": {"description": f"{DESCRIPTION}{regions.kind} uncertainty, by dubium with {method}"},
        "categories": [{"id": 1, "name": regions.kind, "supercategory": "uncertainty"}],
        "images": images,
        "annotations": annotations,
    }


def coco_annotation(row: Row, region: RegionRow, number: int) -> dict[str, Any]:
    """One region; `share` is its part of the image's score, `nats` that part in nats."""
    return {
        "id": number,
        "image_id": row.id,
        "category_id": 1,
        "bbox": [region.left, region.top, region.right - region.left, region.bottom - region.top],
        "area": region.area,
        "segmentation": {"size": list(row.image_size), "counts": list(region.counts)},
        "iscrowd": 0,
        "share": region.share,
        "nats": region.share * row.scores()[region.kind],
    }
