"""Limits for the rate of new connections: bursts, waits, and bounded memory."""

from __future__ import annotations

import pytest

from barnabas.net import connection_rates
from barnabas.net.connection_rates import WAIT_S_MAX, ConnectionRate, ConnectionRates


def test_burst_of_five_seconds_is_served_at_once() -> None:
    rates = ConnectionRates(lambda _host: 10.0)
    assert [rates.take("a", 0.0) for _ in range(50)] == [0.0] * 50
    assert [rates.take("a", 0.0) for _ in range(3)] == pytest.approx([0.1, 0.2, 0.3])
    assert rates.take("b", 0.0) == 0.0
    assert rates.take("a", 10.0) == 0.0


def test_rate_is_kept_over_time() -> None:
    rates, served = ConnectionRates(lambda _host: 10.0), []
    for number in range(2_000):
        now_s = number * 0.05  # 20 per second
        if (wait_s := rates.take("a", now_s)) is not None:
            served.append(now_s + wait_s)
    assert served == sorted(served)
    assert sum(each < 90 for each in served) == pytest.approx(50 + 900, abs=2)


def test_connection_that_would_wait_too_long_is_not_counted() -> None:
    rates = ConnectionRates(lambda _host: 1.0)
    waits = [rates.take("a", 0.0) for _ in range(5 + int(WAIT_S_MAX) + 10)]
    assert waits[-10:] == [None] * 10
    assert max(each for each in waits if each is not None) == WAIT_S_MAX
    assert rates.take("a", 1.0) == WAIT_S_MAX


def test_rate_of_zero_refuses_after_no_burst() -> None:
    assert ConnectionRates(lambda _host: 0.0).take("a", 0.0) is None


def test_client_that_left_makes_room() -> None:
    rates = ConnectionRates(lambda _host: 1.0)
    for _ in range(6):
        rates.take("a", 0.0)
    rates.give_back("a", 0.0)
    rates.give_back("unknown", 0.0)
    assert rates.take("a", 0.0) == 1.0


def test_changed_limits_apply_to_known_addresses() -> None:
    limits: dict[str, float | None] = {"a": 1.0}
    rates = ConnectionRates(limits.get)
    for _ in range(10):
        rates.take("a", 0.0)
    limits["a"] = 100.0
    assert rates.take("a", 0.0) == pytest.approx(0.06)
    limits["a"] = None
    assert rates.take("a", 0.0) == 0.0


def test_number_of_known_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_rates, "ADDRESSES_MAX", 10)
    rates = ConnectionRates(lambda _host: 1.0)
    for number in range(1_000):
        rates.take(str(number), 0.0)
        assert len(rates._buckets) <= 10
    rates.take("idle", 100.0)
    assert list(rates._buckets) == ["idle"]


def test_rate_of_all_addresses_delays_the_next_connection() -> None:
    limit: list[float | None] = [2.0]
    rate = ConnectionRate(lambda: limit[0])
    waits = []
    for _ in range(12):
        waits.append(rate.wait_s(0.0))
        rate.note(0.0)
    assert waits[:10] == [0.0] * 10
    assert waits[10:] == [0.5, 1.0]
    limit[0] = None
    assert rate.wait_s(0.0) == 0.0
