"""Reassignments (KIP-455) in the metadata store.

The broker that receives the admin request begins a reassignment, and the partition's leader completes it. Each of them
uses one `multi`.

The broker that begins a reassignment only adds replicas to the topic's node. Replicas to remove stay in the node until
completion. Replicas that an earlier reassignment has added also stay, even if they are no longer wanted. Only the
leader removes replicas, in the same `multi` that writes the new partition state. So a broker without a replica is never
in the ISR. For the same reason, a leader that adds a replica to the ISR checks the version of the topic's node
(`barnabas.coordination.topic_metadata_store.write_partition_states`).

The completion creates a removal node for each broker that must delete its replica. The broker deletes its replica and
then this node. A replica without a removal node is never deleted.
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
"""The maximum number of reassignments that are completed in one `multi`.

Each reassignment writes a partition state and some removal nodes.
"""

_REMOVAL = re.compile("(?P<topic_id>[0-9a-f]{32})-(?P<partition>[0-9]{1,10})-[0-9]{1,10}")


@dataclass(frozen=True, slots=True)
class End:
    """The completion of a reassignment.

    :param before: the replicas that the leader knows. If the replicas in the topic's node differ, the completion is
        skipped.
    :param state: the new state of the partition.
    :param version: the version of the partition's state node that the leader knows.
    """

    where: TopicPartition
    before: ReplicaSet
    state: PartitionState
    version: int

    @property
    def after(self) -> ReplicaSet:
        """The replicas after the completion."""
        return ReplicaSet(self.before.target)


class Removal(NamedTuple):
    """A replica that a broker must delete."""

    topic_id: bytes
    where: TopicPartition


def begin_reassignments(
    tree: MetadataStore, name: str, topic_id: bytes, change: Callable[[TopicAssignment], Mapping[int, ReplicaSet]]
) -> None:
    """Begin reassignments: write the new replicas of a topic's partitions to the topic's node, with a compare-and-set.

    :param change: a function that gets the topic's assignment and returns the new replicas by partition number. It may
        be called several times. Its exceptions propagate to the caller.
    :raises NoNodeError: the topic no longer exists.
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
            continue  # Another broker has completed a reassignment, enlarged the topic, or deleted a removal node.
        tree.flush()
        return


def _taking_back(tree: MetadataStore, found: TopicAssignment, changed: Mapping[int, ReplicaSet]) -> list[Operation]:
    """Return the operations that delete the removal nodes of replicas that their brokers hold again.

    The brokers then keep these replicas if they have not deleted them yet.
    """
    new = [
        paths.removed_replica(found.topic_id, number, broker_id)
        for number, each in changed.items()
        for broker_id in each.replicas
        if broker_id not in found.replicas[number]
    ]
    noted = _noted(tree) if new else frozenset[str]()
    return [Delete(path) for path in new if path in noted]


def end_reassignments(tree: MetadataStore, topic_id: bytes, ends: Iterable[End]) -> None:
    """Complete reassignments of one topic.

    A reassignment is skipped if another writer has changed its partition. The caller must read the result.

    :raises NoNodeError: the topic no longer exists.
    :raises TooLargeError: even the completion of a single reassignment is larger than the metadata store accepts.
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
            # The `multi` contains the topic's node. With many partitions, this node takes up most of the permitted
            # size.
            at_once = len(some) // 2
            continue
        left = left[at_once:]


def _not_ended(tree: MetadataStore, topic_id: bytes, ends: list[End]) -> list[End]:
    """Try to complete reassignments; return the reassignments to try again."""
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
        # If another leader has completed its own reassignment, only the version of the topic's node has changed.
        return [each for each in ends if _version(tree, paths.partition_state(each.where)) == each.version]
    return []


def _noted(tree: MetadataStore) -> frozenset[str]:
    """Return the paths of all removal nodes with one request."""
    try:
        names = tree.children(paths.REMOVED_REPLICAS)
    except NoNodeError:
        # Another program deleted the parent node. Without the parent node, no reassignment could be completed.
        ensure_paths(tree, [paths.REMOVED_REPLICAS])
        return frozenset()
    return frozenset(f"{paths.REMOVED_REPLICAS}/{name}" for name in names)


def _naming(noted: AbstractSet[str], topic_id: bytes, where: TopicPartition, broker_id: int) -> Operation:
    """Return the operation that writes the removal node of a replica.

    The node may still exist from an earlier removal.
    """
    path = paths.removed_replica(topic_id, where.partition, broker_id)
    data = json.dumps({"version": 1, "name": where.topic}, separators=(",", ":")).encode()
    return Set(path, data) if path in noted else Create(path, data)


def read_removals(tree: MetadataStore, broker_id: int) -> list[Removal]:
    """Return the replicas in the removal nodes of a broker.

    The broker must delete each of them, unless it holds the replica again.

    Damaged removal nodes are skipped, so no replica is deleted because of them.
    """
    found = []
    bad: list[NodeError] = []
    own = sorted(path for path in _noted(tree) if path.rpartition("-")[2] == str(broker_id))
    for path, node in tree.get_all(own).items() if own else ():
        try:
            found.append(_removal(path, node.data))
        except DamagedNodeError as error:
            bad.append(error)
    report_damaged(tree, bad, "skipping the removal node")
    return found


def _removal(path: str, data: bytes) -> Removal:
    match = _REMOVAL.fullmatch(path.rpartition("/")[2])
    name = Fields(path, data).string("name")
    if match is None or not is_topic_name(name):
        raise DamagedNodeError(path, f"not a replica of topic {shown(name)}")
    try:
        partition = whole_number(match["partition"], 0, INT32_MAX)
    except BadValueError as error:
        raise DamagedNodeError(path, str(error)) from error
    return Removal(bytes.fromhex(match["topic_id"]), TopicPartition(name, partition))


def is_removal_noted(tree: MetadataStore, topic_id: bytes, partition: int, broker_id: int) -> bool:
    """Return whether a removal node exists for a broker's replica."""
    return tree.exists(paths.removed_replica(topic_id, partition, broker_id)) is not None


def end_removal(tree: MetadataStore, topic_id: bytes, partition: int, broker_id: int) -> None:
    """Delete the removal node of a replica, because its broker has deleted the replica or holds it again."""
    with suppress(NoNodeError):
        tree.delete(paths.removed_replica(topic_id, partition, broker_id))


def forget_removals(tree: MetadataStore) -> None:
    """Delete all removal nodes, so that no broker deletes a replica because of them."""
    for part in in_parts(Delete(path) for path in tree.subtree(paths.REMOVED_REPLICAS)):
        tree.multi(part)


def _read(tree: MetadataStore, name: str, topic_id: bytes) -> tuple[TopicAssignment, int]:
    path = paths.topic(name)
    data, stat = tree.get(path)
    found = decode_topic(path, data)
    if found.topic_id != topic_id:
        raise NoNodeError(path, "another topic has this name")
    return found, stat.version


def _version(tree: MetadataStore, path: str) -> int | None:
    stat = tree.exists(path)
    return None if stat is None else stat.version
