"""How the tree has it that a partition's replicas are changed (KIP-455): begun by who serves the admin request, and
ended by the partition's leader, each in one `multi`.

Who serves the request writes the topic's node, and there adds replicas only: those that are to go stay until the end,
and so do those that were on their way and are not wanted any more. Only the leader takes replicas away, together with
the partition's state, which is its own to write. So no replica is in sync that is none, whoever is faster: a leader
that takes one in names the version of the topic's node by which it is one
(`barnabas.coordination.topic_metadata_store.write_partition_states`).

With the end each broker that is to delete its replica is named in a node of its own, which it deletes when it has done
so. Nothing is deleted that is not named.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.coordination import paths
from barnabas.coordination.change_notifications import ChangeNotification, StateChange, notification_node
from barnabas.coordination.damaged_nodes import report_damaged
from barnabas.coordination.fields import (
    INT32_MAX,
    BadValueError,
    DamagedNodeError,
    Fields,
    is_topic_name,
    shown,
    whole_number,
)
from barnabas.coordination.metadata_store import (
    BadVersionError,
    Create,
    Delete,
    MetadataStore,
    NodeError,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
    TooLargeError,
)
from barnabas.coordination.subtrees import ensure_paths, in_parts
from barnabas.coordination.topic_deletions import guards_by_notes
from barnabas.coordination.values import (
    PartitionState,
    ReplicaSet,
    TopicAssignment,
    decode_topic,
    encode_partition_state,
    encode_topic,
)
from barnabas.model import TopicPartition

ENDED_AT_ONCE = 250
"""Reassignments that are ended in one step: each writes a state and names some brokers."""

_REMOVAL = re.compile("(?P<topic_id>[0-9a-f]{32})-(?P<partition>[0-9]{1,10})-[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class End:
    """How a reassignment ends.

    :param before: the replicas that the leader knows of: where there are others meanwhile, it does not end.
    :param state: of the partition from then on.
    :param version: of the partition's state as the leader knows it.
    """

    where: TopicPartition
    before: ReplicaSet
    state: PartitionState
    version: int

    @property
    def after(self) -> ReplicaSet:
        """The replicas from then on."""
        return ReplicaSet(self.before.target)


class Removal(NamedTuple):
    """A replica that a broker is to delete."""

    topic_id: bytes
    where: TopicPartition


def begin_reassignments(
    tree: MetadataStore, name: str, topic_id: bytes, change: Callable[[TopicAssignment], Mapping[int, ReplicaSet]]
) -> None:
    """Write other replicas of partitions of a topic; nobody changes the topic meanwhile.

    :param change: given the topic, returns the partitions that change, by number; what it raises is passed on. It may
        be asked more than once.
    :raises NoNodeError: there is no such topic any more.
    """
    path = paths.topic(name)
    while True:
        found, version = _read(tree, name, topic_id)
        changed = change(found)
        if not changed:
            return
        operations: list[Operation] = [Set(path, encode_topic(found.changed(changed)), version)]
        operations += _taking_back(tree, found, changed)
        try:
            tree.multi([*operations, notification_node(ChangeNotification(topics=(name,)))])
        except (BadVersionError, NoNodeError):
            continue  # a leader has ended another one, the topic has grown, or a broker has just deleted its replica
        tree.flush()
        return


def _taking_back(tree: MetadataStore, found: TopicAssignment, changed: Mapping[int, ReplicaSet]) -> list[Operation]:
    """Return what takes back that brokers are to delete what they held once: they hold it again, and go on with it if
    it is there still."""
    new = [
        paths.removed_replica(found.topic_id, number, broker_id)
        for number, each in changed.items()
        for broker_id in each.replicas
        if broker_id not in found.replicas[number]
    ]
    noted = _noted(tree) if new else frozenset[str]()
    return [Delete(path) for path in new if path in noted]


def end_reassignments(tree: MetadataStore, topic_id: bytes, ends: Iterable[End]) -> None:
    """End reassignments of partitions of one topic where nobody was faster; read what there is now afterwards.

    :raises NoNodeError: there is no such topic any more.
    :raises TooLargeError: the tree does not even take the end of one.
    """
    left, at_once = list(ends), ENDED_AT_ONCE
    while left:
        some = left[:at_once]
        try:
            while some := _not_ended(tree, topic_id, some):
                pass
        except TooLargeError:
            if len(some) == 1:
                raise
            # The topic's node is written as well, and of a topic with many partitions that is most of what fits.
            at_once = len(some) // 2
            continue
        left = left[at_once:]


def _not_ended(tree: MetadataStore, topic_id: bytes, ends: list[End]) -> list[End]:
    """End them; return those with which to try again."""
    name = ends[0].where.topic
    found, version = _read(tree, name, topic_id)
    ends = [each for each in ends if found.replica_set(each.where.partition) == each.before]
    if not ends:
        return []
    states = tuple(StateChange(each.where, topic_id, each.state, each.version + 1) for each in ends)
    changed = found.changed({each.where.partition: each.after for each in ends})
    operations: list[Operation] = [*guards_by_notes(tree, {topic_id: name}).get(topic_id, ())]
    operations += [
        Set(paths.partition_state(each.where), encode_partition_state(each.state), each.version) for each in ends
    ]
    noted = _noted(tree)
    operations += [
        _naming(noted, topic_id, each.where, broker_id) for each in ends for broker_id in each.before.removing
    ]
    operations.append(Set(paths.topic(name), encode_topic(changed), version))
    try:
        tree.multi([*operations, notification_node(ChangeNotification(topics=(name,), states=states))])
    except (BadVersionError, NodeExistsError, NoNodeError):
        # Another leader may have ended its own: then only the topic has another version.
        return [each for each in ends if _version(tree, paths.partition_state(each.where)) == each.version]
    return []


def _noted(tree: MetadataStore) -> frozenset[str]:
    """Return the paths of all notes of replicas that are to be deleted: one request, however many partitions move."""
    try:
        names = tree.children(paths.REMOVED_REPLICAS)
    except NoNodeError:
        # A stranger's work: without it no move could end.
        ensure_paths(tree, [paths.REMOVED_REPLICAS])
        return frozenset()
    return frozenset(f"{paths.REMOVED_REPLICAS}/{name}" for name in names)


def _naming(noted: AbstractSet[str], topic_id: bytes, where: TopicPartition, broker_id: int) -> Operation:
    """Return what names a broker that is to delete its replica; it may be named already, and have been away since."""
    path = paths.removed_replica(topic_id, where.partition, broker_id)
    data = json.dumps({"version": 1, "name": where.topic}, separators=(",", ":")).encode()
    return Set(path, data) if path in noted else Create(path, data)


def read_removals(tree: MetadataStore, broker_id: int) -> list[Removal]:
    """Return the replicas that a broker is to delete, unless it holds them again.

    A note that cannot be understood is passed over: then nothing is deleted.
    """
    found = []
    bad: list[NodeError] = []
    own = sorted(path for path in _noted(tree) if path.rpartition("-")[2] == str(broker_id))
    for path, node in tree.get_all(own).items() if own else ():
        try:
            found.append(_removal(path, node.data))
        except DamagedNodeError as error:
            bad.append(error)
    report_damaged(tree, bad, "skipping the note of a removed replica")
    return found


def _removal(path: str, data: bytes) -> Removal:
    match = _REMOVAL.fullmatch(path.rpartition("/")[2])
    name = Fields(path, data).string("name")
    if match is None or not is_topic_name(name):
        raise DamagedNodeError(path, f"it names no replica of topic {shown(name)}")
    try:
        partition = whole_number(match["partition"], 0, INT32_MAX)
    except BadValueError as error:
        raise DamagedNodeError(path, str(error)) from error
    return Removal(bytes.fromhex(match["topic_id"]), TopicPartition(name, partition))


def is_removal_noted(tree: MetadataStore, topic_id: bytes, partition: int, broker_id: int) -> bool:
    """Whether a broker is to delete what it holds of a partition."""
    return tree.exists(paths.removed_replica(topic_id, partition, broker_id)) is not None


def end_removal(tree: MetadataStore, topic_id: bytes, partition: int, broker_id: int) -> None:
    """Note that a broker has deleted its replica, or holds it again."""
    with suppress(NoNodeError):
        tree.delete(paths.removed_replica(topic_id, partition, broker_id))


def forget_removals(tree: MetadataStore) -> None:
    """Let no broker delete a replica that it was to delete up to now: its folder stays as it is."""
    for part in in_parts(Delete(path) for path in tree.subtree(paths.REMOVED_REPLICAS)):
        tree.multi(part)


def _read(tree: MetadataStore, name: str, topic_id: bytes) -> tuple[TopicAssignment, int]:
    path = paths.topic(name)
    data, stat = tree.get(path)
    found = decode_topic(path, data)
    if found.topic_id != topic_id:
        raise NoNodeError(path, "there is another topic of this name")
    return found, stat.version


def _version(tree: MetadataStore, path: str) -> int | None:
    stat = tree.exists(path)
    return None if stat is None else stat.version
