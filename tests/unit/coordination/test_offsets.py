"""Committed offsets in the tree: all of a request or none, several groups in one step, read at once."""

from __future__ import annotations

import json

import pytest

from barnabas.coordination import offsets, paths
from barnabas.coordination.metadata_store import NodeExistsError
from barnabas.coordination.values import CommittedOffset
from barnabas.model import OffsetAndMetadata, TopicPartition

CLICKS, VIEWS = TopicPartition("clicks", 0), TopicPartition("views", 11)
AT_5 = OffsetAndMetadata(5, 'said "so", 群', leader_epoch=3)
AT_7 = OffsetAndMetadata(7)


@pytest.fixture
def tree(tree):
    """A tree with the topics that offsets are committed in."""
    for name in ("clicks", "views"):
        tree.create(paths.topic(name), make_parents=True)
    return tree


def test_committed_offsets_come_back_with_metadata_and_epoch(tree):
    offsets.commit_offsets(tree, "ctr", {CLICKS: AT_5, VIEWS: AT_7}, now_ms=1_000)
    assert offsets.read_offsets(tree, "ctr") == {CLICKS: AT_5, VIEWS: AT_7}
    assert offsets.read_committed_offsets(tree, "ctr")[CLICKS] == CommittedOffset(AT_5, 1_000)


def test_later_commit_replaces_only_its_partitions(tree):
    offsets.commit_offsets(tree, "ctr", {CLICKS: AT_5, VIEWS: AT_7}, now_ms=1)
    offsets.commit_offsets(tree, "ctr", {CLICKS: AT_7}, now_ms=2)
    assert offsets.read_offsets(tree, "ctr") == {CLICKS: AT_7, VIEWS: AT_7}


def test_first_and_later_partitions_can_be_committed_together(tree):
    offsets.commit_offsets(tree, "ctr", {CLICKS: AT_5}, now_ms=1)
    more = {CLICKS: AT_7, VIEWS: AT_7, TopicPartition("views", 2): AT_5}
    offsets.commit_offsets(tree, "ctr", more, now_ms=2)
    assert offsets.read_offsets(tree, "ctr") == more


def test_groups_are_kept_apart_whatever_their_names(tree):
    names = ["ctr", "ctr/offsets", "", "..", "a b", "群"]
    offsets.commit_all(tree, {name: {CLICKS: OffsetAndMetadata(i)} for i, name in enumerate(names)}, now_ms=1)
    assert offsets.groups_with_offsets(tree) == sorted(names)
    for index, name in enumerate(names):
        assert offsets.read_offsets(tree, name) == {CLICKS: OffsetAndMetadata(index)}


def test_several_groups_are_committed_in_one_step(tree):
    offsets.commit_all(tree, {"a": {CLICKS: AT_5}, "b": {VIEWS: AT_7}}, now_ms=1)
    stats = [tree.exists(path) for path in ("/consumers/a/offsets/clicks/0", "/consumers/b/offsets/views/11")]
    assert stats[0].created_at == stats[1].created_at


def test_commit_of_nothing_leaves_nothing(tree):
    offsets.commit_offsets(tree, "ctr", {}, now_ms=1)
    assert offsets.groups_with_offsets(tree) == []


def test_unknown_group_has_no_offsets(tree):
    assert offsets.read_offsets(tree, "nobody") == {}
    assert offsets.groups_with_offsets(tree) == []
    assert not offsets.delete_group(tree, "nobody")


def test_node_holds_the_offset_as_json(tree):
    offsets.commit_offsets(tree, "ctr", {CLICKS: AT_5, VIEWS: AT_7}, now_ms=1_000)
    node = json.loads(tree.get("/consumers/ctr/offsets/clicks/0").data)
    assert node == {"version": 1, "offset": 5, "timestamp": 1_000, "leader_epoch": 3, "metadata": AT_5.metadata}
    assert json.loads(tree.get("/consumers/ctr/offsets/views/11").data) == {
        "version": 1,
        "offset": 7,
        "timestamp": 1_000,
    }


def test_bare_number_of_kafka_0_8_is_read(tree):
    tree.create("/consumers/old/offsets/clicks/0", b"42", make_parents=True)
    assert offsets.read_offsets(tree, "old") == {CLICKS: OffsetAndMetadata(42)}


def test_deleted_group_is_forgotten(tree):
    offsets.commit_all(tree, {"a": {CLICKS: AT_5}, "b": {CLICKS: AT_7}}, now_ms=1)
    assert offsets.delete_group(tree, "a")
    assert offsets.groups_with_offsets(tree) == ["b"]


def test_offsets_in_topics_that_do_not_exist_are_not_stored_and_the_others_are(tree):
    tree.delete(paths.topic("clicks"))
    assert offsets.commit_all(tree, {"a": {CLICKS: AT_5, VIEWS: AT_7}, "b": {CLICKS: AT_7}}, now_ms=1) == {"clicks"}
    assert offsets.groups_with_offsets(tree) == ["a"]
    assert offsets.read_offsets(tree, "a") == {VIEWS: AT_7}
    assert offsets.commit_all(tree, {"b": {CLICKS: AT_7}}, now_ms=2) == {"clicks"}


def test_commit_goes_on_when_another_creates_the_nodes_first(tree, monkeypatch):
    original, raced = tree.multi, []

    def multi(operations):
        if not raced and any(getattr(each, "path", "").endswith("/offsets") for each in operations):
            raced.append(True)
            offsets.commit_offsets(tree, "ctr", {VIEWS: AT_7}, now_ms=1)
            raise NodeExistsError("/consumers/ctr")
        return original(operations)

    monkeypatch.setattr(tree, "multi", multi)
    offsets.commit_offsets(tree, "ctr", {CLICKS: AT_5}, now_ms=1)
    assert raced
    assert offsets.read_offsets(tree, "ctr") == {CLICKS: AT_5, VIEWS: AT_7}
