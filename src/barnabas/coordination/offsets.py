"""The offset registry: what each group has committed, at `/consumers/<group>/offsets/<topic>/<partition>`.

It is for groups that coordinate among themselves (the paper, 3.2). Those that the brokers coordinate have their offsets
in `__consumer_offsets`; an earlier release kept them here. Each function is one step of the tree; some thousands of
partitions go in several.

Offsets are committed in topics that exist, and in no others: the tree checks it with the write. So once a topic has
left the tree, no offsets are added for it.
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
    """Store a group's offsets as `commit_all` does; they replace what was committed for the same partitions."""
    return commit_all(tree, {group_id: offsets}, now_ms)


def commit_all(tree: MetadataStore, commits: Mapping[str, Offsets], now_ms: int) -> set[str]:
    """Store the offsets of several groups in one step, all or none, but for those in topics that do not exist.

    :returns: the names of these topics.
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
    """Return all offsets that a group has committed; empty for a group that is not known."""
    return {
        topic_partition: committed.offset
        for topic_partition, committed in read_committed_offsets(tree, group_id).items()
    }


def read_committed_offsets(tree: MetadataStore, group_id: str) -> dict[TopicPartition, CommittedOffset]:
    """Return all offsets that a group has committed, with the time of each commit."""
    folder = paths.group_offsets(group_id)
    depth = folder.count("/") + 2  # a topic's node holds nothing
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
    """Return the committed offsets in nodes, by path; report and leave out those that cannot be understood."""
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
    """Return the ids of all groups that have a node, sorted; they may have committed nothing yet."""
    if tree.exists(paths.CONSUMERS) is None:
        return []
    return sorted(usable_names(tree, paths.CONSUMERS, tree.children(paths.CONSUMERS)))


def delete_group(tree: MetadataStore, group_id: str) -> bool:
    """Forget a group with all its offsets; False if there was nothing to forget."""
    return delete_recursive(tree, paths.group(group_id))
