"""What a broker knows of the cluster, whatever the order in which it was told."""

from __future__ import annotations

from dataclasses import replace

from barnabas.broker.picture import BrokersChange, Picture, next_state
from barnabas.coordination.changes import StateChange
from barnabas.coordination.registry import PartitionInfo, TopicInfo
from barnabas.coordination.values import NO_LEADER, BrokerRegistration, LiveBroker, PartitionState
from barnabas.model import TopicPartition

CLICKS = TopicPartition("clicks", 0)
FIRST, SECOND = bytes(15) + b"\1", bytes(15) + b"\2"


def info(epoch: int, version: int, leader: int = 1) -> PartitionInfo:
    return PartitionInfo((1, 2), PartitionState(leader, epoch, (1, 2)), version)


def topic(*partitions: PartitionInfo, topic_id: bytes = FIRST) -> TopicInfo:
    return TopicInfo("clicks", topic_id, partitions)


def change(epoch: int, version: int, number: int = 0, topic_id: bytes = FIRST) -> StateChange:
    return StateChange(TopicPartition("clicks", number), topic_id, PartitionState(2, epoch, (2,)), version)


def broker(number: int, epoch: int, **told: bool) -> LiveBroker:
    return LiveBroker(BrokerRegistration(number, "here", 9000 + number, **told), epoch)  # type: ignore[arg-type]


def test_epoch_for_a_leader_of_release_0_1_is_when_the_own_node_was_created() -> None:
    picture = Picture()
    assert picture.epoch_for_leader(1, 2) is None
    own = LiveBroker.of(BrokerRegistration(2, "here", 9002, epoch=2**62), created_at=25)
    older = LiveBroker.of(BrokerRegistration(1, "here", 9001), created_at=24)
    picture.put_brokers({1: older, 2: own})
    assert picture.epoch_for_leader(1, 2) == 25
    picture.put_brokers({1: LiveBroker.of(replace(older.registration, epoch=2**61), 26), 2: own})
    assert picture.epoch_for_leader(1, 2) is None


def test_state_that_is_newer_is_taken_over_and_is_news_once() -> None:
    picture = Picture()
    picture.put_topic(topic(info(0, 0), info(0, 0)))
    changes = [change(1, 1), change(1, 1, number=1)]
    assert picture.put_states(changes) == {"clicks": [0, 1]}
    assert picture.put_states(changes) == {}
    assert [each.version for each in picture.topics["clicks"].partitions] == [1, 1]


def test_state_that_is_older_does_not_replace_a_newer_one() -> None:
    picture = Picture()
    picture.put_topic(topic(info(5, 7)))
    assert picture.put_states([change(4, 6), change(5, 7)]) == {}
    assert picture.put_topic(topic(info(3, 5))) is False
    assert picture.partition(CLICKS) == info(5, 7)


def test_topic_that_is_read_brings_what_is_new_and_keeps_what_is_newer() -> None:
    picture = Picture()
    picture.put_topic(topic(info(5, 7), info(0, 0)))
    assert picture.put_topic(topic(info(4, 6), info(1, 1), info(0, 0)))
    assert picture.topics["clicks"] == topic(info(5, 7), info(1, 1), info(0, 0))


def test_topic_that_is_read_with_other_settings_is_news() -> None:
    picture = Picture()
    assert picture.put_topic(topic(info(0, 0)))
    assert not picture.put_topic(topic(info(0, 0)))
    assert picture.put_topic(replace(topic(info(0, 0)), config={"retention.ms": "1"}))


def test_topic_made_anew_has_nothing_of_the_deleted_one() -> None:
    picture = Picture()
    picture.put_topic(topic(info(9, 9)))
    assert picture.put_topic(topic(info(0, 0), topic_id=SECOND))
    assert picture.partition(CLICKS) == info(0, 0)
    # What comes late of the deleted one is not of this one.
    assert picture.put_states([change(10, 10)]) == {}
    assert picture.put_states([change(1, 1, topic_id=SECOND)]) == {"clicks": [0]}


def test_topic_made_anew_is_led_whatever_was_led_of_the_deleted_one_in_an_earlier_life() -> None:
    """Simulated seed 20531 had nobody who led it."""
    picture = Picture()
    picture.put_topic(topic(info(4, 9)))
    picture.begin_life(1, picture.topics.values())
    assert not picture.leads_in_this_life(1, CLICKS, info(4, 9).state)
    assert picture.leads_in_this_life(1, CLICKS, info(5, 10).state)
    picture.remove_topic("clicks")
    picture.put_topic(topic(info(0, 0), topic_id=SECOND))
    assert picture.leads_in_this_life(1, CLICKS, info(0, 0).state)


def test_states_of_what_is_not_known_are_left_out() -> None:
    picture = Picture()
    assert picture.put_states([change(1, 1)]) == {}
    picture.put_topic(topic(info(0, 0)))
    assert picture.put_states([change(1, 1, number=1)]) == {}
    assert picture.partition(TopicPartition("clicks", 1)) is None
    assert picture.partition(TopicPartition("clicks", -1)) is None
    assert picture.remove_topic("clicks")
    assert not picture.remove_topic("clicks")
    assert picture.partition(CLICKS) is None


def test_broker_in_a_new_life_has_gone_and_come() -> None:
    picture = Picture()
    assert picture.put_brokers({1: broker(1, 1), 2: broker(2, 2)}).came == {1, 2}
    now = {1: broker(1, 1, is_leaving=True), 2: broker(2, 5), 3: broker(3, 6)}
    assert picture.put_brokers(now) == BrokersChange(
        came=frozenset({2, 3}), gone=frozenset({2}), changed=frozenset({1})
    )
    assert picture.put_brokers(now) == BrokersChange(frozenset(), frozenset(), frozenset())


def test_brokers_that_are_away_lead_nothing_and_are_not_eligible() -> None:
    picture = Picture()
    assert picture.spokesman == NO_LEADER
    picture.put_brokers({2: broker(2, 1), 3: broker(3, 2, is_leaving=True)})
    assert picture.leader_of(info(0, 0, leader=1)) == NO_LEADER
    assert picture.leader_of(info(0, 0, leader=2)) == 2
    assert picture.offline_replicas(info(0, 0)) == [1]
    assert [picture.is_eligible(each) for each in (1, 2, 3)] == [False, True, False]
    assert picture.spokesman == 2


def test_next_state_is_one_version_later() -> None:
    state = PartitionState(2, 4, (2,))
    assert next_state(CLICKS, topic(info(3, 7)), state) == StateChange(CLICKS, FIRST, state, 8)


def test_topic_that_moves_costs_nothing_of_the_others_that_move() -> None:
    picture = Picture()
    moving = replace(info(0, 0), adding=(2,))
    picture.put_topic(topic(moving, info(0, 0)))
    all_that_move = picture.moving
    other = TopicPartition("views", 1)
    picture.put_topic(TopicInfo("views", SECOND, (info(0, 0), moving)))
    assert picture.moving == {CLICKS, other}
    picture.put_topic(replace(topic(info(0, 1), moving), version=1))
    assert picture.moving == {TopicPartition("clicks", 1), other}
    picture.remove_topic("clicks")
    assert picture.moving == {other}
    assert picture.moving is all_that_move  # not made anew of all of them
