"""`barnabas consume`."""

from __future__ import annotations

import json

import pytest

from barnabas.model import OffsetAndMetadata, TopicPartition


@pytest.fixture
def clicks(cluster):
    """The topic `clicks`: a0, a1, a2 in partition 0 and b0, b1 in partition 1."""
    cluster.create("clicks", 2)
    for value in (b"a0", b"a1", b"a2"):
        cluster.append("clicks", value, partition=0)
    for value in (b"b0", b"b1"):
        cluster.append("clicks", value, partition=1)
    return cluster


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], ["a0", "a1", "a2", "b0", "b1"]),
        (["-p", 1], ["b0", "b1"]),
        (["-o", "-1"], ["a2", "b1"]),
        (["-o", "1", "-p", 0], ["a1", "a2"]),
        (["-o", "s@1001"], ["a1", "a2", "b1"]),
        (["-o", "s@1001", "-o", "e@1002"], ["a1", "b1"]),
        (["-o", "end"], []),
        (["-c", 2], ["a0", "a1"]),
    ],
)
def test_from_here_to_the_end(clicks, run, arguments, expected) -> None:
    outcome = run("consume", "clicks", "-e", *arguments)
    assert outcome.code == 0, outcome.err
    assert outcome.out.split() == expected


def test_count_ends_without_exit_at_end(clicks, run) -> None:
    assert run("consume", "-t", "clicks", "-p", "0", "-c", 3).out.split() == ["a0", "a1", "a2"]


def test_format_and_json(clicks, run) -> None:
    assert run("consume", "clicks", "-c", 1, "-f", r"%t/%p/%o %s\n").out == "clicks/0/0 a0\n"
    assert json.loads(run("consume", "clicks", "-c", 1, "-J").out)["payload"] == "a0"


def test_keys_delimiters_and_nulls(clicks, run) -> None:
    clicks.append("clicks", None, key=b"k", partition=1)
    clicks.append("clicks", b"", partition=1)
    assert run("consume", "clicks", "-p", 1, "-o", 2, "-e", "-K", ":", "-D", r";\n", "-Z").out == "k:NULL;\nNULL:;\n"
    assert run("consume", "clicks", "-p", 1, "-o", 2, "-e", "-K", "%").out == "k%\n%\n"


def test_unbuffered_prints_the_same(clicks, run) -> None:
    assert run("consume", "clicks", "-e", "-u").out.split() == ["a0", "a1", "a2", "b0", "b1"]


def test_times_can_be_dates(clicks, run) -> None:
    span = ["-o", "s@1970-01-01T00:00:01.001", "-o", "e@1970-01-01T01:00:01.002+01:00"]
    assert run("consume", "clicks", "-e", *span).out.split() == ["a1", "b1"]


def test_member_that_gets_no_partitions_ends(clicks, run) -> None:
    clicks.members["ctr"] = ["somebody who has them all"]
    outcome = run("consume", "clicks", "-g", "ctr", "-e")
    assert (outcome.code, outcome.out) == (0, "")


def test_group_goes_on_where_it_stopped_and_commits_what_was_printed(clicks, run) -> None:
    assert run("consume", "clicks", "-g", "ctr", "-c", 2).out.split() == ["a0", "a1"]
    assert clicks.committed["ctr"][TopicPartition("clicks", 0)] == OffsetAndMetadata(2)
    assert run("consume", "clicks", "-g", "ctr", "-e").out.split() == ["a2", "b0", "b1"]
    assert run("consume", "clicks", "-g", "ctr", "-e").out == ""


def test_settings_reach_the_client(clicks, run) -> None:
    run("consume", "clicks", "-c", 1, "-b", "log:1", "-X", "fetch.max.bytes=9")
    assert clicks.bootstrap == "log:1"


@pytest.fixture
def regions(cluster):
    for name in ("clicks.eu", "clicks.us", "clicks", "old.clicks.eu"):
        cluster.create(name)
        cluster.append(name, name.encode())
        cluster.append(name, b"and more")
    return cluster


@pytest.mark.parametrize(
    ("topics", "expected"),
    [
        ([r"^clicks\..*"], ["clicks.eu", "clicks.us"]),
        ([r"^clicks\."], ["clicks.eu", "clicks.us"]),
        (["^clicks$"], ["clicks"]),
        (["^clicks"], ["clicks", "clicks.eu", "clicks.us"]),
        (["^.*eu", "clicks"], ["clicks", "clicks.eu", "old.clicks.eu"]),
        (["^clicks$|^old"], ["clicks", "old.clicks.eu"]),
    ],
)
@pytest.mark.parametrize("options", [["-e"], ["-e", "-g", "ctr"], ["-c", "COUNT"], ["-g", "ctr", "-c", "COUNT"]])
def test_regular_expressions_select_topics(regions, run, topics, expected, options) -> None:
    count = 2 * len(expected)
    outcome = run("consume", *topics, "-f", r"%t=%s\n", *(str(count) if each == "COUNT" else each for each in options))
    assert outcome.code == 0, outcome.err
    assert sorted(set(outcome.out.split("\n")) - {""}) == sorted(
        line for name in expected for line in (f"{name}={name}", f"{name}=and more")
    )


def test_regular_expression_without_a_match_is_an_error_unless_topics_may_appear(regions, run) -> None:
    outcome = run("consume", "^views", "-e")
    assert (outcome.code, outcome.err) == (1, "barnabas: no topic matches ^views; see: barnabas topic list\n")


def test_missing_topic_beside_a_regular_expression_is_an_error(regions, run) -> None:
    outcome = run("consume", "^clicks", "klicks", "-e")
    assert (outcome.code, outcome.err) == (
        1,
        "barnabas: no topic 'klicks'; did you mean 'clicks' or 'clicks.us' or 'clicks.eu'?\n",
    )


def test_partition_is_selected_in_each_topic_that_matches(clicks, run) -> None:
    assert run("consume", "^clicks", "-p", 1, "-c", 2).out.split() == ["b0", "b1"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["^clicks(", "-e"],
        ["^*clicks", "-e"],
        ["clicks", "-o", "@-1h:-2h"],
        ["clicks", "-J", "-K", ":"],
        ["clicks", "-f", "%s", "-J"],
        ["clicks", "-K", "\\q"],
        [],
        ["clicks", "-o", "x"],
        ["clicks", "-f", "%q"],
        ["clicks", "-g", "g", "-p", "0"],
        ["clicks", "-X", "a"],
    ],
)
def test_wrong_usage_is_code_2(clicks, run, arguments) -> None:
    assert run("consume", *arguments).code == 2


def test_missing_partition_and_topic_are_errors(clicks, run) -> None:
    assert run("consume", "clicks", "-p", 7).err == "barnabas: topic 'clicks' has no partition 7\n"
    assert run("consume", "klicks").err == "barnabas: no topic 'klicks'; did you mean 'clicks'?\n"
