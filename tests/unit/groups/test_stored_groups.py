"""What lasts of a group: it is stored before anybody is told of it, and a coordinator begins anew with it."""

from __future__ import annotations

import dataclasses

from barnabas.errors import ErrorCode
from barnabas.groups import GroupState, LeavingMember

GROUP = "clicks-readers"


def test_members_are_told_their_assignment_when_it_is_stored(scene):
    leader, follower = scene.make_joined(2)
    scene.disk_is_slow = True
    of_follower = scene.sync(follower)
    of_leader = scene.sync(leader, assignments={leader: b"1", follower: b"2"})
    assert scene.is_waiting(of_leader)
    assert scene.is_waiting(of_follower)
    assert scene.state is GroupState.COMPLETING_REBALANCE
    scene.store()
    assert (scene.synced(of_leader).assignment, scene.synced(of_follower).assignment) == (b"1", b"2")
    assert scene.state is GroupState.STABLE
    assert [member.assignment for member in scene.log[GROUP].members] == [b"1", b"2"]


def test_leader_that_asks_again_meanwhile_is_answered_once_it_is_stored(scene):
    (leader,) = scene.make_joined(1)
    scene.disk_is_slow = True
    first = scene.sync(leader, assignments={leader: b"1"})
    second = scene.sync(leader, assignments={leader: b"2"})
    scene.store()
    assert scene.synced(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.synced(second).assignment == b"1"


def test_assignment_that_cannot_be_stored_is_told_to_nobody(scene):
    leader, follower = scene.make_joined(2)
    scene.disk_is_slow = True
    waiting = [scene.sync(follower), scene.sync(leader, assignments={leader: b"1", follower: b"2"})]
    scene.store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    for each in waiting:
        assert scene.synced(each).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert scene.synced(each).assignment == b""
    assert scene.state is GroupState.PREPARING_REBALANCE
    joins = [scene.join(leader), scene.join(follower)]
    assert {scene.joined(each).generation for each in joins} == {3}


def test_assignment_that_is_stored_too_late_is_not_that_of_the_next_generation(scene):
    leader, follower = scene.make_joined(2)
    scene.disk_is_slow = True
    waiting = scene.sync(leader, assignments={leader: b"old"})
    scene.leave(follower)
    assert scene.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS
    joined = scene.join(leader)
    assert scene.joined(joined).generation == 3
    again = scene.sync(leader, assignments={leader: b"new"})
    scene.store()
    assert scene.synced(again).assignment == b"new"
    assert scene.log[GROUP].members[0].assignment == b"new"


def test_members_notice_nothing_of_another_coordinator(scene):
    leader, follower = scene.make_stable(2)
    scene.restart()
    assert (scene.state, scene.generation) == (GroupState.STABLE, 2)
    assert scene.heartbeat(follower) is ErrorCode.NONE
    assert scene.check_commit(leader, scene.generation) is ErrorCode.NONE
    assert scene.synced(scene.sync(follower)).assignment == follower.encode()


def test_sessions_begin_anew_with_another_coordinator(scene):
    leader, follower = scene.make_stable(2, session_timeout_ms=10_000)
    scene.advance(9)
    scene.restart()
    scene.advance(9)
    assert scene.heartbeat(leader) is ErrorCode.NONE
    scene.advance(2)
    assert scene.heartbeat(leader) is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.heartbeat(follower) is ErrorCode.UNKNOWN_MEMBER_ID


def test_unfinished_rebalance_is_begun_anew(scene):
    leader, follower = scene.make_stable(2)
    scene.join(leader)
    scene.restart()
    assert scene.state is GroupState.STABLE
    waiting = scene.join(leader)
    assert scene.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS
    scene.join(follower)
    assert scene.joined(waiting).generation == 3


def test_static_member_keeps_its_place_with_another_coordinator(scene):
    (first,) = scene.make_stable(1, instance="pod-1")
    scene.restart()
    again = scene.joined(scene.join(instance="pod-1"))
    assert (again.error, again.generation) == (ErrorCode.NONE, 1)
    assert scene.heartbeat(first, instance="pod-1") is ErrorCode.FENCED_INSTANCE_ID
    assert scene.synced(scene.sync(again.member_id, instance="pod-1")).assignment == first.encode()


def test_new_id_of_a_static_member_is_told_when_it_is_stored(scene):
    scene.make_stable(1, instance="pod-1")
    scene.disk_is_slow = True
    waiting = scene.join(instance="pod-1")
    assert scene.is_waiting(waiting)
    scene.store()
    new_id = scene.joined(waiting).member_id
    assert [member.member_id for member in scene.log[GROUP].members] == [new_id]


def test_new_id_of_a_static_member_that_cannot_be_stored_is_an_error(scene):
    scene.make_stable(1, instance="pod-1")
    scene.disk_is_slow = True
    waiting = scene.join(instance="pod-1")
    scene.store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert scene.joined(waiting).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    scene.disk_is_slow = False
    assert scene.joined(scene.join(instance="pod-1")).error is ErrorCode.NONE


def test_static_member_that_leaves_before_its_new_id_is_stored_is_answered(scene):
    scene.make_stable(1, instance="pod-1")
    scene.disk_is_slow = True
    first, second = scene.join(instance="pod-1"), scene.join(instance="pod-1")
    assert scene.joined(first).error is ErrorCode.FENCED_INSTANCE_ID
    scene.leave(LeavingMember("", "pod-1"))
    assert scene.joined(second).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.delete()[0] is ErrorCode.NONE
    scene.store()
    assert scene.log[GROUP] is None


def test_who_waits_for_the_disk_is_answered_when_the_coordinator_stops(scene):
    scene.make_stable(1, instance="pod-1")
    scene.disk_is_slow = True
    waiting = scene.join(instance="pod-1")
    scene.deliver(scene.coordinator.close(ErrorCode.NOT_COORDINATOR))
    assert scene.joined(waiting).error is ErrorCode.NOT_COORDINATOR
    scene.store()


def test_empty_group_is_stored_with_its_generation(scene):
    scene.leave(*scene.make_stable(1))
    stored = scene.log[GROUP]
    assert (stored.generation, stored.members, stored.protocol_name) == (2, (), None)
    scene.restart()
    assert scene.state is GroupState.EMPTY
    assert scene.joined(scene.join()).generation == 3


def test_deleted_group_is_gone_with_another_coordinator(scene):
    scene.leave(*scene.make_stable(1))
    assert scene.delete()[0] is ErrorCode.NONE
    assert scene.log[GROUP] is None
    scene.restart()
    assert scene.coordinator.group_ids() == []


def test_group_that_was_never_stored_leaves_nothing_behind(scene):
    waiting = scene.join(require_member_id=True)
    scene.leave(LeavingMember(scene.joined(waiting).member_id))
    assert scene.coordinator.group_ids() == []
    assert scene.log == {}


def test_group_stays_empty_for_as_long_as_it_was(scene):
    scene.leave(*scene.make_stable(1))
    stored = scene.log[GROUP]
    scene.restart()
    scene.coordinator.load(scene.now, GROUP, stored, empty_for_s=50.0)
    assert scene.coordinator.empty_for_s(scene.now + 10, GROUP) == 60.0


def test_member_that_supported_other_protocols_may_join_with_them_again(scene):
    both = (("range", b"r"), ("sticky", b"s"))
    leader, follower = scene.make_stable(2, protocols=both)
    scene.restart()
    assert {member.subscription for member in scene.log[GROUP].members} == {b"r"}
    joins = [scene.join(leader, protocols=both), scene.join(follower, protocols=both)]
    assert {scene.joined(each).protocol_name for each in joins} == {"range"}
    assert scene.coordinator.subscriptions(GROUP) == [[b"r"], [b"r"]], "one protocol was selected for this generation"


def test_stored_group_without_a_session_time_does_no_harm(scene):
    scene.make_stable(1)
    stored = scene.log[GROUP]
    damaged = tuple(dataclasses.replace(each, session_timeout_ms=-5) for each in stored.members)
    scene.coordinator.load(scene.now, GROUP, dataclasses.replace(stored, members=damaged))
    scene.advance(1)
    assert scene.state is GroupState.EMPTY
