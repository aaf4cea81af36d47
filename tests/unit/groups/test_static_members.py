"""Static members (KIP-345): restarted without a rebalance, fenced when replaced, removed by their instance id."""

from __future__ import annotations

import pytest

from barnabas.errors import ErrorCode
from barnabas.groups import GroupState, LeavingMember
from barnabas.groups.subscriptions import encode_subscription
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription


def make_stable_pair(scene):
    """Return the ids of a leader and a follower, both static, in a stable group of generation 2."""
    leader = scene.joined(scene.join(instance="pod-0")).member_id
    newcomer = scene.join(instance="pod-1")
    scene.join(leader, instance="pod-0")
    follower = scene.joined(newcomer).member_id
    scene.sync(leader, assignments={leader: b"0", follower: b"1"}, instance="pod-0")
    scene.sync(follower, instance="pod-1")
    assert scene.state is GroupState.STABLE
    return leader, follower


def test_restarted_follower_keeps_its_assignment_without_a_rebalance(scene):
    leader, follower = make_stable_pair(scene)
    joined = scene.joined(scene.join(instance="pod-1"))
    assert joined.error is ErrorCode.NONE
    assert joined.member_id != follower
    assert (joined.generation, joined.leader, joined.members) == (2, leader, ())
    assert scene.state is GroupState.STABLE
    assert scene.synced(scene.sync(joined.member_id, instance="pod-1")).assignment == b"1"


def test_replaced_member_is_fenced_everywhere(scene):
    _, follower = make_stable_pair(scene)
    scene.join(instance="pod-1")
    assert scene.heartbeat(follower, instance="pod-1") is ErrorCode.FENCED_INSTANCE_ID
    assert scene.synced(scene.sync(follower, instance="pod-1")).error is ErrorCode.FENCED_INSTANCE_ID
    assert scene.joined(scene.join(follower, instance="pod-1")).error is ErrorCode.FENCED_INSTANCE_ID
    assert scene.check_commit(follower, 2, instance="pod-1") is ErrorCode.FENCED_INSTANCE_ID
    assert scene.leave(LeavingMember(follower, "pod-1")) == [ErrorCode.FENCED_INSTANCE_ID]
    assert scene.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID


def test_restarted_leader_is_told_the_old_leader_so_that_it_does_not_assign_again(scene):
    leader, _ = make_stable_pair(scene)
    joined = scene.joined(scene.join(instance="pod-0"))
    assert joined.member_id != leader
    assert (joined.leader, joined.members, joined.skip_assignment) == (leader, (), False)
    assert scene.synced(scene.sync(joined.member_id, instance="pod-0")).assignment == b"0"


def test_restarted_leader_that_can_skip_the_assignment_leads_again(scene):
    make_stable_pair(scene)
    joined = scene.joined(scene.join(instance="pod-0", supports_skip_assignment=True))
    assert joined.leader == joined.member_id
    assert joined.skip_assignment
    assert {each.group_instance_id for each in joined.members} == {"pod-0", "pod-1"}


def test_restarted_follower_has_nothing_to_skip(scene):
    leader, _ = make_stable_pair(scene)
    joined = scene.joined(scene.join(instance="pod-1", supports_skip_assignment=True))
    assert (joined.leader, joined.skip_assignment, joined.members) == (leader, False, ())


def test_restart_that_changes_the_chosen_protocol_rebalances(scene):
    both = (("range", b""), ("roundrobin", b""))
    first = scene.joined(scene.join(instance="pod-0", protocols=both))
    scene.sync(first.member_id, assignments={first.member_id: b"0"}, instance="pod-0")
    joined = scene.joined(scene.join(instance="pod-0", protocols=both[::-1]))
    assert (joined.generation, joined.protocol_name) == (2, "roundrobin")


SUBSCRIPTION = {
    topics: encode_subscription(ConsumerProtocolSubscription(topics=list(topics), user_data=data), version)
    for topics, data, version in (("a", b"", 0), ("ab", b"x", 1), ("ba", None, 3))
}


@pytest.mark.parametrize("supports_skip_assignment", [False, True])
@pytest.mark.parametrize("restarted", ["pod-0", "pod-1"])
@pytest.mark.parametrize(("before", "after", "rebalances"), [("a", "ab", True), ("ab", "a", True), ("ab", "ba", False)])
def test_restart_with_another_subscription_rebalances(
    scene, restarted, before, after, rebalances, supports_skip_assignment
):
    options = {"supports_skip_assignment": supports_skip_assignment}
    leader = scene.joined(scene.join(instance="pod-0", protocols=(("range", SUBSCRIPTION[before]),))).member_id
    newcomer = scene.join(instance="pod-1", protocols=(("range", SUBSCRIPTION[before]),))
    scene.join(leader, instance="pod-0", protocols=(("range", SUBSCRIPTION[before]),))
    follower = scene.joined(newcomer).member_id
    scene.sync(leader, assignments={leader: b"0", follower: b"1"}, instance="pod-0")
    scene.sync(follower, instance="pod-1")
    joining = scene.join(instance=restarted, protocols=(("range", SUBSCRIPTION[after]),), **options)
    assert scene.is_waiting(joining) is rebalances
    if rebalances:
        other, instance = (follower, "pod-1") if restarted == "pod-0" else (leader, "pod-0")
        assert scene.heartbeat(other, instance=instance) is ErrorCode.REBALANCE_IN_PROGRESS
        scene.join(other, instance=instance, protocols=(("range", SUBSCRIPTION[before]),))
        joined = scene.joined(joining)
        assert (joined.generation, joined.skip_assignment) == (3, False)


def test_restart_before_the_assignment_rebalances(scene):
    first = scene.joined(scene.join(instance="pod-0"))
    again = scene.joined(scene.join(instance="pod-0"))
    assert (first.generation, again.generation) == (1, 2)
    assert again.leader == again.member_id


def test_waiting_join_of_a_replaced_member_is_answered_as_fenced(scene):
    leader, _ = make_stable_pair(scene)
    waiting = scene.join(leader, instance="pod-0")
    replacing = scene.join(instance="pod-0")
    assert scene.joined(waiting).error is ErrorCode.FENCED_INSTANCE_ID
    assert scene.is_waiting(replacing)


def test_waiting_sync_of_a_replaced_member_is_answered_as_fenced(scene):
    leader = scene.joined(scene.join(instance="pod-0")).member_id
    newcomer = scene.join(instance="pod-1")
    scene.join(leader, instance="pod-0")
    waiting = scene.sync(scene.joined(newcomer).member_id, instance="pod-1")
    scene.join(instance="pod-1")
    assert scene.synced(waiting).error is ErrorCode.FENCED_INSTANCE_ID


def test_static_member_that_is_down_stays_until_its_session_ends(scene):
    leader = scene.joined(scene.join(instance="pod-0", rebalance_timeout_ms=5_000)).member_id
    newcomer = scene.join(session_timeout_ms=30_000, rebalance_timeout_ms=5_000)
    scene.advance(5)
    joined = scene.joined(newcomer)
    assert joined.leader == joined.member_id, "the one that rejoined leads"
    assert leader in scene.member_ids
    assert scene.state is GroupState.COMPLETING_REBALANCE


def test_rebalance_that_nobody_rejoins_waits_for_the_sessions_to_end(scene):
    options = {"session_timeout_ms": 20_000, "rebalance_timeout_ms": 6_000}
    joined = scene.joined(scene.join(instance="pod-0", **options))
    scene.sync(joined.member_id, assignments={}, instance="pod-0")
    newcomer = scene.join(**options)
    scene.leave(scene.member_ids[1])
    assert scene.joined(newcomer).error is ErrorCode.UNKNOWN_MEMBER_ID
    scene.advance(12)
    assert scene.state is GroupState.PREPARING_REBALANCE
    scene.advance(8)
    assert scene.state is GroupState.EMPTY


def test_administrator_removes_a_static_member_by_its_instance_id(scene):
    leader, _ = make_stable_pair(scene)
    assert scene.leave(LeavingMember("", "pod-1"), LeavingMember("", "pod-7")) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert scene.member_ids == [leader]
    assert scene.state is GroupState.PREPARING_REBALANCE


def test_unknown_instance_with_a_member_id_is_refused(scene):
    leader, _ = make_stable_pair(scene)
    assert scene.joined(scene.join(leader, instance="pod-9")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_id_given_to_a_dynamic_member_cannot_be_used_by_a_static_one(scene):
    told = scene.joined(scene.join(require_member_id=True))
    refused = scene.joined(scene.join(told.member_id, instance="pod-0"))
    assert refused.error is ErrorCode.UNKNOWN_MEMBER_ID
