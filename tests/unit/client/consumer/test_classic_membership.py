"""The member's side of the group protocol: answers in, requests out."""

from __future__ import annotations

import pytest

from barnabas.client.consumer.classic_membership import ClassicMembership, JoinOutcome
from barnabas.errors import ApiError, ErrorCode, FencedError
from barnabas.groups.assignors import ASSIGNORS, Claim
from barnabas.groups.subscriptions import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.model import TopicPartition
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.protocol.messages.sync_group import SyncGroupResponse


def make_membership(**settings):
    defaults = {
        "instance_id": None,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "strategies": ["range"],
    }
    return ClassicMembership("g", **{**defaults, **settings})


TOPIC = encode_subscription(ConsumerProtocolSubscription(topics=["t"]), 0)


def joined(leader="m1", member="m1", members=(), generation=1, error=0, strategy="range", **settings):
    metadata = members if isinstance(members, dict) else dict.fromkeys(members, TOPIC)
    return JoinGroupResponse(
        error_code=error,
        generation_id=generation,
        protocol_name=strategy,
        leader=leader,
        member_id=member,
        members=[JoinGroupResponseMember(member_id=each, metadata=data) for each, data in metadata.items()],
        **settings,
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
    assert membership.on_join(answer) is JoinOutcome.AGAIN
    assert membership.join_request(["t"]).member_id == "m7"


def test_the_leader_assigns_for_all_and_a_follower_for_nobody():
    membership = make_membership()
    membership.join_request(["t"])
    assert membership.on_join(joined(members=("m1", "m2"))) is JoinOutcome.AS_LEADER
    assert membership.topics_of_members() == {"t"}
    request = membership.sync_request({"t": 3})
    shares = {each.member_id: decode_assignment(each.assignment) for each in request.assignments}
    assert shares == {"m1": [("t", 0), ("t", 1)], "m2": [("t", 2)]}
    assert membership.on_join(joined(leader="m2")) is JoinOutcome.AS_FOLLOWER
    assert membership.sync_request(None).assignments == []


@pytest.mark.parametrize("metadata", [b"mine", b"", b"\x00\x00\x7f\xff\xff\xff"])
def test_a_subscription_that_the_leader_cannot_read_leaves_the_other_members_their_partitions(metadata):
    membership = make_membership()
    membership.join_request(["t"])
    assert membership.on_join(joined(members={"m1": TOPIC, "m2": metadata})) is JoinOutcome.AS_LEADER
    request = membership.sync_request({"t": 2})
    shares = {each.member_id: decode_assignment(each.assignment) for each in request.assignments}
    assert shares == {"m1": [("t", 0), ("t", 1)], "m2": []}


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
    with pytest.raises(ApiError, match="partition_assignment_strategy"):
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


COOPERATIVE = {"strategies": ["cooperative-sticky"]}


def tps(*partitions):
    return [TopicPartition("t", partition) for partition in partitions]


def claim_in(request, strategy):
    """What a member claims in its join, as the leader reads it."""
    metadata = {each.name: each.metadata for each in request.protocols}
    return ASSIGNORS[strategy].claim(decode_subscription(metadata[strategy]))


@pytest.mark.parametrize(
    ("strategies", "is_cooperative"),
    [
        (["cooperative-sticky"], True),
        (["range", "cooperative-sticky"], False),
        (["cooperative-sticky", "range"], False),
        (["sticky"], False),
    ],
)
def test_a_member_is_cooperative_if_all_its_strategies_are(strategies, is_cooperative):
    assert make_membership(strategies=strategies).is_cooperative is is_cooperative


def test_a_cooperative_member_claims_what_it_has_with_the_generation_that_gave_it():
    membership = make_membership(**COOPERATIVE)
    assert claim_in(membership.join_request(["t"]), "cooperative-sticky") == Claim()
    membership.on_join(joined(leader="other", generation=4))
    membership.on_sync(synced(0, 1))
    request = membership.join_request(["t"], tps(0, 1))
    assert claim_in(request, "cooperative-sticky") == Claim(tuple(tps(0, 1)), 4)
    # A generation that was never synced has given it nothing.
    membership.on_join(joined(leader="other", generation=5))
    membership.on_sync(synced(error=ErrorCode.REBALANCE_IN_PROGRESS))
    request = membership.join_request(["t"], tps(0, 1))
    assert claim_in(request, "cooperative-sticky") == Claim(tuple(tps(0, 1)), 4)


def test_a_sticky_member_claims_what_it_had_before_it_gave_it_up():
    membership = make_membership(strategies=["sticky", "range"])
    membership.join_request(["t"])
    membership.on_join(joined(leader="other", generation=4, strategy="sticky"))
    membership.on_sync(synced(0, 1))
    request = membership.join_request(["t"])
    assert claim_in(request, "sticky") == Claim(tuple(tps(0, 1)), 4)
    assert claim_in(request, "range") == Claim()


def test_a_cooperative_leader_gives_nobody_what_another_one_has():
    membership = make_membership(**COOPERATIVE)
    has_all = membership.join_request(["t"], tps(0, 1, 2)).protocols[0].metadata
    has_none = make_membership(**COOPERATIVE).join_request(["t"]).protocols[0].metadata
    members = {"m1": has_all, "m2": has_none}
    membership.on_join(joined(members=members, strategy="cooperative-sticky"))
    shares = {each.member_id: each.assignment for each in membership.sync_request({"t": 3}).assignments}
    assert {each: decode_assignment(share) for each, share in shares.items()} == {"m1": tps(0, 1), "m2": []}


def test_a_leader_that_was_started_again_leaves_the_assignment_as_it_is():
    membership = make_membership(instance_id="one")
    membership.join_request(["t"])
    assert membership.on_join(joined(members=("m1",), skip_assignment=True)) is JoinOutcome.AS_FOLLOWER
    assert membership.is_leader


def test_a_subscription_that_changes_during_a_join_is_joined_with_afterwards():
    membership = make_membership()
    membership.join_request(["t"])
    membership.rejoin("the subscription has changed")
    membership.on_join(joined(leader="other"))
    membership.on_sync(synced(0))
    assert membership.rejoin_needed
    assert membership.join_request(["t", "u"]).reason == "the subscription has changed"
    membership.on_join(joined(leader="other", generation=2))
    membership.on_sync(synced(0))
    assert not membership.rejoin_needed


@pytest.mark.parametrize(
    ("code", "is_out"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, False),
        (ErrorCode.ILLEGAL_GENERATION, True),
        (ErrorCode.GROUP_ID_NOT_FOUND, True),
        (ErrorCode.UNKNOWN_MEMBER_ID, True),
    ],
)
def test_a_commit_that_is_refused_may_mean_that_the_member_is_out(code, is_out):
    membership = stable()
    assert membership.on_commit_refused(code, membership.generation) is is_out
    assert membership.rejoin_needed
    assert membership.lost is is_out


def test_a_commit_of_an_older_generation_that_is_refused_loses_nothing():
    membership = stable()
    assert not membership.on_commit_refused(ErrorCode.ILLEGAL_GENERATION, membership.generation - 1)
    membership.join_request(["t"])
    assert not membership.on_commit_refused(ErrorCode.ILLEGAL_GENERATION, membership.generation)
    assert not membership.lost


def test_a_member_that_is_fenced_by_a_commit_stays_so():
    membership = stable(instance_id="one")
    with pytest.raises(FencedError, match="close this one"):
        membership.on_commit_refused(ErrorCode.FENCED_INSTANCE_ID, membership.generation)
    assert membership.fenced is not None
    assert membership.lost
