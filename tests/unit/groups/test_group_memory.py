"""What members hand in is bounded: for each group, and for all groups of a broker."""

from __future__ import annotations

import pytest

from barnabas.errors import ErrorCode
from barnabas.groups.memory import GROUP_PARTS, KEPT_PARTS, SMALL_BYTES, GroupMemory
from barnabas.groups.requests import MEMBER_BYTES
from tests.unit.groups.conftest import Scene

TOTAL = 64 * SMALL_BYTES
OF_GROUP = TOTAL // GROUP_PARTS
LARGE = 2 * SMALL_BYTES


class Bounded(Scene):
    """Groups that share a bounded memory; `told` is what was to be logged."""

    def __init__(self, **config: int) -> None:
        self.told: list[str] = []
        self.memory = GroupMemory(TOTAL, self.told.append)
        super().__init__(self.memory, **config)

    def join_with(self, size: int, group_id: str = "g", member_id: str = "", instance: str | None = None) -> ErrorCode:
        """Join with so much metadata; return the error, NONE also where the join waits."""
        waiter = self.join(member_id, group_id=group_id, protocols=(("range", bytes(size)),), instance=instance)
        return self.answers[waiter].error if waiter in self.answers else ErrorCode.NONE


@pytest.fixture
def scene() -> Bounded:
    return Bounded(initial_rebalance_delay_ms=60_000)


def test_group_refuses_members_beyond_its_bytes(scene: Bounded) -> None:
    errors = [scene.join_with(LARGE) for _ in range(OF_GROUP // LARGE + 3)]
    admitted = errors.count(ErrorCode.NONE)
    assert errors == [ErrorCode.NONE] * admitted + [ErrorCode.GROUP_MAX_SIZE_REACHED] * (len(errors) - admitted)
    assert admitted == OF_GROUP // (LARGE + MEMBER_BYTES)
    assert scene.memory.used_bytes <= OF_GROUP
    assert "group 'g' rejects" in scene.told[0]
    assert scene.join_with(100, "other") is ErrorCode.NONE


def test_all_groups_together_leave_room_for_small_members(scene: Bounded) -> None:
    errors = [scene.join_with(LARGE, f"g-{number}") for number in range(TOTAL // LARGE)]
    assert errors[-1] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert scene.memory.used_bytes <= TOTAL - TOTAL // KEPT_PARTS
    assert scene.join_with(100, "small") is ErrorCode.NONE


def test_ids_that_were_given_out_count_until_they_expire(scene: Bounded) -> None:
    client_id = "x" * 30_000
    errors = [
        scene.joined(scene.join(client_id=client_id, require_member_id=True)).error
        for _ in range(OF_GROUP // len(client_id))
    ]
    assert errors[0] is ErrorCode.MEMBER_ID_REQUIRED
    assert errors[-1] is ErrorCode.GROUP_MAX_SIZE_REACHED
    scene.advance(60)
    assert scene.memory.used_bytes == 0


def test_member_that_grows_beyond_the_bytes_of_its_group_is_out(scene: Bounded) -> None:
    waiter = scene.join(group_id="g")
    scene.advance(60)
    member_id = scene.joined(waiter).member_id
    assert scene.join_with(OF_GROUP, member_id=member_id) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert scene.join_with(100, member_id=member_id) is ErrorCode.UNKNOWN_MEMBER_ID
    assert scene.memory.used_bytes == 0


def test_static_member_that_was_started_again_takes_the_place_of_the_old_one(scene: Bounded) -> None:
    size = OF_GROUP * 2 // 3
    assert [scene.join_with(size, instance="pod-0") for _ in range(2)] == [ErrorCode.NONE] * 2


def test_assignment_beyond_the_bytes_of_its_group_makes_members_agree_anew() -> None:
    scene = Bounded()
    joined = scene.joined(scene.join())
    synced = scene.sync(joined.member_id, assignments={joined.member_id: bytes(OF_GROUP)})
    assert scene.answers[synced].error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert scene.memory.used_bytes < 2 * MEMBER_BYTES
    again = scene.joined(scene.join(joined.member_id))
    synced = scene.sync(again.member_id, again.generation, assignments={again.member_id: b"all", "stranger": b"x"})
    assert scene.answers[synced].error is ErrorCode.NONE
    assert scene.memory.used_bytes < 2 * MEMBER_BYTES


def test_deleted_and_resigned_groups_count_no_more(scene: Bounded) -> None:
    for number in range(3):
        scene.join_with(LARGE, f"g-{number}")
    scene.deliver(scene.coordinator.close())
    assert scene.memory.used_bytes == 0
