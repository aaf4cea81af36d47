"""The description on the package index: docs/package.md with links and pictures that work there."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "package.md"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
description = runpy.run_path(str(ROOT / "setup.py"))["description"]


def test_links_lead_to_the_release_in_the_repository() -> None:
    text = description(
        "[a](how-to/audit.md#top) ![b](images/b.png) [c](../CHANGELOG.md) [d](https://example.org/)",
        "https://example.org/barnabas",
        "1.2.0",
    )
    assert text == (
        "[a](https://example.org/barnabas/blob/v1.2.0/docs/how-to/audit.md#top) "
        "![b](https://example.org/barnabas/raw/v1.2.0/docs/images/b.png) "
        "[c](https://example.org/barnabas/blob/v1.2.0/CHANGELOG.md) [d](https://example.org/)"
    )


def test_page_without_a_repository_has_texts_in_place_of_links() -> None:
    assert description("[a](b.md) and ![c](c.png)", "", "1.2.0") == "a and "


@pytest.mark.parametrize("source", ["", "https://example.org/barnabas"])
def test_description_has_no_relative_links(source: str) -> None:
    text = description(PAGE.read_text(encoding="utf-8"), source, "1.2.0")
    assert len(text) > 500
    assert not re.findall(r"\]\((?!https?://)[^)]*\)", text)


def test_links_of_the_page_exist() -> None:
    places = re.findall(r"\]\((?!https?://)([^)#]+)", PAGE.read_text(encoding="utf-8"))
    assert len(places) > 3
    assert [place for place in places if not (PAGE.parent / place).exists()] == []


def test_page_lists_all_extras_for_users() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert listed == sorted(set(PROJECT["optional-dependencies"]) - {"bench", "demo", "dev", "docs", "release"})


def test_metadata_names_authors_systems_and_all_licences() -> None:
    assert PROJECT["authors"]
    assert {"Operating System :: POSIX :: Linux", "Programming Language :: Python :: 3.11"} <= set(
        PROJECT["classifiers"]
    )
    licences = {path.relative_to(ROOT) for pattern in PROJECT["license-files"] for path in ROOT.glob(pattern)}
    vendored = {path.relative_to(ROOT) for path in (ROOT / "src/barnabas/console/static/vendor").glob("LICENSE-*")}
    assert len(vendored) == 2
    assert licences == {Path("LICENSE"), *vendored}
