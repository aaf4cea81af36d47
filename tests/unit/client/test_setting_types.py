"""Settings as keyword arguments: type checkers know the type of each, and every value that a type names is accepted."""

from __future__ import annotations

import dataclasses
from typing import Literal, get_args, get_origin, get_type_hints

import pytest

from barnabas.client.config import AdminConfig, ConsumerConfig, ProducerConfig, make_config
from barnabas.client.setting_types import ClientSettings, ConsumerSettings, ProducerSettings

CLIENTS = [(AdminConfig, ClientSettings), (ProducerConfig, ProducerSettings), (ConsumerConfig, ConsumerSettings)]
SECRETS = {"ssl_password", "sasl_password", "sasl_jaas_config", "zookeeper_auth", "zookeeper_ssl_password"}
CONVERTED = {"bootstrap_servers", "partition_assignment_strategy", "sasl_oauth_token"} | SECRETS
"""Settings with several forms, of which the configuration keeps one."""


@pytest.mark.parametrize(("config", "settings"), CLIENTS)
def test_rules_accept_the_type_of_the_field(config, settings):
    declared, typed = get_type_hints(config), get_type_hints(settings)
    for field in dataclasses.fields(config):
        name = field.name
        if name != "group" and name not in CONVERTED and get_origin(typed[name]) is not Literal:
            assert typed[name] == declared[name], name


@pytest.mark.parametrize(("config", "settings"), CLIENTS)
def test_rules_accept_every_literal_of_the_type(config, settings):
    for name, kind in get_type_hints(settings).items():
        for value in get_args(kind) if get_origin(kind) is Literal else ():
            credentials = {"sasl_username": "me", "sasl_password": "letmein"} if str(value).startswith("SASL") else {}
            make_config(config, None, {name: value, **credentials})
