"""Consumers among themselves: their registries in a tree, where several sessions meet."""

from __future__ import annotations

import threading

import pytest

from barnabas.coordination import offsets, paths, topic_metadata_store
from barnabas.coordination.consumers import ConsumerRegistry
from barnabas.coordination.metadata_store import NodeExistsError, NoNodeError
from barnabas.coordination.values import decode_consumer, encode_consumer
from barnabas.model import OffsetAndMetadata, TopicPartition

FIRST, SECOND, THIRD = (TopicPartition("clicks", number) for number in range(3))
AT_5 = OffsetAndMetadata(5, "so far", 2)


class Consumer(ConsumerRegistry):
    """A consumer with a session of its own."""

    def __init__(self, tree, name="ann"):
        self.tree = tree
        self.news = threading.Semaphore(0)
        super().__init__(tree, "ctr", name, self.news.release)

    def has_news(self):
        """Wait for what a watch says, all of it that comes from one change."""
        assert self.news.acquire(timeout=60)
        while self.news.acquire(blocking=False):
            pass
        return True


@pytest.fixture
def tree(tree):
    topic_metadata_store.create_topic(tree, "clicks", bytes(16), [[1], [1], [1]])
    return tree


@pytest.fixture
def two(tree, new_session):
    """Two consumers, with a session each."""
    sessions = [new_session(), new_session()]
    yield Consumer(sessions[0], "ann"), Consumer(sessions[1], "bob")
    for session in sessions:
        session.close()


def owners(tree):
    return {path.split("/")[-1]: node.data for path, node in tree.subtree("/consumers/ctr/owners/clicks").items()}


def test_consumers_find_one_another_and_the_partitions(two):
    ann, bob = two
    ann.register(["clicks", "views"], 1)
    bob.register(["clicks"], 2)
    assert ann.read(["clicks", "views"]) == ({"ann": {"clicks", "views"}, "bob": {"clicks"}}, {"clicks": 3})


def test_registration_is_that_of_kafka_0_8():
    data = encode_consumer(["b", "a"], 7)
    assert data == b'{"version":1,"subscription":{"a":1,"b":1},"pattern":"static","timestamp":"7"}'
    assert decode_consumer("/x", data) == {"a", "b"}
    assert decode_consumer("/x", b'{"version":1,"subscription":{"c":3}}') == {"c"}


def test_consumer_that_cannot_be_understood_wants_nothing(tree, two):
    ann, _ = two
    ann.register(["clicks"], 1)
    tree.create(paths.group_member("ctr", "odd/one"), b"?", ephemeral=True)
    assert ann.read(["clicks"]).subscriptions == {"ann": {"clicks"}, "odd/one": set()}


def test_name_of_another_session_cannot_be_taken(tree, two, new_session):
    ann, _ = two
    ann.register(["clicks"], 1)
    with pytest.raises(NodeExistsError):
        Consumer(tree, "ann").register(["clicks"], 2)


@pytest.mark.parametrize("event", ["comes", "goes", "session ends", "changes its mind"])
def test_others_hear_of_a_consumer_that(event, two):
    ann, bob = two
    ann.register(["clicks"], 1)
    if event != "comes":
        bob.register(["clicks"], 1)
    ann.read(["clicks"])
    if event == "goes":
        bob.leave([])
    elif event == "session ends":
        bob.tree.close()
    else:
        bob.register(["views"], 2)
    assert ann.has_news()


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (lambda tree: topic_metadata_store.grow_topic(tree, "clicks", [[1]], 3), {"clicks": 4}),
        (lambda tree: topic_metadata_store.delete_topic(tree, "clicks"), {}),
        (lambda tree: topic_metadata_store.create_topic(tree, "views", bytes(16), [[1]]), {"clicks": 3, "views": 1}),
    ],
)
def test_a_change_of_topics_is_heard_of_and_read(tree, two, change, counts):
    ann, _ = two
    ann.register(["clicks", "views"], 1)
    ann.read(["clicks", "views"])
    change(tree)
    assert ann.has_news()
    assert ann.read(["clicks", "views"]).partition_counts == counts


def test_partition_has_one_owner_until_it_is_released(tree, two):
    ann, bob = two
    assert ann.claim([FIRST, SECOND]) is None
    refused = bob.claim([SECOND, THIRD])
    assert refused == paths.group_owner("ctr", SECOND)
    assert owners(tree) == {"0": b"ann", "1": b"ann"}
    assert bob.await_release(refused)
    bob.release([SECOND, THIRD])
    assert owners(tree) == {"0": b"ann", "1": b"ann"}, "others' partitions are never released"
    ann.release([FIRST, SECOND, THIRD])
    assert bob.has_news()
    assert not bob.await_release(refused)
    assert bob.claim([SECOND, THIRD]) is None
    assert owners(tree) == {"1": b"bob", "2": b"bob"}


def test_all_that_a_session_owns_goes_with_it(tree, two):
    ann, bob = two
    ann.claim([FIRST])
    ann.tree.close()
    assert bob.claim([FIRST]) is None


def test_nodes_that_belong_to_no_session_keep_nobody_from_consuming(tree, two):
    ann, bob = two
    ann.register(["clicks"], 1)
    for name in ("stranger", "%FF"):
        tree.create(f"{paths.group_members('ctr')}/{name}", encode_consumer(["clicks"], 1))
    tree.create(paths.group_owner("ctr", FIRST), b"stranger", make_parents=True)
    assert ann.read(["clicks"]).subscriptions == {"ann": frozenset({"clicks"})}
    assert ann.claim([FIRST, SECOND]) is None
    assert owners(tree) == {"0": b"ann", "1": b"ann"}
    assert bob.claim([FIRST]) == paths.group_owner("ctr", FIRST)


def test_topic_that_cannot_be_understood_is_not_consumed(tree, two):
    ann, _ = two
    ann.register(["clicks"], 1)
    tree.set(paths.topic("clicks"), b"nonsense")
    assert ann.read(["clicks"]).partition_counts == {}


def test_nothing_can_be_claimed_released_and_committed(two):
    ann, _ = two
    assert ann.claim([]) is None
    ann.release([])
    ann.leave([])
    ann.commit({}, 1)
    assert ann.committed([]) == {}


def test_offsets_are_the_owners_to_commit_and_everybodys_to_read(tree, two):
    ann, bob = two
    ann.claim([FIRST, SECOND])
    ann.commit({FIRST: AT_5, SECOND: OffsetAndMetadata(7)}, 1)
    assert bob.committed([FIRST, THIRD]) == {FIRST: AT_5}
    assert offsets.read_offsets(tree, "ctr") == {FIRST: AT_5, SECOND: OffsetAndMetadata(7)}


def test_commit_is_refused_whole_where_one_partition_is_not_owned(tree, two):
    ann, _ = two
    ann.claim([FIRST, SECOND])
    ann.release([SECOND])
    with pytest.raises(NoNodeError) as refused:
        ann.commit({FIRST: AT_5, SECOND: AT_5}, 1)
    assert refused.value.path == paths.group_owner("ctr", SECOND)
    assert offsets.read_offsets(tree, "ctr") == {}


def test_offsets_can_be_committed_without_owning_anything(tree, two):
    ann, _ = two
    ann.commit({FIRST: AT_5}, 1, as_owner=False)
    assert ann.committed([FIRST]) == {FIRST: AT_5}
    with pytest.raises(NoNodeError):
        ann.commit({TopicPartition("gone", 0): AT_5}, 1, as_owner=False)
