"""The declarations of a broker's settings."""

from __future__ import annotations

import dataclasses

import pytest

from barnabas.broker.settings.static import BROKER_SETTINGS, OTHER_NAMES, BrokerConfig, dotted
from barnabas.broker.settings.topic_table import TOPIC_SETTINGS
from barnabas.errors import ConfigurationError

NAMES = {dotted(field): declared for field, declared in BROKER_SETTINGS.items()}


@pytest.mark.parametrize("of_topics", [each for each in TOPIC_SETTINGS.values() if each.broker_setting in NAMES])
def test_default_of_a_topic_setting_has_the_values_of_the_topic_setting(of_topics) -> None:
    declared = NAMES[of_topics.broker_setting]
    assert declared.rule == of_topics.rule
    assert declared.is_dynamic
    assert str(declared.default).lower() == of_topics.default.lower()


def test_each_field_is_declared_with_its_documentation() -> None:
    fields = [field.name for field in dataclasses.fields(BrokerConfig)]
    assert [*BROKER_SETTINGS, "listener_overrides"] == fields
    assert all(declared.about.endswith(".") for declared in BROKER_SETTINGS.values())


def test_other_names_are_no_names_of_settings() -> None:
    assert not OTHER_NAMES.keys() & NAMES.keys()
    assert set(OTHER_NAMES.values()) <= NAMES.keys()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("num_partitions", 0, r"num\.partitions is 0; it must be 1 or more"),
        ("log_retention_ms", -2, r"log\.retention\.ms is -2; it must be -1 or more"),
        ("log_cleaner_io_buffer_load_factor", -0.5, r"load\.factor is -0\.5; it must be from 0\.0"),
        ("compression_type", "tar", r"compression\.type is 'tar'; it must be one of"),
    ],
)
def test_values_outside_of_their_declaration_are_refused(field: str, value: object, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        BrokerConfig(**{field: value})  # type: ignore[arg-type]
