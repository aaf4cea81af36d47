"""Kafka's own `kafka-consumer-groups`, with all its options, of the last release of Kafka 3 and of the newest.

Neither of them meets the next-generation protocol here (KIP-848), which both ask for first: they fall back.
"""

from __future__ import annotations

import contextlib
import itertools
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import barnabas
from barnabas import Admin
from barnabas.cli.offset_reset import read_offsets
from tests.interop.java import maven
from tests.interop.java.tools import Said, Tools, kafka_tools
from tests.support.broker_process import BrokerProcess
from tests.support.reading import wait_until
from tests.support.xdist_groups import JAVA

pytestmark = [pytest.mark.xdist_group(JAVA), pytest.mark.timeout(maven.TEST_TIMEOUT_S)]

VERSIONS = ["3.9.1", "4.3.0"]
COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
GROUPS_COMMAND = "org.apache.kafka.tools.GroupsCommand"
CONFIG_COMMAND = "kafka.admin.ConfigCommand"
PARTITIONS, RECORDS = 3, 10
BEGIN_MS = 1_359_644_400_000
"""2013-01-31T15:00Z; a record a second from then on."""

Command = Callable[..., Said]
Offsets = dict[tuple[str, int], int]

_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=VERSIONS)
def tools(
    request: pytest.FixtureRequest, shared_broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tools]:
    """The tools of each version in turn."""
    with kafka_tools(request.param, tmp_path_factory.mktemp("kafka-tools") / "java.log") as tools:
        tools.run(COMMAND, "--bootstrap-server", shared_broker.bootstrap, "--list")  # says that there is no logger
        yield tools


@pytest.fixture
def command(tools: Tools, bootstrap: str) -> Command:
    """`kafka-consumer-groups` for the shared broker."""
    return lambda *arguments: tools.run(COMMAND, "--bootstrap-server", bootstrap, *arguments)


@pytest.fixture(scope="module")
def admin(shared_broker: BrokerProcess) -> Iterator[Admin]:
    with Admin(shared_broker.bootstrap) as admin:
        yield admin


def fill(bootstrap: str, admin: Admin, topic: str) -> str:
    """Make a topic with some records in each partition."""
    admin.create_topic(topic, partitions=PARTITIONS)
    with barnabas.Producer(bootstrap) as producer:
        for partition, number in itertools.product(range(PARTITIONS), range(RECORDS)):
            producer.send(topic, b"x", partition=partition, timestamp_ms=BEGIN_MS + 1000 * number)
    return topic


@pytest.fixture(scope="module")
def clicks(shared_broker: BrokerProcess, admin: Admin) -> str:
    """A topic with records."""
    return fill(shared_broker.bootstrap, admin, "kafka-consumer-groups-clicks")


@pytest.fixture(scope="module")
def views(admin: Admin) -> str:
    """A topic without records."""
    admin.create_topic("kafka-consumer-groups-views")
    return "kafka-consumer-groups-views"


@pytest.fixture
def group() -> str:
    """The name of a group that does not exist yet, and is no part of another's."""
    return f"kafka-consumer-group-{next(_numbers)}-"


@pytest.fixture
def empty_group(admin: Admin, clicks: str, views: str, group: str) -> str:
    """A group with offsets in two topics, and without members."""
    admin.set_group_offsets(group, {(clicks, 0): 3, (clicks, 1): 5, (views, 0): 0})
    return group


@contextlib.contextmanager
def member(bootstrap: str, admin: Admin, group: str, topic: str) -> Iterator[str]:
    """Have a group with one member; give its id."""
    with barnabas.Consumer(bootstrap, group=group, client_id="reader", enable_auto_commit=False) as consumer:
        consumer.subscribe(topic)

        def has_all() -> bool:
            consumer.poll(timeout_s=0.1)
            return len(consumer.assignment()) == PARTITIONS

        wait_until(has_all, "the only member has all partitions")
        (found,) = admin.describe_group(group).members
        yield found.member_id


@pytest.fixture
def active_group(bootstrap: str, admin: Admin, clicks: str, group: str) -> Iterator[str]:
    """A group with one member, and an offset."""
    name = f"{group}active"
    admin.set_group_offsets(name, {(clicks, 0): 4})
    with member(bootstrap, admin, name, clicks):
        yield name


def offsets_of(admin: Admin, group: str) -> Offsets:
    return {(topic, number): found.offset for (topic, number), found in admin.group_offsets(group).items()}


def of_group(said: Said, group: str) -> list[dict[str, str]]:
    assert said.code == 0, said.text
    return [row for row in said.tables() if row["GROUP"] == group]


def test_groups_are_listed_by_state_and_type(command: Command, empty_group: str, active_group: str) -> None:
    names = command("--list").text.split()
    assert {empty_group, active_group} <= set(names)

    def listed(group: str, *options: str) -> list[list[str]]:
        return [list(row.values())[1:] for row in of_group(command("--list", *options), group)]

    for group, state in ((empty_group, "Empty"), (active_group, "Stable")):
        assert listed(group, "--state") == [[state]]
        assert listed(group, "--type") == [["Classic"]]
        assert listed(group, "--type", "--state") == [["Classic", state]]
        assert bool(listed(group, "--state", "stable,preparingrebalance")) is (state == "Stable")
        assert listed(group, "--type", "classic", "--state", "Empty,Stable") == [["Classic", state]]
        assert listed(group, "--type", "consumer") == []


def test_offsets_and_lag_are_described(
    command: Command, empty_group: str, active_group: str, clicks: str, views: str
) -> None:
    said = command("--describe", "--group", empty_group)
    assert f"Consumer group '{empty_group}' has no active members." in said.text
    assert sorted(
        (row["TOPIC"], row["PARTITION"], row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"], row["CONSUMER-ID"])
        for row in of_group(said, empty_group)
    ) == [(clicks, "0", "3", "10", "7", "-"), (clicks, "1", "5", "10", "5", "-"), (views, "0", "0", "0", "0", "-")]
    for options in (("--offsets",), ("--offsets", "--verbose"), ()):
        rows = of_group(command("--describe", "--group", active_group, *options), active_group)
        assert sorted((row["PARTITION"], row["CURRENT-OFFSET"], row["LAG"]) for row in rows) == [
            ("0", "4", "6"),
            ("1", "-", "-"),
            ("2", "-", "-"),
        ]
        assert {(row["HOST"], row["CLIENT-ID"]) for row in rows} == {("/127.0.0.1", "reader")}


def test_members_are_described(command: Command, admin: Admin, empty_group: str, active_group: str) -> None:
    (known,) = admin.describe_group(active_group).members
    (row,) = of_group(command("--describe", "--group", active_group, "--members"), active_group)
    assert (row["CONSUMER-ID"], row["HOST"], row["CLIENT-ID"], row["#PARTITIONS"]) == (
        known.member_id,
        "/127.0.0.1",
        "reader",
        "3",
    )
    (row,) = of_group(command("--describe", "--group", active_group, "--members", "--verbose"), active_group)
    assert "0,1,2" in (row.get("ASSIGNMENT") or row["CURRENT-ASSIGNMENT"])
    said = command("--describe", "--group", empty_group, "--members")
    assert (of_group(said, empty_group), "has no active members" in said.text) == ([], True)


def test_state_is_described(command: Command, bootstrap: str, active_group: str) -> None:
    for options in ((), ("--verbose",)):
        (row,) = of_group(command("--describe", "--group", active_group, "--state", *options), active_group)
        assert row["ASSIGNMENT-STRATEGY"] == "range"
        assert (row["STATE"], row["#MEMBERS"], row["COORDINATOR"]) == ("Stable", "1", bootstrap)


@pytest.mark.parametrize("what", ["--offsets", "--members", "--state"])
def test_a_group_that_does_not_exist_is_told(command: Command, group: str, what: str) -> None:
    said = command("--describe", "--group", group, what)
    assert "does not exist" in said.text or f"GroupIdNotFoundException: group '{group}' does not exist" in said.text
    assert said.tables() == []


RESETS: list[tuple[list[str], list[int]]] = [
    (["--to-earliest"], [0, 0, 0]),
    (["--to-latest"], [10, 10, 10]),
    (["--to-offset", "7"], [7, 7, 7]),
    (["--to-offset", "99"], [10, 10, 10]),
    (["--to-datetime", "2013-01-31T15:00:04.000"], [4, 4, 4]),
    (["--to-datetime", "2013-01-31T16:00:04.000+01:00"], [4, 4, 4]),
    (["--to-datetime", "2014-01-01T00:00:00.000"], [10, 10, 10]),
    (["--by-duration", "P1D"], [10, 10, 10]),
    (["--by-duration", "P20000D"], [0, 0, 0]),
    (["--to-current"], [3, 5, 10]),
]


@pytest.mark.parametrize(("target", "expected"), RESETS, ids=lambda value: " ".join(map(str, value)))
def test_offsets_are_reset(
    command: Command, admin: Admin, empty_group: str, clicks: str, target: list[str], expected: list[int]
) -> None:
    before = offsets_of(admin, empty_group)
    of_clicks = {(clicks, partition): offset for partition, offset in enumerate(expected)}
    for options in (["--dry-run"], ["--execute"]):
        said = command("--reset-offsets", "--group", empty_group, "--topic", clicks, *target, *options)
        planned = {(t, int(p)): int(offset) for _, t, p, offset in said.words_after("NEW-OFFSET", 4)}
        assert planned == of_clicks
        assert offsets_of(admin, empty_group) == (before if options == ["--dry-run"] else before | of_clicks)


@pytest.mark.parametrize(("by", "expected"), [(2, [5, 7]), (-4, [0, 1]), (100, [10, 10])])
def test_offsets_are_shifted(
    command: Command, admin: Admin, empty_group: str, clicks: str, by: int, expected: list[int]
) -> None:
    command("--reset-offsets", "--group", empty_group, "--topic", f"{clicks}:0,1", "--shift-by", by, "--execute")
    after = offsets_of(admin, empty_group)
    assert [after[clicks, partition] for partition in (0, 1)] == expected


def test_some_partitions_or_all_topics_are_reset(
    command: Command, admin: Admin, empty_group: str, clicks: str, views: str
) -> None:
    reset = ("--reset-offsets", "--group", empty_group, "--execute")
    command(*reset, "--topic", f"{clicks}:0,2", "--topic", views, "--to-latest")
    assert offsets_of(admin, empty_group) == {(clicks, 0): 10, (clicks, 1): 5, (clicks, 2): 10, (views, 0): 0}
    command(*reset, "--all-topics", "--to-offset", "1")
    assert offsets_of(admin, empty_group) == {(clicks, 0): 1, (clicks, 1): 1, (clicks, 2): 1, (views, 0): 0}


def test_a_plan_is_exported_and_carried_out(
    command: Command, admin: Admin, empty_group: str, clicks: str, views: str, tmp_path: Path
) -> None:
    reset = ("--reset-offsets", "--group", empty_group)
    exported = command(*reset, "--topic", f"{clicks}:0,2", "--to-offset", "2", "--export", "--dry-run").text
    assert read_offsets(exported.splitlines(), "what Kafka exports") == {(clicks, 0): 2, (clicks, 2): 2}
    file = tmp_path / "plan.csv"
    file.write_text(exported.strip(), encoding="utf-8")
    command(*reset, "--from-file", file, "--dry-run")
    assert offsets_of(admin, empty_group) == {(clicks, 0): 3, (clicks, 1): 5, (views, 0): 0}
    command(*reset, "--from-file", file, "--execute")
    assert offsets_of(admin, empty_group) == {(clicks, 0): 2, (clicks, 1): 5, (clicks, 2): 2, (views, 0): 0}


def test_a_reset_makes_a_group(command: Command, admin: Admin, group: str, clicks: str) -> None:
    command("--reset-offsets", "--group", group, "--topic", clicks, "--to-offset", "2", "--execute")
    assert offsets_of(admin, group) == dict.fromkeys(((clicks, partition) for partition in range(PARTITIONS)), 2)


def test_a_group_with_members_is_neither_reset_nor_deleted(
    command: Command, admin: Admin, active_group: str, clicks: str
) -> None:
    said = command("--reset-offsets", "--group", active_group, "--topic", clicks, "--to-latest", "--execute")
    assert f"the group '{active_group}' is inactive, but the current state is Stable" in said.text
    said = command("--delete-offsets", "--group", active_group, "--topic", f"{clicks}:0")
    assert "GroupSubscribedToTopicException" in said.text
    said = command("--delete", "--group", active_group)
    assert "GroupNotEmptyException" in said.text
    assert offsets_of(admin, active_group) == {(clicks, 0): 4}
    assert admin.describe_group(active_group).state == "Stable"


def test_offsets_are_deleted(
    command: Command, admin: Admin, empty_group: str, group: str, clicks: str, views: str
) -> None:
    said = command("--delete-offsets", "--group", empty_group, "--topic", f"{clicks}:1", "--topic", views)
    assert (clicks, "1", "Successful") in said.words_after("STATUS", 3)
    assert offsets_of(admin, empty_group) == {(clicks, 0): 3}
    said = command("--delete-offsets", "--group", empty_group, "--topic", clicks)
    assert {status for _, _, status in said.words_after("STATUS", 3)} == {"Successful"}
    assert offsets_of(admin, empty_group) == {}
    said = command("--delete-offsets", "--group", f"{group}-not", "--topic", clicks)
    assert "GroupIdNotFoundException" in said.text
    said = command("--delete-offsets", "--group", empty_group, "--topic", "nowhere")
    assert "UnknownTopicOrPartitionException" in said.text or "GroupIdNotFoundException" in said.text


def test_groups_are_deleted(command: Command, admin: Admin, empty_group: str, clicks: str) -> None:
    other = f"{empty_group}other"
    admin.set_group_offsets(other, {(clicks, 0): 1})
    said = command("--delete", "--group", empty_group, "--group", other)
    assert "was successful" in said.text
    assert {empty_group, other}.isdisjoint(each.group for each in admin.list_groups())
    said = command("--delete", "--group", empty_group)
    assert "GroupIdNotFoundException" in said.text


def test_all_groups_at_once(tools: Tools, broker: BrokerProcess) -> None:
    def command(*arguments: object) -> Said:
        return tools.run(COMMAND, "--bootstrap-server", broker.bootstrap, *arguments)

    with Admin(broker.bootstrap) as admin:
        fill(broker.bootstrap, admin, "clicks")
        for group in ("a", "b"):
            admin.set_group_offsets(group, {("clicks", 0): 3})
        assert {row["GROUP"] for row in command("--describe", "--all-groups").tables()} == {"a", "b"}
        states = command("--describe", "--all-groups", "--state").text
        assert states.count("Empty") == 2
        assert command("--describe", "--all-groups", "--members").text.count("has no active members") == 2
        exported = command("--reset-offsets", "--all-groups", "--all-topics", "--to-latest", "--export", "--dry-run")
        assert sorted(exported.text.split()) == ["a,clicks,0,10", "b,clicks,0,10"]
        command("--reset-offsets", "--all-groups", "--all-topics", "--to-latest", "--execute")
        assert [offsets_of(admin, group) for group in ("a", "b")] == [{("clicks", 0): 10}] * 2
        with member(broker.bootstrap, admin, "a", "clicks"):
            said = command("--delete", "--all-groups")
            assert "Group 'a' could not be deleted" in said.text
            assert [each.group for each in admin.list_groups()] == ["a"]
        assert "('a') was successful" in command("--delete", "--all-groups").text
        assert admin.list_groups() == []


def test_the_clients_settings_come_from_a_file(command: Command, empty_group: str, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("client.id=from-a-file\nrequest.timeout.ms=60000\n", encoding="utf-8")
    assert empty_group in command("--list", "--command-config", file, "--timeout", "60000").text.split()


def test_a_broker_that_does_not_answer_is_not_waited_for_longer_than_asked(tools: Tools) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        said = tools.run(
            COMMAND, "--bootstrap-server", f"127.0.0.1:{silent.getsockname()[1]}", "--list", "--timeout", 500
        )
    assert "TimeoutException" in said.text


def test_a_pattern_is_checked(tools: Tools, command: Command) -> None:
    if tools.version.startswith("3."):
        pytest.skip("Kafka 3 has no --validate-regex")
    assert "`a.*` is valid" in command("--validate-regex", "a.*").text
    assert "is valid" not in command("--validate-regex", "a(").text


def test_kafka_groups_lists_groups_of_every_kind(
    tools: Tools, bootstrap: str, empty_group: str, active_group: str
) -> None:
    if tools.version.startswith("3."):
        pytest.skip("Kafka 3 has no kafka-groups")

    def listed(*options: str) -> dict[str, str]:
        said = tools.run(GROUPS_COMMAND, "--bootstrap-server", bootstrap, "--list", *options)
        assert said.code == 0, said.text
        lines = [line.split() for line in said.text.splitlines()]
        return {words[0]: " ".join(words[1:]) for words in lines if words and words[0] in {empty_group, active_group}}

    assert listed() == {empty_group: "Classic", active_group: "Classic consumer"}
    assert listed("--group-type", "classic", "--protocol", "consumer") == {active_group: "Classic consumer"}
    assert listed("--group-type", "consumer") == listed("--share") == {}


def test_kafka_configs_sets_what_a_group_has(tools: Tools, bootstrap: str, group: str) -> None:
    if tools.version.startswith("3."):
        pytest.skip("groups have no settings in Kafka 3")

    def configs(*options: str) -> Said:
        said = tools.run(CONFIG_COMMAND, "--bootstrap-server", bootstrap, "--group", group, *options)
        assert said.code == 0, said.text
        return said

    configs("--alter", "--add-config", "consumer.session.timeout.ms=50000,share.auto.offset.reset=earliest")
    described = configs("--describe").text
    assert "consumer.session.timeout.ms=50000" in described
    assert "share.auto.offset.reset=earliest" in described
    configs("--alter", "--delete-config", "consumer.session.timeout.ms,share.auto.offset.reset")
    assert "consumer.session.timeout.ms=50000" not in configs("--describe").text
    said = tools.run(
        CONFIG_COMMAND, "--bootstrap-server", bootstrap, "--group", group, "--alter", "--add-config", "retention.ms=1"
    )
    assert (said.code, "unknown group setting 'retention.ms'" in said.text) == (1, True)


@pytest.mark.parametrize("kind", ["consumer.group.ShareGroupCommand", "streams.StreamsGroupCommand"])
def test_groups_of_kinds_that_are_not_served_are_none(
    tools: Tools, bootstrap: str, empty_group: str, kind: str
) -> None:
    if tools.version.startswith("3."):
        pytest.skip("Kafka 3 has no groups of this kind")
    kind = f"org.apache.kafka.tools.{kind}"
    listed = tools.run(kind, "--bootstrap-server", bootstrap, "--list")
    assert (listed.code, empty_group in listed.text) == (0, False), listed.text
    described = tools.run(kind, "--bootstrap-server", bootstrap, "--describe", "--group", empty_group)
    assert "UnsupportedVersionException" in described.text
