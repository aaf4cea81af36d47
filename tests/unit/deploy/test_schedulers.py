"""The recipes in deploy/schedulers use options and exit codes that the command has."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest

from barnabas.cli.load import load
from barnabas.exit_codes import EXIT_CONFLICT, EXIT_NOTHING_NEW, EXIT_UNREACHABLE

FOLDER = Path(__file__).resolve().parents[3] / "deploy" / "schedulers"
RETRYABLE = {EXIT_CONFLICT, EXIT_UNREACHABLE}
PROGRAMS = ["airflow_loads.py", "dagster_loads.py"]


def given(arguments: list[str]) -> dict[str, object]:
    return load.make_context("load", arguments).params


def test_crontab_gives_the_command_options_that_it_has() -> None:
    line = (FOLDER / "crontab").read_text().splitlines()[-1]
    command = line.split(maxsplit=6)[6].partition(">>")[0]
    limit, kill, kill_s, limit_s, program, name, *arguments = shlex.split(command)
    assert (limit, kill, kill_s.isdigit(), limit_s.isdigit()) == ("timeout", "-k", True, True)
    assert (program, name) == ("$BARNABAS", "load")
    assert given(arguments)["as_json"]
    assert {int(code) for code in re.findall(r"\|(\d)", line)} == RETRYABLE


def test_service_gives_the_command_options_that_it_has_and_restarts_after_retryable_failures() -> None:
    lines = (FOLDER / "barnabas-load@.service").read_text().splitlines()
    settings = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    _program, name, *arguments = shlex.split(settings["ExecStart"])
    assert (name, given(arguments)["as_json"]) == ("load", True)
    assert {int(code) for code in settings["RestartForceExitStatus"].split()} == RETRYABLE
    assert settings["RuntimeMaxSec"]
    assert settings["Type"] != "oneshot"  # systemd 252 refuses to restart such services


@pytest.mark.parametrize("program", PROGRAMS)
def test_programs_use_options_and_exit_codes_that_there_are(program: str) -> None:
    tree = ast.parse((FOLDER / program).read_text())
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    used = {text for text in texts if re.fullmatch(r"--[a-z-]+", text)}
    assert used <= {option for parameter in load.params for option in parameter.opts}
    assert {"--json", "--run-id"} <= used
    assert "execution_timeout" in texts or any(
        isinstance(each, ast.keyword) and each.arg == "timeout" for each in ast.walk(tree)
    )
    names = {
        ast.unparse(target): ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and "RETRYABLE" in ast.unparse(node.targets[0])
        for target in node.targets
    }
    codes = {code for value in names.values() for code in _flat(value)}
    assert codes - {EXIT_NOTHING_NEW} == RETRYABLE


def _flat(value: object) -> list[int]:
    return [each for part in value for each in _flat(part)] if isinstance(value, tuple) else [value]  # type: ignore[list-item]
