"""How fast replicas are copied that are to be copied slowly."""

from __future__ import annotations

import random

import pytest

from barnabas.clock import ManualClock
from barnabas.replication.quota import BURST_S, NONE_THROTTLED, ReplicationQuota, ThrottledReplicas

RATE = 1_000


def test_in_no_time_passes_more_than_the_rate_and_what_was_begun_last() -> None:
    chance, clock, largest = random.Random(7), ManualClock(), 50 * RATE
    quota = ReplicationQuota(RATE, clock.monotonic)
    passed = [(clock.monotonic(), 0)]
    for _ in range(2_000):
        if quota.is_exceeded:
            clock.advance(chance.choice([0.01, min(quota.wait_s, 5.0), 30.0]))
            continue
        size = chance.choice([1, RATE // 10, RATE, largest])
        quota.note(size)
        passed.append((clock.monotonic(), passed[-1][1] + size))
    for _ in range(2_000):
        (from_s, before), (to_s, after) = sorted(chance.sample(passed, 2))
        assert after - before <= RATE * (to_s - from_s + BURST_S) + largest
    from_s, to_s = passed[0][0], passed[-1][0]
    assert passed[-1][1] >= RATE * (to_s - from_s) / 20, "idle times are up to 30 s, and the rate is used else"


def test_who_waits_as_long_as_is_said_waits_enough_and_not_much_longer() -> None:
    clock = ManualClock()
    quota = ReplicationQuota(RATE, clock.monotonic)
    quota.note(3 * RATE)
    assert quota.wait_s == 2.0
    clock.advance(1.999)
    assert quota.is_exceeded
    clock.advance(0.002)
    assert not quota.is_exceeded
    assert quota.wait_s == 0.0
    assert quota.overdraft_count == 1


def test_rate_of_nothing_lets_nothing_pass_and_another_rate_is_in_force_at_once() -> None:
    clock = ManualClock()
    quota = ReplicationQuota(0, clock.monotonic)
    clock.advance(1_000_000)
    assert quota.is_exceeded
    assert quota.wait_s == float("inf")
    quota.set_rate(1)
    assert not quota.is_exceeded
    quota.note(1_000_000_000)
    quota.set_rate(1)
    assert quota.is_exceeded, "it is the same rate"
    quota.set_rate(RATE)
    assert not quota.is_exceeded


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("", []),
        ("*", [(0, 1), (0, 2), (1, 1), (1, 2)]),
        ("0:1,1:2", [(0, 1), (1, 2)]),
        (" 0:1 , 0:2 ", [(0, 1), (0, 2)]),
        ("0:1,*", [(0, 1), (0, 2), (1, 1), (1, 2)]),
    ],
)
def test_setting_names_replicas_by_partition_and_broker(value: str, expected: list[tuple[int, int]]) -> None:
    throttled = ThrottledReplicas.parse(value)
    assert [(partition, broker) for partition in (0, 1) for broker in (1, 2) if (partition, broker) in throttled] == (
        expected
    )
    assert (throttled is NONE_THROTTLED) == (not expected)
