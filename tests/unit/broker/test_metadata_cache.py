"""The image of the cluster after each report, whatever the order of reports: image before, report, image after."""

from __future__ import annotations

import itertools
from dataclasses import replace

from barnabas.broker.broker_events import Events
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.metadata_image import MetadataDelta, MetadataImage
from barnabas.coordination.change_notifications import StateChange
from barnabas.coordination.topic_metadata_store import TopicInfo
from barnabas.coordination.values import PartitionState
from barnabas.model import TopicPartition
from tests.unit.broker.test_metadata_image import CLICKS, FIRST, SECOND, broker, image_of, info, topic


def change(epoch: int, version: int, number: int = 0, topic_id: bytes = FIRST) -> StateChange:
    return StateChange(TopicPartition("clicks", number), topic_id, PartitionState(2, epoch, (2,)), version)


def cache_of(*topics: TopicInfo) -> MetadataCache:
    cache = MetadataCache(Events())
    for each in topics:
        cache.put_topic(each)
    return cache


def after_states(before: TopicInfo, *changes: StateChange) -> MetadataImage:
    cache = cache_of(before)
    cache.put_states(changes)
    return cache.image


def after_reading(before: TopicInfo, found: TopicInfo) -> MetadataImage:
    cache = cache_of(before)
    cache.put_topic(found)
    return cache.image


def changed(number: int, epoch: int, version: int) -> MetadataImage:
    """Return the image of a topic of two new partitions, of which one has the state of `change(epoch, version)`."""
    states = [info(), info()]
    states[number] = replace(info(), state=PartitionState(2, epoch, (2,)), version=version)
    return image_of(topic(*states))


def test_newer_states_replace_those_of_the_image() -> None:
    assert after_states(topic(info(), info()), change(1, 1, number=1)) == changed(1, 1, 1)
    assert after_states(topic(info(), info()), change(1, 1), change(2, 2)) == changed(0, 2, 2)


def test_older_states_do_not_replace_those_of_the_image() -> None:
    newer = topic(info(5, 7))
    assert after_states(newer, change(4, 6), change(5, 7)) == image_of(newer)
    assert after_reading(newer, topic(info(3, 5))) == image_of(newer)


def test_topic_that_is_read_brings_newer_states_and_partitions_and_keeps_newer_ones() -> None:
    found = topic(info(4, 6), info(1, 1), info())
    assert after_reading(topic(info(5, 7), info()), found) == image_of(topic(info(5, 7), info(1, 1), info()))


def test_topic_that_is_read_brings_its_settings() -> None:
    assert after_reading(topic(info()), topic(info(), retention_ms="1")) == image_of(topic(info(), retention_ms="1"))


def test_topic_created_again_has_nothing_of_the_deleted_one() -> None:
    again = topic(info(), topic_id=SECOND)
    assert after_reading(topic(info(9, 9)), again) == image_of(again)
    assert after_states(again, change(10, 10)) == image_of(again), "a late report about the deleted topic"


def test_states_of_unknown_partitions_are_left_out() -> None:
    assert after_states(topic(info()), change(1, 1, number=1)) == image_of(topic(info()))
    cache = cache_of()
    cache.put_states([change(1, 1)])
    assert cache.image == MetadataImage()


def test_state_that_no_broker_can_have_written_is_not_believed_and_its_version_is_kept() -> None:
    cache = cache_of(topic(info(5, 7)))
    cache.put_states([change(4, 8)])
    assert cache.image == image_of(topic(info(5, 8)))
    assert cache.disbelieved == {CLICKS: PartitionState(2, 4, (2,))}
    cache.put_states([change(6, 9)])
    assert cache.disbelieved == {}


def test_topic_created_again_is_led_whatever_was_led_of_the_deleted_one_in_an_earlier_life() -> None:
    """Simulated seed 20531 had a topic that no broker led."""
    cache = cache_of(topic(info(4, 9)))
    cache.begin_incarnation(1, cache.image.topics.values())
    assert not cache.leads_in_this_incarnation(1, CLICKS, info(4, 9).state)
    assert cache.leads_in_this_incarnation(1, CLICKS, info(5, 10).state)
    cache.remove_topic("clicks")
    cache.put_topic(topic(info(), topic_id=SECOND))
    assert cache.leads_in_this_incarnation(1, CLICKS, info().state)


def test_each_change_is_published_once_as_the_difference_of_two_images() -> None:
    events = Events()
    published: list[MetadataDelta] = []
    events.subscribe(MetadataDelta, published.append)
    cache = MetadataCache(events)
    images = [cache.image]
    for _ in range(2):  # each report comes twice
        cache.put_topic(topic(info(), info()))
    images.append(cache.image)
    for _ in range(2):
        cache.put_brokers({1: broker(1)})
    images.append(cache.image)
    for _ in range(2):
        cache.put_states([change(1, 1), change(1, 1, number=1)])
    images.append(cache.image)
    for _ in range(2):
        cache.remove_topic("clicks")
    images.append(cache.image)
    assert published == [MetadataDelta.between(*pair) for pair in itertools.pairwise(images)]
    assert [dict(each.partitions) for each in published] == [{"clicks": (0, 1)}, {}, {"clicks": (0, 1)}, {}]
