"""The encoding of subscriptions and assignments in the consumer protocol.

The group protocol treats them as opaque bytes. Members decode them. The broker decodes them only where Kafka's
coordinator does, for example to find the topics of a consumer group. Subscriptions and assignments begin with a
version.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from barnabas.errors import BarnabasError, MalformedMessageError
from barnabas.model import TopicPartition
from barnabas.protocol.codec import decode, encode_bytes
from barnabas.protocol.declare import message_of
from barnabas.protocol.messages.consumer_protocol import (
    AssignedPartitions,
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)

CONSUMER_PROTOCOL_TYPE = "consumer"

ASSIGNMENT_VERSION = 0
"""The version of encoded assignments. Later versions have no additional fields."""

_VERSION = struct.Struct(">h")


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    """Return the encoded subscription of a consumer, for JoinGroup."""
    return _VERSION.pack(version) + encode_bytes(subscription, version)


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Decode the subscription of a consumer, which consists of an int16 version and the fields.

    A version that is newer than all known versions begins with the same fields, and is decoded as the newest known
    version. Each subscription begins with the fields of version 0. If later fields are missing or damaged, only the
    fields of version 0 are used, as in Kafka's coordinator.

    :raises MalformedMessageError: the bytes do not begin with an int16 and the fields of version 0.
    """
    version = _version_of(metadata, ConsumerProtocolSubscription)
    try:
        return decode(ConsumerProtocolSubscription, metadata, version, _VERSION.size, to_the_end=False)
    except BarnabasError:
        return decode(ConsumerProtocolSubscription, metadata, 0, _VERSION.size, to_the_end=False)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return the encoded assignment of a member, for the leader's SyncGroup."""
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    parts = [AssignedPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    assignment = ConsumerProtocolAssignment(assigned_partitions=parts)
    return _VERSION.pack(ASSIGNMENT_VERSION) + encode_bytes(assignment, ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Decode an assignment. Empty bytes mean no partitions, and some clients encode only the version.

    :raises MalformedMessageError: the bytes are not an assignment.
    """
    if not data:
        return []
    version = _version_of(data, ConsumerProtocolAssignment)
    if len(data) == _VERSION.size:
        return []
    assignment = decode(ConsumerProtocolAssignment, data, version, _VERSION.size, to_the_end=False)
    return [TopicPartition(each.topic, number) for each in assignment.assigned_partitions for number in each.partitions]


def _version_of(data: bytes, cls: type) -> int:
    if len(data) < _VERSION.size:
        raise MalformedMessageError(f"{len(data)} bytes are too short for a {cls.__name__}")
    (version,) = _VERSION.unpack_from(data)
    return max(0, min(int(version), message_of(cls).versions.stop - 1))


def subscribed_topics(members: Iterable[Iterable[bytes]]) -> frozenset[str] | None:
    """Return the topics to which members subscribe, or None if the subscription of a member cannot be decoded.

    :param members: the subscriptions of each member, one for each protocol. A consumer subscribes to the same topics in
        each protocol, so one decodable subscription per member is sufficient.
    """
    topics: set[str] = set()
    for subscriptions in members:
        readable = [found for each in subscriptions if (found := _topics_of(each)) is not None]
        if not readable:
            return None
        topics.update(*readable)
    return frozenset(topics)


def has_same_topics(one: bytes, other: bytes) -> bool:
    """Return whether two subscriptions contain the same topics.

    Subscriptions that cannot be decoded must have equal bytes.
    """
    topics = _topics_of(one)
    return one == other or (topics is not None and topics == _topics_of(other))


def _topics_of(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a subscription, which are in the fields of version 0, or None if they cannot be decoded."""
    try:
        _version_of(metadata, ConsumerProtocolSubscription)
        return frozenset(decode(ConsumerProtocolSubscription, metadata, 0, _VERSION.size, to_the_end=False).topics)
    except BarnabasError:
        return None
