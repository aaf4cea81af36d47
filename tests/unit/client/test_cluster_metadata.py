"""The picture of the cluster."""

from __future__ import annotations

from barnabas.client.cluster import ClusterView
from barnabas.errors import ErrorCode
from barnabas.model import Node, TopicPartition
from barnabas.protocol.declare import ZERO_UUID
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

THIS, LATER_ONE = b"1" * 16, b"2" * 16


def answer(*topics):
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=1, host="a", port=9)],
        cluster_id="c",
        controller_id=1,
        topics=list(topics),
    )


def topic(name, leaders, error=0, epoch=-1, topic_id=ZERO_UUID):
    return MetadataResponseTopic(
        error_code=error,
        name=name,
        topic_id=topic_id,
        partitions=[
            MetadataResponsePartition(
                error_code=0,
                partition_index=place,
                leader_id=leader,
                leader_epoch=epoch,
                replica_nodes=[1],
                isr_nodes=[1],
            )
            for place, leader in enumerate(leaders)
        ],
    )


def test_a_leader_that_is_not_alive_is_no_leader():
    view = ClusterView().merged(answer(topic("t", [1, 2, -1])), all_topics=False)
    assert [view.leader(TopicPartition("t", partition)) for partition in range(4)] == [1, None, None, None]
    assert view.leader(TopicPartition("other", 0)) is None
    assert view.brokers == {1: Node(1, "a", 9)}


def test_a_leader_that_was_asked_for_is_another_one_in_the_next_view():
    before = ClusterView().merged(answer(topic("t", [1])), all_topics=True)
    assert [before.leader(TopicPartition("t", each)) for each in (0, 0, 1)] == [1, 1, None]
    after = before.merged(answer(topic("t", [7, 1])), all_topics=False)
    assert [after.leader(TopicPartition("t", each)) for each in (0, 1)] == [None, 1]
    assert before.leader(TopicPartition("t", 0)) == 1


def test_racks_and_replicas_that_are_away_are_known():
    partition = MetadataResponsePartition(
        error_code=0, partition_index=0, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1], offline_replicas=[2]
    )
    told = answer(MetadataResponseTopic(error_code=0, name="t", partitions=[partition]))
    told.brokers[0].rack = "r1"
    view = ClusterView().merged(told, all_topics=True)
    assert view.brokers[1].rack == "r1"
    assert view.topics["t"].partitions[0].offline_replicas == (2,)


def test_an_answer_for_some_topics_leaves_the_others_alone():
    view = ClusterView().merged(answer(topic("a", [1]), topic("b", [1])), all_topics=True)
    view = view.merged(answer(topic("b", [1, 1])), all_topics=False)
    assert (view.partition_count("a"), view.partition_count("b")) == (1, 2)
    assert view.partitions_of(["b"]) == [TopicPartition("b", 0), TopicPartition("b", 1)]


def test_an_answer_for_all_topics_forgets_those_that_are_gone():
    view = ClusterView().merged(answer(topic("a", [1])), all_topics=True)
    view = view.merged(answer(topic("b", [1])), all_topics=True)
    assert view.partition_count("a") is None


def test_a_topic_with_an_error_has_no_partitions():
    view = ClusterView().merged(answer(topic("a", [], error=5)), all_topics=False)
    assert view.partition_count("a") is None
    assert view.topics["a"].error is ErrorCode.LEADER_NOT_AVAILABLE


def test_partitions_are_ordered_and_end_at_a_gap():
    mixed = topic("a", [1, 1, 1])
    mixed.partitions.reverse()
    assert ClusterView().merged(answer(mixed), all_topics=False).partition_count("a") == 3
    del mixed.partitions[1]
    assert ClusterView().merged(answer(mixed), all_topics=False).partition_count("a") == 1


def test_a_topic_without_a_leader_for_a_moment_keeps_its_partitions():
    view = ClusterView().merged(answer(topic("a", [1, 1])), all_topics=False)
    leaderless = topic("a", [], ErrorCode.LEADER_NOT_AVAILABLE)
    assert view.merged(answer(leaderless), all_topics=True).partition_count("a") == 2
    gone = topic("a", [], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert not view.merged(answer(gone), all_topics=False).partition_count("a")


def test_a_broker_that_has_not_heard_of_a_new_leader_is_not_believed():
    view = ClusterView().merged(answer(topic("t", [1, 1], epoch=4, topic_id=THIS)), all_topics=False)
    stale = view.merged(answer(topic("t", [2, -1, 1], epoch=3, topic_id=THIS)), all_topics=True)
    assert [(each.leader, each.leader_epoch) for each in stale.topics["t"].partitions] == [(1, 4), (1, 4), (1, 3)]
    for epoch in (4, 5):
        without = stale.merged(answer(topic("t", [-1], epoch=epoch, topic_id=THIS)), all_topics=False)
        assert [(each.leader, each.leader_epoch) for each in without.topics["t"].partitions] == [(-1, epoch)]


def test_leaders_of_a_topic_that_is_made_again_begin_anew():
    for topic_id in (LATER_ONE, ZERO_UUID):
        view = ClusterView().merged(answer(topic("t", [1], epoch=4, topic_id=THIS)), all_topics=False)
        view = view.merged(answer(topic("t", [2], epoch=0, topic_id=topic_id)), all_topics=False)
        assert view.topics["t"].partitions[0].leader == 2
