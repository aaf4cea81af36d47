"""Topics with more partitions than a single `multi` can write: creation, enlargement and deletion in several steps.

The metadata store limits the size of a `multi` (ZooKeeper: one megabyte). The operations for 10,000 partitions, each
with two nodes, exceed this limit. A broker may die between two steps and leave a partial topic. Readers never see a
partial topic, because only the topic's node determines the number of partitions:

- **Creation.** The topic's node contains no partitions until all partition nodes exist. Readers skip such a topic. A
  second creation of a topic with this name replaces the unfinished one.
- **Enlargement.** The new partition nodes are created before the topic's node contains the new partitions. Readers
  ignore partition nodes that the topic's node does not contain, and the next enlargement removes them.
- **Deletion.** The topic's node first gets an empty list of partitions, which makes the topic invisible. Then the
  partition nodes are deleted, and at last the topic's node.

Each step checks that the topic's node has the version that this writer gave it. So only one of two concurrent writers
completes: the steps of the earlier writer fail after the later writer has begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from barnabas.coordination import paths
from barnabas.coordination.change_notifications import ChangeNotification, notification_node
from barnabas.coordination.metadata_store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    MetadataStore,
    NodeExistsError,
    NoNodeError,
    Operation,
    Set,
)
from barnabas.coordination.subtrees import ensure_paths, put_all
from barnabas.coordination.values import (
    PartitionState,
    TopicAssignment,
    decode_topic,
    encode_config,
    encode_partition_state,
    encode_topic,
)
from barnabas.model import TopicPartition

PARTITIONS_AT_ONCE = 500
"""The number of partitions in a `multi`.

With topic names of 249 characters, its size is about half of ZooKeeper's limit.
"""

_NO_TOPIC_ID = bytes(16)


def partition_nodes(name: str, first: int, states: Sequence[PartitionState]) -> list[Operation]:
    """Return the operations that create partition nodes. The first partition has the number `first`."""
    operations: list[Operation] = []
    for number, state in enumerate(states, start=first):
        where = TopicPartition(name, number)
        operations.append(Create(paths.partition(where)))
        operations.append(Create(paths.partition_state(where), encode_partition_state(state)))
    return operations


def is_unfinished(tree: MetadataStore, name: str) -> bool:
    """Return whether a creation or deletion of the topic is in progress or was interrupted."""
    path = paths.topic(name)
    try:
        return not decode_topic(path, tree.get(path).data).replicas
    except NoNodeError:
        return False


def is_large(tree: MetadataStore, name: str) -> bool:
    """Return whether a topic has too many partition nodes for a deletion in one step."""
    stat = tree.exists(paths.topic_partitions(name))
    return stat is not None and stat.children_count > PARTITIONS_AT_ONCE


def create_in_steps(
    tree: MetadataStore,
    name: str,
    assignment: TopicAssignment,
    states: Sequence[PartitionState],
    config: Mapping[str, str],
) -> int:
    """Create a topic, or replace an unfinished topic with the same name; return the version of the topic's node.

    :raises NodeExistsError: the topic exists, or another broker has started to create it.
    """
    path = paths.topic(name)
    try:
        version = _begin(tree, name, TopicAssignment(assignment.topic_id, ()), config)
        _add_partitions(tree, name, 0, states, version)
        tree.multi(
            [Set(path, encode_topic(assignment), version), notification_node(ChangeNotification(topics=(name,)))]
        )
    except (BadVersionError, NoNodeError) as error:
        raise NodeExistsError(path, "another broker is creating or deleting the topic") from error
    return version + 1


def grow_in_steps(
    tree: MetadataStore, name: str, wanted: TopicAssignment, version: int, states: Sequence[PartitionState]
) -> None:
    """Add partitions to a topic. Partition nodes from an interrupted earlier attempt are replaced.

    :param wanted: the topic's assignment including the new partitions, which are the last ones.
    :param version: the version of the topic's node that the caller has read.
    :raises BadVersionError: another broker has changed the topic after the caller read it.
    """
    path = paths.topic(name)
    count = len(wanted.replicas) - len(states)
    before = replace(wanted, replicas=wanted.replicas[:count])
    version = tree.set(path, encode_topic(before), version).version
    _remove_partitions(tree, name, count, version)
    _add_partitions(tree, name, count, states, version)
    tree.multi([Set(path, encode_topic(wanted), version), notification_node(ChangeNotification(topics=(name,)))])


def delete_in_steps(tree: MetadataStore, name: str, also: Sequence[Operation] = ()) -> bool:
    """Delete a topic and its configuration. The first step makes the topic invisible; further steps delete its nodes.

    :param also: further operations and checks for the step that makes the topic invisible.
    :returns: False if the topic does not exist.
    :raises NodeError: an operation in `also` failed; nothing was deleted.
    """
    path = paths.topic(name)
    while True:
        for check in also:
            if not isinstance(check, Check | Set):
                continue
            found = tree.get(check.path)
            if found.stat.version != check.version:
                raise BadVersionError(check.path, f"expected {check.version}, found {found.stat.version}")
        stat = tree.exists(path)
        if stat is None:
            return False
        operations: list[Operation] = [Set(path, encode_topic(TopicAssignment(_NO_TOPIC_ID, ())), stat.version)]
        if tree.exists(paths.topic_config(name)) is not None:
            operations.append(Delete(paths.topic_config(name)))
        try:
            tree.multi([*also, *operations, notification_node(ChangeNotification(topics=(name,)))])
            break
        except (BadVersionError, NoNodeError):
            continue  # Another broker has just changed or deleted the topic.
    try:
        _remove_partitions(tree, name, 0, stat.version + 1)
        tree.multi([Check(path, stat.version + 1), Delete(paths.topic_partitions(name)), Delete(path)])
    except (BadVersionError, NoNodeError):
        pass  # Another broker is creating a topic with this name. It removes the remaining nodes.
    return True


def _begin(tree: MetadataStore, name: str, unfinished: TopicAssignment, config: Mapping[str, str]) -> int:
    """Create a topic without partitions, or reset an unfinished topic; return the version of the topic's node."""
    path = paths.topic(name)
    ensure_paths(tree, [paths.TOPICS, paths.CHANGES, paths.TOPIC_CONFIGS])
    try:
        tree.multi([Create(path, encode_topic(unfinished)), Create(paths.topic_partitions(name))])
        version = 0
    except NodeExistsError:
        data, stat = tree.get(path)
        if decode_topic(path, data).replicas:
            raise
        version = tree.set(path, encode_topic(unfinished), stat.version).version
        ensure_paths(tree, [paths.topic_partitions(name)])
        _remove_partitions(tree, name, 0, version)
    _write_config(tree, name, config, Check(path, version))
    return version


def _write_config(tree: MetadataStore, name: str, config: Mapping[str, str], check: Check) -> None:
    path = paths.topic_config(name)
    if config:
        put_all(tree, {path: encode_config(config)}, also=[check])
    elif tree.exists(path) is not None:
        tree.multi([check, Delete(path)])


def _add_partitions(tree: MetadataStore, name: str, first: int, states: Sequence[PartitionState], version: int) -> None:
    check = Check(paths.topic(name), version)
    for start in range(0, len(states), PARTITIONS_AT_ONCE):
        part = states[start : start + PARTITIONS_AT_ONCE]
        tree.multi([check, *partition_nodes(name, first + start, part)])


def _remove_partitions(tree: MetadataStore, name: str, first: int, version: int) -> None:
    """Remove the nodes of the partition `first` and of all partitions with higher numbers."""
    above = paths.topic_partitions(name)
    kept = {f"{above}/{number}" for number in range(first)}
    below = [path for path in tree.subtree(above) if path.removesuffix("/state") not in kept]
    check = Check(paths.topic(name), version)
    for start in range(0, len(below), 2 * PARTITIONS_AT_ONCE):
        # The nodes are deleted in reverse order, so children are deleted before their parents.
        part = below[::-1][start : start + 2 * PARTITIONS_AT_ONCE]
        tree.multi([check, *(Delete(path) for path in part)])
