"""`barnabas simulate` without a broker: which events the options ask for, and what is missing."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from barnabas.cli.simulate import click_settings, order_settings, require_extra
from barnabas.clock import ManualClock
from barnabas.errors import ConfigurationError

NOW_MS = 1_700_000_000_000
OTHERS: dict[str, Any] = {"seed": 7, "members": None, "items": 1_000, "bots": 10, "clock": ManualClock(NOW_MS)}


def test_without_a_rate_the_events_take_a_day_that_ends_now() -> None:
    made = click_settings(86_400, None, None, start_ms=None, **OTHERS)
    assert (made.events_per_s, made.start_ms, made.daily) == (1.0, NOW_MS - 86_400_000, True)


def test_with_a_rate_they_happen_as_they_are_sent_at_night_as_by_day() -> None:
    made = click_settings(None, 500.0, None, start_ms=None, **OTHERS)
    assert (made.events_per_s, made.start_ms, made.daily) == (500.0, NOW_MS, False)


def test_start_and_event_rate_go_before_what_is_usual() -> None:
    made = click_settings(10, 500.0, 2.0, start_ms=5, **OTHERS)
    assert (made.events_per_s, made.start_ms, made.daily, made.member_count) == (2.0, 5, True, 4_000)


def test_the_changes_of_orders_end_now_or_start_now_with_a_rate() -> None:
    clock = ManualClock(NOW_MS)
    ended = order_settings(86_400, None, 7, None, None, None, clock)
    assert (ended.changes_per_s, ended.start_ms, ended.orders, ended.existing) == (
        1.0,
        NOW_MS - 86_400_000,
        17_280,
        100,
    )
    live = order_settings(None, 50.0, 7, None, 30, 5, clock)
    assert (live.changes_per_s, live.start_ms, live.orders, live.existing) == (50.0, NOW_MS, 30, 30)


@pytest.mark.parametrize("package", ["numpy", "pyarrow"])
def test_a_missing_package_is_named_with_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigurationError, match=rf"{package} is missing.*pip install 'barnabas\[activity\]'"):
        require_extra()
