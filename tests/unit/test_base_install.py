"""A base install: each command, module and name works, or names the extra that it needs."""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from barnabas.cli.commands import EXTRAS
from barnabas.extras import DISTRIBUTIONS, EXTRAS_OF_PACKAGE
from tests.programs.base_install import PYPROJECT, name_of


@pytest.fixture(scope="module")
def outcomes() -> list[dict[str, Any]]:
    """What every command and public name does without extras, in one process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.programs.base_install"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(PYPROJECT).parent,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_no_command_prints_a_traceback(outcomes: list[dict[str, Any]]) -> None:
    commands = [each for each in outcomes if "command" in each]
    assert len(commands) > 40
    wrong = [each for each in commands if "Traceback" in each["said"] or each["code"] not in (0, 1, 2)]
    assert not wrong


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        ("sql", "sql"),
        ("sql --engine spark", "spark"),
        ("load", "spark"),
        ("load --every", "spark"),
        ("load --table-format delta", "delta"),
        ("report", "spark"),
        ("report --png", "reports"),
        ("registry", "registry"),
        ("console", "console"),
        ("console -w", "spark"),
        ("table maintain", "spark"),
        ("table status", "spark"),
        ("audit -w", "spark"),
        ("audit --table-format delta", "delta"),
        ("simulate", "activity"),
        ("consume -s avro", "schemas"),
        ("consume -s protobuf", "schemas"),
        ("produce -s avro", "schemas"),
    ],
)
def test_command_names_the_extra_that_it_needs(outcomes: list[dict[str, Any]], arguments: str, extra: str) -> None:
    words = set(arguments.split())
    lines = [each for each in outcomes if words <= set(each.get("command", ()))]
    assert lines
    for each in lines:
        options = ["--engine", "--table-format", "--png", *(["-w"] if "console" in words else [])]
        others = [word for word in options if word in each["command"]]
        if words.issuperset(others) or "duckdb" in each["command"]:
            assert f"pip install 'barnabas[{extra}]'" in each["said"], each
            assert (each["code"], each["said"].count("\n")) == (2, 1)


def test_public_name_works_or_names_its_extra(outcomes: list[dict[str, Any]]) -> None:
    names = [each for each in outcomes if "name" in each]
    assert len(names) > 50
    assert not [each for each in names if each["error"] not in (None, "MissingExtraError")]


def test_import_of_all_names_works_without_extras() -> None:
    program = "from tests.programs.base_install import hide_extras; hide_extras(); from barnabas import *; Producer"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=Path(PYPROJECT).parent
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_extras_bring_the_packages_for_which_they_are_named() -> None:
    declared = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    brought_along = {"py4j": "pyspark", "sqlalchemy": "pyiceberg"}
    for package, extras in EXTRAS_OF_PACKAGE.items():
        distribution = DISTRIBUTIONS.get(package, brought_along.get(package, package))
        for extra in extras:
            assert distribution in map(name_of, declared[extra]), (package, extra)
    assert set(EXTRAS.values()) <= set(declared)
