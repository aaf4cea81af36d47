"""What brokers tell one another that they changed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.coordination import change_notifications, paths, topic_metadata_store
from barnabas.coordination.change_notifications import (
    ChangeNotification,
    StateChange,
    decode_change,
    encode_change,
    notification_node,
)
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.fields import DamagedNodeError
from barnabas.coordination.metadata_store import MetadataStore
from barnabas.coordination.values import PartitionState, Remnant
from barnabas.model import TopicPartition

TOPIC_ID = bytes(range(240, 256))


def state(topic: str, number: int) -> StateChange:
    return StateChange(TopicPartition(topic, number), TOPIC_ID, PartitionState(2, 7, (2, 3)), 9)


LOST = PartitionState(-1, 8, (), (Remnant(2, 7, 50), Remnant(3)))
DOUBTED = replace(LOST, is_doubted=True)


def doubted(topic: str, number: int) -> StateChange:
    return StateChange(TopicPartition(topic, number), TOPIC_ID, DOUBTED, 10)


@pytest.mark.parametrize(
    "change",
    [
        ChangeNotification(),
        ChangeNotification(states=(StateChange(TopicPartition("clicks", 1), TOPIC_ID, LOST, 10), state("clicks", 0))),
        ChangeNotification(states=tuple(doubted("clicks", number) for number in (3, 1))),
        ChangeNotification(states=(doubted("clicks", 1), state("clicks", 0))),
        ChangeNotification(topics=("clicks", "views")),
        ChangeNotification(states=(state("clicks", 0), state("clicks", 4), state("views", 1))),
        ChangeNotification(brokers=(1, 2), settings=("/config/brokers/1",)),
    ],
)
def test_change_is_read_as_it_was_told(change: ChangeNotification) -> None:
    assert decode_change("/brokers/changes/c-0000000001", encode_change(change)) == change


def test_fields_that_are_not_known_are_passed_over() -> None:
    assert decode_change("/c", b'{"version":2,"brokers":[1],"more":{}}') == ChangeNotification(brokers=(1,))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff",
        b"[]",
        b'"text"',
        b"null",
        b'{"topics":7}',
        b'{"brokers":["x"]}',
        b'{"brokers":[null]}',
        b'{"states":[]}',
        b'{"states":{"clicks":{}}}',
        b'{"states":{"clicks":{"id":7,"partitions":[]}}}',
        b'{"states":{"clicks":{"id":"A","partitions":[]}}}',
        b'{"states":{"clicks":{"id":"AA==","partitions":[[0,1,2]]}}}',
        b'{"states":{"clicks":{"id":"AA==","partitions":[[0,1,2,3,4]]}}}',
        b'{"states":{"clicks":{"id":"AA==","partitions":[[-1,1,2,[],4]]}}}',
        b'{"states":{"clicks":{"id":"AA==","partitions":[[0,1,2,[],4,[[1,2]]]]}}}',
        b'{"states":{"clicks":{"id":"AAECAwQFBgcICQoLDA0ODw==","partitions":[[0,1,1,[1],4]],"doubted":7}}}',
        b'{"states":{"clicks":{"id":"AAECAwQFBgcICQoLDA0ODw==","partitions":[[0,1,1,[1],4]],"doubted":[[0]]}}}',
        b'{"states":{"clicks":{"id":"AA==","partitions":[[0,1,2,[],4,[[1,2,"x"]]]]}}}',
        b'{"brokers":[1e999]}',
        b'{"brokers":[2147483648]}',
        b'{"brokers":[' + b"9" * 10_000 + b"]}",
        b'{"topics":["\\ud800"]}',
        b'{"topics":["no name"]}',
        b'{"settings":["' + b"x" * 40_000 + b'"]}',
        b'{"states":{"clicks":{"id":"AAECAwQFBgcICQoLDA0ODw==","partitions":[[0,1,1099511627776,[1],4]]}}}',
        b'{"states":{"clicks":{"id":"AAECAwQFBgcICQoLDA0ODw==","partitions":[[0,2,1,[1],4]]}}}',
        b'{"states":{"clicks":{"id":"AAECAwQFBgcICQoLDA0ODw==","partitions":[[0,1,1,[1],-4]]}}}',
        b'{"states":{"../x":{"id":"AAECAwQFBgcICQoLDA0ODw==","partitions":[[0,1,1,[1],4]]}}}',
        b"[" * 100_000,
    ],
)
def test_damaged_change_is_named(data: bytes) -> None:
    with pytest.raises(DamagedNodeError, match="/brokers/changes/c-0000000001"):
        decode_change("/brokers/changes/c-0000000001", data)


def test_numbers_are_those_of_changes_in_order() -> None:
    assert change_notifications.numbers_of(["c-0000000012", "c-0000000003", "other", "c-", "x-1a", "c-\u0661"]) == [
        3,
        12,
    ]


@pytest.mark.parametrize(
    "name",
    [
        "c-9999999999",
        "backup-20261127",
        "c-12",
        "c-00000000012",
        "c-+000000012",
        "c- 000000012",
        "d-0000000012",
        "c-0000000012 ",
        "c-0000000012.bak",
        "c--00000012",
        "c--9999999999",
        "c-" + "9" * 5_000,
        "c-\u0660000000012",
    ],
)
def test_names_that_brokers_do_not_create_are_no_changes(name: str) -> None:
    assert change_notifications.numbers_of([name, "c-0000000003"]) == [3]


def test_numbers_go_on_after_their_overflow() -> None:
    names = ["c--2147483648", "c-2147483646", "c--2147483647", "c-2147483647"]
    assert change_notifications.numbers_of(names) == [2147483646, 2147483647, -2147483648, -2147483647]
    assert change_notifications.path_of(-2147483648) == "/brokers/changes/c--2147483648"
    assert change_notifications.numbers_of(["c--000000001", "c-0000000000"]) == [-1, 0]


@pytest.mark.parametrize(
    ("numbers", "seen", "unseen"),
    [
        ([1, 2, 3], {1, 2}, [3]),
        ([1, 2, 3, 4], {2}, None),
        ([3, 4], {1, 2}, [3, 4]),
        ([1, 2], {1, 2}, []),
        ([1, 2, 5], {1, 2}, None),
        ([1, 2, 2147483600], {1, 2}, None),
        ([1, 2, 3, 2147483600], {1, 2, 2147483600}, [3]),
        ([2147483647, -2147483648], {2147483647}, [-2147483648]),
        ([0], set(), [0]),
        ([7], set(), None),
    ],
)
def test_change_is_read_alone_only_where_the_one_before_it_was_seen(
    numbers: list[int], seen: set[int], unseen: list[int] | None
) -> None:
    assert change_notifications.unseen_of(numbers, seen) == unseen


def test_nodes_of_strangers_do_not_keep_old_changes_from_being_cleared_away(tmp_path: Path) -> None:
    clock = ManualClock()
    tree = EmbeddedMetadataStore(tmp_path / "tree.sqlite", clock)
    topic_metadata_store.prepare(tree, "castle")
    for _ in range(3):
        tree.multi([notification_node(ChangeNotification())])
    first, kept, last = change_notifications.numbers_of(tree.children(paths.CHANGES))
    tree.create(f"{change_notifications.path_of(kept)}/stranger")
    tree.create(change_notifications.path_of(2147483600))
    clock.advance(2 * change_notifications.KEPT_MS / 1000)
    tree.multi([notification_node(ChangeNotification())])
    assert change_notifications.purge_changes(tree) == 3
    left = change_notifications.numbers_of(tree.children(paths.CHANGES))
    assert kept in left
    assert {first, last, 2147483600}.isdisjoint(left)
    tree.close()


def test_nodes_have_numbers_without_gaps(tree: MetadataStore) -> None:
    topic_metadata_store.prepare(tree, "castle")
    topic_metadata_store.create_topic(tree, "clicks", bytes(16), [[1]])
    tree.multi([notification_node(ChangeNotification(topics=("clicks",)))])
    names = tree.children(paths.CHANGES)
    numbers = change_notifications.numbers_of(names)
    assert numbers == [numbers[0], numbers[0] + 1]
    assert [change_notifications.path_of(number).rpartition("/")[2] for number in numbers] == sorted(names)


def test_old_changes_are_cleared_away_and_the_newest_stays(tmp_path: Path) -> None:
    clock = ManualClock()
    tree = EmbeddedMetadataStore(tmp_path / "tree.sqlite", clock)
    topic_metadata_store.prepare(tree, "castle")
    assert change_notifications.purge_changes(tree) == 0
    for _ in range(3):
        tree.multi([notification_node(ChangeNotification())])
    clock.advance(change_notifications.KEPT_MS / 1000 - 1)
    tree.multi([notification_node(ChangeNotification())])
    assert change_notifications.purge_changes(tree) == 0
    clock.advance(2)
    tree.multi([notification_node(ChangeNotification())])
    assert change_notifications.purge_changes(tree) == 3
    clock.advance(change_notifications.KEPT_MS)
    assert change_notifications.purge_changes(tree) == 0
    assert len(tree.children(paths.CHANGES)) == 2
    # The numbers go on.
    tree.multi([notification_node(ChangeNotification())])
    first, _, last = change_notifications.numbers_of(tree.children(paths.CHANGES))
    assert last - first == 2
    tree.close()
