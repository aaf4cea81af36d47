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

    A version that is newer than those known here begins with the same fields, and is read as the newest known. The
    fields of version 0 begin every subscription: where the later fields of the claimed version are missing or damaged,
    the subscription has the fields of version 0 alone, as Kafka's coordinator reads it.

    :raises MalformedMessageError: the bytes do not begin with an int16 and the fields of version 0.
    """
    version = _version_of(metadata, ConsumerProtocolSubscription)
    try:
        return decode(ConsumerProtocolSubscription, metadata, version, _VERSION.size, to_the_end=False)
    except BarnabasError:
        return decode(ConsumerProtocolSubscription, metadata, 0, _VERSION.size, to_the_end=False)


def encode_assignment(partitions: Iterable[TopicPartition]) -> bytes:
    """Return a member's share as the leader hands it in."""
    topics: dict[str, list[int]] = {}
    for tp in partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    parts = [AssignedPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    assignment = ConsumerProtocolAssignment(assigned_partitions=parts)
    return _VERSION.pack(ASSIGNMENT_VERSION) + encode_bytes(assignment, ASSIGNMENT_VERSION)


def decode_assignment(data: bytes) -> list[TopicPartition]:
    """Return a member's partitions. No bytes are no partitions; some clients write the version alone for that.

    :raises MalformedMessageError: the bytes are no assignment.
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
        raise MalformedMessageError(f"{len(data)} bytes are too few for a {cls.__name__}")
    (version,) = _VERSION.unpack_from(data)
    return max(0, min(int(version), message_of(cls).versions.stop - 1))


def subscribed_topics(members: Iterable[Iterable[bytes]]) -> frozenset[str] | None:
    """Return the topics that members read; None where nobody can say what a member reads.

    :param members: of each member the subscriptions that it joined with, one for each protocol. Consumers subscribe to
        the same topics under every protocol, so that one readable subscription of a member is enough.
    """
    topics: set[str] = set()
    for subscriptions in members:
        readable = [found for each in subscriptions if (found := _topics_of(each)) is not None]
        if not readable:
            return None
        topics.update(*readable)
    return frozenset(topics)


def has_same_topics(one: bytes, other: bytes) -> bool:
    """Whether two subscriptions name the same topics. Subscriptions that cannot be read must be the same bytes."""
    topics = _topics_of(one)
    return one == other or (topics is not None and topics == _topics_of(other))


def _topics_of(metadata: bytes) -> frozenset[str] | None:
    """Return the topics of a subscription from the fields of version 0; None where it does not have them."""
    try:
        _version_of(metadata, ConsumerProtocolSubscription)
        return frozenset(decode(ConsumerProtocolSubscription, metadata, 0, _VERSION.size, to_the_end=False).topics)
    except BarnabasError:
        return None
