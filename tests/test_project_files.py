"""Version, changelog, templates and workflow agree with each other."""

import re
import tomllib

import yaml

from tests.doc_blocks import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()


def test_the_version_is_the_newest_release_of_the_changelog():
    released = re.findall(r"^## (\d+\.\d+\.\d+), (\d{4}-\d{2}-\d{2})$", CHANGELOG, re.MULTILINE)
    assert released[0][0] == PROJECT["version"]
    assert [date for _, date in released] == sorted((date for _, date in released), reverse=True)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert (citation["version"], str(citation["date-released"])) == released[0]


def test_the_changelog_says_nothing_twice():
    for part in re.split(r"^## ", CHANGELOG, flags=re.MULTILINE):
        lines = [" ".join(entry.split()) for entry in re.split(r"^- ", part, flags=re.MULTILINE)[1:]]
        assert len({line[:40] for line in lines}) == len(lines)


def test_the_workflow_runs_what_everybody_runs():
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert "make test" in commands
    assert all(command.split()[0] == "make" and command.split()[1] in targets for command in commands)


def test_hooks_and_templates_are_there_and_name_what_exists():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())["repos"][0]["hooks"]
    assert {hook["id"] for hook in hooks} == {"format", "lint", "types"}
    for path in [*(ROOT / ".github").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", path.read_text()):
            assert (path.parent / link).exists(), f"{path}: {link}"
