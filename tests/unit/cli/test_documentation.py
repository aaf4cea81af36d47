"""docs/reference/command.md and the README name each command and option that there is, and no other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from barnabas.cli.commands import COMMANDS, command

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "reference" / "command.md").read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHARED = {"--help", "--bootstrap", "-b", "-X", "--profile"}
"""Told once, for all commands."""


def leaves(found: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    """Yield every command that does something, with its whole name."""
    if not isinstance(found, click.Group):
        yield name, found
        return
    context = click.Context(found)
    for each in found.list_commands(context):
        inner = found.get_command(context, each)
        assert inner is not None
        yield from leaves(inner, f"{name} {each}")


LEAVES = dict(leaves(command, "barnabas"))
SECTIONS = {
    match["name"]: match["text"]
    for match in re.finditer(r"^### `(?P<name>.+)`\n(?P<text>(?:(?!^#).*\n)*)", PAGE, re.MULTILINE)
}


def test_each_command_has_a_section_and_each_section_a_command() -> None:
    assert set(SECTIONS) == set(LEAVES)


@pytest.mark.parametrize("name", LEAVES)
def test_section_names_the_options_that_there_are(name: str) -> None:
    options = {
        flag
        for parameter in LEAVES[name].params
        if isinstance(parameter, click.Option)
        for flag in [*parameter.opts, *parameter.secondary_opts]
    } - SHARED
    headings = set(re.findall(r"`((?:-\w, )*--?[\w-]+)", SECTIONS[name]))
    named = {flag for heading in headings for flag in heading.split(", ")}
    assert options <= named, f"not documented: {sorted(options - named)}"


def test_readme_names_every_command() -> None:
    table = README.partition("## The command\n")[2].partition("\n## ")[0]
    assert {name for name in COMMANDS if f"`barnabas {name}" not in table} == set()
