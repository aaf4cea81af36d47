"""The offset registry: what each group has committed, at `/consumers/<group>/offsets/<topic>/<partition>`.

Both kinds of groups share it: those that the brokers coordinate and those that coordinate among themselves (the
paper, 3.2). Each function is one step of the tree whatever the number of partitions: a broker gathers the
commits that arrive together and writes them with one `commit_all`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.coordination import paths
from barnabas.coordination.subtrees import delete_all, delete_recursive, put_all
from barnabas.coordination.tree import Tree
from barnabas.coordination.values import CommittedOffset, decode_offset, encode_offset
from barnabas.model import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def commit_offsets(tree: Tree, group_id: str, offsets: Offsets, now_ms: int) -> None:
    """Store a group's offsets, all or none; they replace what was committed for the same partitions."""
    commit_all(tree, {group_id: offsets}, now_ms)


def commit_all(tree: Tree, commits: Mapping[str, Offsets], now_ms: int) -> None:
    """Store the offsets of several groups in one step, all or none."""
    values = {
        paths.group_offset(group_id, topic_partition): encode_offset(offset, now_ms)
        for group_id, offsets in commits.items()
        for topic_partition, offset in offsets.items()
    }
    if values:
        put_all(tree, values)


def read_offsets(tree: Tree, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return all offsets that a group has committed; empty for a group that is not known."""
    return {
        topic_partition: committed.offset
        for topic_partition, committed in read_committed_offsets(tree, group_id).items()
    }


def read_committed_offsets(tree: Tree, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    """Return all offsets that a group has committed, with the time of each commit."""
    below = tree.subtree(paths.group_offsets(group_id))
    return {
        paths.partition_of_offset(path): decode_offset(path, node.data)
        for path, node in below.items()
        if node.data  # a topic's node holds nothing
    }


def groups_with_offsets(tree: Tree) -> list[str]:
    """Return the ids of all groups that have a node, sorted; they may have committed nothing yet."""
    if tree.exists(paths.CONSUMERS) is None:
        return []
    return sorted(paths.decode_name(name) for name in tree.children(paths.CONSUMERS))


def delete_offsets(tree: Tree, group_id: str, partitions: Iterable[TopicPartition]) -> None:
    """Forget what a group has committed for some partitions; those without an offset do not matter."""
    delete_all(tree, [paths.group_offset(group_id, each) for each in partitions])


def delete_group(tree: Tree, group_id: str) -> bool:
    """Forget a group with all its offsets; False if there was nothing to forget."""
    return delete_recursive(tree, paths.group(group_id))


def delete_topic_offsets(tree: Tree, topic: str) -> None:
    """Forget every group's offsets in a topic that was deleted, so that a new one of its name starts afresh."""
    name = paths.encode_name(topic)
    groups = groups_with_offsets(tree)
    delete_all(tree, [f"{paths.group_offsets(group_id)}/{name}" for group_id in groups])
