"""`barnabas topic`."""

from __future__ import annotations

import io
import json
import sys

import pytest

from barnabas.errors import ErrorCode


def test_created_topic_is_listed_and_described(cluster, run) -> None:
    assert run("topic", "create", "clicks", "--partitions", 2).out == "created topic clicks with 2 partitions\n"
    cluster.append("clicks", b"x", partition=1)
    assert run("topic", "list").out == "topic   partitions  records\nclicks           2        1\n"
    assert run("topic", "describe", "clicks").out.splitlines() == [
        "partition  leader  replicas  isr  first  end  records",
        "        0       0  0         0        0    0        0",
        "        1       0  0         0        0    1        1",
    ]


def test_a_topic_that_cannot_be_described_is_told_beside_the_others(cluster, run) -> None:
    cluster.create("clicks", 2)
    cluster.undescribed["odd"] = ErrorCode.LEADER_NOT_AVAILABLE
    outcome = run("topic", "list")
    assert [line.split() for line in outcome.out.splitlines()[1:]] == [["clicks", "2", "0"], ["odd", "-", "-"]]
    assert outcome.err == "topic odd cannot be described now: LEADER_NOT_AVAILABLE\n"


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
    assert refused.err == "barnabas: topic 'clicks' already exists; see it with: barnabas topic describe clicks\n"
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


@pytest.mark.parametrize("what", ["topic", "group"])
def test_deletion_without_a_terminal_needs_a_yes(cluster, run, what) -> None:
    cluster.create("clicks")
    cluster.committed["clicks"] = {}
    outcome = run(what, "delete", "clicks")
    assert outcome.code == 2
    assert outcome.err.endswith(f"confirm with -y; see: barnabas {what} delete --help\n")
    assert (cluster.topics(), list(cluster.committed)) == (["clicks"], ["clicks"])
    assert run(what, "delete", "clicks", "-y").code == 0


@pytest.mark.parametrize(("answer", "code", "left"), [("y\n", 0, []), ("n\n", 1, ["clicks"]), ("\n", 1, ["clicks"])])
def test_deletion_at_a_terminal_asks(cluster, run, monkeypatch, answer, code, left) -> None:
    cluster.create("clicks")
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    outcome = run("topic", "delete", "clicks")
    assert (outcome.code, cluster.topics()) == (code, left)
    assert "delete clicks with all records? [y/N]" in outcome.err


def test_several_topics_are_described_one_after_the_other(cluster, run) -> None:
    for name in ("clicks.eu", "clicks.us", "views"):
        cluster.create(name)
    run("topic", "alter", "clicks.eu", "-c", "retention.ms=9")
    header, row = run("topic", "describe", "views").out.splitlines()
    eu, us, views = ([f"topic {name}", header, row] for name in ("clicks.eu", "clicks.us", "views"))
    outcome = run("topic", "describe", "views", "clicks.eu", "views")
    assert outcome.out.splitlines() == [*views, "", *eu, "", "retention.ms=9"]
    outcome = run("topic", "describe", "views", r"^clicks\.")
    assert outcome.out.splitlines() == [*views, "", *eu, "", "retention.ms=9", "", *us]
    assert run("topic", "describe", "^view").out.splitlines() == views


def test_several_topics_are_a_list_in_json_and_one_name_is_an_object(cluster, run) -> None:
    cluster.create("clicks")
    cluster.create("views")
    single = json.loads(run("topic", "describe", "clicks", "--json").out)
    assert single["topic"] == "clicks"
    assert json.loads(run("topic", "describe", "^clicks$", "--json").out) == [single]
    several = json.loads(run("topic", "describe", "clicks", "views", "--json").out)
    assert [each["topic"] for each in several] == ["clicks", "views"]


@pytest.mark.parametrize(
    ("topics", "code", "reason"),
    [
        (["clicks", "clikcs"], 1, "no topic 'clikcs'; did you mean 'clicks'?"),
        (["^views"], 1, "no topic matches ^views; see: barnabas topic list"),
        (["^(clicks"], 2, "'^(clicks' is not a regular expression: "),
    ],
)
def test_missing_topic_of_several_is_named(cluster, run, topics, code, reason) -> None:
    cluster.create("clicks")
    outcome = run("topic", "describe", *topics)
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err.startswith(f"barnabas: {reason}")


def test_unknown_topic_names_the_near_one(cluster, run) -> None:
    cluster.create("clicks")
    outcome = run("topic", "describe", "clikcs")
    assert (outcome.code, outcome.err) == (1, "barnabas: no topic 'clikcs'; did you mean 'clicks'?\n")


@pytest.mark.parametrize("action", [["describe"], ["delete", "-y"], ["alter", "-p", "3"]])
def test_unknown_topic_without_a_near_one_says_where_to_look(cluster, run, action) -> None:
    outcome = run("topic", *action, "nope")
    assert (outcome.code, outcome.err) == (1, "barnabas: no topic 'nope'; see: barnabas topic list\n")


@pytest.mark.parametrize("change", [["-c", "colour=1"], ["--unset", "colour"]])
def test_unknown_setting_says_where_to_look(cluster, run, change) -> None:
    cluster.create("clicks")
    outcome = run("topic", "alter", "clicks", *change)
    assert outcome.err == "barnabas: no setting 'colour'; see: barnabas config show topic clicks\n"


def test_partition_that_nobody_leads_is_shown_without_offsets(cluster, run) -> None:
    cluster.place("clicks", 0, 1, [1, 2], [1])
    cluster.place("clicks", 1, -1, [2, 1], [2])
    assert run("topic", "describe", "clicks").out.splitlines() == [
        "partition  leader  replicas  isr  first  end  records",
        "        0       1  1,2       1        0    0        0",
        "        1       -  2,1       2        -    -        -",
    ]
    described = json.loads(run("topic", "describe", "clicks", "--json").out)
    assert (described["partitions"][1]["leader"], described["partitions"][1]["end"]) == (None, None)
    assert run("topic", "list").out.splitlines()[1].split() == ["clicks", "2", "0"]


@pytest.mark.parametrize("name", ["_audit", "_schemas", "_mirror", "__consumer_offsets", "__transaction_state"])
def test_topic_of_the_pipeline_needs_force(cluster, run, name) -> None:
    cluster.create(name)
    outcome = run("topic", "delete", name, "-y")
    assert (outcome.code, "--force" in outcome.err, cluster.topics()) == (2, True, [name])
    assert run("topic", "delete", name, "-y", "--force").code == 0
    assert cluster.topics() == []


@pytest.mark.parametrize(("answer", "left"), [("_audit\n", []), ("y\n", ["_audit"])])
def test_topic_of_the_pipeline_is_deleted_at_a_terminal_by_its_name(cluster, run, monkeypatch, answer, left) -> None:
    cluster.create("_audit")
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr(sys, "stdin", terminal)
    run("topic", "delete", "_audit", "-y")
    assert cluster.topics() == left
