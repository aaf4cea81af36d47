"""Waits between tries."""

from __future__ import annotations

from barnabas.client.backoff import Backoff


def test_waits_double_up_to_the_maximum():
    backoff = Backoff(100, 1000, lambda: 0.5)
    assert [backoff.delay_s(attempt) for attempt in (0, 1, 2, 3, 4, 1000)] == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_jitter_stays_within_a_fifth():
    assert round(Backoff(100, 1000, lambda: 0.0).delay_s(0), 6) == 0.08
    assert round(Backoff(100, 1000, lambda: 0.999).delay_s(0), 3) == 0.12
