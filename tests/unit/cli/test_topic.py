"""`barnabas topic`."""

from __future__ import annotations

import json

import pytest


def test_created_topic_is_listed_and_described(cluster, run) -> None:
    assert run("topic", "create", "clicks", "--partitions", 2).out == "created topic clicks with 2 partitions\n"
    cluster.append("clicks", b"x", partition=1)
    assert run("topic", "list").out == "topic   partitions  records\nclicks           2        1\n"
    assert run("topic", "describe", "clicks").out.splitlines() == [
        "partition  leader  replicas  isr  first  end  records",
        "        0       0  0         0        0    0        0",
        "        1       0  0         0        0    1        1",
    ]


def test_json_is_for_programs(cluster, run) -> None:
    cluster.create("clicks", 2)
    assert json.loads(run("topic", "list", "--json").out) == [{"topic": "clicks", "partitions": 2, "records": 0}]
    described = json.loads(run("topic", "describe", "clicks", "--json").out)
    assert described["id"] == "id-of-clicks"
    assert described["partitions"][1] == {
        "partition": 1,
        "leader": 0,
        "replicas": [0],
        "isr": [0],
        "first": 0,
        "end": 0,
        "records": 0,
    }


def test_list_without_topics_says_how_to_make_one(cluster, run) -> None:
    outcome = run("topic", "list")
    assert (outcome.code, outcome.out) == (0, "")
    assert "barnabas topic create" in outcome.err


def test_topic_that_exists_is_an_error_unless_that_is_allowed(cluster, run) -> None:
    cluster.create("clicks")
    refused = run("topic", "create", "clicks")
    assert refused.code == 1
    assert refused.err.startswith("barnabas: topic 'clicks': topic already exists")
    assert run("topic", "create", "clicks", "--if-not-exists").code == 0


def test_topic_is_altered_and_shows_its_own_settings(cluster, run) -> None:
    cluster.create("clicks")
    outcome = run("topic", "alter", "clicks", "--partitions", 3, "-c", "retention.ms=9", "--unset", "segment.bytes")
    assert outcome.out == "altered topic clicks: retention.ms=9, segment.bytes unset, 3 partitions\n"
    assert len(cluster.partitions) == 3
    assert run("topic", "describe", "clicks").out.splitlines()[-2:] == ["", "retention.ms=9"]
    assert json.loads(run("topic", "describe", "clicks", "--json").out)["config"] == {"retention.ms": "9"}


@pytest.mark.parametrize(
    ("arguments", "code"),
    [([], 2), (["-c", "x"], 2), (["-c", "x=1"], 1), (["--unset", "x"], 1), (["--partitions", 1], 1)],
)
def test_topic_that_cannot_be_altered_so_stays_as_it_is(cluster, run, arguments, code) -> None:
    cluster.create("clicks")
    outcome = run("topic", "alter", "clicks", *arguments)
    assert (outcome.code, outcome.err.count("\n")) == (code, 1)
    assert len(cluster.partitions) == 1
    assert not cluster.settings.get("clicks")


def test_deleted_topic_is_gone(cluster, run) -> None:
    cluster.create("clicks")
    assert run("topic", "delete", "clicks", "--yes").code == 0
    assert cluster.topics() == []


def test_unknown_topic_names_the_near_one(cluster, run) -> None:
    cluster.create("clicks")
    outcome = run("topic", "describe", "clikcs")
    assert (outcome.code, outcome.err) == (1, "barnabas: no topic 'clikcs'; did you mean 'clicks'?\n")
