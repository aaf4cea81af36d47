"""Change notifications between brokers: the nodes below `/brokers/changes`, and the JSON in them.

A broker creates a notification in the same `multi` as the change, so each change has a notification. Notifications are
sequential nodes, so their numbers have the order of the changes. A notification of changed partition states contains
the states, so brokers need only a few reads for 2,000 new states. A broker sets one watch on `/brokers/changes`, not
one for each partition. A watch on each partition's node would have to be set again after each change, because
ZooKeeper's watches fire once.

Notifications have consecutive numbers. If a broker finds a gap in the numbers, it missed notifications or another
program created a node. The broker then reads the whole state again. Names that no broker creates are ignored.
ZooKeeper's numbers are signed 32-bit integers: the number after 2147483647 is -2147483648.
"""

from __future__ import annotations

import base64
import itertools
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from barnabas.coordination import paths
from barnabas.coordination.fields import (
    INT32_MAX,
    BadValueError,
    DamagedNodeError,
    Fields,
    broker_ids,
    is_topic_name,
    shown,
    texts,
    topic_names,
    whole_number,
)
from barnabas.coordination.metadata_store import Create, Delete, MetadataStore, NoNodeError, NotEmptyError
from barnabas.coordination.values import PartitionState, checked_state, decode_topic_id, encode_remnants
from barnabas.model import TopicPartition

KEPT_MS = 300_000
"""The minimum age of a notification that may be purged: several times the longest session timeout."""

_DELETED_AT_ONCE = 500

_NAME = re.compile("c-(-?[0-9]{9,10})")
_CIRCLE = 2**32


@dataclass(frozen=True, slots=True)
class StateChange:
    """The new state of a partition. `version` is the new version of the partition's state node."""

    where: TopicPartition
    topic_id: bytes
    state: PartitionState
    version: int


@dataclass(frozen=True, slots=True)
class ChangeNotification:
    """The changes of one notification.

    :param topics: topics that were created, deleted, enlarged or configured.
    :param brokers: brokers whose registration changed, for example at the start of a controlled shutdown.
    :param settings: the paths of changed nodes with settings of brokers and groups.
    """

    topics: tuple[str, ...] = ()
    states: tuple[StateChange, ...] = ()
    brokers: tuple[int, ...] = ()
    settings: tuple[str, ...] = ()


def notification_node(change: ChangeNotification) -> Create:
    """Return the operation that creates a notification node. It belongs to the `multi` that makes the change."""
    return Create(paths.CHANGE, encode_change(change), sequential=True)


def encode_change(change: ChangeNotification) -> bytes:
    """Return the data of a notification node such as `/brokers/changes/c-0000000042`."""
    fields: dict[str, Any] = {"version": 1}
    if change.topics:
        fields["topics"] = change.topics
    if change.states:
        fields["states"] = _encode_states(change.states)
    if change.brokers:
        fields["brokers"] = change.brokers
    if change.settings:
        fields["settings"] = change.settings
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_change(path: str, data: bytes) -> ChangeNotification:
    """Return the changes in a notification node.

    :raises DamagedNodeError: the data is not a valid notification.
    """
    fields = Fields(path, data)
    try:
        return ChangeNotification(
            topics=topic_names(fields.value("topics", [])),
            states=tuple(_decode_states(fields.mapping("states", {}))),
            brokers=broker_ids(fields.value("brokers", [])),
            settings=texts(fields.value("settings", []), "paths"),
        )
    except BadValueError as error:
        raise DamagedNodeError(path, str(error)) from error


def numbers_of(names: Iterable[str]) -> list[int]:
    """Return the notification numbers in node names; ignore names that no broker creates.

    The numbers are in the order of creation: ascending, except after an overflow of the 32-bit number.
    """
    numbers = sorted(number for name in names if (number := _number_of(name)) is not None)
    # The 32-bit numbers form a circle. The oldest number is the first one after the widest gap.
    gaps = [(number - before) % _CIRCLE for before, number in zip(numbers[-1:] + numbers, numbers, strict=False)]
    first = gaps.index(max(gaps)) if gaps else 0
    return numbers[first:] + numbers[:first]


def _number_of(name: str) -> int | None:
    number = int(match[1]) if (match := _NAME.fullmatch(name)) else None
    return number if number is not None and -_CIRCLE // 2 <= number < _CIRCLE // 2 and name == _name(number) else None


def _name(number: int) -> str:
    return f"c-{number:010d}"


def before(number: int) -> int:
    """Return the number that precedes another one in the 32-bit sequence.

    >>> before(7), before(-(2**31))
    (6, 2147483647)
    """
    return (number - 1 + _CIRCLE // 2) % _CIRCLE - _CIRCLE // 2


def unseen_of(numbers: list[int], seen: Collection[int]) -> list[int] | None:
    """Return the numbers of unseen notifications.

    Return None if unseen notifications were purged before the broker read them.

    :param numbers: the numbers of all existing notifications.
    :param seen: the numbers of the notifications that the broker has processed.
    """
    unseen = [number for number in numbers if number not in seen]
    if unseen and before(unseen[0]) not in seen and not (not seen and unseen[0] == 0):
        return None
    if any(before(number) != last for last, number in itertools.pairwise(unseen)):
        return None
    return unseen


def path_of(number: int) -> str:
    """Return the path of a notification node."""
    return f"{paths.CHANGES}/{_name(number)}"


def purge_changes(tree: MetadataStore) -> int:
    """Delete the notifications that all brokers have had time to read; return how many were deleted.

    The age is relative to the newest notification, so clocks of different machines are not compared. Another program
    may have created a node with any number. So the newest notification may be the last one of any run of consecutive
    numbers.
    """
    numbers = numbers_of(tree.children(paths.CHANGES))
    there = set(numbers)
    ends = there - {before(number) for number in numbers}
    newest_ms = max((_created_ms(tree, number) or 0 for number in ends), default=0)
    old: list[int] = []
    is_young = False
    for number in numbers:
        if is_young and before(number) in there:
            continue
        created_ms = _created_ms(tree, number)
        is_young = created_ms is not None and created_ms > newest_ms - KEPT_MS
        if not is_young and created_ms is not None:
            old.append(number)
    return sum(_delete(tree, old[start : start + _DELETED_AT_ONCE]) for start in range(0, len(old), _DELETED_AT_ONCE))


def _created_ms(tree: MetadataStore, number: int) -> int | None:
    stat = tree.exists(path_of(number))
    return None if stat is None else stat.created_ms


def _delete(tree: MetadataStore, numbers: list[int]) -> int:
    try:
        tree.multi([Delete(path_of(number)) for number in numbers])
    except NoNodeError:
        return 0  # Another broker has deleted some of these notifications.
    except NotEmptyError:
        return sum(_delete_alone(tree, number) for number in numbers)
    return len(numbers)


def _delete_alone(tree: MetadataStore, number: int) -> int:
    """Delete one notification; return 0 if another program created children below it."""
    try:
        tree.delete(path_of(number))
    except (NoNodeError, NotEmptyError):
        return 0
    return 1


def _encode_states(changes: Iterable[StateChange]) -> Mapping[str, Any]:
    """Return the states by topic: the topic id, and a list for each partition.

    The list contains the partition, leader, leader epoch, ISR and node version. If the ISR has former members, they
    follow.
    """
    topics: dict[str, Any] = {}
    for change in changes:
        topic, number = change.where
        entry = topics.setdefault(topic, {"id": base64.urlsafe_b64encode(change.topic_id).decode(), "partitions": []})
        state = change.state
        partition = [number, state.leader, state.leader_epoch, state.isr, change.version]
        entry["partitions"].append([*partition, encode_remnants(state.lost_memory)] if state.lost_memory else partition)
        if state.is_doubted:
            entry.setdefault("doubted", []).append(number)
    return topics


def _decode_states(topics: Mapping[str, Any]) -> Iterable[StateChange]:
    """Yield the states in a value from `_encode_states`.

    :raises BadValueError: the value has another form.
    """
    for topic, entry in topics.items():
        if not is_topic_name(topic):
            raise BadValueError(f"{shown(topic)} is not a topic name")
        if not isinstance(entry, dict) or not isinstance(entry.get("partitions"), list):
            raise BadValueError(f"topic {topic}: {shown(entry)} does not contain states")
        topic_id = decode_topic_id(entry.get("id"))
        doubted = entry.get("doubted", [])
        if not isinstance(doubted, list):
            raise BadValueError(f"topic {topic}: {shown(doubted)} is not a list of partitions")
        doubted = {whole_number(each, 0, INT32_MAX) for each in doubted}
        for each in entry["partitions"]:
            if not isinstance(each, list) or not 5 <= len(each) <= 6:
                raise BadValueError(f"topic {topic}: {shown(each)} is not a partition state")
            number, leader, epoch, isr, version, *lost = each
            where = TopicPartition(topic, whole_number(number, 0, INT32_MAX))
            state = replace(checked_state(leader, epoch, isr, *lost), is_doubted=where.partition in doubted)
            yield StateChange(where, topic_id, state, whole_number(version, 0, INT32_MAX))
