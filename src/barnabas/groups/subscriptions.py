"""What consumers say to each other through the group protocol: subscriptions and assignments, as bytes and back.

The protocol itself does not look into them. Members do, and the broker for the few questions that Kafka's own
coordinator asks of consumer groups, as which topics they read. A version stands before each.
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
"""The later ones have nothing more to say."""

_VERSION = struct.Struct(">h")


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int) -> bytes:
    """Return what a consumer joins with."""
    return _VERSION.pack(version) + encode_bytes(subscription, version)


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Decode what a consumer joins with: an int16 version and a subscription.

    A version that is newer than those known here begins with the same fields, and is read as the newest known.

    :raises MalformedMessageError: the bytes are no subscription.
    """
    return decode(
        ConsumerProtocolSubscription, metadata, _version_of(metadata, ConsumerProtocolSubscription), _VERSION.size
    )


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return a member's share as the leader hands it in."""
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    parts = [AssignedPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    assignment = ConsumerProtocolAssignment(assigned_partitions=parts)
    return _VERSION.pack(ASSIGNMENT_VERSION) + encode_bytes(assignment, ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Return a member's partitions; no bytes at all are no partitions.

    :raises MalformedMessageError: the bytes are no assignment.
    """
    if not data:
        return []
    assignment = decode(ConsumerProtocolAssignment, data, _version_of(data, ConsumerProtocolAssignment), _VERSION.size)
    return [TopicPartition(each.topic, number) for each in assignment.assigned_partitions for number in each.partitions]


def _version_of(data: bytes, cls: type) -> int:
    if len(data) < _VERSION.size:
        raise MalformedMessageError(f"{len(data)} bytes are too few for a {cls.__name__}")
    (version,) = _VERSION.unpack_from(data)
    return min(int(version), message_of(cls).versions.stop - 1)


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """Return the topics that members read who joined with these bytes; None where one cannot be understood."""
    topics: set[str] = set()
    for metadata in subscriptions:
        try:
            topics.update(decode_subscription(metadata).topics)
        except BarnabasError:
            return None
    return frozenset(topics)
