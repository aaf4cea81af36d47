"""Settings as keyword arguments: type checkers know the same names and types as the declaration in `config.py`."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from types import NoneType
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from barnabas.client.config import AdminConfig, ConsumerConfig, ProducerConfig, make_config
from barnabas.client.setting_types import ClientSettings, ConsumerSettings, ProducerSettings

ROOT = Path(__file__).parents[3]
EXAMPLES = Path(__file__).with_name("typed_settings.py")

MYPY_OPTIONS = [
    "--no-error-summary",
    "--hide-error-context",
    "--config-file=",
    f"--cache-dir={os.devnull}",
    # What other packages declare is none of this, and takes most of the time to read.
    "--no-site-packages",
    "--ignore-missing-imports",
    "--follow-imports=silent",
]

CLIENTS = [(AdminConfig, ClientSettings), (ProducerConfig, ProducerSettings), (ConsumerConfig, ConsumerSettings)]
CONVERTED = {"bootstrap_servers", "partition_assignment_strategy"}
"""Given in several forms, and kept in one."""


@pytest.mark.parametrize(("config", "settings"), CLIENTS)
def test_every_setting_has_its_name_and_its_type(config, settings):
    declared, typed = get_type_hints(config), get_type_hints(settings)
    names = {field.name for field in dataclasses.fields(config)} - {"group"}  # an argument of its own
    assert set(typed) == names
    for name in names - CONVERTED:
        if get_origin(typed[name]) is not Literal:
            assert typed[name] == declared[name], name


@pytest.mark.parametrize(("config", "settings"), CLIENTS)
def test_every_value_that_is_named_is_taken(config, settings):
    for name, kind in get_type_hints(settings).items():
        for value in get_args(kind) if get_origin(kind) is Literal else ():
            assert value is not NoneType
            make_config(config, None, {name: value})


def test_type_checkers_refuse_what_cannot_be_and_nothing_else():
    wrong = {
        number: line.split("# WRONG: ")[1]
        for number, line in enumerate(EXAMPLES.read_text().splitlines(), 1)
        if "# WRONG: " in line
    }
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *MYPY_OPTIONS, str(EXAMPLES)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line.split(":", 3) for line in run.stdout.splitlines() if ": error: " in line]
    assert [int(number) for _, number, *_ in found] == list(wrong), run.stdout + run.stderr
    for _, number, _, message in found:
        assert wrong[int(number)] in message
