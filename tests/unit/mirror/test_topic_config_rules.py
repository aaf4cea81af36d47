"""Which settings follow a topic, and which of the target's stay."""

from __future__ import annotations

import pytest

from barnabas.client.admin.configs import ConfigSetting, ConfigSource, ConfigSynonym, ConfigType
from barnabas.mirror.topic_config_rules import SettingsChange, SettingsFilter, SyncRule, change, wanted, without_topic

TOPIC, STATIC, DEFAULT = ConfigSource.TOPIC, ConfigSource.STATIC_BROKER, ConfigSource.DEFAULT
WEEK = "604800000"


def setting(name: str, *places: tuple[ConfigSource, str], broker_name: str = "") -> ConfigSetting:
    """Make a setting with its values in several places, the strongest first."""
    synonyms = tuple(ConfigSynonym(name if s is TOPIC else broker_name or f"log.{name}", v, s) for s, v in places)
    source, value = places[0]
    return ConfigSetting(name, value, source, ConfigType.STRING, "", False, False, synonyms)


def settings(*each: ConfigSetting) -> dict[str, ConfigSetting]:
    return {one.name: one for one in each}


RETENTION = setting("retention.ms", (DEFAULT, WEEK))
POLICY = setting("cleanup.policy", (DEFAULT, "delete"))
CREATE_TIME = setting("message.timestamp.type", (DEFAULT, "CreateTime"))
TARGET = settings(RETENTION, POLICY, CREATE_TIME)


def test_values_that_the_sources_brokers_set_follow_where_they_decide_how_long_records_live():
    source = settings(
        setting("retention.ms", (STATIC, "-1"), (DEFAULT, WEEK)),
        setting("cleanup.policy", (STATIC, "compact"), (DEFAULT, "delete")),
        setting("segment.bytes", (STATIC, "2000000"), (DEFAULT, "1073741824")),
    )
    assert wanted(source, TARGET, SettingsFilter()) == {"cleanup.policy": "compact", "retention.ms": "-1"}
    assert wanted(source, TARGET, SettingsFilter(SyncRule.TOPIC)) == {}
    assert wanted(source, TARGET, SettingsFilter(SyncRule.NONE)) == {}
    assert wanted(source, TARGET, SettingsFilter(left=frozenset({"cleanup.policy"}))) == {"retention.ms": "-1"}


def test_default_of_the_source_follows_where_the_targets_brokers_have_another():
    target = settings(setting("retention.ms", (STATIC, "1000"), (DEFAULT, WEEK)), POLICY, CREATE_TIME)
    assert wanted(settings(RETENTION, POLICY), target, SettingsFilter()) == {"retention.ms": WEEK}


def test_value_in_force_is_set_for_the_topic_only_where_the_target_would_give_another():
    there = settings(setting("retention.ms", (TOPIC, "1000"), (DEFAULT, WEEK)), POLICY, CREATE_TIME)
    assert wanted(settings(RETENTION, POLICY), there, SettingsFilter()) == {}
    own = settings(setting("retention.ms", (TOPIC, WEEK), (DEFAULT, WEEK)))
    assert wanted(own, there, SettingsFilter()) == {"retention.ms": WEEK}, "it was set for the topic"
    unordered = settings(setting("cleanup.policy", (STATIC, "delete,compact")))
    both = settings(setting("cleanup.policy", (STATIC, "compact, delete")))
    assert wanted(unordered, both, SettingsFilter()) == {}


def test_setting_that_only_a_source_knows_and_nobody_has_set_stays_there():
    source = settings(setting("max.compaction.lag.ms", (DEFAULT, "9223372036854775807")))
    assert wanted(source, TARGET, SettingsFilter()) == {}


@pytest.mark.parametrize(
    ("broker_name", "value", "ms"),
    [
        ("log.retention.hours", "168", WEEK),
        ("log.retention.minutes", "10", "600000"),
        ("log.retention.hours", "-1", "-1"),
        ("log.retention.ms", "5", "5"),
        ("log.retention.hours", "many", None),
    ],
)
def test_brokers_settings_are_read_in_their_units(broker_name: str, value: str, ms: str | None):
    topics = setting("retention.ms", (TOPIC, "1"), (STATIC, value), broker_name=broker_name)
    assert without_topic(topics) == ms


def test_target_that_would_write_over_the_times_of_records_is_told_not_to():
    target = {**TARGET, **settings(setting("message.timestamp.type", (STATIC, "LogAppendTime")))}
    source = settings(setting("message.timestamp.type", (TOPIC, "LogAppendTime")))
    assert wanted(source, target, SettingsFilter()) == {"message.timestamp.type": "CreateTime"}
    assert wanted(source, TARGET, SettingsFilter()) == {}


def test_what_somebody_else_has_set_in_the_target_stays():
    wants = {"retention.ms": "1"}
    ours = {"retention.ms": ("1",), "segment.ms": ("7",)}
    there = {"retention.ms": "5", "segment.ms": "7", "max.message.bytes": "5000000"}
    assert change(wants, there, ours) == SettingsChange({}, ("segment.ms",), {"retention.ms": "5"})
    assert change(wants, {"segment.ms": "8"}, ours).kept == {"retention.ms": None, "segment.ms": "8"}
    assert not change(wants, {"retention.ms": "1"}, {"retention.ms": ("0",)}), "it is as it should be"


def test_topic_that_the_target_had_before_keeps_what_was_set_there():
    assert change({"retention.ms": "1", "segment.ms": "7"}, {"retention.ms": "5"}, {}) == SettingsChange(
        {"segment.ms": "7"}, (), {"retention.ms": "5"}
    )


def test_own_value_is_known_again_after_a_change_that_was_interrupted():
    ours = {"retention.ms": (None, "1", "2")}
    for there in ({}, {"retention.ms": "1"}, {"retention.ms": "2"}):
        found = change({"retention.ms": "3"}, there, ours)
        assert found == SettingsChange({"retention.ms": "3"})


def test_refused_value_is_not_offered_again_and_another_is():
    wants = {"segment.bytes": "100000", "segment.ms": "7"}
    assert change(wants, {}, {}, {"segment.bytes": "100000"}).to_set == {"segment.ms": "7"}
    assert change(wants, {}, {}, {"segment.bytes": "5"}).to_set == wants
