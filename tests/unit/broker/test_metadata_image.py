"""Images of the cluster are values, and so are their differences."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, replace
from typing import Any

import pytest

from barnabas.broker.metadata_image import BrokersDelta, MetadataDelta, MetadataImage, next_state
from barnabas.coordination.change_notifications import StateChange
from barnabas.coordination.topic_metadata_store import PartitionInfo, TopicInfo
from barnabas.coordination.values import NO_LEADER, BrokerRegistration, LiveBroker, PartitionState
from barnabas.model import TopicPartition

CLICKS, VIEWS = TopicPartition("clicks", 0), TopicPartition("views", 1)
FIRST, SECOND = bytes(15) + b"\1", bytes(15) + b"\2"
NO_BROKERS = BrokersDelta()


def info(epoch: int = 0, version: int = 0, leader: int = 1, **moving: tuple[int, ...]) -> PartitionInfo:
    return PartitionInfo((1, 2), PartitionState(leader, epoch, (1, 2)), version, **moving)


def topic(*partitions: PartitionInfo, name: str = "clicks", topic_id: bytes = FIRST, **config: str) -> TopicInfo:
    return TopicInfo(name, topic_id, partitions, config)


def broker(number: int, epoch: int = 1, **told: Any) -> LiveBroker:
    return LiveBroker(BrokerRegistration(number, "here", 9000 + number, **told), epoch)


def image_of(*topics: TopicInfo, brokers: tuple[LiveBroker, ...] = ()) -> MetadataImage:
    return MetadataImage().with_topics(*topics).with_brokers({each.registration.id: each for each in brokers})


# --- images ---


def test_image_cannot_be_changed() -> None:
    with pytest.raises(FrozenInstanceError):
        image_of().brokers = {}  # type: ignore[misc]


def test_next_image_leaves_the_one_before_as_it_was_and_shares_unchanged_topics() -> None:
    before = image_of(topic(info()), topic(info(), name="views"))
    after = before.with_topics(topic(info(1, 1)))
    assert before == image_of(topic(info()), topic(info(), name="views"))
    assert after == image_of(topic(info(1, 1)), topic(info(), name="views"))
    assert after.topics["views"] is before.topics["views"]
    assert after.without_topic("clicks") == image_of(topic(info(), name="views"))


def test_partitions_under_reassignment_follow_from_the_topics() -> None:
    moving = info(adding=(2,))
    image = image_of(topic(moving, info()), topic(info(), info(removing=(1,)), name="views"))
    assert image.moving == [CLICKS, VIEWS]
    assert image.with_topics(topic(info(), moving)).moving == [TopicPartition("clicks", 1), VIEWS]
    assert image.with_topics(topic(info())).moving == [VIEWS]
    assert image.without_topic("clicks").moving == [VIEWS]
    assert image.is_moving
    assert not image.without_topic("clicks").without_topic("views").is_moving


def test_partition_that_is_not_there_is_none() -> None:
    image = image_of(topic(info()))
    assert image.partition(CLICKS) == info()
    assert [image.partition(each) for each in (VIEWS, TopicPartition("clicks", 1), TopicPartition("clicks", -1))] == [
        None,
        None,
        None,
    ]


def test_brokers_that_are_away_lead_nothing_and_are_not_eligible() -> None:
    assert image_of().controller_id == NO_LEADER
    image = image_of(brokers=(broker(2), broker(3, is_leaving=True)))
    assert image.leader_of(info(leader=1)) == NO_LEADER
    assert image.leader_of(info(leader=2)) == 2
    assert image.offline_replicas(info()) == [1]
    assert [image.is_eligible(each) for each in (1, 2, 3)] == [False, True, False]
    assert [image.is_eligible(2, epoch) for epoch in (1, 2)] == [True, False]
    assert image.controller_id == 2


def test_epoch_for_a_leader_of_release_0_1_is_when_the_own_node_was_created() -> None:
    assert image_of().epoch_for_leader(1, 2) is None
    own = LiveBroker.of(BrokerRegistration(2, "here", 9002, epoch=2**62), created_at=25)
    older = LiveBroker.of(BrokerRegistration(1, "here", 9001), created_at=24)
    assert image_of(brokers=(older, own)).epoch_for_leader(1, 2) == 25
    newer = LiveBroker.of(replace(older.registration, epoch=2**61), 26)
    assert image_of(brokers=(newer, own)).epoch_for_leader(1, 2) is None


def test_state_of_a_change_is_there_or_another_one_in_its_place() -> None:
    image = image_of(topic(info(3, 7)))
    own, other = info(3, 7).state, PartitionState(2, 4, (2,))
    found = [
        (image.has_version_of(change), image.has_other_than(change))
        for change in (
            StateChange(CLICKS, FIRST, own, 7),
            StateChange(CLICKS, FIRST, other, 7),
            StateChange(CLICKS, FIRST, other, 8),
        )
    ]
    assert found == [(True, False), (True, True), (False, False)]


def test_next_state_is_one_version_later() -> None:
    state = PartitionState(2, 4, (2,))
    assert next_state(CLICKS, topic(info(3, 7)), state) == StateChange(CLICKS, FIRST, state, 8)


# --- differences ---


def difference(before: MetadataImage, after: MetadataImage) -> tuple[BrokersDelta, tuple[str, ...], dict[str, Any]]:
    delta = MetadataDelta.between(before, after)
    assert (delta.before, delta.after) == (before, after)
    return delta.brokers, delta.topics, dict(delta.partitions)


def test_equal_images_do_not_differ() -> None:
    one, other = (image_of(topic(info()), brokers=(broker(1),)) for _ in range(2))
    assert difference(one, other) == (NO_BROKERS, (), {})
    assert not MetadataDelta.between(one, other)
    assert not MetadataDelta.between(one, one)


def test_new_topic_differs_with_all_its_partitions() -> None:
    assert difference(image_of(), image_of(topic(info(), info()))) == (NO_BROKERS, ("clicks",), {"clicks": (0, 1)})


def test_topic_with_other_states_differs_in_these_partitions() -> None:
    before, after = image_of(topic(info(), info(), info())), image_of(topic(info(), info(1, 1), info()))
    assert difference(before, after) == (NO_BROKERS, ("clicks",), {"clicks": (1,)})


def test_topic_that_grew_differs_in_its_new_partitions() -> None:
    before, after = image_of(topic(info())), image_of(topic(info(), info()))
    assert difference(before, after) == (NO_BROKERS, ("clicks",), {"clicks": (1,)})


def test_topic_with_other_settings_differs_in_no_partition() -> None:
    before, after = image_of(topic(info())), image_of(topic(info(), retention_ms="1"))
    assert difference(before, after) == (NO_BROKERS, ("clicks",), {"clicks": ()})


def test_topic_that_is_gone_has_no_partitions() -> None:
    assert difference(image_of(topic(info())), image_of()) == (NO_BROKERS, ("clicks",), {})


def test_topic_created_again_differs_with_all_its_partitions() -> None:
    before, after = image_of(topic(info(), info())), image_of(topic(info(), info(), topic_id=SECOND))
    assert difference(before, after) == (NO_BROKERS, ("clicks",), {"clicks": (0, 1)})


def test_broker_that_registered_again_has_gone_and_come() -> None:
    before = image_of(brokers=(broker(1, 1), broker(2, 2)))
    after = image_of(brokers=(broker(1, 1, is_leaving=True), broker(2, 5), broker(3, 6)))
    expected = BrokersDelta(came=frozenset({2, 3}), gone=frozenset({2}), changed=frozenset({1}))
    assert difference(before, after) == (expected, (), {})
    assert expected.all == {1, 2, 3}
