"""The arithmetic of quotas: rates over windows and token buckets, as in Kafka."""

from __future__ import annotations

import pytest

from barnabas.rates import TokenBucket, WindowedRate, Windows, throttle_ms

KAFKAS = Windows(11, 1.0)


def test_rate_of_a_first_amount_is_over_all_full_windows() -> None:
    rate = WindowedRate(KAFKAS)
    rate.note(500, 100.0)
    assert rate.per_s(100.0) == 50
    assert rate.throttle_s(50, 100.0) == 0
    rate.note(500, 100.5)
    assert rate.throttle_s(50, 100.5) == pytest.approx(9.5)


def test_client_that_waits_as_told_keeps_its_rate() -> None:
    rate, now_s, sent = WindowedRate(KAFKAS), 0.0, 0
    while now_s < 300:
        sent += 4_000
        rate.note(4_000, now_s)
        now_s += rate.throttle_s(1_000, now_s) + 0.01
    assert 0.95 <= sent / (1_000 * now_s) <= 1.05


def test_old_amounts_do_not_count() -> None:
    rate = WindowedRate(KAFKAS)
    rate.note(1_000_000, 0.0)
    assert not rate.is_idle(10.9)
    assert rate.is_idle(11.0)
    assert rate.per_s(11.0) == 0


def test_memory_of_a_rate_is_bounded() -> None:
    rate = WindowedRate(Windows(3, 2.0))
    for number in range(10_000):
        rate.note(1, number * 0.1)
    assert len(rate._samples) <= 4
    assert rate.per_s(999.9) == pytest.approx(10, rel=0.1)


def test_single_window_has_a_rate() -> None:
    rate = WindowedRate(Windows(1, 1.0))
    rate.note(10, 0.0)
    assert rate.throttle_s(5, 0.0) > 0
    assert rate.throttle_s(5, 1.0) == 0


def test_bucket_permits_a_burst_and_then_the_rate() -> None:
    bucket = TokenBucket(KAFKAS, 2, 0.0)
    taken = 0
    for step in range(1_000):
        if not bucket.throttle_s(step * 0.1):
            bucket.take(1, step * 0.1)
            taken += 1
    assert taken == pytest.approx(22 + 2 * 99.9, abs=2)


def test_bucket_owes_tokens_of_a_large_request() -> None:
    bucket = TokenBucket(KAFKAS, 10, 0.0)
    bucket.take(10_000, 0.0)
    assert bucket.throttle_s(0.0) == (10_000 - 110) / 10
    bucket.set_limit(20)
    assert bucket.throttle_s(0.0) == (10_000 - 110) / 20


def test_lower_limit_lowers_the_saved_tokens() -> None:
    bucket = TokenBucket(KAFKAS, 100, 0.0)
    bucket.set_limit(1)
    bucket.take(12, 0.0)
    assert bucket.throttle_s(0.0) == 1.0
    assert not bucket.is_idle(0.0)
    assert bucket.is_idle(12.0)


def test_bucket_without_rate_blocks() -> None:
    bucket = TokenBucket(KAFKAS, 0, 0.0)
    bucket.take(1, 0.0)
    assert throttle_ms(bucket.throttle_s(1e9)) == 2**31 - 1
