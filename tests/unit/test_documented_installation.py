"""What the pages and the package's metadata say about installing Barnabas works without a package index that has it."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted({ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")})
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FROM_A_CLONE = re.compile(r"pip install (--upgrade )?['\"]?\.(\[[a-z,]+\])?['\"]?(\s|`|$)")
FROM_AN_INDEX = re.compile(r"pip install .*\bbarnabas\b")
ADDS_EXTRAS = re.compile(r"pip install ['\"]barnabas\[[a-z,]+\]['\"]")
GROUP = re.compile(r"\bgroup(?:_id|\.id)?\s*[=:]\s*[\"']([^\"']+)[\"']")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_asks_an_index_for_nothing_but_extras_of_what_is_installed(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for line in text.splitlines():
        if FROM_AN_INDEX.search(line):
            assert ADDS_EXTRAS.search(line), line
            assert "venv" not in line, "a new environment has no Barnabas whose extra pip could add"
    assert "git clone <" not in text, "a placeholder is no address"


@pytest.mark.parametrize(
    "name", ["README.md", "docs/tutorial.md", "docs/how-to/test-applications.md", "deploy/systemd/README.md"]
)
def test_page_that_begins_with_an_installation_begins_in_a_clone(name: str) -> None:
    commands = [line for line in (ROOT / name).read_text(encoding="utf-8").splitlines() if "pip install " in line]
    first = re.sub(r"^.*?pip install", "pip install", commands[0])
    assert FROM_A_CLONE.match(first), first


def test_extras_of_the_pages_exist() -> None:
    extras = set(PROJECT["optional-dependencies"])
    for page in PAGES:
        for names in re.findall(r"pip install ['\"](?:barnabas|\.)\[([a-z,]+)\]", page.read_text(encoding="utf-8")):
            assert set(names.split(",")) <= extras, f"{page.name}: {names}"


@pytest.mark.parametrize(
    "page", [ROOT / "README.md", ROOT / "docs" / "how-to" / "clients.md"], ids=lambda page: page.name
)
def test_no_two_consumers_of_a_page_share_a_group(page: Path) -> None:
    snippets = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    consumers = [code for code in snippets if "Consumer(" in code]
    groups = [group for code in consumers for group in set(GROUP.findall(code))]
    assert groups
    assert len(set(groups)) == len(groups), sorted(groups)
