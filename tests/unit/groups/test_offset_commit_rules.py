"""Who may commit offsets: members of the current generation, and anybody while the group has no members."""

from __future__ import annotations

from barnabas.errors import ErrorCode


def test_member_of_the_current_generation_may_commit(scene):
    leader, _ = scene.make_stable(2)
    assert scene.check_commit(leader, 2) is ErrorCode.NONE


def test_member_may_commit_while_the_others_rejoin(scene):
    leader, follower = scene.make_stable(2)
    scene.join(leader)
    assert scene.check_commit(follower, 2) is ErrorCode.NONE


def test_commit_before_the_assignment_is_told_that_a_rebalance_runs(scene):
    leader, _ = scene.make_joined(2)
    assert scene.check_commit(leader, 2) is ErrorCode.REBALANCE_IN_PROGRESS


def test_commit_of_another_generation_is_refused(scene):
    leader, _ = scene.make_stable(2)
    assert scene.check_commit(leader, 1) is ErrorCode.ILLEGAL_GENERATION
    assert scene.check_commit(leader, 3) is ErrorCode.ILLEGAL_GENERATION


def test_commit_of_an_unknown_member_is_refused(scene):
    scene.make_stable(2)
    assert scene.check_commit("stranger", 2) is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_without_membership_is_taken_for_an_unknown_group(scene):
    assert scene.check_commit() is ErrorCode.NONE
    assert scene.coordinator.check_commit(0.0, "", "", None, -1) is ErrorCode.NONE


def test_commit_without_membership_is_taken_when_the_group_is_empty(scene):
    scene.leave(*scene.make_stable(2))
    assert scene.check_commit() is ErrorCode.NONE


def test_commit_without_membership_is_refused_while_there_are_members(scene):
    scene.make_stable(2)
    assert scene.check_commit() is ErrorCode.UNKNOWN_MEMBER_ID


def test_commit_of_a_generation_in_an_unknown_group_is_refused(scene):
    assert scene.check_commit("app-1", 4) is ErrorCode.ILLEGAL_GENERATION


def test_commit_counts_as_a_sign_of_life(scene):
    leader, follower = scene.make_stable(2, session_timeout_ms=10_000)
    for _ in range(3):
        scene.advance(9)
        assert scene.check_commit(leader, 2) is ErrorCode.NONE
        scene.heartbeat(follower)
    assert scene.member_ids == [leader, follower]
