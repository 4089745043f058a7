"""Where numbers of the page come from: one line for each result file."""

from collections.abc import Iterator, Mapping
from os.path import relpath
from pathlib import Path
from typing import Any

from dubium.reproduce.cells import EFFORT
from dubium.reproduce.dependencies import method_versions

FIRST = 1  # the version of every method when results did not record them yet


def source_line(content: Mapping[str, Any], page: Path, results: Path) -> str:
    """File, command, settings, networks, machine and time of one result."""
    link = relpath(results / f"{content['job']}.json", page.parent)
    parts = [f"[{content['job']}]({link}): `{content['command']}`", *setting_words(content["settings"])]
    methods = [f"`{label}`" for label in reduced_methods(content)]
    parts += [", ".join(methods)] if methods else []
    parts += [f"**made with an earlier {name}, some of whose maps are others now**" for name in older_methods(content)]
    if content.get("images", "").startswith("drawn"):
        parts.append("**drawn images, since the dataset was not at hand**")
    machine = content.get("machine") or {}
    parts.append(f"{machine.get('processor')}, {machine.get('threads')} of {machine.get('cores')} cores")
    if content.get("seconds") is not None:
        parts.append(f"{content['seconds'] / 60:.1f} min")
    return "- " + "; ".join([*parts, *(note.rstrip(".") for note in content.get("notes", ()))]) + "."


def older_methods(content: Mapping[str, Any]) -> list[str]:
    """Methods of a result whose version was raised since."""
    recorded = (content.get("dependencies") or {}).get("methods", {})
    texts = [*content["results"], *(arm["method"] for arm in content["settings"].get("arms", ())), *recorded]
    return [
        f"`{name}`"
        for name, version in {
            name: version for text in texts for name, version in method_versions(text).items()
        }.items()
        if version != next((there[name] for there in recorded.values() if name in there), FIRST)
    ]


def reduced_methods(content: Mapping[str, Any]) -> Iterator[str]:
    """Methods whose number of steps, samples or starts was given."""
    arms = [arm["method"] for arm in content["settings"].get("arms", ())]
    for label in dict.fromkeys([*content["results"], *arms]):
        if any(f":{name}=" in label for name in EFFORT):
            yield label


def setting_words(settings: Mapping[str, Any]) -> Iterator[str]:
    """The settings that change numbers, and the networks."""
    for name in ("images", "candidates", "step", "seeds", "test_images", "repeats"):
        if settings.get(name) is not None:
            yield f"{name.replace('_', ' ')} {settings[name]:g}"
    if "recipe" in settings:
        recipe = settings["recipe"]
        yield f"{recipe['epochs']} epochs in batches of {recipe['batch_size']}, learning rate {recipe['lr']:g}"
        sizes = recipe.get("options", {})
        if "filters" in sizes:
            yield f"a small network: {sizes['filters']} filters and {sizes['units']} units instead of 32 and 128"
    if "explainer members" in settings:
        yield f"maps of {settings['explainer members']} networks"
    about = settings.get("posterior")
    if about:
        architecture = about.get("architecture") or {}
        first = architecture[0] if isinstance(architecture, list) else architecture
        test = about.get("test") or {}
        accuracy = f", {test['accuracy']:.1%} of the test images right" if test.get("accuracy") else ""
        origin = f"public {about['public']}" if "public" in about else about.get("trained", "")
        yield f"{about['members']} networks ({first.get('name', 'tiny')}{accuracy}; {origin})"
