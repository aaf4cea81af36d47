"""Committed offsets in the metadata store, at `/consumers/<group>/offsets/<topic>/<partition>`.

They belong to groups that coordinate through the metadata store (the paper, 3.2). The offsets of groups with a group
coordinator are in `__consumer_offsets`, but an earlier release stored them in the metadata store. Each function writes
in one `multi`, or in several if there are thousands of partitions.

Each `multi` checks that the topics exist. So no offset is added for a topic after its deletion.
"""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.coordination import paths
from barnabas.coordination.damaged_nodes import report_damaged, usable_names
from barnabas.coordination.fields import DamagedNodeError
from barnabas.coordination.metadata_store import MetadataStore, NodeData, NodeError, NoNodeError
from barnabas.coordination.subtrees import delete_recursive, put_all
from barnabas.coordination.values import CommittedOffset, decode_offset, encode_offset
from barnabas.model import OffsetAndMetadata, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


def commit_offsets(tree: MetadataStore, group_id: str, offsets: Offsets, now_ms: int) -> set[str]:
    """Store the committed offsets of one group; see `commit_all`.

    They replace earlier offsets of the same partitions.
    """
    return commit_all(tree, {group_id: offsets}, now_ms)


def commit_all(tree: MetadataStore, commits: Mapping[str, Offsets], now_ms: int) -> set[str]:
    """Store the committed offsets of several groups in one step, all or none.

    Offsets for nonexistent topics are skipped.

    :returns: the names of the topics that do not exist.
    """
    gone: set[str] = set()
    while True:
        kept = [
            (group_id, topic_partition, offset)
            for group_id, offsets in commits.items()
            for topic_partition, offset in offsets.items()
            if topic_partition.topic not in gone
        ]
        if not kept:
            return gone
        values = {
            paths.group_offset(group_id, where): encode_offset(offset, now_ms) for group_id, where, offset in kept
        }
        topics = {paths.topic(where.topic): where.topic for _, where, _ in kept}
        try:
            put_all(tree, values, needed=list(topics))
        except NoNodeError as refused:
            if refused.path not in topics:
                raise
            gone.add(topics[refused.path])
        else:
            return gone


def read_offsets(tree: MetadataStore, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return all committed offsets of a group; empty for an unknown group."""
    return {
        topic_partition: committed.offset
        for topic_partition, committed in read_committed_offsets(tree, group_id).items()
    }


def read_committed_offsets(tree: MetadataStore, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    """Return all committed offsets of a group with the time of each commit."""
    folder = paths.group_offsets(group_id)
    depth = folder.count("/") + 2  # Only nodes at this depth contain offsets; their parents are the topics' nodes.
    below = {path: node for path, node in tree.subtree(folder).items() if path.count("/") == depth}
    found = {}
    bad: list[NodeError] = []
    for path, committed in readable_offsets(tree, below).items():
        try:
            found[paths.partition_of_offset(path)] = committed
        except DamagedNodeError as error:
            bad.append(error)
    report_damaged(tree, bad, "skipping the committed offset in")
    return found


def readable_offsets(tree: MetadataStore, nodes: Mapping[str, NodeData]) -> dict[str, CommittedOffset]:
    """Return the committed offsets in the given nodes, by path. Damaged nodes are logged and skipped."""
    found = {}
    bad: list[NodeError] = []
    for path, node in nodes.items():
        try:
            found[path] = decode_offset(path, node.data)
        except DamagedNodeError as error:
            bad.append(error)
    report_damaged(tree, bad, "skipping the committed offset in")
    return found


def groups_with_offsets(tree: MetadataStore) -> list[str]:
    """Return the sorted ids of all groups with a node. A group in the result may have no committed offset yet."""
    if tree.exists(paths.CONSUMERS) is None:
        return []
    return sorted(usable_names(tree, paths.CONSUMERS, tree.children(paths.CONSUMERS)))


def delete_group(tree: MetadataStore, group_id: str) -> bool:
    """Delete a group and all its offsets; return False if it did not exist."""
    return delete_recursive(tree, paths.group(group_id))
