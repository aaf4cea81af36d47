"""Getting an assignment, and showing life, in each state of the group."""

from __future__ import annotations

import pytest

from barnabas.errors import ErrorCode
from barnabas.groups import GroupState


def test_followers_wait_until_the_leader_hands_in_the_assignment(scene):
    leader, follower = scene.make_joined(2)
    waiting = scene.sync(follower)
    assert scene.is_waiting(waiting)
    first = scene.sync(leader, assignments={leader: b"0", follower: b"1"})
    assert scene.synced(first).assignment == b"0"
    assert scene.synced(waiting).assignment == b"1"
    assert (scene.synced(waiting).protocol_type, scene.synced(waiting).protocol_name) == ("consumer", "range")
    assert scene.state is GroupState.STABLE


def test_follower_that_syncs_late_gets_its_assignment_at_once(scene):
    leader, follower = scene.make_joined(2)
    scene.sync(leader, assignments={leader: b"0", follower: b"1"})
    assert scene.synced(scene.sync(follower)).assignment == b"1"


def test_member_that_the_leader_passed_over_gets_an_empty_assignment(scene):
    leader, follower = scene.make_joined(2)
    scene.sync(leader, assignments={leader: b"0", "stranger": b"9"})
    synced = scene.synced(scene.sync(follower))
    assert (synced.error, synced.assignment) == (ErrorCode.NONE, b"")


def test_assignment_of_a_follower_is_not_taken(scene):
    leader, follower = scene.make_joined(2)
    waiting = scene.sync(follower, assignments={follower: b"all of it"})
    scene.sync(leader, assignments={leader: b"0", follower: b"1"})
    assert scene.synced(waiting).assignment == b"1"


def test_second_sync_of_a_member_replaces_the_first_which_is_answered(scene):
    _, follower = scene.make_joined(2)
    first, second = scene.sync(follower), scene.sync(follower)
    assert scene.synced(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.is_waiting(second)


def test_sync_during_a_rebalance_is_told_to_join(scene):
    leader, follower = scene.make_stable(2)
    scene.join(leader)
    assert scene.synced(scene.sync(follower)).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_sync_of_an_earlier_generation_is_refused(scene):
    leader, _ = scene.make_joined(2)
    assert scene.synced(scene.sync(leader, generation=1)).error is ErrorCode.ILLEGAL_GENERATION


def test_sync_of_an_unknown_member_is_refused(scene):
    scene.make_joined(1)
    assert scene.synced(scene.sync("stranger")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.synced(scene.sync("")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_sync_with_an_unknown_group_is_refused(scene):
    assert scene.synced(scene.sync("app-1", generation=1)).error is ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("named", [{"protocol_type": "connect"}, {"protocol_name": "sticky"}])
def test_sync_that_names_another_protocol_is_refused(scene, named):
    (leader,) = scene.make_joined(1)
    assert scene.synced(scene.sync(leader, **named)).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_sync_that_names_the_group_protocol_is_taken(scene):
    (leader,) = scene.make_joined(1)
    named = {"protocol_type": "consumer", "protocol_name": "range"}
    assert scene.synced(scene.sync(leader, **named)).error is ErrorCode.NONE


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout(scene):
    leader, follower = scene.make_joined(2, rebalance_timeout_ms=8_000)
    waiting = scene.sync(follower)
    scene.advance(4)
    scene.heartbeat(leader)
    scene.advance(4)
    assert scene.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.member_ids == [follower]
    assert scene.joined(scene.join(follower)).leader == follower


def test_member_with_a_rebalance_timeout_of_zero_has_time_to_sync(scene):
    (leader,) = scene.make_joined(1, rebalance_timeout_ms=0)
    scene.advance(0.9)
    assert scene.synced(scene.sync(leader, assignments={leader: b"all"})).error is ErrorCode.NONE


def test_heartbeat_keeps_a_member(scene):
    leader, follower = scene.make_stable(2, session_timeout_ms=10_000)
    for _ in range(3):
        scene.advance(9)
        assert scene.heartbeat(leader) is ErrorCode.NONE
        assert scene.heartbeat(follower) is ErrorCode.NONE
    assert scene.member_ids == [leader, follower]


def test_member_without_heartbeats_is_removed_after_its_session_timeout(scene):
    leader, follower = scene.make_stable(2, session_timeout_ms=10_000)
    scene.advance(5)
    scene.heartbeat(follower)
    scene.advance(5)
    assert scene.member_ids == [follower]
    assert scene.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.heartbeat(leader) is ErrorCode.UNKNOWN_MEMBER_ID


def test_last_member_to_expire_leaves_the_group_empty(scene):
    scene.make_stable(2)
    scene.advance(10)
    assert (scene.state, scene.member_ids) == (GroupState.EMPTY, [])


def test_member_that_waits_for_the_coordinator_does_not_expire(scene):
    leader, follower = scene.make_stable(2, session_timeout_ms=6_000, rebalance_timeout_ms=60_000)
    rejoin = scene.join(leader, session_timeout_ms=6_000, rebalance_timeout_ms=60_000)
    for _ in range(5):
        scene.advance(5)
        scene.heartbeat(follower)
    assert scene.is_waiting(rejoin)
    assert scene.member_ids == [leader, follower]


def test_heartbeat_before_the_assignment_is_taken(scene):
    leader, _ = scene.make_joined(2)
    assert scene.heartbeat(leader) is ErrorCode.NONE


def test_heartbeat_of_another_generation_is_refused(scene):
    leader, _ = scene.make_stable(2)
    assert scene.heartbeat(leader, generation=1) is ErrorCode.ILLEGAL_GENERATION


def test_heartbeat_without_group_id_is_refused(scene):
    assert scene.coordinator.heartbeat(0.0, "", "m", None, 1) is ErrorCode.INVALID_GROUP_ID
