"""The member's side of the group protocol: answers in, requests out."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.membership import (
    Joined,
    Membership,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.errors import ErrorCode, FencedError, KafkaError
from barnabas.model import TopicPartition
from barnabas.protocol.codec import encode_bytes
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription, OwnedPartitions
from barnabas.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.sync_group import SyncGroupResponse


def make_membership(**settings):
    defaults = {
        "instance_id": None,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "strategies": ["range"],
    }
    return Membership("g", **{**defaults, **settings})


def joined(leader="m1", member="m1", members=(), generation=1, error=0):
    return JoinGroupResponse(
        error_code=error,
        generation_id=generation,
        protocol_name="range",
        leader=leader,
        member_id=member,
        members=[JoinGroupResponseMember(member_id=each, metadata=encode_subscription(["t"])) for each in members],
    )


def synced(*partitions, error=0):
    share = encode_assignment([TopicPartition("t", partition) for partition in partitions])
    return SyncGroupResponse(error_code=error, assignment=b"" if error else share)


def stable(**settings):
    membership = make_membership(**settings)
    membership.join_request(["t"])
    membership.on_join(joined(leader="other"))
    assert membership.on_sync(synced(0, 1)) == [("t", 0), ("t", 1)]
    return membership


def test_a_new_member_joins_again_with_the_id_it_is_given():
    membership = make_membership()
    assert membership.join_request(["t"]).member_id == ""
    answer = joined(member="m7", error=ErrorCode.MEMBER_ID_REQUIRED)
    assert membership.on_join(answer) is Joined.AGAIN
    assert membership.join_request(["t"]).member_id == "m7"


def test_the_leader_assigns_for_all_and_a_follower_for_nobody():
    membership = make_membership()
    membership.join_request(["t"])
    assert membership.on_join(joined(members=("m1", "m2"))) is Joined.AS_LEADER
    assert membership.topics_of_members() == {"t"}
    request = membership.sync_request({"t": 3})
    shares = {each.member_id: decode_assignment(each.assignment) for each in request.assignments}
    assert shares == {"m1": [("t", 0), ("t", 1)], "m2": [("t", 2)]}
    assert membership.on_join(joined(leader="m2")) is Joined.AS_FOLLOWER
    assert membership.sync_request(None).assignments == []


def test_a_stable_member_sends_heartbeats_and_a_joining_one_does_not():
    membership = make_membership()
    assert not membership.is_member
    membership.join_request(["t"])
    membership.on_join(joined(leader="other"))
    assert not membership.is_member
    membership.on_sync(synced(0))
    assert membership.is_member
    assert not membership.rejoin_needed


@pytest.mark.parametrize(
    ("code", "lost", "member_id"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, False, "m1"),
        (ErrorCode.ILLEGAL_GENERATION, True, "m1"),
        (ErrorCode.UNKNOWN_MEMBER_ID, True, ""),
    ],
)
def test_a_heartbeat_may_bring_word_of_a_rebalance(code, lost, member_id):
    membership = stable()
    membership.on_heartbeat(code, membership.generation)
    assert membership.rejoin_needed
    assert (membership.lost, membership.member_id) == (lost, member_id)


def test_an_answer_to_an_old_heartbeat_means_nothing():
    membership = stable()
    membership.on_heartbeat(ErrorCode.UNKNOWN_MEMBER_ID, membership.generation - 1)
    assert not membership.rejoin_needed


def test_a_sync_in_the_middle_of_the_next_rebalance_joins_again():
    membership = make_membership()
    membership.join_request(["t"])
    membership.on_join(joined(leader="other"))
    assert membership.on_sync(synced(error=ErrorCode.REBALANCE_IN_PROGRESS)) is None
    assert membership.rejoin_needed


def test_an_instance_that_was_replaced_is_fenced():
    membership = stable(instance_id="one")
    with pytest.raises(FencedError, match="group_instance_id='one'"):
        membership.on_heartbeat(ErrorCode.FENCED_INSTANCE_ID, membership.generation)


def test_refusals_say_what_to_change():
    membership = make_membership()
    with pytest.raises(KafkaError, match="partition_assignment_strategy"):
        membership.on_join(joined(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL))


def test_a_dynamic_member_leaves_and_a_static_one_stays():
    assert stable().leave_request().member_id == "m1"
    assert stable(instance_id="one").leave_request() is None
    assert make_membership().leave_request() is None


def test_who_has_left_starts_anew():
    membership = stable()
    membership.on_left("test")
    assert membership.lost
    assert not membership.is_member
    assert membership.join_request(["t"]).member_id == ""


def test_subscriptions_of_newer_clients_are_understood():
    message = ConsumerProtocolSubscription(
        topics=["a", "b"],
        owned_partitions=[OwnedPartitions(topic="a", partitions=[1])],
        generation_id=3,
        rack_id="r",
    )
    for version in range(4):
        data = version.to_bytes(2, "big") + encode_bytes(message, version)
        assert decode_subscription(data) == ("a", "b")


def test_no_assignment_is_an_empty_one():
    assert decode_assignment(b"") == []
    assert decode_assignment(encode_assignment([])) == []
