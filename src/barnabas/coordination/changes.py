"""What a broker tells the others that it changed: the nodes below `/brokers/changes`, and the JSON in them.

A node is created in the same `multi` as the change itself, so that none is missed; it is sequential, so that the order
is that of the changes. Of partition states it tells all there is to know, so that 2,000 of them are learned with a few
reads. A broker watches this one folder, however many partitions there are (ZooKeeper's watches fire once, and have to
be set for each node).

Numbers have no gaps. Who finds one was away for too long, and reads everything anew.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.coordination import paths
from barnabas.coordination.tree import Create, Delete, NodeError, NoNodeError, Tree
from barnabas.coordination.values import BadNodeError, PartitionState, decode_remnants, encode_remnants
from barnabas.model import TopicPartition

KEPT_MS = 300_000
"""So long a change stays, by the tree's own clock: several times as long as any session that does not hear of it."""

_DELETED_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class StateChange:
    """A partition's new state; `version` is that of its node from now on."""

    where: TopicPartition
    topic_id: bytes
    state: PartitionState
    version: int


@dataclass(frozen=True, slots=True)
class Change:
    """What was changed.

    :param topics: were created, deleted, grown or configured.
    :param brokers: have something else to tell of themselves.
    :param settings: paths of the nodes with settings of brokers and groups.
    """

    topics: tuple[str, ...] = ()
    states: tuple[StateChange, ...] = ()
    brokers: tuple[int, ...] = ()
    settings: tuple[str, ...] = ()


def tell(change: Change) -> Create:
    """Return the operation that tells the others, for the `multi` that makes the change."""
    return Create(paths.CHANGE, encode_change(change), sequential=True)


def encode_change(change: Change) -> bytes:
    """Return what `/brokers/changes/c-0000000042` holds."""
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


def decode_change(path: str, data: bytes) -> Change:
    """Read what a change's node holds.

    :raises BadNodeError: it cannot be understood.
    """
    try:
        fields = json.loads(data)
        return Change(
            topics=tuple(map(str, fields.get("topics", ()))),
            states=tuple(_decode_states(fields.get("states", {}))),
            brokers=tuple(map(int, fields.get("brokers", ()))),
            settings=tuple(map(str, fields.get("settings", ()))),
        )
    except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise BadNodeError(path, repr(error)) from error


def numbers_of(names: Iterable[str]) -> list[int]:
    """Return the numbers of changes, ascending, from the names of their nodes."""
    ends = (name.rpartition("-")[2] for name in names)
    return sorted(int(end) for end in ends if end.isascii() and end.isdigit())


def path_of(number: int) -> str:
    """Return the path of a change's node."""
    return f"{paths.CHANGE}{number:010d}"


def purge_changes(tree: Tree) -> int:
    """Delete changes that everybody has had time to see; return how many.

    Their age is told by the newest of them, so that no two clocks are compared.
    """
    numbers = numbers_of(tree.children(paths.CHANGES))
    newest = tree.exists(path_of(numbers[-1])) if numbers else None
    if newest is None:
        return 0
    old = []
    for number in numbers[:-1]:
        stat = tree.exists(path_of(number))
        if stat is not None and stat.created_ms > newest.created_ms - KEPT_MS:
            break
        old.append(number)
    for start in range(0, len(old), _DELETED_AT_ONCE):
        _delete(tree, old[start : start + _DELETED_AT_ONCE])
    return len(old)


def _delete(tree: Tree, numbers: list[int]) -> None:
    try:
        tree.multi([Delete(path_of(number)) for number in numbers])
    except NoNodeError:
        return  # another broker is at it
    except NodeError as error:
        raise BadNodeError(error.path, "it has children") from error


def _encode_states(changes: Iterable[StateChange]) -> Mapping[str, Any]:
    """By topic: its id, and of each partition its number, leader, epoch, replicas in sync, and the node's version; and,
    where some have lost memory, those."""
    topics: dict[str, Any] = {}
    for change in changes:
        topic, number = change.where
        entry = topics.setdefault(topic, {"id": base64.urlsafe_b64encode(change.topic_id).decode(), "partitions": []})
        state = change.state
        partition = [number, state.leader, state.leader_epoch, state.isr, change.version]
        entry["partitions"].append([*partition, encode_remnants(state.lost_memory)] if state.lost_memory else partition)
    return topics


def _decode_states(topics: Mapping[str, Any]) -> Iterable[StateChange]:
    for topic, entry in topics.items():
        topic_id = base64.urlsafe_b64decode(entry["id"])
        for number, leader, epoch, isr, version, *lost in entry["partitions"]:
            if int(number) < 0:
                raise ValueError(f"partition {number} of {topic}")
            remnants = decode_remnants(lost[0]) if lost else ()
            state = PartitionState(int(leader), int(epoch), tuple(map(int, isr)), remnants)
            yield StateChange(TopicPartition(topic, int(number)), topic_id, state, int(version))
