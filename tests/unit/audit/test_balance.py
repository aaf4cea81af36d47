"""What was produced against what is stored: one lost, one doubled, one exchanged, one that nobody told of."""

from __future__ import annotations

import dataclasses

import pytest

from barnabas.audit.balance import Balance, balance
from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.events import PRODUCED, BadEventError, Doubt, MonitoringEvent
from barnabas.audit.findings import Kind
from barnabas.audit.identities import Producer
from barnabas.audit.stored_log import StoredLog
from barnabas.audit.windows import Tally, tally
from barnabas.records.header import SEQUENCE_MAX
from tests.unit.audit.test_stored_log import WIDTH_MS, batch

ONE = Producer(7, 0, 0)


def event(counted: dict[Producer, Tally], number: int = 0, **changes: object) -> MonitoringEvent:
    whole = MonitoringEvent(
        "clicks", PRODUCED, 0, WIDTH_MS, "first-life", number, "web-1", "shop", counted, is_last=True
    )
    return dataclasses.replace(whole, **changes)


def log(*batches: tuple[int, int, int], producer_id: int = 7) -> StoredLog:
    """A log of these batches: offset, first sequence number, records."""
    stored = StoredLog(WIDTH_MS)
    for offset, sequence, count in batches:
        stored.add(0, *batch(offset, count, sequence=sequence, producer_id=producer_id))
    return stored


def findings(found: Balance) -> list[tuple[Kind, int]]:
    return [(each.kind, each.records) for each in found.findings]


def test_all_that_was_produced_is_there() -> None:
    found = balance([event({ONE: tally(ONE, 0, 20, 0)})], log((0, 0, 10), (10, 10, 10)))
    (window,) = found.windows
    assert (window.produced, window.stored, window.status) == (20, 20, "complete")
    assert not found.is_wrong
    assert found.complete_until_ms == WIDTH_MS


def test_lost_records_are_told_with_who_sent_them_and_which_they_are() -> None:
    found = balance([event({ONE: tally(ONE, 0, 20, 0)})], log((0, 0, 10), (10, 13, 7)))
    (lost,) = found.findings
    assert (lost.kind, lost.records, lost.host, lost.application) == (Kind.LOST, 3, "web-1", "shop")
    assert lost.missing == ((10, 3),)
    assert found.is_wrong
    assert found.windows[0].status == "lost 3"
    assert found.complete_until_ms is None


def test_applications_are_counted_each_by_itself() -> None:
    stored = log((0, 0, 10), (10, 5, 5))
    stored.add(0, *batch(15, 4, sequence=0, producer_id=8))
    other = Producer(8, 0, 0)
    theirs = event({other: tally(other, 0, 5, 0)}, instance="another", application="bank")
    found = balance([event({ONE: tally(ONE, 0, 10, 0)}), theirs], stored).applications
    assert {name: (each.produced, each.stored) for name, each in found.items()} == {"shop": (10, 15), "bank": (5, 4)}


def test_second_copies_are_told_with_their_offset() -> None:
    found = balance([event({ONE: tally(ONE, 0, 10, 0)})], log((0, 0, 10), (10, 5, 5)))
    (doubled,) = found.findings
    assert (doubled.kind, doubled.records, doubled.offset) == (Kind.DOUBLED, 5, 10)
    assert found.windows[0].stored == 15


def test_a_lost_and_a_doubled_record_are_both_told() -> None:
    found = balance([event({ONE: tally(ONE, 0, 20, 0)})], log((0, 0, 10), (10, 11, 9), (19, 5, 1)))
    assert findings(found) == [(Kind.DOUBLED, 1), (Kind.LOST, 1)]
    assert found.windows[0].produced == found.windows[0].stored


def test_as_many_but_not_the_same_records_are_told() -> None:
    found = balance([event({ONE: tally(ONE, 0, 10, 0)})], log((0, 0, 9), (9, 10, 1)))
    assert findings(found) == [(Kind.EXCHANGED, 1)]


def test_what_a_killed_producer_did_not_tell_is_open_and_never_balanced() -> None:
    reported = event({ONE: tally(ONE, 0, 10, 0)}, is_last=False)
    found = balance([reported], log((0, 0, 10), (10, 10, 5)))
    assert findings(found) == [(Kind.OPEN, 5)]
    assert not found.is_wrong
    assert not found.windows[0].is_complete


def test_records_of_a_producer_that_has_ended_and_knows_nothing_of_them_are_extra() -> None:
    found = balance([event({ONE: tally(ONE, 0, 10, 0)})], log((0, 0, 10), (10, 10, 5)))
    assert findings(found) == [(Kind.EXTRA, 5)]
    assert found.is_wrong


@pytest.mark.parametrize("is_there", [True, False])
def test_batch_whose_fate_its_producer_does_not_know_may_be_there_or_not(is_there: bool) -> None:
    reported = event({ONE: tally(ONE, 0, 10, 0)}, doubts=(Doubt(ONE, 10, 5, 0),))
    found = balance([reported], log((0, 0, 10), (10, 10, 5)) if is_there else log((0, 0, 10)))
    assert found.findings == []


@pytest.mark.parametrize("since_ms", [None, WIDTH_MS])
def test_what_retention_has_taken_of_windows_that_are_left_out_hides_no_loss(since_ms: int | None) -> None:
    """A hundred records of the first window are gone but for the last ten; of the second one five are lost."""
    reported = [
        event({ONE: tally(ONE, 0, 100, 0)}),
        event({ONE: tally(ONE, 100, 10, 0)}, window_ms=WIDTH_MS),
        event({ONE: tally(ONE, 110, 10, 0)}, window_ms=2 * WIDTH_MS),
    ]
    stored = StoredLog(WIDTH_MS)
    for offset, count, window_ms in ((90, 10, 0), (100, 10, WIDTH_MS), (115, 5, 2 * WIDTH_MS)):
        header, _windows = batch(offset, count, sequence=offset)
        stored.add(0, header, [RecordRange(count, window_ms)])
    stored.begins_late(0, 0)
    if since_ms is not None:
        stored.leave_out_before(since_ms)
    found = balance(reported, stored, since_ms=since_ms)
    assert findings(found) == [(Kind.LOST, 5)]
    statuses = ["expired", "complete", "lost 5"]
    assert [each.status for each in found.windows] == (statuses if since_ms is None else statuses[1:])


def test_later_events_replace_earlier_ones_in_any_order_and_any_number() -> None:
    early = event({ONE: tally(ONE, 0, 4, 0)}, 0, is_last=False)
    late = event({ONE: tally(ONE, 0, 10, 0)}, 1)
    for events in ([early, late], [late, early], [late, late, early, early]):
        assert balance(events, log((0, 0, 10))).findings == []


def test_producers_that_tell_nothing_are_counted_apart_and_balance_nothing() -> None:
    stored = log((0, 0, 9))
    stored.add(0, *batch(9, 1, sequence=0, producer_id=8))
    found = balance([event({ONE: tally(ONE, 0, 10, 0)})], stored)
    assert findings(found) == [(Kind.LOST, 1)]
    assert (found.windows[0].stored, found.windows[0].unaudited) == (10, 1)
    assert balance([], stored).windows[0].status == "not audited"


def test_windows_whose_records_retention_has_deleted_are_not_called_lost() -> None:
    stored = log((10, 10, 10))
    stored.begins_late(0, 0)
    found = balance([event({ONE: tally(ONE, 0, 20, 0)})], stored)
    assert found.findings == []
    assert found.windows[0].status == "expired"
    assert not found.windows[0].is_complete


def test_records_that_retention_took_are_known_by_the_first_number_left_although_that_record_was_late() -> None:
    """Of windows 0, 1 and 2 with 10 records each; the first record that is left is one of window 0 that came late."""
    stored = log((20, 20, 1))
    stored.add(0, *batch(21, 10, sequence=21, timestamp_ms=2 * WIDTH_MS))
    stored.begins_late(0, 0)
    sent = [
        event({ONE: tally(ONE, 0, 10, 0).plus(tally(ONE, 20, 1, 0))}),
        event({ONE: tally(ONE, 10, 10, 0)}, window_ms=WIDTH_MS),
        event({ONE: tally(ONE, 21, 10, 0)}, window_ms=2 * WIDTH_MS),
    ]
    found = balance(sent, stored)
    assert found.findings == []
    assert [window.status for window in found.windows] == ["expired", "expired", "complete"]
    # One record more was told of than retention can have taken: that one is lost.
    more = event({ONE: tally(ONE, 21, 11, 0)}, window_ms=2 * WIDTH_MS)
    found = balance([*sent[:2], more], stored)
    assert [(each.kind, each.window_ms, each.records) for each in found.findings] == [(Kind.LOST, 2 * WIDTH_MS, 1)]


def test_complete_until_ends_before_the_first_window_that_is_not() -> None:
    stored = log((0, 0, 10))
    stored.add(0, *batch(10, 10, sequence=10, timestamp_ms=WIDTH_MS))
    stored.add(0, *batch(20, 9, sequence=20, timestamp_ms=2 * WIDTH_MS))
    events = [event({ONE: tally(ONE, 10 * each, 10, 0)}, window_ms=each * WIDTH_MS) for each in range(3)]
    assert balance(events, stored).complete_until_ms == 2 * WIDTH_MS


def test_events_come_back_as_they_were_from_json() -> None:
    reported = event(
        {ONE: tally(ONE, 0, 10, 123), Producer(7, 1, 4): tally(ONE, 5, 10**6, 0)}, 5, late=3,
        doubts=(Doubt(ONE, 10, 5, 0),),
    )  # fmt: skip
    assert MonitoringEvent.from_json(reported.to_json()) == reported


@pytest.mark.parametrize(
    "value",
    [
        None, b"", b"\xff", b"7", b"[]", b"{}", b'{"version":1}', b"[" * 100_000,
        event({}).to_json().replace(b'"window":0', b'"window":"0"'),
        event({}).to_json().replace(b'"counted":[]', b'"counted":[[1,2]]'),
        event({}).to_json().replace(b'"counted":[]', b'"counted":[[7,0,0,1e3,0,0]]'),
        event({}).to_json().replace(b'"counted":[]', b'"counted":[[7,0,0,true,0,0]]'),
        event({}).to_json().replace(b'"host":"web-1"', b'"host":' + b'"' + b"x" * 10_000 + b'"'),
        event({}).to_json().replace(b'"host":"web-1"', b'"host":"half \\ud83d"'),
        event({}).to_json().replace(b'"late":0', b'"late":-1'),
        event({}).to_json().replace(b'"counted":[]', b'"counted":[[-1,-1,0,1,0,0]]'),
    ],
)  # fmt: skip
def test_what_is_no_event_is_refused(value: bytes | None) -> None:
    with pytest.raises(BadEventError):
        MonitoringEvent.from_json(value)


def test_topic_that_was_deleted_and_made_again_has_lost_nothing() -> None:
    of_the_old_one = event({Producer(3, 0, 0): tally(Producer(3, 0, 0), 0, 50, 0)}, topic_id="0a")
    of_this_one = event({ONE: tally(ONE, 0, 10, 0)}, instance="second-life", topic_id="0b")
    found = balance([of_the_old_one, of_this_one], log((0, 0, 10)), "0b")
    assert found.findings == []
    assert found.windows[0].produced == 10


def test_what_a_producer_may_have_told_of_the_topic_before_is_open_and_not_extra() -> None:
    before = event({ONE: tally(ONE, 0, 10, 0)}, topic_id="0a")
    after = event({ONE: tally(ONE, 10, 5, 0)}, topic_id="0b")
    assert findings(balance([before, after], log((0, 8, 7)), "0b")) == [(Kind.OPEN, 2)]


def test_producer_that_goes_on_under_another_name_has_not_ended_with_the_first() -> None:
    first = event({ONE: tally(ONE, 0, 10, 0)}, is_last=False)
    stored = log((0, 0, 10), (10, 10, 5))
    assert findings(balance([first], stored)) == [(Kind.OPEN, 5)]
    second = event({ONE: tally(ONE, 10, 3, 0)}, instance="second-life")
    assert findings(balance([first, second], stored)) == [(Kind.EXTRA, 2)]


def test_partition_of_which_everything_is_gone_has_lost_nothing_and_spoils_no_window_of_others() -> None:
    other = Producer(3, 0, 1)
    stored = log((0, 0, 10))
    stored.is_emptied(1)
    old = event({other: tally(other, 0, 4, 0)}, window_ms=0)
    new = event({ONE: tally(ONE, 0, 10, 0)}, window_ms=0, instance="second-life")
    found = balance([old], stored)
    assert (findings(found), found.windows[0].status) == ([], "expired")
    assert balance([new], stored).windows[0].status == "complete"


def test_windows_that_have_expired_at_the_beginning_do_not_hide_how_far_all_is_complete() -> None:
    stored = log((10, 10, 10))
    stored.add(0, *batch(20, 10, sequence=20, timestamp_ms=WIDTH_MS))
    stored.begins_late(0, 0)
    events = [event({ONE: tally(ONE, each * 20, 20 - each * 10, 0)}, window_ms=each * WIDTH_MS) for each in range(2)]
    assert balance(events, stored).complete_until_ms == 2 * WIDTH_MS


def test_doubts_are_looked_up_and_not_searched_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[Doubt] = []
    monkeypatch.setattr(Doubt, "__hash__", lambda self: looked_at.append(self) or self.first)
    stored = StoredLog(WIDTH_MS)
    events = []
    for window in range(50):
        stored.add(0, *batch(window, 1, sequence=window, timestamp_ms=window * WIDTH_MS))
        doubt = Doubt(ONE, 1_000 + window, 1, window * WIDTH_MS)
        events.append(event({ONE: tally(ONE, window, 1, 0)}, window_ms=window * WIDTH_MS, doubts=(doubt,)))
    assert balance(events, stored).findings == []
    assert len(looked_at) == len(events)


def test_what_is_lost_of_a_producer_that_tells_nothing_is_found_by_the_log() -> None:
    whole = balance([], log((0, 0, 10), (10, 13, 7), (17, 20, 5)))
    (lost,) = whole.findings
    assert (lost.kind, lost.records, lost.missing, lost.is_by_log) == (Kind.LOST, 3, ((10, 3),), True)
    (window,) = whole.windows
    assert (window.unaudited, window.counted_by_log, window.status) == (22, 22, "lost 3")
    assert whole.is_wrong


def test_producer_that_tells_is_not_counted_by_the_log_too() -> None:
    whole = balance([event({ONE: tally(ONE, 0, 20, 0)})], log((0, 0, 10), (10, 13, 7)))
    assert [(each.records, each.is_by_log) for each in whole.findings] == [(3, False)]


def test_numbers_that_begin_again_and_those_that_begin_late_are_no_gap() -> None:
    stored = log((0, SEQUENCE_MAX - 4, 5), (5, 0, 5))
    assert findings(balance([], stored)) == []
    assert balance([], stored).windows[0].status == "not audited"


def test_records_without_numbers_are_not_counted_by_the_log() -> None:
    (window,) = balance([], log((0, -1, 10), producer_id=-1)).windows
    assert (window.unaudited, window.counted_by_log) == (10, 0)


@pytest.mark.parametrize("tells", [True, False])
def test_gap_between_records_that_are_left_is_lost_in_an_expired_window_too(tells: bool) -> None:
    """Retention takes records from the beginning of the log, so it cannot have taken the three."""
    stored = log((5, 5, 5), (10, 13, 7))
    stored.begins_late(0, 0)
    reported = [event({ONE: tally(ONE, 0, 20, 0)})] if tells else []
    assert findings(balance(reported, stored)) == [(Kind.LOST, 3)]
