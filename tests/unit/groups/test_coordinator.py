"""Many groups in one coordinator: kept apart, ticked at their time, forgotten in the end."""

from __future__ import annotations

from barnabas.errors import ErrorCode
from barnabas.groups import GroupState
from barnabas.state_machine import Effects
from tests.unit.groups.conftest import ALL, GROUP


def test_groups_do_not_know_each_other(scene):
    (leader,) = scene.make_stable(1)
    other = scene.joined(scene.join(group_id="other"))
    assert other.generation == 1
    assert scene.coordinator.heartbeat(0.0, "other", leader, None, 1) is ErrorCode.UNKNOWN_MEMBER_ID
    assert sorted(scene.coordinator.group_ids()) == [GROUP, "other"]


def test_next_deadline_is_the_earliest_of_all_groups(scene):
    scene.join(group_id="slow", session_timeout_ms=60_000, rebalance_timeout_ms=60_000)
    scene.join(group_id="fast", session_timeout_ms=8_000, rebalance_timeout_ms=60_000)
    assert scene.coordinator.next_deadline() == 8.0


def test_nothing_is_waited_for_without_groups(scene):
    assert scene.coordinator.next_deadline() is None
    assert scene.coordinator.tick(100.0, ALL) == Effects([], [])


def test_tick_before_a_deadline_does_nothing(scene):
    leader, _ = scene.make_stable(2)
    scene.join(leader)
    assert scene.coordinator.tick(0.001, ALL) == Effects([], [])


def test_late_tick_does_all_that_became_due(scene):
    leader, _ = scene.make_stable(2)
    waiting = scene.join(leader)
    scene.perform(scene.coordinator.tick(1_000.0, ALL))
    assert scene.joined(waiting).error in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID)
    deadline = scene.coordinator.next_deadline()
    assert deadline is not None
    assert deadline > 1_000.0


def test_heartbeats_do_not_pile_up_deadlines(scene):
    leader, _ = scene.make_stable(2)
    for _ in range(1_000):
        scene.heartbeat(leader)
    assert len(scene.coordinator._heap) <= 3


def test_empty_group_is_described_until_it_is_forgotten(scene):
    scene.leave(*scene.make_stable(2))
    description = scene.coordinator.describe(GROUP)
    assert (description.state, description.protocol_type) == (GroupState.EMPTY, "consumer")
    scene.advance(60)
    assert scene.coordinator.next_deadline() is None
    assert scene.coordinator.forget_if_unused(scene.now, GROUP)[0]
    assert scene.coordinator.describe(GROUP) is None


def test_groups_that_nobody_came_back_to_are_forgotten_with_their_last_id(scene):
    for number in range(100):
        scene.join(group_id=f"g{number}", require_member_id=True, session_timeout_ms=10_000)
    assert len(scene.coordinator.group_ids()) == 100
    scene.advance(10)
    assert scene.coordinator.group_ids() == []
    assert scene.coordinator.next_deadline() is None


def test_a_group_whose_first_join_is_refused_is_not_kept(scene):
    assert scene.joined(scene.join(protocols=())).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.coordinator.group_ids() == []


def test_group_with_members_is_not_forgotten(scene):
    scene.make_stable(1)
    assert not scene.coordinator.forget_if_unused(scene.now, GROUP)[0]
    assert not scene.coordinator.forget_if_unused(scene.now, "never heard of")[0]
    assert scene.coordinator.group_ids() == [GROUP]


def test_description_shows_metadata_and_assignment_of_a_stable_group(scene):
    leader, _ = scene.make_stable(2)
    description = scene.coordinator.describe(GROUP)
    assert (description.protocol_name, description.generation) == ("range", 2)
    first = description.members[0]
    assert (first.member_id, first.client_id, first.metadata) == (leader, "app", b"topics")
    assert first.assignment == leader.encode()


def test_description_of_a_rebalancing_group_shows_no_protocol(scene):
    leader, _ = scene.make_stable(2)
    scene.join(leader)
    description = scene.coordinator.describe(GROUP)
    assert (description.protocol_name, description.members[0].metadata) == ("", b"")


def test_only_a_group_without_members_is_deleted(scene):
    members = scene.make_stable(2)
    assert scene.delete()[0] is ErrorCode.NON_EMPTY_GROUP
    scene.leave(*members)
    assert scene.delete()[0] is ErrorCode.NONE
    assert scene.delete()[0] is ErrorCode.GROUP_ID_NOT_FOUND
    assert scene.joined(scene.join()).generation == 1


def test_a_group_whose_tombstone_fails_can_be_deleted_again(scene):
    scene.leave(*scene.make_stable(2))
    scene.advance(50)
    scene.disk_is_slow = True
    _, waiter = scene.delete()
    assert scene.coordinator.group_ids() == []
    scene.store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert scene.answers[waiter].code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert (scene.state, scene.coordinator.empty_for_s(scene.now, GROUP)) == (GroupState.EMPTY, 50)
    error, waiter = scene.delete()
    assert (error, scene.is_waiting(waiter)) == (ErrorCode.NONE, True)
    scene.store()
    assert (scene.log[GROUP], scene.answers[waiter], scene.coordinator.group_ids()) == (None, None, [])


def test_an_unused_group_whose_tombstone_fails_is_forgotten_later(scene):
    scene.leave(*scene.make_stable(1))
    scene.disk_is_slow = True
    scene.perform(scene.coordinator.forget_if_unused(scene.now, GROUP)[1])
    scene.store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert scene.coordinator.group_ids() == [GROUP]
    scene.perform(scene.coordinator.forget_if_unused(scene.now, GROUP)[1])
    scene.store()
    assert (scene.log[GROUP], scene.coordinator.group_ids()) == (None, [])


def test_a_failed_tombstone_leaves_a_new_group_of_that_id(scene):
    scene.leave(*scene.make_stable(1))
    scene.disk_is_slow = True
    scene.delete()
    member_id = scene.joined(scene.join()).member_id
    scene.store(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    assert scene.member_ids == [member_id]
