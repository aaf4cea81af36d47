"""`barnabas group`: list, describe, delete; `reset` has a file of its own."""

from __future__ import annotations

import json

import pytest

from barnabas.cli.group_lag import PartitionLag, lags, total_lag
from barnabas.client.admin.groups import MemberDescription
from barnabas.model import OffsetAndMetadata, TopicPartition

READER = MemberDescription("reader-1", "reader", "10.0.0.7", None, ("clicks",), (TopicPartition("clicks", 1),))


@pytest.fixture
def ctr(cluster):
    """The group `ctr`, at offset 1 in both partitions of `clicks`, which end with 3 and 1."""
    cluster.create("clicks", 2)
    for partition in (0, 0, 0, 1):
        cluster.append("clicks", b"x", partition=partition)
    cluster.committed["ctr"] = {TopicPartition("clicks", part): OffsetAndMetadata(1) for part in (0, 1)}
    return cluster


def test_lag_is_what_lies_between_the_committed_offset_and_the_end() -> None:
    one, two = TopicPartition("a", 0), TopicPartition("a", 1)
    rows = lags({two: OffsetAndMetadata(9), one: OffsetAndMetadata(4)}, {one: 10, two: 5})
    assert rows == [PartitionLag("a", 0, 4, 10), PartitionLag("a", 1, 9, 5)]
    assert [row.lag for row in rows] == [6, 0]


def test_lag_of_what_was_never_committed_or_is_gone_is_not_known() -> None:
    gone = TopicPartition("gone", 0)
    rows = lags({gone: OffsetAndMetadata(4)}, {TopicPartition("clicks", 1): 8}, [READER])
    assert rows == [PartitionLag("clicks", 1, None, 8, "reader-1"), PartitionLag("gone", 0, 4, None)]
    assert [row.lag for row in rows] == [None, None]
    assert total_lag(rows) == 0


def test_describe_shows_lag_per_partition_and_in_all(ctr, run) -> None:
    assert run("group", "describe", "ctr").out.splitlines() == [
        "group ctr: Empty, no members",
        "",
        "topic   partition  committed  end  lag",
        "clicks          0          1    3    2",
        "clicks          1          1    1    0",
        "total           -          -    -    2",
    ]
    assert json.loads(run("group", "describe", "ctr", "--json").out)["lag"] == 2


def test_describe_shows_members_and_what_they_read(ctr, run) -> None:
    ctr.members["ctr"] = [READER]
    assert run("group", "describe", "ctr").out.splitlines() == [
        "group ctr: Stable, 1 member, assigned by range",
        "",
        "member    host      partitions",
        "reader-1  10.0.0.7  clicks:1",
        "",
        "topic   partition  committed  end  lag  member",
        "clicks          0          1    3    2  -",
        "clicks          1          1    1    0  reader-1",
        "total           -          -    -    2  -",
    ]
    described = json.loads(run("group", "describe", "ctr", "--json").out)
    assert described["members"][0]["partitions"] == [["clicks", 1]]
    assert described["partitions"][1]["member"] == "reader-1"


def test_group_whose_topic_was_deleted_is_described(ctr, run) -> None:
    ctr.committed["ctr"][TopicPartition("gone", 0)] = OffsetAndMetadata(7)
    outcome = run("group", "describe", "ctr")
    assert outcome.code == 0, outcome.err
    assert "gone            0          7    -    -" in outcome.out


def test_offsets_are_printed_as_reset_takes_them(ctr, run) -> None:
    assert run("group", "describe", "ctr", "--csv").out == "topic,partition,offset\nclicks,0,1\nclicks,1,1\n"


def test_groups_are_listed(ctr, run) -> None:
    assert run("group", "list").out.splitlines() == [
        "group  state  type     protocol",
        "ctr    Empty  classic  consumer",
    ]
    assert json.loads(run("group", "list", "--json").out) == [
        {"group": "ctr", "state": "Empty", "protocol_type": "consumer", "type": "classic"}
    ]


def test_groups_are_listed_by_state_and_type(ctr, run) -> None:
    ctr.members["busy"] = [READER]

    def listed(*options: str) -> list[str]:
        return [each["group"] for each in json.loads(run("group", "list", "--json", *options).out)]

    assert listed("--state", "Stable") == ["busy"]
    assert listed("--state", "Dead, Empty") == listed("--state", "Dead", "--state", "Empty") == ["ctr"]
    assert listed("--type", "classic", "--state", "Empty,Stable") == ["busy", "ctr"]
    assert listed("--type", "share") == []
    outcome = run("group", "list", "--type", "share")
    assert (outcome.out, outcome.err) == ("", "there are no such groups\n")


def test_list_without_groups_says_how_to_make_one(cluster, run) -> None:
    outcome = run("group", "list")
    assert (outcome.code, outcome.out) == (0, "")
    assert "consume TOPIC -g GROUP" in outcome.err


def test_states_of_all_groups_are_one_table(ctr, run) -> None:
    ctr.members["busy"] = [READER]
    assert run("group", "describe", "--all-groups", "--state").out.splitlines() == [
        "group  state   members  assignor  coordinator",
        "busy   Stable        1  range     localhost:9092 (broker 0)",
        "ctr    Empty         0  -         localhost:9092 (broker 0)",
    ]


def test_members_of_groups_are_one_table(ctr, run) -> None:
    ctr.members["busy"] = [READER]
    outcome = run("group", "describe", "busy", "ctr", "--members")
    assert outcome.out.splitlines() == [
        "group  member    instance  client  host      subscribed  partitions",
        "busy   reader-1  -         reader  10.0.0.7  clicks      clicks:1",
    ]
    assert outcome.err == "group ctr has no members\n"


def test_offsets_of_several_groups(ctr, run) -> None:
    ctr.members["busy"] = [READER]
    assert run("group", "describe", "busy", "ctr", "--offsets").out.splitlines() == [
        "group busy: Stable, 1 member, assigned by range",
        "",
        "topic   partition  committed  end  lag  member",
        "clicks          1  -            1    -  reader-1",
        "total           -  -            -    0  -",
        "",
        "group ctr: Empty, no members",
        "",
        "topic   partition  committed  end  lag",
        "clicks          0          1    3    2",
        "clicks          1          1    1    0",
        "total           -          -    -    2",
    ]
    described = json.loads(run("group", "describe", "--all-groups", "--json").out)
    assert [(each["group"], each["coordinator"]["port"]) for each in described] == [("busy", 9092), ("ctr", 9092)]


@pytest.mark.parametrize(
    "arguments",
    [
        ["describe"],
        ["describe", "ctr", "--all-groups"],
        ["describe", "ctr", "--members", "--state"],
        ["describe", "ctr", "--json", "--csv"],
        ["describe", "--all-groups", "--csv"],
        ["delete"],
        ["delete", "ctr", "--all-groups"],
        ["delete-offsets", "ctr"],
        ["delete-offsets", "ctr", "-t", "clicks:x", "-y"],
    ],
)
def test_wrong_usage_is_code_2_and_one_line(ctr, run, arguments) -> None:
    outcome = run("group", *arguments)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert "ctr" in ctr.committed


def test_all_groups_without_members_are_deleted(ctr, run) -> None:
    ctr.members["busy"] = [READER]
    assert run("group", "delete", "--all-groups", "-y").out == "deleted group ctr\n"
    outcome = run("group", "delete", "--all-groups", "-y")
    assert (outcome.code, outcome.err) == (1, "barnabas: there are no groups without members\n")


def test_offsets_are_deleted(ctr, run) -> None:
    assert (
        run("group", "delete-offsets", "ctr", "-t", "clicks:1", "-y").out == "deleted the offset of ctr in clicks-1\n"
    )
    assert set(ctr.committed["ctr"]) == {TopicPartition("clicks", 0)}
    for missing in ("clicks:0,1", "views"):
        outcome = run("group", "delete-offsets", "ctr", "-t", missing, "-y")
        assert (outcome.code, outcome.err) == (
            1,
            f"barnabas: group 'ctr' has not committed in {missing}; see: barnabas group describe ctr\n",
        )
    run("group", "delete-offsets", "ctr", "-t", "clicks", "-y")
    assert ctr.committed["ctr"] == {}


@pytest.mark.parametrize("action", [["describe", "crt"], ["delete", "crt"], ["delete-offsets", "crt", "-t", "clicks"]])
def test_unknown_group_names_the_near_one(ctr, run, action) -> None:
    outcome = run("group", *action)
    assert (outcome.code, outcome.err) == (1, "barnabas: no group 'crt'; did you mean 'ctr'?\n")


def test_deleted_group_is_gone(ctr, run) -> None:
    assert run("group", "delete", "ctr", "--yes").out == "deleted group ctr\n"
    assert "ctr" not in ctr.committed


def test_group_with_members_is_not_deleted(ctr, run) -> None:
    ctr.members["ctr"] = [READER]
    outcome = run("group", "delete", "ctr", "-y")
    assert outcome.code == 1
    assert "stop them first" in outcome.err
