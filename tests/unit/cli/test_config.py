"""`barnabas config`."""

from __future__ import annotations

import json

import pytest


@pytest.fixture
def clicks(cluster):
    """The topic `clicks`, which keeps its records for a second."""
    cluster.create("clicks")
    cluster.settings["clicks"] = {"retention.ms": "1000"}
    return cluster


def test_settings_are_shown_with_value_source_and_meaning(clicks, run) -> None:
    assert run("config", "show", "topic", "clicks").out.splitlines() == [
        "setting        value       source   documentation",
        "retention.ms   1000        topic    About retention.ms.",
        "segment.bytes  1073741824  default  About segment.bytes.",
    ]


def test_single_and_changed_settings_are_shown(clicks, run) -> None:
    assert "retention" not in run("config", "show", "topic", "clicks", "segment.bytes").out
    assert "segment" not in run("config", "show", "topic", "clicks", "--changed").out
    assert "have their defaults" in run("config", "show", "broker", "0", "--changed").err


def test_json_is_for_programs(clicks, run) -> None:
    (shown,) = json.loads(run("config", "show", "topic", "clicks", "retention.ms", "--json").out)
    assert (shown["value"], shown["default"], shown["source"], shown["type"]) == ("1000", "604800000", "topic", "long")


def test_settings_are_set_and_unset(clicks, run) -> None:
    outcome = run("config", "set", "topic", "clicks", "segment.bytes=5000", "retention.ms=7")
    assert outcome.out == "topic clicks: segment.bytes = 5000\ntopic clicks: retention.ms = 7\n"
    assert clicks.settings["clicks"] == {"segment.bytes": "5000", "retention.ms": "7"}
    outcome = run("config", "unset", "topic", "clicks", "retention.ms")
    assert outcome.out == "topic clicks: retention.ms = 604800000 (default)\n"
    assert clicks.settings["clicks"] == {"segment.bytes": "5000"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "topic", "clikcs"], "no topic 'clikcs'; did you mean 'clicks'?"),
        (["show", "topic", "clicks", "retention"], "no setting 'retention'; did you mean 'retention.ms'?"),
        (["unset", "topic", "clicks", "x"], "no setting 'x'; see: barnabas config show topic clicks"),
        (["set", "topic", "clicks", "x=1"], "no setting 'x'; see: barnabas config show topic clicks"),
        (["show", "broker", "9"], "no broker '9'; the brokers are 0; use `all` for all brokers"),
        (["set", "broker", "0", "retention.ms=1"], "only topics' settings can be changed"),
    ],
)
def test_what_cannot_be_is_one_line(clicks, run, arguments, message) -> None:
    outcome = run("config", *arguments)
    assert outcome.code == 1
    assert message in outcome.err
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("arguments", [["show", "shop", "x"], ["set", "topic", "clicks"], ["set", "topic", "c", "a"]])
def test_wrong_usage_is_code_2(clicks, run, arguments) -> None:
    assert run("config", *arguments).code == 2


def test_settings_of_all_brokers_are_those_that_were_changed(cluster, run) -> None:
    assert "no setting is changed for all brokers" in run("config", "show", "broker", "all").err
    outcome = run("config", "set", "broker", "all", "log.retention.ms=5")
    assert outcome.out == "broker all: log.retention.ms = 5\n"
    assert cluster.settings["brokers"] == {"log.retention.ms": "5"}
    assert "log.retention.ms" in run("config", "show", "broker", "all").out
    assert run("config", "unset", "broker", "all", "log.retention.ms").out == "broker all: log.retention.ms is unset\n"
    assert cluster.settings["brokers"] == {}


def test_settings_of_a_group_need_no_group(cluster, run) -> None:
    outcome = run("config", "set", "group", "ctr", "consumer.session.timeout.ms=50000")
    assert outcome.out == "group ctr: consumer.session.timeout.ms = 50000\n"
    assert "50000" in run("config", "show", "group", "ctr", "--changed").out
    assert run("config", "unset", "group", "ctr", "consumer.session.timeout.ms").code == 0
    assert "have their defaults" in run("config", "show", "group", "ctr", "--changed").err
