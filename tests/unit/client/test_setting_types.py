"""Settings as keyword arguments: type checkers know the same names and types as the declaration in `config.py`."""

from __future__ import annotations

import dataclasses
from types import NoneType
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from barnabas.client.config import AdminConfig, ConsumerConfig, ProducerConfig, make_config
from barnabas.client.setting_types import ClientSettings, ConsumerSettings, ProducerSettings

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
