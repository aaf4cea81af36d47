"""What members tell each other, in the bytes of every version and of other clients."""

from __future__ import annotations

import pytest

from barnabas.errors import MalformedMessageError
from barnabas.groups.assignors import ASSIGNORS, NOTHING, Claim
from barnabas.groups.assignors.user_data import decode_sticky, encode_sticky
from barnabas.groups.subscriptions import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
    has_same_topics,
    subscribed_topics,
)
from barnabas.model import TopicPartition
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, OwnedPartitions

HAD = Claim((TopicPartition("t", 0), TopicPartition("t", 2), TopicPartition("u", 1)), 7)
STICKY_V0 = bytes.fromhex("00000002 0001 74 00000002 00000000 00000002 0001 75 00000001 00000001")
"""Two topics, with partitions 0 and 2, and 1: what Java's first sticky assignor wrote."""


@pytest.mark.parametrize("version", range(4))
def test_subscriptions_of_every_version_are_understood(version):
    subscription = ConsumerProtocolSubscription(
        topics=["a", "b"],
        owned_partitions=[OwnedPartitions(topic="a", partitions=[1])],
        generation_id=3,
        rack_id="r",
    )
    decoded = decode_subscription(encode_subscription(subscription, version))
    assert decoded.topics == ["a", "b"]
    claim = ASSIGNORS["cooperative-sticky"].claim(decoded)
    assert claim.partitions == ((TopicPartition("a", 1),) if version else ())
    assert claim.generation == (3 if version >= 2 else -1)


def test_versions_to_come_begin_like_the_newest_known():
    newest = encode_subscription(ConsumerProtocolSubscription(topics=["a"], rack_id="r"), 3)
    assert decode_subscription(b"\x00\x09" + newest[2:]).topics == ["a"]


def test_no_assignment_is_an_empty_one():
    assert decode_assignment(b"") == []
    assert decode_assignment(encode_assignment([])) == []
    assert decode_assignment(encode_assignment(HAD.partitions)) == list(HAD.partitions)


@pytest.mark.parametrize("decode", [decode_assignment, decode_subscription])
def test_other_bytes_are_refused(decode):
    with pytest.raises(MalformedMessageError):
        decode(b"\x00")
    with pytest.raises(MalformedMessageError):
        decode(b"\x00\x00\x7f\xff\xff\xff")


def test_sticky_user_data_has_the_bytes_that_java_writes():
    assert encode_sticky(HAD) == STICKY_V0 + bytes.fromhex("00000007")
    assert decode_sticky(STICKY_V0 + bytes.fromhex("00000007")) == HAD
    assert decode_sticky(STICKY_V0) == Claim(HAD.partitions, -1)


@pytest.mark.parametrize("user_data", [None, b"", b"\x00", b"\x00\x00\x00\x02\x00\x01t", STICKY_V0 + b"\x00"])
def test_user_data_that_is_something_else_claims_nothing(user_data):
    assert decode_sticky(user_data) == NOTHING


def test_a_cooperative_member_writes_its_generation_where_older_leaders_look_for_it():
    assignor = ASSIGNORS["cooperative-sticky"]
    subscription = assignor.subscribe(["t"], HAD, NOTHING)
    assert assignor.claim(subscription) == HAD
    assert subscription.user_data == bytes.fromhex("00000007")
    subscription.generation_id = -1  # as a reader of version 1 sees it
    assert assignor.claim(subscription) == HAD


def test_members_read_the_topics_of_all_their_subscriptions():
    both = [[encode_subscription(ConsumerProtocolSubscription(topics=[name]), 1)] for name in "ab"]
    assert subscribed_topics(both) == {"a", "b"}
    assert subscribed_topics([]) == frozenset()
    assert subscribed_topics([*both, [b"mine"]]) is None
    assert subscribed_topics([*both, []]) is None
    assert subscribed_topics([[b"mine", *both[0]], both[1]]) == {"a", "b"}


def test_topics_stand_in_the_fields_of_version_0_whatever_follows_them():
    of_version_0 = encode_subscription(ConsumerProtocolSubscription(topics=["a"], user_data=b"u"), 0)[2:]
    for version in (-1, 0, 1, 2, 3, 9):
        for rest in (b"", b"\x00", b"\xff" * 9, b"\x00\x00\x00\x09"):
            metadata = version.to_bytes(2, "big", signed=True) + of_version_0 + rest
            assert subscribed_topics([[metadata]]) == {"a"}, metadata
            assert decode_subscription(metadata).topics == ["a"], metadata
    assert subscribed_topics([[bytes.fromhex("0001 00000000 00000000")]]) == frozenset()


def test_subscriptions_with_damaged_topics_cannot_be_read():
    whole = encode_subscription(ConsumerProtocolSubscription(topics=["a"]), 0)
    assert [subscribed_topics([[whole[:end]]]) for end in range(len(whole))] == [None] * len(whole)


def test_subscriptions_are_compared_by_their_topics():
    one, again, other = (
        encode_subscription(ConsumerProtocolSubscription(topics=topics, user_data=data), version)
        for topics, data, version in ((["a", "b"], b"x", 0), (["b", "a"], None, 3), (["a"], b"x", 0))
    )
    assert has_same_topics(one, again)
    assert not has_same_topics(one, other)
    assert not has_same_topics(one, b"mine")
    assert not has_same_topics(b"mine", b"yours")
    assert has_same_topics(b"mine", b"mine")


def test_an_assignment_of_its_version_alone_is_empty():
    assert decode_assignment(b"\x00\x01") == []
    assert decode_assignment(encode_assignment(HAD.partitions) + b"later") == list(HAD.partitions)
