"""What a group was handed against the log: lost to it, handed again, or not handed yet."""

from __future__ import annotations

from dataclasses import replace

from barnabas.audit.account import offsets_of
from barnabas.audit.balance import Balance, balance
from barnabas.audit.consumed_group import ConsumedGroup
from barnabas.audit.events import CONSUMED, PRODUCED, MonitoringEvent, Reach
from barnabas.audit.findings import Kind
from barnabas.audit.identities import Producer
from barnabas.audit.stored_log import StoredLog
from barnabas.audit.windows import tally
from tests.unit.audit.test_stored_log import WIDTH_MS, batch

WHO = offsets_of(0)
SENDER = Producer(7, 0, 0)
STORED = 20


def handed(first: int, count: int, instance: str = "one", group: str = "readers") -> MonitoringEvent:
    return MonitoringEvent(
        "clicks",
        CONSUMED,
        0,
        WIDTH_MS,
        instance,
        1,
        "host",
        group,
        offsets={0: tally(WHO, first, count, 0)},
        reached={0: Reach(first, first + count)},
    )


def audit(*events: MonitoringEvent, committed: int = STORED, begin: int = 0) -> Balance:
    """Compare with a log of `STORED` records, of which all are told of."""
    group = ConsumedGroup("readers", list(events), "", {0: committed}, WIDTH_MS)
    stored = StoredLog(WIDTH_MS, group.check)
    header, ranges = batch(0, STORED, sequence=0)
    stored.add(0, header, ranges)
    if begin:
        stored.begins_late(0, 0)
    sent = MonitoringEvent(
        "clicks", PRODUCED, 0, WIDTH_MS, "p", 1, "h", "shop", {SENDER: tally(SENDER, 0, STORED, 0)}, is_last=True
    )
    return balance([sent, *events], stored, group=group)


def found(whole: Balance) -> list[tuple[Kind, int]]:
    assert {each.tier for each in whole.findings} <= {CONSUMED}
    return [(each.kind, each.records) for each in whole.findings]


def test_two_members_that_were_handed_all_together_are_complete() -> None:
    whole = audit(handed(0, 12), handed(12, 8, "two"))
    (window,) = whole.windows
    assert (window.consumed, window.status, whole.findings) == (STORED, "complete", [])


def test_what_was_handed_again_is_told_and_is_not_wrong() -> None:
    whole = audit(handed(0, 20), handed(15, 5, "two"))
    assert found(whole) == [(Kind.AGAIN, 5)]
    assert whole.windows[0].status == "complete, again 5"
    assert not whole.is_wrong
    assert whole.complete_until_ms == WIDTH_MS


def test_what_a_member_could_not_tell_of_is_open_and_not_lost() -> None:
    first, last = handed(5, 3), replace(handed(17, 3, "two"), unknown={0: Reach(2, 17)})
    assert found(audit(first, last)) == [(Kind.OPEN, 12)]
    assert found(audit(first, replace(last, unknown={0: Reach(8, 12)}))) == [(Kind.LOST, 5), (Kind.OPEN, 4)]
    assert found(audit(handed(0, 20), replace(last, unknown={0: Reach(8, 12)}))) == [(Kind.AGAIN, 3)]


def test_what_was_committed_and_never_handed_out_is_lost_to_the_group() -> None:
    whole = audit(handed(0, 12), handed(15, 5, "two"))
    assert found(whole) == [(Kind.LOST, 3)]
    assert whole.findings[0].application == "readers"
    assert whole.is_wrong


def test_what_is_not_committed_is_open_where_it_was_not_handed_out() -> None:
    assert found(audit(handed(0, 12), committed=12)) == [(Kind.OPEN, 8)]
    assert found(audit(handed(0, 10), committed=12)) == [(Kind.LOST, 2), (Kind.OPEN, 8)]
    assert found(audit(handed(0, 20), committed=0)) == []


def test_one_again_and_one_lost_do_not_cancel_out() -> None:
    event = handed(0, 19)
    twice = replace(event, offsets={0: tally(WHO, 0, 19, 0).plus(tally(WHO, 3, 1, 0))}, reached={0: Reach(0, 19)})
    assert found(audit(twice)) == [(Kind.EXCHANGED, 1)]


def test_what_is_before_the_first_record_that_was_handed_out_is_not_missed() -> None:
    assert found(audit(handed(15, 5))) == []


def test_other_groups_and_a_repeated_event_change_nothing() -> None:
    assert found(audit(handed(0, 20), handed(0, 20), handed(0, 5, "x", "others"))) == []


def test_of_what_retention_may_have_taken_nothing_is_said() -> None:
    assert found(audit(handed(0, 20), handed(0, 20, "two"), begin=5)) == []
