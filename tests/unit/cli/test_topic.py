"""`barnabas topic`."""

from __future__ import annotations

import json


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


def test_deleted_topic_is_gone(cluster, run) -> None:
    cluster.create("clicks")
    assert run("topic", "delete", "clicks", "--yes").code == 0
    assert cluster.topics() == []


def test_unknown_topic_names_the_near_one(cluster, run) -> None:
    cluster.create("clicks")
    outcome = run("topic", "describe", "clikcs")
    assert (outcome.code, outcome.err) == (1, "barnabas: no topic 'clikcs'; did you mean 'clicks'?\n")
