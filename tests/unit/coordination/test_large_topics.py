"""Topics that are made, grown and deleted in several steps: cut short anywhere, and by several at once."""

from __future__ import annotations

import pytest

from barnabas.coordination import large_topics, topic_deletions, topic_metadata_store
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import BadVersionError, NodeExistsError, NoNodeError

TOPIC_ID = bytes(range(16))
OTHER_ID = bytes(range(1, 17))
COUNT = 7


@pytest.fixture(autouse=True)
def _prepared(tree, monkeypatch):
    monkeypatch.setattr(large_topics, "PARTITIONS_AT_ONCE", 2)
    monkeypatch.setattr(topic_metadata_store, "PARTITIONS_AT_ONCE", 2)
    topic_metadata_store.prepare(tree, "cluster-1")


class CutShort(Exception):  # noqa: N818 - no error of ours: the process dies here
    pass


def cut_short(monkeypatch, tree, writes):
    """Let a tree do so many writes, and then run something else in place of the next one, or fail."""
    left = [writes]

    def counted(method):
        def call(*arguments, **options):
            if left[0] == 0:
                raise CutShort
            left[0] -= 1
            return method(*arguments, **options)

        return call

    for name in ("multi", "set", "create", "delete"):
        monkeypatch.setattr(tree, name, counted(getattr(tree, name)))


def nodes(tree):
    return {path: node.data for path, node in tree.subtree("/").items() if not path.startswith("/brokers/changes")}


def attempt(new_session, writes, call):
    """Do it in a session that dies after so many writes; return whether it came to its end before."""
    session = new_session()
    with pytest.MonkeyPatch.context() as patch:
        cut_short(patch, session, writes)
        try:
            call(session)
        except CutShort:
            return False
        finally:
            patch.undo()
            session.close()
    return True


def create(tree, topic_id=TOPIC_ID, count=COUNT, config=None):
    return topic_metadata_store.create_topic(tree, "clicks", topic_id, [[1, 2]] * count, config)


def test_large_topic_is_read_as_it_was_created(tree):
    created = create(tree, config={"a": "b"})
    assert topic_metadata_store.read_topics(tree) == {"clicks": created}
    assert len(created.partitions) == COUNT
    with pytest.raises(NodeExistsError):
        create(tree, OTHER_ID)
    assert topic_metadata_store.read_topic(tree, "clicks") == created


@pytest.mark.parametrize("count_of_next", [1, COUNT])
def test_creation_that_is_cut_short_is_nowhere_seen_and_does_not_stand_in_the_way(tree, new_session, count_of_next):
    writes = 0
    while not attempt(new_session, writes, lambda session: create(session, config={"old": "1"})):
        assert topic_metadata_store.read_topics(tree) == {}
        assert topic_metadata_store.read_topic(tree, "clicks") is None
        with pytest.raises(NoNodeError):
            topic_metadata_store.grow_topic(tree, "clicks", [[1]], 0)
        made = create(tree, OTHER_ID, count_of_next)
        assert topic_metadata_store.read_topics(tree) == {"clicks": made}
        assert topic_metadata_store.delete_topic(tree, "clicks")
        writes += 1
    assert writes > COUNT // 2
    assert topic_metadata_store.delete_topic(tree, "clicks")
    assert "/brokers/topics/clicks" not in nodes(tree)


def test_creation_that_is_cut_short_can_be_deleted(tree, new_session):
    before = nodes(tree)
    for writes in range(1, 5):
        assert not attempt(new_session, writes, create)
        topic_metadata_store.delete_topic(tree, "clicks")
        assert topic_metadata_store.read_topics(tree) == {}
        assert {path for path in nodes(tree) if "clicks" in path} == set()
    assert set(nodes(tree)) >= set(before)


@pytest.mark.parametrize("writes", range(6))
def test_of_two_who_create_a_large_topic_one_gets_to_the_end(tree, new_session, monkeypatch, writes):
    slow = new_session()
    at_the_cut = []

    def other_creates():
        at_the_cut.append(create(tree, OTHER_ID))

    run_before_write(monkeypatch, slow, writes, other_creates)
    with pytest.raises(NodeExistsError):
        create(slow)
    assert topic_metadata_store.read_topic(tree, "clicks") == at_the_cut[0]
    slow.close()


def run_before_write(monkeypatch, tree, writes, call):
    """Run something else between two writes of a tree, once."""
    left = [writes]

    def counted(method):
        def write(*arguments, **options):
            left[0] -= 1
            if left[0] == -1:
                call()
            return method(*arguments, **options)

        return write

    for name in ("multi", "set", "create", "delete"):
        monkeypatch.setattr(tree, name, counted(getattr(tree, name)))


def test_deletion_that_is_cut_short_has_deleted_the_topic_or_not(tree, new_session):
    writes = 0
    while True:
        made = create(tree, config={"a": "b"})
        if attempt(new_session, writes, lambda session: topic_metadata_store.delete_topic(session, "clicks")):
            break
        assert topic_metadata_store.read_topics(tree) in ({}, {"clicks": made})
        assert topic_metadata_store.read_topics(tree) == {} or writes == 0
        if topic_metadata_store.read_topics(tree):
            topic_metadata_store.delete_topic(tree, "clicks")
        writes += 1
    assert writes > COUNT // 2
    assert {path for path in nodes(tree) if "clicks" in path} == set()


def test_large_topic_goes_only_while_its_note_is_as_it_was(tree):
    made = create(tree)
    noted = topic_deletions.note_deletion(tree, made.topic_id, "clicks", [1, 2])
    topic_deletions.forget_deletion_not_begun(tree, made.topic_id)
    with pytest.raises(NoNodeError):
        topic_metadata_store.delete_topic(tree, "clicks", noted)
    noted = topic_deletions.note_deletion(tree, made.topic_id, "clicks", [1])
    topic_deletions.note_deletion(tree, made.topic_id, "clicks", [1, 2])
    with pytest.raises(BadVersionError):
        topic_metadata_store.delete_topic(tree, "clicks", noted)
    assert topic_metadata_store.read_topic(tree, "clicks") == made
    assert topic_metadata_store.delete_topic(
        tree, "clicks", topic_deletions.note_deletion(tree, made.topic_id, "clicks", [1, 2])
    )


def test_deletion_leaves_a_topic_that_somebody_makes_meanwhile(tree, new_session, monkeypatch):
    for writes in range(1, 5):
        create(tree)
        slow, made = new_session(), []
        run_before_write(monkeypatch, slow, writes, lambda made=made: made.append(create(tree, OTHER_ID)))
        assert topic_metadata_store.delete_topic(slow, "clicks")
        assert topic_metadata_store.read_topic(tree, "clicks") == made[0]
        assert topic_metadata_store.delete_topic(tree, "clicks")
        slow.close()


def test_growth_that_is_cut_short_has_added_all_partitions_or_none(tree, new_session):
    grown = 2
    writes = 0
    create(tree, count=grown)

    def grow(session):
        topic_metadata_store.grow_topic(session, "clicks", [[3]] * COUNT, grown)

    while not attempt(new_session, writes, grow):
        assert len(topic_metadata_store.read_topic(tree, "clicks").partitions) == grown
        assert topic_metadata_store.grow_topic(tree, "clicks", [[4]], grown) == grown + 1
        grown += 1
        writes += 1
    topic = topic_metadata_store.read_topic(tree, "clicks")
    assert [each.replicas for each in topic.partitions[-COUNT:]] == [(3,)] * COUNT
    assert len(topic.partitions) == grown + COUNT
    assert len(tree.children("/brokers/topics/clicks/partitions")) == grown + COUNT


def test_of_two_who_grow_a_topic_one_gets_to_the_end(tree, new_session, monkeypatch):
    create(tree, count=2)
    slow = new_session()
    run_before_write(monkeypatch, slow, 3, lambda: topic_metadata_store.grow_topic(tree, "clicks", [[4]] * COUNT, 2))
    with pytest.raises(BadVersionError):
        topic_metadata_store.grow_topic(slow, "clicks", [[3]] * COUNT, 2)
    assert [each.replicas for each in topic_metadata_store.read_topic(tree, "clicks").partitions[2:]] == [(4,)] * COUNT
    slow.close()


def test_topic_that_is_deleted_while_it_is_read_is_none(tree, monkeypatch):
    create(tree)
    get_all = EmbeddedMetadataStore.get_all

    def get_all_and_delete(self, paths):
        found = get_all(self, paths)
        topic_metadata_store.delete_topic(tree, "clicks")
        return found

    monkeypatch.setattr(EmbeddedMetadataStore, "get_all", get_all_and_delete)
    assert topic_metadata_store.read_topics(tree) == {}
