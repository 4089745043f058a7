"""The code and the command lines of README and docs."""

import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/**/*.md"))]
SHELL = ("", "sh", "console")


def page_name(page):
    return page.relative_to(ROOT).as_posix()


def fenced_blocks(page, languages):
    """The page's blocks in these languages, but for those in lists, which `test_architecture.py` brings to life."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    return [text for language, text in found if language in languages]


def command_lines(page):
    """The page's command lines, without prompts and comments."""
    lines = re.sub(r"\\\n\s*", "", "\n".join(fenced_blocks(page, SHELL))).splitlines()
    bare = [re.sub(r"\s+#.*", "", re.sub(r"^\w*\$ +", "", line)).strip() for line in lines]
    return [line for line in bare if line and not line.startswith("#")]
