"""Groups that coordinate among themselves, from outside: shown, moved and forgotten, while nobody is in them."""

from __future__ import annotations

import pytest

from barnabas.coordination import consumer_groups, paths, topic_metadata_store
from barnabas.coordination.consumer_groups import ConsumerOfGroup
from barnabas.coordination.consumers import ConsumerRegistry
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.offsets import read_offsets
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import OffsetAndMetadata, TopicPartition

TP = TopicPartition("t", 1)
AT_5 = {TP: OffsetAndMetadata(5)}


@pytest.fixture
def tree(tmp_path):
    tree = EmbeddedMetadataStore(tmp_path / "tree.db")
    topic_metadata_store.create_topic(tree, "t", bytes(16), [[1], [1]])
    yield tree
    tree.close()


@pytest.fixture
def consumer(tree):
    consumer = ConsumerRegistry(tree, "g h", "a", lambda: None)
    consumer.register(["t"], 7)
    consumer.claim([TP])
    return consumer


def test_consumers_have_what_they_own(tree, consumer):
    tree.create(paths.group_member("g h", "stranger"), b"?", ephemeral=True)
    assert consumer_groups.list_groups(tree) == ["g h"]
    found = [ConsumerOfGroup("a", ("t",), (TP,)), ConsumerOfGroup("stranger", (), ())]
    assert consumer_groups.consumers_of(tree, "g h") == found
    assert consumer_groups.consumers_of(tree, "g") is None


def refuses(code, call, *arguments):
    with pytest.raises(ApiError) as refused:
        call(*arguments)
    assert refused.value.code is code


def test_group_is_changed_only_while_nobody_is_in_it(tree, consumer):
    refuses(ErrorCode.NON_EMPTY_GROUP, consumer_groups.set_offsets, tree, "g h", AT_5, 7)
    refuses(ErrorCode.NON_EMPTY_GROUP, consumer_groups.delete_offsets, tree, "g h", [TP])
    refuses(ErrorCode.NON_EMPTY_GROUP, consumer_groups.delete_group, tree, "g h")
    assert read_offsets(tree, "g h") == {}
    consumer.leave([TP])
    consumer_groups.set_offsets(tree, "g h", AT_5, 7)
    consumer_groups.set_offsets(tree, "g h", AT_5, 8)
    assert read_offsets(tree, "g h") == AT_5
    consumer_groups.delete_offsets(tree, "g h", [TP, TopicPartition("t", 0)])
    assert read_offsets(tree, "g h") == {}
    consumer.register(["t"], 7)
    consumer.leave([])
    consumer_groups.delete_group(tree, "g h")
    assert consumer_groups.list_groups(tree) == []


def test_owner_that_is_in_no_registry_counts_too(tree, consumer):
    tree.delete(paths.group_member("g h", "a"))
    refuses(ErrorCode.NON_EMPTY_GROUP, consumer_groups.delete_group, tree, "g h")


def test_consumer_that_joins_meanwhile_is_found(tree, consumer, monkeypatch):
    """Between the look and the step: the tree refuses the step."""
    consumer.leave([TP])
    subtree = tree.subtree
    joins = iter([lambda: consumer.register(["t"], 7)])

    def look(path):
        found = subtree(path)
        next(joins, lambda: None)()
        return found

    monkeypatch.setattr(tree, "subtree", look)
    refuses(ErrorCode.NON_EMPTY_GROUP, consumer_groups.delete_group, tree, "g h")
    assert tree.exists(paths.group_member("g h", "a"))


def test_what_does_not_exist_is_said(tree):
    refuses(ErrorCode.GROUP_ID_NOT_FOUND, consumer_groups.delete_group, tree, "g")
    gone = {TopicPartition("gone", 0): OffsetAndMetadata(1)}
    refuses(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, consumer_groups.set_offsets, tree, "g", gone, 7)
