"""The watermark: as far as producers and table agree, and no further; never back."""

from __future__ import annotations

import dataclasses

from hypothesis import given
from hypothesis import strategies as st

from barnabas.audit.account import WindowAccount
from barnabas.audit.events import PRODUCED, Doubt, MonitoringEvent
from barnabas.audit.identities import Producer
from barnabas.audit.reported_counts import ReportedCounts
from barnabas.audit.watermark import REPORT_WAIT_MS, SETTLED_MS, AuditState, agreed_until
from barnabas.audit.windows import tally

WIDTH_MS = 60_000
ONE = Producer(7, 0, 0)
STATE = AuditState("table")
LATER_MS = 100 * WIDTH_MS


def event(window: int, count: int, *, first: int = 0, doubt: int = 0, instance: str = "life") -> MonitoringEvent:
    window_ms = window * WIDTH_MS
    doubts = (Doubt(ONE, first + count, doubt, window_ms),) if doubt else ()
    counted = {ONE: tally(ONE, first, count, 0)}
    return MonitoringEvent("t", PRODUCED, window_ms, WIDTH_MS, instance, 1, "host", "shop", counted, doubts=doubts)


def loaded(*counts: tuple[int, int, int]) -> dict[int, WindowAccount]:
    """Accounts of these: window, first sequence number, records."""
    accounts: dict[int, WindowAccount] = {}
    for window, first, count in counts:
        account = accounts.setdefault(window * WIDTH_MS, WindowAccount())
        account.add({ONE: tally(ONE, first, count, 0)}, {})
    return accounts


def until(
    events: list[MonitoringEvent],
    accounts: dict[int, WindowAccount],
    state: AuditState = STATE,
    planned_at_ms: int = LATER_MS,
) -> int | None:
    return agreed_until(ReportedCounts(events, "", WIDTH_MS), accounts, state, planned_at_ms)


def test_where_all_that_was_told_is_loaded_it_is_the_last_window_that_has_settled() -> None:
    assert until([event(3, 10)], loaded((3, 0, 10))) == 99 * WIDTH_MS
    assert until([event(3, 10)], loaded((3, 0, 10)), planned_at_ms=LATER_MS + SETTLED_MS) == LATER_MS


def test_it_stops_at_the_first_window_of_which_something_is_missing_or_is_another() -> None:
    events = [event(3, 10), event(5, 10, first=10), event(6, 10, first=20)]
    assert until(events, loaded((3, 0, 10), (5, 10, 9), (6, 20, 10))) == 5 * WIDTH_MS
    assert until(events, loaded((3, 0, 10), (5, 11, 10), (6, 20, 10))) == 5 * WIDTH_MS
    assert until(events, loaded((3, 0, 10), (6, 20, 10))) == 5 * WIDTH_MS


def test_where_nobody_tells_there_is_none() -> None:
    assert until([], loaded((3, 0, 10))) is None


def test_topic_that_was_audited_and_is_idle_goes_on() -> None:
    state = dataclasses.replace(STATE, complete_until_ms=50 * WIDTH_MS)
    assert until([], {}, state) == 99 * WIDTH_MS


def test_it_never_goes_back_and_passes_over_what_is_not_to_be_judged() -> None:
    state = dataclasses.replace(STATE, complete_until_ms=50 * WIDTH_MS)
    assert until([event(3, 10)], {}, state) == 99 * WIDTH_MS
    assert until([event(3, 10)], {}, state, planned_at_ms=10 * WIDTH_MS) == 50 * WIDTH_MS
    judged_later = dataclasses.replace(STATE, is_whole=False, judged_from_ms=101 * WIDTH_MS)
    assert until([event(3, 10)], {}, judged_later) is None


def test_what_a_producer_has_not_told_holds_up_for_a_while_and_not_for_ever() -> None:
    events, accounts = [event(3, 10)], loaded((3, 0, 15))
    assert until(events, accounts, planned_at_ms=4 * WIDTH_MS + SETTLED_MS) == 3 * WIDTH_MS
    assert until(events, accounts, planned_at_ms=4 * WIDTH_MS + REPORT_WAIT_MS) == 13 * WIDTH_MS


def test_batch_of_unknown_fate_may_be_loaded_or_not() -> None:
    assert until([event(3, 10, doubt=5)], loaded((3, 0, 10))) == 99 * WIDTH_MS
    assert until([event(3, 10, doubt=5)], loaded((3, 0, 15))) == 99 * WIDTH_MS


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 5)), min_size=1, max_size=20),
    st.lists(st.integers(0, 30), max_size=30),
    st.data(),
)
def test_rounds_never_go_back_and_never_pass_a_window_that_lacks_what_was_told(
    sent: list[tuple[int, int]], clock_minutes: list[int], data: st.DataObject
) -> None:
    """Whatever the clock does and wherever loads cut the log, with producers that tell as they go."""
    state, first, done = STATE, 0, 0
    batches = []
    for window, count in sent:
        batches.append((window, first, count))
        first += count
    for minute in clock_minutes:
        reported = data.draw(st.integers(done, len(batches)))
        cut = data.draw(st.integers(reported, len(batches))) if data.draw(st.booleans()) else reported
        events = [event(window, count, first=begin, instance=str(begin)) for window, begin, count in batches[:reported]]
        accounts = loaded(*batches[:cut])
        before = state.complete_until_ms
        state = state.advanced("load", until(events, accounts, state, minute * WIDTH_MS), {})
        if before is not None:
            assert state.complete_until_ms is not None
            assert state.complete_until_ms >= before
        done = reported
    if state.complete_until_ms is not None:
        assert state.complete_until_ms <= max([0, *clock_minutes]) * WIDTH_MS
