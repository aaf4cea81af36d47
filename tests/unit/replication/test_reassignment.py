"""How a partition moves to other brokers: what its replicas are meanwhile, and when the move is over."""

from __future__ import annotations

import pytest

from barnabas.coordination.values import PartitionState, ReplicaSet
from barnabas.errors import ApiError, ErrorCode
from barnabas.replication.reassignment import cancelled, check_target, end_state, heir, is_complete, reassigned


def test_meanwhile_all_that_held_it_and_all_that_are_to_hold_it_are_replicas() -> None:
    moving = reassigned(ReplicaSet((1, 2, 3)), (4, 2))
    assert moving == ReplicaSet((4, 2, 1, 3), adding=(4,), removing=(1, 3))
    assert moving.target == (4, 2)
    assert set(moving.origin) == {1, 2, 3}


def test_another_order_is_no_move() -> None:
    assert reassigned(ReplicaSet((1, 2, 3)), (3, 1, 2)) == ReplicaSet((3, 1, 2))


def test_what_was_new_and_is_not_wanted_any_more_stays_until_the_end() -> None:
    moving = reassigned(reassigned(ReplicaSet((1, 2)), (3, 4)), (2, 5))
    assert set(moving.replicas) == {1, 2, 3, 4, 5}
    assert moving.target == (2, 5)
    assert set(moving.origin) == {1, 2}
    back = cancelled(moving)
    assert set(back.target) == {1, 2}
    assert set(back.removing) == {3, 4, 5}


def test_who_comes_back_to_where_it_was_moves_no_more_once_the_new_ones_are_gone() -> None:
    back = cancelled(reassigned(ReplicaSet((1, 2)), (1, 3)))
    assert ReplicaSet(back.target) == ReplicaSet((1, 2))
    assert is_complete(back, (1, 2), 1)
    with pytest.raises(ApiError) as caught:
        cancelled(ReplicaSet((1, 2)))
    assert caught.value.code is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 2, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
    ],
)
def test_what_cannot_be_is_refused(target: tuple[int, ...], code: ErrorCode) -> None:
    with pytest.raises(ApiError) as caught:
        check_target(ReplicaSet((1, 3)), target, {1, 2, 4}, may_change_factor=False)
    assert caught.value.code is code


def test_replica_that_is_there_already_need_not_live() -> None:
    check_target(ReplicaSet((1, 3)), (3, 2), {1, 2}, may_change_factor=False)


def test_target_with_two_brokers_of_a_machine_is_refused_unless_it_is_a_new_order() -> None:
    machines = {1: "a", 3: "a", 2: "b"}
    with pytest.raises(ApiError, match="same machine"):
        check_target(ReplicaSet((1, 2)), (1, 3), {1, 2, 3}, machines=machines)
    check_target(ReplicaSet((1, 3)), (3, 1), {1, 3}, machines=machines)  # placed before the brokers had labels


def test_number_of_replicas_is_that_of_the_move_under_way() -> None:
    moving = reassigned(ReplicaSet((1, 2)), (1, 2, 3))
    check_target(moving, (2, 3, 4), {1, 2, 3, 4}, may_change_factor=False)
    with pytest.raises(ApiError):
        check_target(moving, (2, 3), {1, 2, 3, 4}, may_change_factor=False)


def test_move_is_complete_when_all_that_are_wanted_are_in_sync() -> None:
    moving = reassigned(ReplicaSet((1, 2)), (2, 3))
    assert not is_complete(moving, (1, 2), 1)
    assert not is_complete(moving, (1, 3), 1)
    assert is_complete(moving, (1, 2, 3), 1)
    assert not is_complete(ReplicaSet((1, 2)), (1, 2), 1)


def test_dead_replica_is_not_waited_for_where_nothing_new_comes_but_acks_all_must_go_on() -> None:
    fewer = reassigned(ReplicaSet((1, 2, 3)), (1, 2))
    assert is_complete(fewer, (1, 3), 1)
    assert not is_complete(fewer, (1, 3), 2)
    assert not is_complete(fewer, (3,), 0)


def test_leader_that_is_to_go_hands_on_to_the_first_that_stays_and_can() -> None:
    moving = reassigned(ReplicaSet((1, 2)), (4, 3))
    state = PartitionState(1, 7, (1, 2, 3, 4))
    assert heir(moving, state, {1, 2, 3}) == PartitionState(3, 8, (1, 2, 3, 4))
    assert heir(moving, state, {1, 2}) is None


def test_those_that_go_leave_the_in_sync_replicas_and_an_epoch_begins_without_them() -> None:
    moving = reassigned(ReplicaSet((1, 2)), (4, 3))
    assert end_state(moving, PartitionState(4, 8, (1, 2, 3, 4))) == PartitionState(4, 9, (4, 3))


def test_epoch_goes_on_where_replicas_come_and_none_goes() -> None:
    assert end_state(reassigned(ReplicaSet((1,)), (1, 2)), PartitionState(1, 8, (1, 2))) == PartitionState(1, 8, (1, 2))
