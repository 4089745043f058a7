"""The table of properties (Appendix A), each measured by an experiment of `dubium.evaluation.properties`."""

from typing import Any

from dubium.data import load
from dubium.evaluation.methods import parse_method
from dubium.evaluation.properties import PROPERTIES, explainer, fidelity
from dubium.evaluation.summary import library_versions
from dubium.posteriors import load_posterior
from dubium.reproduce.job import Job
from dubium.reproduce.study import Study

DIGITS = {"smoke": 4}


def measure_properties(study: Study, job: Job) -> dict[str, Any]:
    """Whether each method has each property, with the number that decides it; networks are random, or the demo's."""
    results = {text: method_properties(text, DIGITS.get(study.scale, 32)) for text in job.methods}
    return {
        "protocol": "properties",
        "settings": {"networks": "small random ones in float64; fidelity: the demo's ensemble and digits"},
        "versions": library_versions(),
        "results": results,
        "notes": [],
    }


def method_properties(text: str, digits: int) -> dict[str, dict[str, Any]]:
    """Every property of one method."""
    method = parse_method(text, 1)
    attribute = explainer(method.method, "aleatoric", **method.options)
    found = {name: measure(attribute) for name, measure in PROPERTIES.items()}
    attribute = explainer(method.method, "epistemic", **method.options)
    found["fidelity"] = fidelity(attribute, list(load_posterior("demo")), load("demo").batch(slice(digits)))
    return {name: {"value": each.value, "holds": each.holds} for name, each in found.items()}
