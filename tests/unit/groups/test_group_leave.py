"""Leaving: of one or several members, by member id or by instance id, in each state."""

from __future__ import annotations

from barnabas.errors import ErrorCode
from barnabas.groups import GroupState, LeavingMember
from barnabas.state_machine import Effects


def test_member_that_leaves_triggers_a_rebalance(scene):
    leader, follower = scene.make_stable(2)
    assert scene.leave(follower) == [ErrorCode.NONE]
    assert scene.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.joined(scene.join(leader)).generation == 3


def test_longest_standing_member_leads_after_the_leader_left(scene):
    leader, second, third = scene.make_stable(3)
    scene.leave(leader)
    scene.join(third)
    assert scene.joined(scene.join(second)).leader == second


def test_last_member_that_leaves_makes_a_generation_without_members(scene):
    (leader,) = scene.make_stable(1)
    scene.leave(leader)
    assert (scene.state, scene.generation) == (GroupState.EMPTY, 2)


def test_generation_goes_on_growing_after_the_group_was_empty(scene):
    scene.leave(*scene.make_stable(1))
    assert scene.joined(scene.join()).generation == 3


def test_several_members_leave_with_one_rebalance(scene):
    leader, second, third = scene.make_stable(3)
    assert scene.leave(second, "stranger", third, third) == [
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert len(scene.joined(scene.join(leader)).members) == 1


def test_unknown_member_that_leaves_changes_nothing(scene):
    scene.make_stable(2)
    assert scene.leave("stranger", "") == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert scene.state is GroupState.STABLE


def test_leave_from_unknown_group_names_each_member(scene):
    assert scene.leave("a", "b") == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


def test_leave_without_group_id_is_refused(scene):
    result, effects = scene.coordinator.leave(0.0, "", [LeavingMember("a")])
    assert (result.error, result.members, effects) == (ErrorCode.INVALID_GROUP_ID, (), Effects())


def test_id_that_was_given_out_may_leave_without_a_rebalance(scene):
    scene.make_stable(1)
    told = scene.joined(scene.join(require_member_id=True))
    assert scene.leave(told.member_id) == [ErrorCode.NONE]
    assert scene.state is GroupState.STABLE
    assert scene.joined(scene.join(told.member_id)).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_leaves_while_its_join_waits_is_answered(scene):
    leader, _ = scene.make_stable(2)
    waiting = scene.join(leader)
    scene.leave(leader)
    assert scene.joined(waiting).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_member_that_leaves_while_its_sync_waits_is_answered(scene):
    _, follower = scene.make_joined(2)
    waiting = scene.sync(follower)
    scene.leave(follower)
    assert scene.synced(waiting).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_of_the_one_who_was_awaited_ends_the_rebalance(scene):
    leader, follower = scene.make_stable(2)
    rejoin = scene.join(leader)
    scene.leave(follower)
    assert scene.joined(rejoin).generation == 3


def test_everyone_who_waits_is_answered_when_the_coordinator_closes(scene):
    leader, _ = scene.make_stable(2)
    waiting = scene.join(leader)
    scene.deliver(scene.coordinator.close())
    assert scene.joined(waiting).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.joined(scene.join()).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.synced(scene.sync(leader, 1)).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.heartbeat(leader, 1) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.check_commit() is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.leave(leader) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert scene.coordinator.next_deadline() is None
