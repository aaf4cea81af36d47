"""The site of the documentation (zensical.toml) contains every page, and the API pages every public name."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

import barnabas.spark
from barnabas.cli.commands import command

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
SITE = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
NOT_PAGES = {"package.md"}
"""The description of the package for the package index."""


def pages(entries: list[dict[str, Any]]) -> Iterator[str]:
    for entry in entries:
        for found in entry.values():
            if isinstance(found, str):
                yield found
            else:
                yield from pages(found)


def test_navigation_names_each_page_once() -> None:
    named = list(pages(SITE["nav"]))
    assert len(named) == len(set(named))
    outside = ("dev/", "decisions/")
    existing = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")} - NOT_PAGES
    assert set(named) == {name for name in existing if not name.startswith(outside)}


def names_on(page: str) -> list[str]:
    return re.findall(r"^::: (\S+)$", (DOCS / "reference" / "api" / page).read_text(encoding="utf-8"), re.MULTILINE)


def test_api_page_names_each_public_name_once() -> None:
    stub = (ROOT / "src" / "barnabas" / "__init__.pyi").read_text(encoding="utf-8")
    public = {f"barnabas.{name}" for name in re.findall(r"import (\w+) as \w+", stub)}
    named = names_on("barnabas.md")
    assert len(named) == len(set(named))
    assert set(named) == public


def test_api_page_of_spark_names_each_public_name_once() -> None:
    named = [name for name in names_on("spark.md") if not name.startswith("barnabas.spark.streams.")]
    assert sorted(named) == sorted(f"barnabas.spark.{name}" for name in barnabas.spark.__all__)


COMPARED = re.findall(r"`(barnabas (?!perf)[^`]+)`", (DOCS / "how-to" / "coming-from.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("line", sorted({re.sub(r" *\.\.\.$", "", each) for each in COMPARED}))
def test_command_beside_another_tool_parses(line: str) -> None:
    words = line.split()[1:]
    found: click.Command = command
    context = click.Context(found)
    while isinstance(found, click.Group) and words:
        inner = found.get_command(context, words.pop(0))
        assert inner is not None, line
        found, context = inner, click.Context(inner, parent=context)
    flags = {flag for each in found.params if isinstance(each, click.Option) for flag in each.opts}
    assert {word for word in words if re.fullmatch(r"--[a-z-]+|-[a-zA-Z]", word)} <= flags
