"""What the members of a group have subscribed to, read from the metadata that they joined with.

The group protocol itself does not look into that metadata; this is for the few questions that Kafka's own
coordinator asks of consumer groups, as which topics they read.
"""

from __future__ import annotations

import struct

from barnabas.errors import BarnabasError, MalformedMessageError
from barnabas.groups.results import GroupDescription
from barnabas.protocol.codec import decode
from barnabas.protocol.declare import message_of
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription

CONSUMER_PROTOCOL_TYPE = "consumer"

_VERSION = struct.Struct(">h")


def decode_subscription(metadata: bytes) -> ConsumerProtocolSubscription:
    """Decode what a consumer joins with: an int16 version and a subscription.

    A version that is newer than those known here begins with the same fields, and is read as the newest known.

    :raises MalformedMessageError: the bytes are no subscription.
    """
    if len(metadata) < _VERSION.size:
        raise MalformedMessageError(f"{len(metadata)} bytes are too few for a subscription")
    (version,) = _VERSION.unpack_from(metadata)
    newest = message_of(ConsumerProtocolSubscription).versions.stop - 1
    return decode(ConsumerProtocolSubscription, metadata, min(version, newest), _VERSION.size)


def subscribed_topics(group: GroupDescription) -> frozenset[str]:
    """Return the topics that the group's members read; none where that cannot be known.

    Metadata that does not decode belongs to a client with a protocol of its own, and protects no topic.
    """
    topics: set[str] = set()
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return frozenset()
    for member in group.members:
        try:
            topics.update(decode_subscription(member.metadata).topics)
        except BarnabasError:
            continue
    return frozenset(topics)
