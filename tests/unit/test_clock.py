"""A clock that jumps lets no data expire until it has kept its new course for a while."""

from __future__ import annotations

import pytest

from barnabas.clock import HOLD_S, JUMP_S_MAX, SYSTEM_CLOCK, GuardedClock, ManualClock
from barnabas.model import NO_TIMESTAMP

YEAR_S = 365 * 86_400


@pytest.fixture
def wall() -> ManualClock:
    return ManualClock()


@pytest.fixture
def clock(wall: ManualClock) -> GuardedClock:
    return GuardedClock(wall)


def test_time_that_the_monotonic_clock_confirms_is_no_jump(clock: GuardedClock, wall: ManualClock) -> None:
    for seconds in (0, 1, HOLD_S, YEAR_S):
        wall.advance(seconds)
        assert clock.expiry_ms() == wall.time_ms()


@pytest.mark.parametrize("jump_s", [YEAR_S, -YEAR_S, JUMP_S_MAX + 1, -JUMP_S_MAX - 1])
def test_after_a_jump_nothing_expires_for_ten_minutes(
    clock: GuardedClock, wall: ManualClock, caplog: pytest.LogCaptureFixture, jump_s: float
) -> None:
    wall.jump(jump_s)
    for _ in range(10):
        assert clock.expiry_ms() is None
        wall.advance(59)
    assert clock.expiry_ms() is None
    wall.advance(10)
    assert clock.expiry_ms() == wall.time_ms()
    (line,) = caplog.messages
    assert line.startswith(f"the wall clock jumped by {jump_s:+.0f} s")


def test_a_clock_that_is_wrong_for_seconds_is_in_doubt_for_ten_minutes_after_it_is_right_again(
    clock: GuardedClock, wall: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    wall.jump(YEAR_S)
    assert clock.expiry_ms() is None
    wall.advance(4)
    wall.jump(-YEAR_S)
    assert clock.expiry_ms() is None
    wall.advance(HOLD_S - 1)
    assert clock.expiry_ms() is None
    wall.advance(1)
    assert clock.expiry_ms() == wall.time_ms()
    assert len(caplog.messages) == 1


def test_a_clock_that_never_comes_to_rest_is_logged_every_ten_minutes(
    clock: GuardedClock, wall: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(20):
        wall.jump(YEAR_S)
        assert clock.expiry_ms() is None
        wall.advance(HOLD_S / 4)
    assert len(caplog.messages) == 5


def test_small_corrections_are_no_jumps_unless_they_come_in_a_row(clock: GuardedClock, wall: ManualClock) -> None:
    for _ in range(100):
        wall.jump(JUMP_S_MAX * 0.9)
        wall.advance(HOLD_S)
        assert clock.expiry_ms() == wall.time_ms()
    wall.jump(JUMP_S_MAX * 0.9)
    assert clock.expiry_ms() == wall.time_ms()
    wall.jump(JUMP_S_MAX * 0.9)
    assert clock.expiry_ms() is None


def test_a_clock_that_jumps_between_two_readings_is_used_as_it_was_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = ManualClock()
    clock = GuardedClock(wall)
    expected_ms = wall.time_ms()

    def read_and_jump() -> float:
        wall_s = expected_ms / 1000
        wall.jump(YEAR_S)
        return wall_s

    monkeypatch.setattr(clock, "time_s", read_and_jump)
    assert clock.expiry_ms() == expected_ms


def test_a_thread_that_stands_still_between_two_readings_sees_no_jump() -> None:
    class Interrupted(ManualClock):
        def time_s(self) -> float:
            self.advance(3_600)
            return super().time_s()

    clock = GuardedClock(Interrupted())
    assert clock.expiry_ms() is not None


@pytest.mark.parametrize(
    ("away_s", "is_doubted"),
    [(0, False), (HOLD_S, False), (HOLD_S + 1, True), (YEAR_S, True), (-JUMP_S_MAX, False), (-YEAR_S, True)],
)
def test_a_start_long_after_the_last_sign_of_life_or_before_it_is_doubted(
    clock: GuardedClock, wall: ManualClock, caplog: pytest.LogCaptureFixture, away_s: float, is_doubted: bool
) -> None:
    clock.compare_with_last_life(wall.time_ms() - round(away_s * 1000))
    assert (clock.expiry_ms() is None) == is_doubted
    assert len(caplog.messages) == is_doubted
    wall.advance(HOLD_S)
    assert clock.expiry_ms() == wall.time_ms()


def test_the_machines_clock_is_guarded() -> None:
    clock = GuardedClock(SYSTEM_CLOCK)
    assert clock.since_boot() > 0
    assert clock.expiry_ms() is not None


def test_stored_time_is_unknown_while_the_wall_clock_is_in_doubt() -> None:
    wall = ManualClock()
    clock = GuardedClock(wall)
    clock.compare_with_last_life(wall.time_ms() + 86_400_000)
    assert clock.stored_ms() == NO_TIMESTAMP
    wall.advance(HOLD_S)
    assert clock.stored_ms() == wall.time_ms()
    wall.jump(-86_400)
    assert clock.stored_ms() == NO_TIMESTAMP, "nobody asked for the expiry time since the jump"
