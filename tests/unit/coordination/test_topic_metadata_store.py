"""What the registry keeps in the tree: brokers, topics, states, producer ids."""

from __future__ import annotations

import json
import queue
from dataclasses import replace

import pytest

from barnabas.coordination import configs, large_topics, paths, topic_deletions, topic_metadata_store
from barnabas.coordination.change_notifications import StateChange
from barnabas.coordination.metadata_store import BadVersionError, EventKind, NodeExistsError, NoNodeError
from barnabas.coordination.values import (
    BrokerEndpoint,
    BrokerRegistration,
    DamagedNodeError,
    Deletion,
    LiveBroker,
    NewerFormatError,
    PartitionState,
    Remnant,
)
from barnabas.model import TopicPartition
from tests.support.deletion_notes import note

TOPIC_ID = bytes(range(16))
SECOND_ID = bytes(15) + b"\2"
CLICKS = TopicPartition("clicks", 0)


@pytest.fixture(autouse=True)
def _prepared(tree):
    topic_metadata_store.prepare(tree, "cluster-1")


def read_json(tree, path):
    return json.loads(tree.get(path).data)


def test_cluster_keeps_the_id_that_it_was_given_first(tree):
    assert topic_metadata_store.prepare(tree, "cluster-2") == "cluster-1"
    assert read_json(tree, "/cluster/id") == {"version": "1", "id": "cluster-1", "format": 1}


def test_a_tree_of_a_newer_release_is_refused(tree):
    tree.set("/cluster/id", b'{"version":"1","id":"cluster-1","format":2}')
    with pytest.raises(NewerFormatError) as caught:
        topic_metadata_store.prepare(tree, "cluster-2")
    assert str(caught.value) == (
        "/cluster/id: a newer release of Barnabas has written the metadata: format 2,"
        " but this release supports up to 1; start a newer release"
    )


def test_a_tree_that_does_not_say_its_format_is_of_the_first(tree):
    tree.set("/cluster/id", b'{"version":"1","id":"cluster-0"}')
    assert topic_metadata_store.prepare(tree, "cluster-2") == "cluster-0"


def test_broker_is_registered_as_kafka_does_it(tree):
    topic_metadata_store.register_broker(tree, BrokerRegistration(1, "localhost", 9092, 1_700_000_000_000))
    assert read_json(tree, "/brokers/ids/1") == {
        "version": 5,
        "host": "localhost",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "1700000000000",
        "endpoints": ["PLAINTEXT://localhost:9092"],
        "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "REPLICATION": "PLAINTEXT"},
        "rack": None,
        "features": {},
        "folder_id": "",
        "is_leaving": False,
        "release": "",
        "epoch": 0,
    }
    assert tree.exists("/brokers/ids/1").owner == tree.session_id


def test_brokers_are_seen_while_they_live(tree, new_session):
    other = new_session()
    second = BrokerRegistration(2, "b", 2, 5)
    first = BrokerRegistration(1, "a", 1, 5)
    second_epoch = topic_metadata_store.register_broker(other, second)
    first_epoch = topic_metadata_store.register_broker(tree, first)
    assert first_epoch > second_epoch
    found = [(1, LiveBroker(first, first_epoch)), (2, LiveBroker(second, second_epoch))]
    assert list(topic_metadata_store.read_brokers(tree).items()) == found
    changes = queue.SimpleQueue()
    topic_metadata_store.read_brokers(tree, watch=changes.put)
    other.close()
    assert changes.get(timeout=60) == (EventKind.CHILDREN_CHANGED, "/brokers/ids")
    assert topic_metadata_store.read_brokers(tree) == {1: LiveBroker(first, first_epoch)}


def test_epoch_of_a_registration_is_its_own_random_number(tree):
    epoch = 2**62 + 11
    assert topic_metadata_store.register_broker(tree, BrokerRegistration(1, "a", 1, epoch=epoch)) == epoch
    found = topic_metadata_store.read_brokers(tree)[1]
    assert (found.epoch, found.has_random_epoch) == (epoch, True)
    assert found.created_at == tree.exists("/brokers/ids/1").created_at
    assert topic_metadata_store.read_broker_epochs(tree, [1, 2]) == {1: epoch}


def test_epoch_of_a_broker_of_release_0_1_is_when_its_node_was_created(tree):
    topic_metadata_store.register_broker(tree, BrokerRegistration(1, "a", 1))
    created_at = tree.exists("/brokers/ids/1").created_at
    found = topic_metadata_store.read_brokers(tree)[1]
    assert (found.epoch, found.has_random_epoch) == (created_at, False)
    assert topic_metadata_store.read_broker_epochs(tree, [1]) == {1: created_at}


@pytest.mark.parametrize("epoch", [-1, 2**63, 10**400, "x", 1.5, [], True])
def test_epoch_that_no_broker_writes_is_no_epoch(tree, epoch, caplog):
    topic_metadata_store.register_broker(tree, BrokerRegistration(1, "a", 1, epoch=5))
    fields = json.loads(tree.get("/brokers/ids/1").data) | {"epoch": epoch}
    tree.set("/brokers/ids/1", json.dumps(fields).encode())
    assert topic_metadata_store.read_brokers(tree) == {}
    assert topic_metadata_store.read_broker_epochs(tree, [1]) == {}
    assert "skipping /brokers/ids/1" in caplog.text


def test_broker_id_in_use_is_refused_and_the_own_one_is_renewed(tree, new_session):
    epoch = topic_metadata_store.register_broker(tree, BrokerRegistration(1, "a", 1))
    assert topic_metadata_store.register_broker(tree, BrokerRegistration(1, "a", 2)) == epoch
    assert topic_metadata_store.read_brokers(tree)[1].registration.port == 2
    other = new_session()
    with pytest.raises(NodeExistsError, match="/brokers/ids/1"):
        topic_metadata_store.register_broker(other, BrokerRegistration(1, "b", 1))
    other.close()


def test_id_whose_registration_cannot_be_understood_is_in_use(tree, new_session):
    other = new_session()
    other.create("/brokers/ids/1", b"garbage", ephemeral=True, make_parents=True)
    with pytest.raises(NodeExistsError, match="may be alive"):
        topic_metadata_store.register_broker(tree, BrokerRegistration(1, "a", 1, folder_id="mine"))
    assert topic_metadata_store.read_brokers(tree) == {}
    other.close()


def test_broker_takes_the_place_of_an_earlier_session_of_its_data_folder(tree, new_session):
    other = new_session()
    epoch = topic_metadata_store.register_broker(other, BrokerRegistration(1, "a", 1, folder_id="mine"))
    assert topic_metadata_store.register_broker(tree, BrokerRegistration(1, "a", 2, folder_id="mine")) > epoch
    assert tree.exists("/brokers/ids/1").owner == tree.session_id
    other.close()
    assert topic_metadata_store.read_brokers(tree)[1].registration.port == 2
    third = new_session()
    with pytest.raises(NodeExistsError, match="alive at a:2"):
        topic_metadata_store.register_broker(third, BrokerRegistration(1, "c", 3, folder_id="another"))
    third.close()


def test_topic_is_read_as_it_was_created(tree):
    created = topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1, 2], [2, 1]], {"retention.ms": "1000"})
    assert created.topic_id == TOPIC_ID
    assert [each.state for each in created.partitions] == [
        PartitionState(leader=1, leader_epoch=0, isr=(1, 2)),
        PartitionState(leader=2, leader_epoch=0, isr=(2, 1)),
    ]
    assert topic_metadata_store.read_topic(tree, "clicks") == created
    assert topic_metadata_store.read_topics(tree) == {"clicks": created}
    assert topic_metadata_store.read_topic(tree, "views") is None


def test_topic_nodes_hold_what_kafka_writes(tree):
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]], {"retention.ms": "1000"})
    topic = read_json(tree, "/brokers/topics/clicks")
    assert topic["partitions"] == {"0": [1]}
    assert topic["topic_id"] == "AAECAwQFBgcICQoLDA0ODw"
    assert read_json(tree, "/brokers/topics/clicks/partitions/0/state") == {
        "controller_epoch": 0,
        "leader": 1,
        "version": 1,
        "leader_epoch": 0,
        "isr": [1],
    }
    assert read_json(tree, "/config/topics/clicks") == {"version": 1, "config": {"retention.ms": "1000"}}


def test_topic_is_created_once_and_wholly(tree):
    created = topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]] * 3)
    with pytest.raises(NodeExistsError):
        topic_metadata_store.create_topic(tree, "clicks", bytes(16), [[1]] * 9, {"a": "b"})
    assert topic_metadata_store.read_topic(tree, "clicks") == created


def test_topic_can_be_created_in_a_tree_that_nobody_prepared(tree):
    for path in ("/brokers/topics", "/config/topics", "/config"):
        tree.delete(path)
    assert topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]], {"a": "b"}).config == {"a": "b"}


def test_deleted_topic_is_gone_with_its_configuration(tree):
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]] * 3, {"a": "b"})
    topic_metadata_store.create_topic(tree, "clicks2", TOPIC_ID, [[1]])
    assert topic_metadata_store.delete_topic(tree, "clicks")
    assert not topic_metadata_store.delete_topic(tree, "clicks")
    assert list(topic_metadata_store.read_topics(tree)) == ["clicks2"]
    assert configs.read_topic_config(tree, "clicks") == {}


def test_partitions_are_added_behind_the_old_ones(tree):
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    old = PartitionState(leader=1, leader_epoch=5, isr=(1,))
    assert topic_metadata_store.write_partition_states(tree, [StateChange(CLICKS, TOPIC_ID, old, 1)])
    for _ in range(2):
        assert topic_metadata_store.grow_topic(tree, "clicks", [[2, 3], [2, 3]], 1) == 3
    assert topic_metadata_store.grow_topic(tree, "clicks", [[1]], 1) == 3
    topic = topic_metadata_store.read_topic(tree, "clicks")
    assert [each.replicas for each in topic.partitions] == [(1,), (2, 3), (2, 3)]
    assert topic.partitions[0].state == old
    with pytest.raises(NoNodeError):
        topic_metadata_store.grow_topic(tree, "views", [[1]], 0)


def test_creation_of_a_topic_is_seen_by_a_watch(tree):
    changes = queue.SimpleQueue()
    topic_metadata_store.read_topics(tree, watch=changes.put)
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    assert changes.get(timeout=60) == (EventKind.CHILDREN_CHANGED, "/brokers/topics")


def test_those_that_lost_memory_stand_in_the_state(tree):
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1, 2]])
    state, version = topic_metadata_store.read_partition_state(tree, CLICKS)
    assert b"lost_memory" not in tree.get(paths.partition_state(CLICKS)).data
    lost = PartitionState(state.leader, 9, (), (Remnant(1, 8, 50), Remnant.gone(2)))
    assert topic_metadata_store.write_partition_states(tree, [StateChange(CLICKS, TOPIC_ID, lost, version + 1)])
    assert topic_metadata_store.read_partition_state(tree, CLICKS) == (lost, version + 1)


def test_partition_state_changes_by_compare_and_set(tree):
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1, 2]])
    state, version = topic_metadata_store.read_partition_state(tree, CLICKS)
    mine = PartitionState(leader=2, leader_epoch=state.leader_epoch + 1, isr=(2,))
    change = StateChange(CLICKS, TOPIC_ID, mine, version + 1)
    assert topic_metadata_store.write_partition_states(tree, [change]) == [change]
    assert topic_metadata_store.write_partition_states(tree, [StateChange(CLICKS, TOPIC_ID, state, version + 1)]) == []
    assert topic_metadata_store.read_partition_state(tree, CLICKS) == (mine, version + 1)
    assert topic_metadata_store.read_topic(tree, "clicks").partitions[0].version == version + 1


def delete(tree, topic_id, brokers):
    topic_metadata_store.delete_topic(tree, "clicks", topic_deletions.note_deletion(tree, topic_id, "clicks", brokers))


def test_who_has_not_heard_of_a_deletion_changes_nothing_of_a_topic_made_again_under_the_name(tree):
    """Simulated seed 21206: a leader of the deleted one became leader of the other, of which it was no replica."""
    state = PartitionState(leader=1, leader_epoch=1, isr=(1,))
    late = [StateChange(TopicPartition("clicks", number), TOPIC_ID, state, 1) for number in range(2)]
    other = StateChange(TopicPartition("views", 0), SECOND_ID, state, 1)
    topic_metadata_store.create_topic(tree, "views", SECOND_ID, [[1, 2]])
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1, 2]] * 2)
    delete(tree, TOPIC_ID, [1, 2])
    topic_metadata_store.create_topic(tree, "clicks", bytes(16), [[2, 3]] * 2)
    made = topic_metadata_store.read_topic(tree, "clicks")
    topic_deletions.end_deletion(tree, TOPIC_ID, 2)
    assert topic_metadata_store.write_partition_states(tree, late) == []
    assert topic_metadata_store.write_partition_states(tree, [*late, other]) == [other]
    assert topic_metadata_store.read_topic(tree, "clicks") == made


def test_topic_of_which_a_deletion_is_noted_changes_until_it_goes(tree):
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1, 2]])
    first, second = (
        StateChange(CLICKS, TOPIC_ID, PartitionState(leader=2, leader_epoch=each, isr=(2,)), each) for each in (1, 2)
    )
    noted = topic_deletions.note_deletion(tree, TOPIC_ID, "clicks", [1, 2])
    assert topic_metadata_store.write_partition_states(tree, [first]) == [first]
    topic_metadata_store.delete_topic(tree, "clicks", noted)
    assert topic_metadata_store.write_partition_states(tree, [second]) == []


def test_deletion_between_look_and_write_is_seen(tree, monkeypatch):
    """It was noted, and the topic was there, when that was looked at."""
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1, 2]])
    noted = topic_deletions.note_deletion(tree, TOPIC_ID, "clicks", [1, 2])
    look = topic_metadata_store.guards_by_notes

    def look_and_be_overtaken(*arguments):
        found = look(*arguments)
        if topic_metadata_store.delete_topic(tree, "clicks", noted if found[TOPIC_ID] else None):
            topic_metadata_store.create_topic(tree, "clicks", bytes(16), [[2, 3]])
            monkeypatch.undo()
        return found

    monkeypatch.setattr(topic_metadata_store, "guards_by_notes", look_and_be_overtaken)
    late = StateChange(CLICKS, TOPIC_ID, PartitionState(leader=1, leader_epoch=1, isr=(1,)), 1)
    assert topic_metadata_store.write_partition_states(tree, [late]) == []
    assert topic_metadata_store.read_partition_state(tree, CLICKS)[0].leader == 2


def test_producer_ids_of_an_older_tree_begin_above_those_in_use(tree, caplog):
    assert topic_metadata_store.take_producer_ids(tree, 1, size=10)[-1] == 9
    assert topic_metadata_store.take_producer_ids(tree, 1, size=10, highest_used=9)[-1] == 19
    older = tree.get("/latest_producer_id_block").data
    assert not caplog.messages
    block = topic_metadata_store.take_producer_ids(tree, 2, size=10, highest_used=40)
    assert block[0] > 40
    (line,) = caplog.messages
    assert "is 19, but producer id 40 is in use" in line
    assert topic_metadata_store.take_producer_ids(tree, 2, size=10, highest_used=40)[0] == block[-1] + 1
    tree.set("/latest_producer_id_block", older)
    assert topic_metadata_store.raise_producer_ids(tree, 1, 19) == topic_metadata_store.raise_producer_ids(tree, 1, -1)
    raised = topic_metadata_store.raise_producer_ids(tree, 1, block[-1])
    assert raised.raised_to == block[-1]
    assert topic_metadata_store.take_producer_ids(tree, 1, size=10)[0] == raised.end + 1
    # The next block does not forget how far the counter was raised: a broker may hold a block from before.
    assert topic_metadata_store.raise_producer_ids(tree, 1, -1).raised_to == block[-1]


def test_missing_counter_of_producer_ids_begins_above_those_in_use(tree, caplog):
    assert topic_metadata_store.raise_producer_ids(tree, 1, -1).end == -1
    assert tree.exists("/latest_producer_id_block") is None
    assert topic_metadata_store.raise_producer_ids(tree, 1, 7).end > 7
    assert topic_metadata_store.take_producer_ids(tree, 1)[0] > 7
    (line,) = caplog.messages
    assert "is missing, but producer id 7 is in use" in line


def test_producer_ids_are_given_out_once(tree, new_session):
    other = new_session()
    blocks = [topic_metadata_store.take_producer_ids(each, 1, size=10) for each in (tree, other, tree)]
    assert [list(block) for block in blocks] == [list(range(start, start + 10)) for start in (0, 10, 20)]
    assert read_json(tree, "/latest_producer_id_block") == {
        "version": 1,
        "broker": 1,
        "block_start": "20",
        "block_end": "29",
    }
    other.close()


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"leader": null}', b'{"leader":1,"leader_epoch":0,"isr":[{}]}'])
def test_node_that_cannot_be_understood_is_named(tree, data):
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    tree.set("/brokers/topics/clicks/partitions/0/state", data)
    with pytest.raises(DamagedNodeError, match="/brokers/topics/clicks/partitions/0/state"):
        topic_metadata_store.read_partition_state(tree, CLICKS)


def test_cluster_id_is_durable_before_it_is_used(new_session, monkeypatch):
    tree = new_session()
    tree.delete("/cluster/id")
    flushed = []
    monkeypatch.setattr(tree, "flush", lambda: flushed.append(tree.get("/cluster/id").data))
    topic_metadata_store.prepare(tree, "cluster-2")
    assert [json.loads(data)["id"] for data in flushed] == ["cluster-2"]
    tree.close()


@pytest.mark.parametrize(
    ("node", "data"),
    [
        ("00", b"{"),
        ("00", b'{"name": "clicks"}'),
        ("00", b'{"name": "clicks", "brokers": [null]}'),
        ("00", b'{"name": "clicks", "brokers": [1e999]}'),
        ("clicks", b'{"name": "clicks", "brokers": [1]}'),
    ],
)
def test_note_of_a_deletion_that_cannot_be_understood_is_passed_over(tree, caplog, node, data):
    note(tree, TOPIC_ID, "views", [1, 2])
    tree.create(f"/admin/deleted_topic_ids/{node}", data)
    assert topic_deletions.read_deletions(tree) == {TOPIC_ID: Deletion("views", (1, 2))}
    assert f"/admin/deleted_topic_ids/{node}" in caplog.text


def test_note_of_a_deletion_goes_with_the_last_broker_that_it_names(tree):
    topic_metadata_store.create_topic(tree, "views", TOPIC_ID, [[1, 2]])
    topic_deletions.note_deletion(tree, TOPIC_ID, "views", [1, 2])
    topic_metadata_store.delete_topic(tree, "views", topic_deletions.note_deletion(tree, TOPIC_ID, "views", [1, 2, 3]))
    topic_deletions.end_deletion(tree, TOPIC_ID, 3)
    topic_deletions.end_deletion(tree, TOPIC_ID, 1)
    assert topic_deletions.read_deletions(tree) == {TOPIC_ID: Deletion("views", (2,))}
    for _ in range(2):
        topic_deletions.end_deletion(tree, TOPIC_ID, 2)
        assert topic_deletions.read_deletions(tree) == {}


def test_topic_goes_only_while_its_note_names_all_that_have_something_of_it(tree):
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1, 2]])
    noted = topic_deletions.note_deletion(tree, TOPIC_ID, "clicks", [1, 2])
    topic_deletions.forget_deletion_not_begun(tree, TOPIC_ID)  # a broker starts, and finds the topic there
    assert topic_deletions.read_deletions(tree) == {}
    with pytest.raises(NoNodeError):
        topic_metadata_store.delete_topic(tree, "clicks", noted)
    noted = topic_deletions.note_deletion(tree, TOPIC_ID, "clicks", [1])
    topic_deletions.note_deletion(tree, TOPIC_ID, "clicks", [1, 2])
    with pytest.raises(BadVersionError):
        topic_metadata_store.delete_topic(tree, "clicks", noted)
    noted = topic_deletions.note_deletion(tree, TOPIC_ID, "clicks", [1, 2])
    assert topic_metadata_store.delete_topic(tree, "clicks", noted)
    assert topic_deletions.read_deletions(tree) == {TOPIC_ID: Deletion("clicks", (1, 2))}


def test_broker_that_finds_a_topic_gone_stays_in_the_note_of_its_deletion(tree):
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1, 2]])
    noted = topic_deletions.note_deletion(tree, TOPIC_ID, "clicks", [1, 2])
    topic_metadata_store.delete_topic(tree, "clicks", noted)
    topic_deletions.forget_deletion_not_begun(tree, TOPIC_ID)
    topic_metadata_store.create_topic(tree, "clicks", bytes(16), [[1, 2]])
    topic_deletions.forget_deletion_not_begun(tree, TOPIC_ID)
    assert topic_deletions.read_deletions(tree) == {TOPIC_ID: Deletion("clicks", (1, 2))}


@pytest.mark.parametrize("partitions", [1, large_topics.PARTITIONS_AT_ONCE + 1])
def test_topic_that_was_just_made_is_taken_back_without_a_note(tree, partitions):
    made = topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]] * partitions)
    assert topic_metadata_store.take_topic_back(tree, made)
    assert topic_metadata_store.read_topics(tree) == {}
    assert topic_deletions.read_deletions(tree) == {}
    assert not topic_metadata_store.take_topic_back(tree, made)


def test_taking_a_topic_back_leaves_another_one_of_its_name(tree):
    made = topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    delete(tree, TOPIC_ID, [1])
    topic_metadata_store.create_topic(tree, "clicks", SECOND_ID, [[1]])
    assert not topic_metadata_store.take_topic_back(tree, made)
    assert topic_metadata_store.read_topic(tree, "clicks").topic_id == SECOND_ID


def test_topic_that_others_have_changed_is_not_taken_back_without_a_note(tree):
    made = topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    node = tree.get(paths.topic("clicks"))
    tree.set(paths.topic("clicks"), node.data, node.stat.version)
    assert not topic_metadata_store.take_topic_back(tree, made)
    assert topic_metadata_store.read_topic(tree, "clicks").topic_id == TOPIC_ID


def test_topic_whose_deletion_others_have_noted_is_taken_back(tree):
    made = topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    topic_deletions.note_deletion(tree, TOPIC_ID, "clicks", [1])
    assert topic_metadata_store.take_topic_back(tree, made)
    assert topic_metadata_store.read_topics(tree) == {}


def test_topic_that_others_replace_while_it_is_taken_back_stays(tree, monkeypatch):
    made = topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    look = topic_metadata_store.check_topic

    def look_and_be_overtaken(*arguments):
        found = look(*arguments)
        monkeypatch.undo()
        delete(tree, TOPIC_ID, [1])
        topic_metadata_store.create_topic(tree, "clicks", SECOND_ID, [[1]])
        return found

    monkeypatch.setattr(topic_metadata_store, "check_topic", look_and_be_overtaken)
    assert not topic_metadata_store.take_topic_back(tree, made)
    assert topic_metadata_store.read_topic(tree, "clicks").topic_id == SECOND_ID


@pytest.mark.parametrize("made_again", [False, True])
def test_who_has_not_heard_of_a_deletion_notes_it_for_nobody_and_deletes_nothing(tree, made_again):
    """Simulated seed 95862: another topic was deleted by what was known of the former, and noted with its id."""
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1, 2]])
    delete(tree, TOPIC_ID, [1, 2])
    topic_deletions.end_deletion(tree, TOPIC_ID, 2)
    if made_again:
        topic_metadata_store.create_topic(tree, "clicks", SECOND_ID, [[1, 2]])
    assert topic_deletions.note_deletion(tree, TOPIC_ID, "clicks", [1, 2]) is None
    assert topic_deletions.read_deletions(tree) == {TOPIC_ID: Deletion("clicks", (1,))}


def test_topic_made_again_between_two_looks_is_not_deleted_for_the_one_that_is_gone(tree, monkeypatch):
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1, 2]])
    noted = topic_deletions.note_deletion(tree, TOPIC_ID, "clicks", [1, 2])
    look = topic_deletions.check_topic

    def look_and_be_overtaken(*arguments):
        found = look(*arguments)
        monkeypatch.undo()
        topic_metadata_store.delete_topic(tree, "clicks", noted)
        topic_metadata_store.create_topic(tree, "clicks", SECOND_ID, [[1, 2]])
        return found

    monkeypatch.setattr(topic_deletions, "check_topic", look_and_be_overtaken)
    assert topic_deletions.note_deletion(tree, TOPIC_ID, "clicks", [1, 2]) is None
    assert topic_metadata_store.read_topic(tree, "clicks").topic_id == SECOND_ID


def test_states_of_which_one_was_changed_by_others_are_written_without_it(tree):
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]] * 5)
    wanted = [
        StateChange(TopicPartition("clicks", number), TOPIC_ID, PartitionState(1, 9, (1,)), 1) for number in range(5)
    ]
    assert topic_metadata_store.write_partition_states(tree, wanted[3:4]) == wanted[3:4]
    gone = StateChange(TopicPartition("views", 0), TOPIC_ID, PartitionState(1, 9, (1,)), 1)
    assert topic_metadata_store.write_partition_states(tree, [*wanted, gone]) == [*wanted[:3], *wanted[4:]]


def test_states_that_others_have_changed_are_found_without_trying_each(tree, monkeypatch):
    topic_metadata_store.create_topic(tree, "clicks", TOPIC_ID, [[1]] * 100)
    wanted = [
        StateChange(TopicPartition("clicks", number), TOPIC_ID, PartitionState(1, 9, (1,)), 1) for number in range(100)
    ]
    topic_metadata_store.write_partition_states(tree, wanted[::2])
    sizes, multi = [], tree.multi
    monkeypatch.setattr(tree, "multi", lambda operations: [sizes.append(len(operations)), multi(operations)][1])
    assert topic_metadata_store.write_partition_states(tree, wanted) == wanted[1::2]
    assert sizes == [103, 53], (
        "those that nobody changed, in one step, with what tells them and what guards their topic"
    )
    assert topic_metadata_store.write_partition_states(tree, wanted) == []
    assert sizes == [103, 53, 103]


def test_ten_thousand_states_are_written_in_thirteen_steps(tree, monkeypatch):
    sizes = []
    monkeypatch.setattr(tree, "multi", lambda operations: sizes.append(len(operations)))
    state = PartitionState(1, 9, (1,))
    wanted = [StateChange(TopicPartition("clicks", number), TOPIC_ID, state, 1) for number in range(10_000)]
    assert topic_metadata_store.write_partition_states(tree, wanted) == wanted
    assert sizes == [803] * 12 + [403], "and one that tells the others, and two that guard the topic"


def test_registration_with_several_listeners_is_unchanged_after_it_is_written(tree):
    endpoints = (
        BrokerEndpoint("SASL_SSL", "localhost", 9094, "SASL_SSL"),
        BrokerEndpoint("REPLICATION", "127.0.0.1", 9095),
    )
    own = BrokerRegistration(1, "localhost", 9094, 5, replication_port=9095, endpoints=endpoints)
    topic_metadata_store.register_broker(tree, own)
    assert topic_metadata_store.is_as_registered(tree, own)
    other = BrokerEndpoint("SASL_SSL", "localhost", 9999, "SASL_SSL")
    topic_metadata_store.register_broker(tree, replace(own, endpoints=(other, endpoints[1])))
    assert not topic_metadata_store.is_as_registered(tree, own)
