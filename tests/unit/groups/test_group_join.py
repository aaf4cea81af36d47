"""Joining a group: who is let in, when a generation is made, and who leads it."""

from __future__ import annotations

import pytest

from barnabas.errors import ErrorCode
from barnabas.groups import GroupState

BOTH = (("roundrobin", b"r"), ("range", b"r"))


def test_first_member_makes_the_first_generation_and_leads_it(scene):
    joined = scene.joined(scene.join(client_id="app"))
    assert joined.error is ErrorCode.NONE
    assert joined.generation == 1
    assert joined.leader == joined.member_id == "app-1"
    assert [(each.member_id, each.metadata) for each in joined.members] == [("app-1", b"topics")]
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert scene.state is GroupState.COMPLETING_REBALANCE


def test_member_without_id_is_told_to_come_back_with_one(scene):
    told = scene.joined(scene.join(require_member_id=True))
    assert told.error is ErrorCode.MEMBER_ID_REQUIRED
    joined = scene.joined(scene.join(told.member_id, require_member_id=True))
    assert joined.error is ErrorCode.NONE
    assert joined.member_id == told.member_id


def test_id_that_was_given_out_is_forgotten_after_the_session_timeout(scene):
    told = scene.joined(scene.join(require_member_id=True, session_timeout_ms=10_000))
    scene.advance(10)
    late = scene.joined(scene.join(told.member_id))
    assert late.error is ErrorCode.UNKNOWN_MEMBER_ID


def test_rebalance_waits_for_an_id_that_was_given_out(scene):
    (leader,) = scene.make_stable(1)
    told = scene.joined(scene.join(require_member_id=True))
    rejoin = scene.join(leader)
    assert scene.is_waiting(rejoin)
    newcomer = scene.join(told.member_id)
    assert scene.joined(rejoin).generation == scene.joined(newcomer).generation == 2


def test_rebalance_goes_on_when_an_awaited_id_expires(scene):
    (leader,) = scene.make_stable(1)
    scene.join(require_member_id=True, session_timeout_ms=6_000)
    rejoin = scene.join(leader)
    scene.advance(6)
    assert scene.joined(rejoin).generation == 2


def test_static_member_needs_no_second_join_for_its_id(scene):
    joined = scene.joined(scene.join(instance="pod-0", require_member_id=True))
    assert joined.error is ErrorCode.NONE
    assert joined.member_id.startswith("pod-0-")


def test_empty_group_id_is_refused(scene):
    assert scene.joined(scene.join(group_id="")).error is ErrorCode.INVALID_GROUP_ID


@pytest.mark.parametrize("session_timeout_ms", [0, 5_999, 1_800_001])
def test_session_timeout_out_of_bounds_is_refused(scene, session_timeout_ms):
    joined = scene.joined(scene.join(session_timeout_ms=session_timeout_ms))
    assert joined.error is ErrorCode.INVALID_SESSION_TIMEOUT


def test_unknown_member_of_unknown_group_is_refused_and_makes_no_group(scene):
    assert scene.joined(scene.join("app-7")).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.coordinator.group_ids() == []


def test_unknown_member_of_known_group_is_refused(scene):
    scene.make_stable(1)
    assert scene.joined(scene.join("app-7")).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_newcomer_waits_until_the_others_have_rejoined(scene):
    leader, follower = scene.make_stable(2)
    newcomer = scene.join()
    assert scene.state is GroupState.PREPARING_REBALANCE
    first = scene.join(leader)
    assert scene.is_waiting(newcomer)
    assert scene.is_waiting(first)
    second = scene.join(follower)
    results = [scene.joined(each) for each in (newcomer, first, second)]
    assert {each.generation for each in results} == {3}
    assert {each.leader for each in results} == {leader}
    assert [len(each.members) for each in results] == [0, 3, 0]


def test_leader_goes_on_leading(scene):
    leader, follower = scene.make_stable(2)
    scene.join(follower, protocols=(("range", b"changed"),))
    joined = scene.joined(scene.join(leader))
    assert joined.leader == leader


def test_leader_that_rejoins_a_stable_group_triggers_a_rebalance(scene):
    leader, follower = scene.make_stable(2)
    rejoin = scene.join(leader)
    assert scene.is_waiting(rejoin)
    assert scene.heartbeat(follower) is ErrorCode.REBALANCE_IN_PROGRESS


def test_unchanged_follower_that_rejoins_a_stable_group_gets_the_current_generation(scene):
    leader, follower = scene.make_stable(2)
    joined = scene.joined(scene.join(follower))
    assert (joined.error, joined.generation, joined.leader, joined.members) == (ErrorCode.NONE, 2, leader, ())
    assert scene.state is GroupState.STABLE


def test_follower_with_other_metadata_triggers_a_rebalance(scene):
    _, follower = scene.make_stable(2)
    assert scene.is_waiting(scene.join(follower, protocols=(("range", b"other topics"),)))
    assert scene.state is GroupState.PREPARING_REBALANCE


def test_repeated_join_of_a_generation_without_assignment_is_answered_again(scene):
    leader, _ = scene.make_joined(2)
    joined = scene.joined(scene.join(leader))
    assert (joined.generation, len(joined.members)) == (2, 2)
    assert scene.state is GroupState.COMPLETING_REBALANCE


def test_changed_metadata_before_the_assignment_starts_over_and_answers_waiting_syncs(scene):
    leader, follower = scene.make_joined(2)
    waiting = scene.sync(follower)
    scene.join(leader, protocols=(("range", b"other topics"),))
    assert scene.synced(waiting).error is ErrorCode.REBALANCE_IN_PROGRESS


def test_second_join_of_a_member_replaces_the_first_which_is_answered(scene):
    leader, _ = scene.make_stable(2)
    first = scene.join(leader)
    second = scene.join(leader)
    assert scene.joined(first).error is ErrorCode.REBALANCE_IN_PROGRESS
    assert scene.joined(first).member_id == leader
    assert scene.is_waiting(second)


def test_protocol_with_most_votes_among_the_common_ones_is_chosen(scene):
    first = scene.joined(scene.join(protocols=BOTH)).member_id
    scene.join(protocols=(("range", b""), ("roundrobin", b"")))
    scene.join(protocols=(("sticky", b""), ("range", b""), ("roundrobin", b"")))
    rejoined = scene.joined(scene.join(first, protocols=BOTH))
    assert len(rejoined.members) == 3
    assert rejoined.protocol_name == "range"


def test_protocol_that_one_member_lacks_is_not_chosen(scene):
    first = scene.joined(scene.join(protocols=BOTH)).member_id
    scene.join(protocols=(("range", b""),))
    assert scene.joined(scene.join(first, protocols=BOTH)).protocol_name == "range"


def test_leader_gets_the_metadata_of_the_chosen_protocol(scene):
    joined = scene.joined(scene.join(protocols=(("range", b"for range"), ("roundrobin", b"for robin"))))
    assert joined.members[0].metadata == b"for range"


@pytest.mark.parametrize(
    ("protocols", "protocol_type"),
    [((("sticky", b""),), "consumer"), ((("range", b""),), "connect"), ((), "consumer")],
    ids=["no common protocol", "another type", "no protocols"],
)
def test_member_that_does_not_fit_in_is_refused(scene, protocols, protocol_type):
    scene.make_stable(1)
    refused = scene.join(protocols=protocols, protocol_type=protocol_type)
    assert scene.joined(refused).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert scene.state is GroupState.STABLE


@pytest.mark.parametrize(("protocols", "protocol_type"), [((), "consumer"), ((("range", b""),), "")])
def test_first_member_must_name_protocols_and_their_type(scene, protocols, protocol_type):
    refused = scene.join(protocols=protocols, protocol_type=protocol_type)
    assert scene.joined(refused).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_group_that_was_left_may_take_another_protocol_type(scene):
    scene.leave(*scene.make_stable(2))
    assert scene.state is GroupState.EMPTY
    joined = scene.joined(scene.join(protocol_type="connect", protocols=(("eager", b""),)))
    assert (joined.protocol_type, joined.protocol_name) == ("connect", "eager")


def test_full_group_refuses_newcomers_and_keeps_its_members(new_scene):
    scene = new_scene(members_max=2)
    leader, follower = scene.make_stable(2)
    refused = scene.joined(scene.join())
    assert (refused.error, refused.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")
    assert scene.member_ids == [leader, follower]
    assert scene.joined(scene.join(follower)).error is ErrorCode.NONE


def test_full_rebalance_refuses_those_who_come_last(new_scene):
    scene = new_scene(members_max=2)
    (leader,) = scene.make_stable(1)
    told = scene.joined(scene.join(require_member_id=True))
    rejoin, newcomer = scene.join(leader), scene.join()
    assert scene.is_waiting(rejoin), "the rebalance waits for the id that was given out"
    late = scene.joined(scene.join(told.member_id))
    assert late.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert scene.joined(rejoin).generation == scene.joined(newcomer).generation == 2


def test_initial_rebalance_waits_for_more_members(new_scene):
    scene = new_scene(initial_rebalance_delay_ms=3_000)
    first = scene.join()
    scene.advance(2)
    second = scene.join()
    scene.advance(1)
    assert scene.is_waiting(first), "a newcomer during the wait makes it longer"
    scene.advance(3)
    assert {scene.joined(first).generation, scene.joined(second).generation} == {1}
    assert len(scene.joined(first).members) == 2


def test_initial_wait_ends_after_the_rebalance_timeout(new_scene):
    scene = new_scene(initial_rebalance_delay_ms=3_000)
    first = scene.join(rebalance_timeout_ms=7_000)
    for _ in range(3):
        scene.advance(2)
        scene.join(rebalance_timeout_ms=7_000)
    assert scene.is_waiting(first)
    scene.advance(1)
    assert scene.joined(first).generation == 1


def test_later_rebalances_do_not_wait_for_more_members(new_scene):
    scene = new_scene(initial_rebalance_delay_ms=3_000)
    first = scene.join()
    scene.advance(3)
    leader = scene.joined(first).member_id
    newcomer, rejoin = scene.join(), scene.join(leader)
    assert scene.joined(newcomer).generation == scene.joined(rejoin).generation == 2


def test_members_that_do_not_rejoin_in_time_are_removed(scene):
    leader, follower = scene.make_stable(2, rebalance_timeout_ms=8_000)
    rejoin = scene.join(follower, rebalance_timeout_ms=8_000, protocols=(("range", b"other"),))
    scene.advance(4)
    scene.heartbeat(leader)  # alive, but it does not rejoin
    scene.advance(4)
    joined = scene.joined(rejoin)
    assert (joined.leader, joined.generation) == (follower, 3)
    assert scene.member_ids == [follower]


def test_rebalance_timeout_below_zero_means_the_session_timeout(scene):
    options = {"rebalance_timeout_ms": -1, "session_timeout_ms": 6_000}
    leader, _ = scene.make_stable(2, **options)
    rejoin = scene.join(leader, **options)
    scene.advance(6)
    assert scene.joined(rejoin).generation == 3


def test_newcomer_that_waits_too_long_is_removed_and_told(new_scene):
    scene = new_scene(new_member_join_timeout_ms=20_000)
    leader, _ = scene.make_stable(2, rebalance_timeout_ms=100_000)
    newcomer = scene.join()
    for _ in range(4):
        scene.advance(5)
        for member_id in scene.member_ids[:2]:
            scene.heartbeat(member_id)
    assert scene.joined(newcomer).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert leader in scene.member_ids
