"""Administration of groups that coordinate through the metadata store and not through a broker (the paper, 3.2).

A group may change only while it has no consumers. The metadata store enforces this rule. Each change also deletes the
parent of the consumers' nodes in the same `multi`, and this deletion fails while the parent has children.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass

from barnabas.coordination import offsets as committed
from barnabas.coordination import paths
from barnabas.coordination.damaged_nodes import usable_names
from barnabas.coordination.fields import DamagedNodeError
from barnabas.coordination.metadata_store import (
    Create,
    Delete,
    MetadataStore,
    NodeData,
    NodeError,
    NoNodeError,
    NotEmptyError,
    ancestors_of,
)
from barnabas.coordination.subtrees import ensure_paths, multi_in_parts, put_all
from barnabas.coordination.values import decode_consumer, encode_offset
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition

ATTEMPTS = 10


@dataclass(frozen=True, slots=True)
class ConsumerOfGroup:
    """A consumer that is in a group or still owns partitions, with sorted topics and partitions."""

    consumer_id: str
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]


def list_groups(tree: MetadataStore) -> list[str]:
    """Return the sorted names of all groups that have, or have had, consumers or offsets in the metadata store."""
    return committed.groups_with_offsets(tree)


def consumers_of(tree: MetadataStore, group: str) -> list[ConsumerOfGroup] | None:
    """Return the consumers of a group, sorted by id; None if the group does not exist."""
    path = paths.group(group)
    if tree.exists(path) is None:
        return None
    topics: dict[str, tuple[str, ...]] = {}
    folder = paths.group_members(group)
    for node_path, node in tree.subtree(folder).items():
        for name in usable_names(tree, folder, [node_path.removeprefix(f"{folder}/")]):
            topics[name] = _topics(node_path, node)
    owned: dict[str, list[TopicPartition]] = {}
    for node_path, node in tree.subtree(paths.group_owners(group)).items():
        if node.stat.owner:
            with suppress(DamagedNodeError):  # Another program created a node with an invalid path.
                partition = paths.partition_of_offset(node_path)
                owned.setdefault(node.data.decode(errors="replace"), []).append(partition)
    return [
        ConsumerOfGroup(each, topics.get(each, ()), tuple(sorted(owned.get(each, ()))))
        for each in sorted(topics.keys() | owned.keys())
    ]


def _topics(path: str, node: NodeData) -> tuple[str, ...]:
    try:
        return tuple(sorted(decode_consumer(path, node.data)))
    except NodeError:
        return ()  # Another program created the node. It is listed as a consumer without topics.


def set_offsets(tree: MetadataStore, group: str, offsets: committed.Offsets, now_ms: int) -> None:
    """Commit offsets for a group without consumers.

    Thousands of offsets are written in several steps. Only the last step checks that the group has no consumers.

    :raises ApiError: NON_EMPTY_GROUP (the group has consumers), UNKNOWN_TOPIC_OR_PARTITION.
    """
    if not offsets:
        return
    members = paths.group_members(group)
    ensure_paths(tree, [members])
    values = {paths.group_offset(group, tp): encode_offset(offset, now_ms) for tp, offset in offsets.items()}
    topics = {paths.topic(tp.topic): tp.topic for tp in offsets}
    try:
        put_all(tree, values, needed=list(topics), also=[Delete(members), Create(members)])
    except NotEmptyError as refused:
        raise _has_members(group) from refused
    except NoNodeError as refused:
        if refused.path not in topics:
            raise
        subject = f"topic {topics[refused.path]!r}"
        raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, subject=subject) from refused


def delete_group(tree: MetadataStore, group: str) -> None:
    """Delete a group without consumers and its committed offsets in the metadata store.

    :raises ApiError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND.
    """
    path = paths.group(group)
    if tree.exists(path) is None:
        raise ApiError.about(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r}", " does not exist")
    _delete(tree, group, lambda found: [*found, path])


def delete_offsets(tree: MetadataStore, group: str, partitions: Collection[TopicPartition]) -> None:
    """Delete a group's committed offsets in some partitions; ignore partitions without a committed offset.

    :raises ApiError: NON_EMPTY_GROUP (the group has consumers).
    """
    wanted = {paths.group_offset(group, tp) for tp in partitions}
    _delete(tree, group, lambda found: [path for path in found if path in wanted])


def _delete(tree: MetadataStore, group: str, choose: Callable[[list[str]], list[str]]) -> None:
    members = paths.group_members(group)
    for attempt in range(ATTEMPTS):
        found = tree.subtree(paths.group(group))
        if any(node.stat.owner for node in found.values()):
            raise _has_members(group)
        chosen = choose(list(found))
        # The guard is the first operation. If a consumer has joined, it fails before anything is deleted.
        guard = [Delete(members)] if members in found else []
        others = [Delete(path) for path in sorted(chosen, key=lambda path: -len(ancestors_of(path))) if path != members]
        try:
            multi_in_parts(tree, [], [*guard, *others], [])
        except NodeError:
            if attempt == ATTEMPTS - 1:
                raise
        else:
            return


def _has_members(group: str) -> ApiError:
    return ApiError.about(ErrorCode.NON_EMPTY_GROUP, f"group {group!r}", " has members; stop them first")
