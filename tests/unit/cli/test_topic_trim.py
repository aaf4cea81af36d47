"""`barnabas topic trim`."""

from __future__ import annotations

import json

import pytest

from barnabas.clock import SYSTEM_CLOCK
from barnabas.model import TopicPartition

P0, P1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


@pytest.fixture
def clicks(cluster):
    """The topic `clicks`: a0, a1, a2 in partition 0 (times 1000 to 1002), b0, b1 in partition 1 (1000, now)."""
    cluster.create("clicks", 2)
    for value in (b"a0", b"a1", b"a2"):
        cluster.append("clicks", value, partition=0)
    cluster.append("clicks", b"b0", partition=1)
    cluster.append("clicks", b"b1", partition=1, timestamp_ms=SYSTEM_CLOCK.time_ms())
    return cluster


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("1", {P0: 1, P1: 1}),
        ("end", {P0: 3, P1: 2}),
        ("-1", {P0: 2, P1: 1}),
        ("@1001", {P0: 1, P1: 1}),
        ("1970-01-01T00:00:01.002", {P0: 2, P1: 1}),
        ("-1h", {P0: 3, P1: 1}),
        ("@-1h", {P0: 3, P1: 1}),
        ("100", {P0: 3, P1: 2}),
    ],
)
def test_records_before_an_offset_or_time_are_deleted(clicks, run, before, expected) -> None:
    outcome = run("topic", "trim", "clicks", "--before", before, "-y")
    assert outcome.code == 0, outcome.err
    assert clicks.log_starts == expected


def test_only_named_partitions_are_trimmed_and_the_result_is_shown(clicks, run) -> None:
    outcome = run("topic", "trim", "clicks", "--before", "2", "-p", 0, "-y", "--json")
    partition = {"partition": 0, "first": 0, "new_first": 2, "end": 3}
    assert json.loads(outcome.out) == {"topic": "clicks", "executed": True, "partitions": [partition]}
    assert clicks.log_starts == {P0: 2}


def test_dry_run_deletes_nothing(clicks, run) -> None:
    outcome = run("topic", "trim", "clicks", "--before", "2", "--dry-run")
    assert outcome.out.splitlines()[1:] == [
        "        0      0          2    3          2",
        "        1      0          2    2          2",
    ]
    assert outcome.err == "nothing was deleted\n"
    assert clicks.log_starts == {}


def test_command_asks_before_it_deletes(clicks, run) -> None:
    outcome = run("topic", "trim", "clicks", "--before", "2")
    assert outcome.code == 2
    assert "delete 4 records of clicks? Standard input is not a terminal; confirm with -y" in outcome.err
    assert clicks.log_starts == {}


def test_nothing_to_delete_is_no_failure(clicks, run) -> None:
    clicks.log_starts[P0] = 2
    outcome = run("topic", "trim", "clicks", "--before", "1", "-p", 0, "-y")
    assert (outcome.code, outcome.err) == (0, "nothing was deleted: no records are before this position\n")
    assert clicks.log_starts == {P0: 2}


def test_topic_of_the_pipeline_needs_force(cluster, run) -> None:
    cluster.create("_audit")
    cluster.append("_audit", b"x")
    outcome = run("topic", "trim", "_audit", "--before", "end", "-y")
    assert (outcome.code, "--force" in outcome.err) == (2, True)
    assert run("topic", "trim", "_audit", "--before", "end", "-y", "--force").code == 0
    assert cluster.log_starts == {TopicPartition("_audit", 0): 1}


@pytest.mark.parametrize(
    ("arguments", "code", "error"),
    [
        (["clicks"], 2, "missing option '--before'"),
        (["clicks", "--before", "soon"], 2, "'soon' is neither an offset"),
        (["clicks", "--before", "1", "-p", "7", "-y"], 1, "topic 'clicks' has no partition 7"),
        (["klicks", "--before", "1", "-y"], 1, "no topic 'klicks'; did you mean 'clicks'?"),
    ],
)
def test_wrong_arguments_are_refused(clicks, run, arguments, code, error) -> None:
    outcome = run("topic", "trim", *arguments)
    assert (outcome.code, error in outcome.err) == (code, True), outcome.err
    assert clicks.log_starts == {}
