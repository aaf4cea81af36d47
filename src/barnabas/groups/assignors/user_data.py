"""The user data in the subscriptions of sticky members, in the format of Kafka's Java client.

For `sticky`, it contains the last assignment of the member and, since version 1, its generation. The data contains no
version number, so the decoder tries the later version first. For `cooperative-sticky`, it contains only the generation,
for group leaders that do not support version 2 of the subscription.
"""

from __future__ import annotations

import struct

from barnabas.errors import MalformedMessageError
from barnabas.groups.assignors.sharing import NO_GENERATION, NOTHING, Claim
from barnabas.model import TopicPartition
from barnabas.protocol.codec import decode, encode_bytes
from barnabas.protocol.declare import INT32, array, field, message
from barnabas.protocol.messages.consumer_protocol import AssignedPartitions

_GENERATION = struct.Struct(">i")


@message(versions="0-1")
class StickyUserData:
    """The encoded form of a member's last assignment and its generation."""

    previous_assignment: list[AssignedPartitions] = field(array(AssignedPartitions))
    generation: int = field(INT32, since=1, default=NO_GENERATION, ignorable=True)


def encode_sticky(claim: Claim) -> bytes | None:
    """Return the user data of a `sticky` member with this claim, or None if the claim is empty.

    >>> decode_sticky(encode_sticky(Claim((TopicPartition("clicks", 3),), generation=7)))
    Claim(partitions=(TopicPartition(topic='clicks', partition=3),), generation=7)
    """
    if not claim.partitions:
        return None
    topics: dict[str, list[int]] = {}
    for tp in claim.partitions:
        topics.setdefault(tp.topic, []).append(tp.partition)
    previous = [AssignedPartitions(topic=topic, partitions=numbers) for topic, numbers in topics.items()]
    return encode_bytes(StickyUserData(previous_assignment=previous, generation=claim.generation), 1)


def decode_sticky(user_data: bytes | None) -> Claim:
    """Return the claim from the user data of a `sticky` member.

    As in Kafka, return an empty claim for invalid bytes.
    """
    if not user_data:
        return NOTHING
    try:
        had = decode(StickyUserData, user_data, 1)
    except MalformedMessageError:
        try:
            had = decode(StickyUserData, user_data, 0)
        except MalformedMessageError:
            return NOTHING
    partitions = [TopicPartition(each.topic, number) for each in had.previous_assignment for number in each.partitions]
    return Claim(tuple(partitions), had.generation)


def encode_generation(generation: int) -> bytes:
    """Return the user data of a `cooperative-sticky` member, which contains its generation."""
    return _GENERATION.pack(generation)


def decode_generation(user_data: bytes | None) -> int:
    """Return the generation in the user data of a `cooperative-sticky` member, or NO_GENERATION."""
    if user_data is None or len(user_data) != _GENERATION.size:
        return NO_GENERATION
    return int(_GENERATION.unpack(user_data)[0])
