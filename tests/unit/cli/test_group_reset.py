"""`barnabas group reset`: nothing moves before it is clear what, where to, and that it shall."""

from __future__ import annotations

import json

import pytest

from barnabas.cli.offset_reset import parse_partitions, read_offsets
from barnabas.client.admin.groups import MemberDescription
from barnabas.model import OffsetAndMetadata, TopicPartition

ZERO, ONE = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


@pytest.fixture
def ctr(cluster):
    """The group `ctr`, at 4 of 10 records in clicks-0 and nowhere in clicks-1, which has 5; times are 1000, 1001 ..."""
    cluster.create("clicks", 2)
    for partition, count in ((0, 10), (1, 5)):
        for _ in range(count):
            cluster.append("clicks", b"x", partition=partition)
    cluster.committed["ctr"] = {ZERO: OffsetAndMetadata(4)}
    return cluster


def offsets(cluster) -> dict[TopicPartition, int]:
    return {tp: at.offset for tp, at in cluster.committed["ctr"].items()}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--topic", "clicks", "--to-earliest"], {ZERO: 0, ONE: 0}),
        (["--topic", "clicks", "--to-latest"], {ZERO: 10, ONE: 5}),
        (["--topic", "clicks", "--to-offset", 7], {ZERO: 7, ONE: 5}),
        (["--topic", "clicks:1", "--to-offset", 2], {ZERO: 4, ONE: 2}),
        (["--topic", "clicks:0", "--topic", "clicks:1", "--to-offset", 2], {ZERO: 2, ONE: 2}),
        (["--topic", "clicks", "--to-time", "1003"], {ZERO: 3, ONE: 3}),
        (["--topic", "clicks", "--to-time", "1970-01-01T00:00:01.008Z"], {ZERO: 8, ONE: 5}),
        (["--topic", "clicks", "--by-duration", "P1D"], {ZERO: 10, ONE: 5}),
        (["--topic", "clicks", "--by-duration", "P5000W"], {ZERO: 0, ONE: 0}),
        (["--topic", "clicks", "--to-current"], {ZERO: 4, ONE: 5}),
        (["--all-topics", "--to-earliest"], {ZERO: 0}),
        (["--all-topics", "--shift-by", 3], {ZERO: 7}),
        (["--all-topics", "--shift-by", "-9"], {ZERO: 0}),
        (["--all-topics", "--shift-by", 100], {ZERO: 10}),
    ],
)
def test_group_goes_where_it_is_sent(ctr, run, arguments, expected) -> None:
    outcome = run("group", "reset", "ctr", *arguments, "--execute")
    assert outcome.code == 0, outcome.err
    assert offsets(ctr) == expected


def test_nothing_is_done_without_execute(ctr, run) -> None:
    outcome = run("group", "reset", "ctr", "--topic", "clicks", "--to-latest")
    assert outcome.out.splitlines() == [
        "topic   partition  before  after",
        "clicks          0       4     10",
        "clicks          1       -      5",
    ]
    assert outcome.err == "nothing was changed; apply the changes with --execute\n"
    assert offsets(ctr) == {ZERO: 4}


def test_plan_as_json(ctr, run) -> None:
    plan = json.loads(run("group", "reset", "ctr", "--all-topics", "--to-latest", "--json").out)
    assert plan == {
        "group": "ctr",
        "executed": False,
        "partitions": [{"topic": "clicks", "partition": 0, "before": 4, "after": 10}],
    }


def test_several_groups_are_moved_together_or_not_at_all(ctr, run) -> None:
    ctr.committed["other"] = {ONE: OffsetAndMetadata(1)}
    outcome = run("group", "reset", "--all-groups", "--all-topics", "--to-latest", "--execute")
    assert outcome.out.splitlines() == [
        "group  topic   partition  before  after",
        "ctr    clicks          0       4     10",
        "other  clicks          1       1      5",
    ]
    assert {name: {tp: at.offset for tp, at in each.items()} for name, each in ctr.committed.items()} == {
        "ctr": {ZERO: 10},
        "other": {ONE: 5},
    }
    plans = json.loads(run("group", "reset", "ctr", "other", "-t", "clicks:1", "--to-offset", 2, "--json").out)
    assert [(each["group"], each["partitions"][0]["before"]) for each in plans] == [("ctr", None), ("other", 5)]
    ctr.members["other"] = [MemberDescription("m-1", "m", "10.0.0.7", None, ("clicks",), (ONE,))]
    outcome = run("group", "reset", "--all-groups", "--all-topics", "--to-earliest", "--execute")
    assert (outcome.code, "group 'other' has 1 member" in outcome.err) == (1, True)
    assert offsets(ctr) == {ZERO: 10}


def test_no_group_at_all_is_told(cluster, run) -> None:
    outcome = run("group", "reset", "--all-groups", "--all-topics", "--to-latest")
    assert (outcome.code, outcome.err) == (1, "barnabas: there are no groups\n")


def test_plan_as_csv_is_carried_out(ctr, run, tmp_path) -> None:
    plan = tmp_path / "plan.csv"
    outcome = run("group", "reset", "ctr", "--topic", "clicks", "--to-offset", 3, "--csv")
    assert outcome.out == "topic,partition,offset\nclicks,0,3\nclicks,1,3\n"
    assert offsets(ctr) == {ZERO: 4}
    plan.write_text(outcome.out)
    assert run("group", "reset", "ctr", "--from-file", plan, "--execute").code == 0
    assert offsets(ctr) == {ZERO: 3, ONE: 3}


def test_a_group_behind_the_beginning_or_the_end_is_brought_back_by_to_current(ctr, run) -> None:
    ctr.committed["ctr"] = {ZERO: OffsetAndMetadata(99)}
    run("group", "reset", "ctr", "--all-topics", "--to-current", "--execute")
    assert offsets(ctr) == {ZERO: 10}


def test_what_describe_printed_is_a_way_back(ctr, run, tmp_path) -> None:
    kept = tmp_path / "offsets.csv"
    kept.write_text(run("group", "describe", "ctr", "--csv").out)
    run("group", "reset", "ctr", "--all-topics", "--to-latest", "--execute")
    run("group", "reset", "ctr", "--from-file", kept, "--execute")
    assert offsets(ctr) == {ZERO: 4}


def test_group_with_members_is_refused_even_to_plan(ctr, run) -> None:
    ctr.members["ctr"] = [MemberDescription("m-1", "m", "10.0.0.7", None, (), ())]
    outcome = run("group", "reset", "ctr", "--all-topics", "--to-latest")
    assert outcome.code == 1
    assert outcome.err.startswith("barnabas: group 'ctr' has 1 member (m-1 at 10.0.0.7); stop them first")


def test_shift_of_what_was_never_committed_is_refused(ctr, run) -> None:
    outcome = run("group", "reset", "ctr", "--topic", "clicks", "--shift-by", 1, "--execute")
    assert outcome.code == 1
    assert "no offset is committed in clicks-1" in outcome.err
    assert offsets(ctr) == {ZERO: 4}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["ctr", "--topic", "clicks:7", "--to-latest"], "there is no partition clicks-7"),
        (["ctr", "--topic", "clikcs", "--to-latest"], "no topic 'clikcs'; did you mean 'clicks'?"),
        (["new", "--all-topics", "--to-latest"], "group 'new' has no committed offsets; name topics"),
    ],
)
def test_what_does_not_exist_is_named(ctr, run, arguments, message) -> None:
    outcome = run("group", "reset", *arguments)
    assert outcome.code == 1
    assert message in outcome.err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--to-latest"],
        ["--topic", "clicks"],
        ["--topic", "clicks", "--all-topics", "--to-latest"],
        ["--topic", "clicks", "--to-latest", "--to-earliest"],
        ["--topic", "clicks:x", "--to-latest"],
        ["--topic", "clicks", "--to-time", "yesterday"],
        ["--topic", "clicks", "--to-offset", "-1"],
        ["--topic", "clicks", "--by-duration", "1h"],
        ["--topic", "clicks", "--to-latest", "--json", "--csv"],
        ["--topic", "clicks", "--to-latest", "--all-groups"],
        ["other", "--topic", "clicks", "--to-latest", "--csv"],
    ],
)
def test_wrong_usage_is_code_2_and_one_line(ctr, run, arguments) -> None:
    outcome = run("group", "reset", "ctr", *arguments)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1


@pytest.mark.parametrize("text", ["", "topic,partition,offset\n", "clicks,0\n", "clicks,0,x\n", "a,0,1\na,0,2\n"])
def test_file_that_holds_something_else_is_refused_with_its_line(text) -> None:
    with pytest.raises(ValueError, match=r"offsets\.csv"):
        read_offsets(text.splitlines(keepends=True), "offsets.csv")


def test_file_may_have_blank_lines_and_spaces() -> None:
    assert read_offsets(["clicks, 0, 5\n", "\n"], "f") == {ZERO: 5}


@pytest.mark.parametrize("text", [":1", "clicks:", "clicks:1,", "clicks:-1"])
def test_partitions_that_are_no_numbers_are_refused(text) -> None:
    with pytest.raises(ValueError, match="is not TOPIC or TOPIC:P"):
        parse_partitions(text)
