"""Topics of more partitions than the tree takes in one step: made, grown and deleted in several.

A tree takes a bounded number of bytes at a time (ZooKeeper a megabyte), and two nodes for each of 10,000 partitions are
more. So there are moments when a topic is there in part, and a broker may die in any of them. What keeps that from
everybody else is the topic's node, which alone says how many partitions there are:

- **Making.** The node says "no partitions" until all of their nodes are there. Readers pass over such a topic. Whoever
  makes a topic of that name takes over what is there, and begins anew.
- **Growing.** The nodes of new partitions are there before the topic's node counts them. Those that it does not count
  are nobody's, and are removed by whoever grows the topic next.
- **Deleting.** The node says "no partitions" first: the topic has vanished. Then the nodes below go, and it last.

Each step checks that the topic's node still has the version that this writer gave it. So whoever takes over stops the
one before, and of two who are at it at once only one gets to the end.
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
"""With names of 249 letters, about half of what ZooKeeper takes at once."""

_NO_TOPIC_ID = bytes(16)


def partition_nodes(name: str, first: int, states: Sequence[PartitionState]) -> list[Operation]:
    """Return the operations that make the nodes of partitions, numbered from `first`."""
    operations: list[Operation] = []
    for number, state in enumerate(states, start=first):
        where = TopicPartition(name, number)
        operations.append(Create(paths.partition(where)))
        operations.append(Create(paths.partition_state(where), encode_partition_state(state)))
    return operations


def is_unfinished(tree: MetadataStore, name: str) -> bool:
    """Whether there is a topic that is being made or deleted, or whose making or deletion was cut short."""
    path = paths.topic(name)
    try:
        return not decode_topic(path, tree.get(path).data).replicas
    except NoNodeError:
        return False


def is_large(tree: MetadataStore, name: str) -> bool:
    """Whether the nodes of a topic's partitions are too many to be deleted in one step."""
    stat = tree.exists(paths.topic_partitions(name))
    return stat is not None and stat.children_count > PARTITIONS_AT_ONCE


def create_in_steps(
    tree: MetadataStore,
    name: str,
    assignment: TopicAssignment,
    states: Sequence[PartitionState],
    config: Mapping[str, str],
) -> int:
    """Make a topic, in place of what an earlier attempt may have left; return the version of its node.

    :raises NodeExistsError: there is a topic of this name, or somebody else has begun to make it since.
    """
    path = paths.topic(name)
    try:
        version = _begin(tree, name, TopicAssignment(assignment.topic_id, ()), config)
        _add_partitions(tree, name, 0, states, version)
        tree.multi(
            [Set(path, encode_topic(assignment), version), notification_node(ChangeNotification(topics=(name,)))]
        )
    except (BadVersionError, NoNodeError) as error:
        raise NodeExistsError(path, "somebody else makes or deletes it") from error
    return version + 1


def grow_in_steps(
    tree: MetadataStore, name: str, wanted: TopicAssignment, version: int, states: Sequence[PartitionState]
) -> None:
    """Give a topic more partitions, in place of what an earlier attempt may have left.

    :param wanted: the topic with the new partitions, which come last and begin with `states`.
    :param version: of the topic's node as it was read.
    :raises BadVersionError: somebody else changed the topic meanwhile.
    """
    path = paths.topic(name)
    count = len(wanted.replicas) - len(states)
    before = replace(wanted, replicas=wanted.replicas[:count])
    version = tree.set(path, encode_topic(before), version).version
    _remove_partitions(tree, name, count, version)
    _add_partitions(tree, name, count, states, version)
    tree.multi([Set(path, encode_topic(wanted), version), notification_node(ChangeNotification(topics=(name,)))])


def delete_in_steps(tree: MetadataStore, name: str, also: Sequence[Operation] = ()) -> bool:
    """Delete a topic with its configuration: at once for all who read it, then node by node; False if there is none.

    :param also: what is written when it vanishes, or must hold then.
    :raises NodeError: that does not hold; nothing was deleted.
    """
    path = paths.topic(name)
    while True:
        for check in also:
            if not isinstance(check, Check | Set):
                continue
            found = tree.get(check.path)
            if found.stat.version != check.version:
                raise BadVersionError(check.path, f"it is {found.stat.version}, not {check.version}")
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
            continue  # somebody has just changed or deleted it
    try:
        _remove_partitions(tree, name, 0, stat.version + 1)
        tree.multi([Check(path, stat.version + 1), Delete(paths.topic_partitions(name)), Delete(path)])
    except (BadVersionError, NoNodeError):
        pass  # somebody makes a topic of this name, and has taken the rest over
    return True


def _begin(tree: MetadataStore, name: str, unfinished: TopicAssignment, config: Mapping[str, str]) -> int:
    """Make a topic of no partitions, or take one over; return the version of its node."""
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
    """Remove the nodes of all partitions from `first` on."""
    above = paths.topic_partitions(name)
    kept = {f"{above}/{number}" for number in range(first)}
    below = [path for path in tree.subtree(above) if path.removesuffix("/state") not in kept]
    check = Check(paths.topic(name), version)
    for start in range(0, len(below), 2 * PARTITIONS_AT_ONCE):
        # The last first, so that children go before their parents.
        part = below[::-1][start : start + 2 * PARTITIONS_AT_ONCE]
        tree.multi([check, *(Delete(path) for path in part)])
