"""Topics by every client's admin: created, listed, deleted, created again, and refused for the right reason."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.model import OffsetAndMetadata
from tests.interop.clients.neutral import Admin, Client, Event, Membership, Place
from tests.interop.conftest import CLIENTS
from tests.support.reading import read, read_topic, wait_until


@pytest.fixture
def admin(bootstrap, client) -> Iterator[Admin]:
    with contextlib.closing(client.admin(bootstrap)) as admin:
        yield admin


def code_of(refusal: pytest.ExceptionInfo[ApiError]) -> ErrorCode:
    return refusal.value.code


def test_what_one_client_creates_every_client_lists(bootstrap, admin, topic) -> None:
    admin.create_topic(topic, partitions=3)
    for each in CLIENTS:
        with contextlib.closing(each.admin(bootstrap)) as other:
            assert other.partition_counts()[topic] == 3, each.name


def test_the_cluster_is_one_broker_at_the_address_that_the_client_knows(bootstrap, admin) -> None:
    assert admin.brokers() == {0: bootstrap}


def test_a_topic_that_exists_is_not_created_again(admin, topic) -> None:
    admin.create_topic(topic, partitions=2)
    with pytest.raises(ApiError) as refusal:
        admin.create_topic(topic, partitions=3)
    assert code_of(refusal) == ErrorCode.TOPIC_ALREADY_EXISTS
    assert admin.partition_counts()[topic] == 2


@pytest.mark.parametrize("name", ["with space", "sl/ash", ".", "..", "x" * 250, "ünï"])
def test_an_invalid_name_is_refused(admin, name) -> None:
    with pytest.raises(ApiError) as refusal:
        admin.create_topic(name)
    assert code_of(refusal) == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert name not in admin.partition_counts()


def test_a_topic_has_at_least_one_partition(admin, topic) -> None:
    with pytest.raises(ApiError) as refusal:
        admin.create_topic(topic, partitions=0)
    assert code_of(refusal) == ErrorCode.INVALID_PARTITIONS


def test_there_are_no_more_replicas_than_brokers(admin, topic) -> None:
    with pytest.raises(ApiError) as refusal:
        admin.create_topic(topic, replication_factor=2)
    assert code_of(refusal) == ErrorCode.INVALID_REPLICATION_FACTOR


@pytest.mark.parametrize("config", [{"no.such.setting": "1"}, {"max.message.bytes": "many"}], ids=["name", "value"])
def test_a_setting_that_cannot_be_is_refused(admin, topic, config) -> None:
    with pytest.raises(ApiError) as refusal:
        admin.create_topic(topic, config=config)
    assert code_of(refusal) == ErrorCode.INVALID_CONFIG
    assert topic not in admin.partition_counts()


def test_a_topic_that_does_not_exist_cannot_be_deleted(admin, topic) -> None:
    with pytest.raises(ApiError) as refusal:
        admin.delete_topic(topic)
    assert code_of(refusal) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_that_is_deleted_and_created_again_has_nothing_of_the_old(
    bootstrap, client: Client, admin, topic, group
) -> None:
    admin.create_topic(topic, partitions=2)
    produce(client, bootstrap, topic, b"old", 50)
    with contextlib.closing(client.consumer(bootstrap, topic, Membership(group=group))) as consumer:
        read(consumer, 50)
        consumer.commit({0: OffsetAndMetadata(30, "old")})
        assert consumer.committed(0) == OffsetAndMetadata(30, "old") or client.name == "confluent-kafka"

    admin.delete_topic(topic)
    assert topic not in admin.partition_counts()
    admin.create_topic(topic)
    wait_until(lambda: admin.partition_counts().get(topic) == 1, "the new topic")

    assert produce(client, bootstrap, topic, b"new", 5) == [Place(0, n) for n in range(5)]
    assert {event.value for _, event in read_topic(client, bootstrap, topic, 5)} == {b"new"}
    with contextlib.closing(client.consumer(bootstrap, topic, Membership(group=group))) as consumer:
        assert [event.value for _, event in read(consumer, 5)] == [b"new"] * 5


def produce(client: Client, bootstrap: str, topic: str, value: bytes, count: int) -> list[Place]:
    with contextlib.closing(client.producer(bootstrap)) as producer:
        return producer.produce(topic, [Event(value)] * count, partition=0)
