"""What the registry keeps in the tree: brokers, topics, states, configurations, producer ids."""

from __future__ import annotations

import json
import queue

import pytest

from barnabas.coordination import registry
from barnabas.coordination.registry import BrokerRegistration, PartitionState
from barnabas.coordination.tree import BadVersionError, EventKind, NodeExistsError, NoNodeError
from barnabas.coordination.values import BadNodeError
from barnabas.model import TopicPartition

TOPIC_ID = bytes(range(16))
CLICKS = TopicPartition("clicks", 0)


@pytest.fixture(autouse=True)
def _prepared(tree):
    registry.prepare(tree, "cluster-1")


def read_json(tree, path):
    return json.loads(tree.get(path).data)


def test_cluster_keeps_the_id_that_it_was_given_first(tree):
    assert registry.prepare(tree, "cluster-2") == "cluster-1"
    assert read_json(tree, "/cluster/id") == {"version": "1", "id": "cluster-1"}


def test_broker_is_registered_as_kafka_does_it(tree):
    registry.register_broker(tree, BrokerRegistration(1, "localhost", 9092, 1_700_000_000_000))
    assert read_json(tree, "/brokers/ids/1") == {
        "version": 1,
        "host": "localhost",
        "port": 9092,
        "jmx_port": -1,
        "timestamp": "1700000000000",
    }
    assert tree.exists("/brokers/ids/1").owner == tree.session_id


def test_brokers_are_seen_while_they_live(tree, new_session):
    other = new_session()
    second = BrokerRegistration(2, "b", 2, 5)
    first = BrokerRegistration(1, "a", 1, 5)
    registry.register_broker(other, second)
    registry.register_broker(tree, first)
    assert list(registry.read_brokers(tree).items()) == [(1, first), (2, second)]
    changes = queue.SimpleQueue()
    registry.read_brokers(tree, watch=changes.put)
    other.close()
    assert changes.get(timeout=60) == (EventKind.CHILDREN_CHANGED, "/brokers/ids")
    assert registry.read_brokers(tree) == {1: first}


def test_broker_id_in_use_is_refused_and_the_own_one_is_renewed(tree, new_session):
    registry.register_broker(tree, BrokerRegistration(1, "a", 1))
    registry.register_broker(tree, BrokerRegistration(1, "a", 2))
    assert registry.read_brokers(tree)[1].port == 2
    other = new_session()
    with pytest.raises(NodeExistsError, match="/brokers/ids/1"):
        registry.register_broker(other, BrokerRegistration(1, "b", 1))
    other.close()


def test_topic_is_read_as_it_was_created(tree):
    created = registry.create_topic(tree, "clicks", TOPIC_ID, [[1, 2], [2, 1]], {"retention.ms": "1000"})
    assert created.topic_id == TOPIC_ID
    assert [each.state for each in created.partitions] == [
        PartitionState(leader=1, leader_epoch=0, isr=(1, 2)),
        PartitionState(leader=2, leader_epoch=0, isr=(2, 1)),
    ]
    assert registry.read_topic(tree, "clicks") == created
    assert registry.read_topics(tree) == {"clicks": created}
    assert registry.read_topic(tree, "views") is None


def test_topic_nodes_hold_what_kafka_writes(tree):
    registry.create_topic(tree, "clicks", TOPIC_ID, [[1]], {"retention.ms": "1000"})
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
    created = registry.create_topic(tree, "clicks", TOPIC_ID, [[1]] * 3)
    with pytest.raises(NodeExistsError):
        registry.create_topic(tree, "clicks", bytes(16), [[1]] * 9, {"a": "b"})
    assert registry.read_topic(tree, "clicks") == created


def test_topic_can_be_created_in_a_tree_that_nobody_prepared(tree):
    for path in ("/brokers/topics", "/config/topics", "/config"):
        tree.delete(path)
    assert registry.create_topic(tree, "clicks", TOPIC_ID, [[1]], {"a": "b"}).config == {"a": "b"}


def test_deleted_topic_is_gone_with_its_configuration(tree):
    registry.create_topic(tree, "clicks", TOPIC_ID, [[1]] * 3, {"a": "b"})
    registry.create_topic(tree, "clicks2", TOPIC_ID, [[1]])
    assert registry.delete_topic(tree, "clicks")
    assert not registry.delete_topic(tree, "clicks")
    assert list(registry.read_topics(tree)) == ["clicks2"]
    assert registry.read_topic_config(tree, "clicks") == {}


def test_partitions_are_added_behind_the_old_ones(tree):
    registry.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    old = PartitionState(leader=1, leader_epoch=5, isr=(1,))
    registry.write_partition_state(tree, CLICKS, old)
    for _ in range(2):
        assert registry.grow_topic(tree, "clicks", 3, [2, 3]) == 3
    assert registry.grow_topic(tree, "clicks", 2, [1]) == 3
    topic = registry.read_topic(tree, "clicks")
    assert [each.replicas for each in topic.partitions] == [(1,), (2, 3), (2, 3)]
    assert topic.partitions[0].state == old
    with pytest.raises(NoNodeError):
        registry.grow_topic(tree, "views", 1, [1])


def test_creation_of_a_topic_is_seen_by_a_watch(tree):
    changes = queue.SimpleQueue()
    registry.read_topics(tree, watch=changes.put)
    registry.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    assert changes.get(timeout=60) == (EventKind.CHILDREN_CHANGED, "/brokers/topics")


def test_configuration_is_replaced(tree):
    registry.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    assert registry.read_topic_config(tree, "clicks") == {}
    registry.write_topic_config(tree, "clicks", {"a": "1", "b": "2"})
    registry.write_topic_config(tree, "clicks", {"b": "3"})
    assert registry.read_topic_config(tree, "clicks") == {"b": "3"}
    assert registry.read_topics(tree)["clicks"].config == {"b": "3"}


def test_partition_state_changes_by_compare_and_set(tree):
    registry.create_topic(tree, "clicks", TOPIC_ID, [[1, 2]])
    state, version = registry.read_partition_state(tree, CLICKS)
    mine = PartitionState(leader=2, leader_epoch=state.leader_epoch + 1, isr=(2,))
    assert registry.write_partition_state(tree, CLICKS, mine, version) == version + 1
    with pytest.raises(BadVersionError):
        registry.write_partition_state(tree, CLICKS, state, version)
    assert registry.read_partition_state(tree, CLICKS) == (mine, version + 1)
    assert registry.read_topic(tree, "clicks").partitions[0].version == version + 1


def test_producer_ids_are_given_out_once(tree, new_session):
    other = new_session()
    blocks = [registry.take_producer_ids(each, 1, size=10) for each in (tree, other, tree)]
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
    registry.create_topic(tree, "clicks", TOPIC_ID, [[1]])
    tree.set("/brokers/topics/clicks/partitions/0/state", data)
    with pytest.raises(BadNodeError, match="/brokers/topics/clicks/partitions/0/state"):
        registry.read_partition_state(tree, CLICKS)


def test_cluster_id_is_durable_before_it_is_used(new_session, monkeypatch):
    tree = new_session()
    tree.delete("/cluster/id")
    flushed = []
    monkeypatch.setattr(tree, "flush", lambda: flushed.append(tree.get("/cluster/id").data))
    registry.prepare(tree, "cluster-2")
    assert [json.loads(data)["id"] for data in flushed] == ["cluster-2"]
    tree.close()
