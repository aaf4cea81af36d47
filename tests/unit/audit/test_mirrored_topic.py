"""A topic that is mirrored: what its source was told against what mirrors have told, and that against the log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.audit.balance import Balance, balance
from barnabas.audit.batch_windows import RecordRange
from barnabas.audit.events import MIRRORED, PRODUCED, BadEventError, MonitoringEvent, Reach, Upstream
from barnabas.audit.findings import STORED, Kind
from barnabas.audit.identities import Producer
from barnabas.audit.mirrored_topic import SourceSide, account_begins
from barnabas.audit.stored_log import StoredLog
from barnabas.audit.windows import tally
from barnabas.records import BatchBuilder, read_header
from barnabas.records.mirror_identity import producer_id_of, producer_of
from tests.unit.audit.test_stored_log import WIDTH_MS

LINEAGE = 5
SENDER = Producer(7, 0, 0)
MIRROR = Producer(producer_id_of(LINEAGE), 0, 0)


def sent(count: int) -> MonitoringEvent:
    """What a producer of the source has told."""
    counted = {SENDER: tally(SENDER, 0, count, 0)}
    return MonitoringEvent("clicks", PRODUCED, 0, WIDTH_MS, "one", 1, "web-1", "shop", counted, is_last=True)


def brought(count: int, first: int = 0, reached: int | None = None) -> MonitoringEvent:
    """What a mirror has told, of the records from source offset `first` on."""
    there = {SENDER: tally(SENDER, first, count, 0)}
    upstream = Upstream("clicks", "", there, {0: Reach(first, first + count if reached is None else reached)})
    counted = {MIRROR: tally(MIRROR, first, count, 0)}
    return MonitoringEvent(
        "clicks", MIRRORED, 0, WIDTH_MS, "mirror", count, "host", "barnabas mirror", counted, upstream=upstream
    )


def log(*batches: tuple[int, int], begin: int = 0) -> StoredLog:
    """A log of mirrored batches, each with its first source offset and how many records it has; in one range."""
    stored, offset = StoredLog(WIDTH_MS), 0
    for first, count in batches:
        builder = BatchBuilder()
        for _ in range(count):
            builder.append(1, None, b"x")
        header = read_header(builder.build(*producer_of(LINEAGE, begin), first - begin))
        stored.add(0, header._replace(base_offset=offset), [RecordRange(count, 0)])
        offset += count
    return stored


def of_source(count: int, end: int) -> SourceSide:
    return SourceSide([sent(count)], "", {0: end})


def found(whole: Balance) -> list[tuple[str, Kind, int]]:
    return [(each.tier, each.kind, each.records) for each in whole.findings]


def test_all_that_was_produced_is_mirrored_and_stored() -> None:
    whole = balance([brought(20)], log((0, 10), (10, 10)), source=of_source(20, 20))
    (window,) = whole.windows
    assert (window.produced, window.mirrored, window.stored, window.status) == (20, 20, 20, "complete")
    assert whole.complete_until_ms == WIDTH_MS
    assert whole.applications["shop"].produced == whole.applications["shop"].mirrored == 20


def test_mirror_that_goes_on_with_another_stretch_is_the_same_one() -> None:
    stored = log((0, 10))
    builder = BatchBuilder()
    builder.append(1, None, b"x")
    header = read_header(builder.build(*producer_of(LINEAGE, 10), 0))
    stored.add(0, header._replace(base_offset=10), [RecordRange(1, 0)])
    assert found(balance([brought(11)], stored)) == []


def test_record_that_no_mirror_brought_is_lost_there_and_one_that_is_gone_from_the_log_is_lost_here() -> None:
    whole = balance([brought(18, reached=20)], log((0, 10), (10, 7)), source=of_source(20, 20))
    assert found(whole) == [(MIRRORED, Kind.LOST, 2), (STORED, Kind.LOST, 1)]
    first = whole.findings[0]
    assert (first.host, first.application) == ("web-1", "shop")


def test_what_is_not_mirrored_yet_is_open_and_only_so_much() -> None:
    whole = balance([brought(15)], log((0, 15)), source=of_source(20, 20))
    assert found(whole) == [(MIRRORED, Kind.OPEN, 5)]
    assert not whole.is_wrong
    # One of 15 is missing, and five are on their way.
    whole = balance([brought(14, reached=15)], log((0, 14)), source=of_source(20, 20))
    assert found(whole) == [(MIRRORED, Kind.LOST, 1), (MIRRORED, Kind.OPEN, 5)]


def test_one_lost_and_one_doubled_on_the_way_are_exchanged() -> None:
    event = brought(20)
    assert event.upstream is not None
    counted = {SENDER: tally(SENDER, 0, 19, 0).plus(tally(SENDER, 3, 1, 0))}
    event = replace(event, upstream=replace(event.upstream, counted=counted))
    whole = balance([event], log((0, 20)), source=of_source(20, 20))
    assert found(whole) == [(MIRRORED, Kind.EXCHANGED, 1)]


def test_records_that_are_there_twice_are_found_by_their_source_offsets() -> None:
    whole = balance([brought(20)], log((0, 20), (5, 3)))
    assert found(whole) == [(STORED, Kind.DOUBLED, 3)]
    assert whole.findings[0].offset == 20


def test_what_was_mirrored_before_anybody_told_is_not_called_wrong() -> None:
    event = brought(5, first=10)
    stored = log((0, 10), (10, 5))
    begins = account_begins([event], WIDTH_MS)
    assert begins == {0: 0}
    stored.begins_late(0, begins[0])
    whole = balance([event], stored, source=of_source(15, 15))
    assert found(whole) == []
    assert whole.windows[0].status == "expired"
    assert account_begins([brought(5)], WIDTH_MS) == {}


def test_what_is_lost_of_a_source_that_begins_late_is_not_called_expired() -> None:
    begun = replace(brought(10, first=5_000), window_ms=0)
    later = replace(brought(20, first=5_010), window_ms=WIDTH_MS)
    events = [begun, later]
    assert account_begins(events, WIDTH_MS) == {0: 0}

    def stored_from(*batches: tuple[int, int, int]) -> StoredLog:
        stored = StoredLog(WIDTH_MS)
        for first, count, window_ms in batches:
            builder = BatchBuilder()
            for _ in range(count):
                builder.append(1, None, b"x")
            header = read_header(builder.build(*producer_of(LINEAGE, 5_000), first - 5_000))
            stored.add(0, header._replace(base_offset=first - 5_000), [RecordRange(count, window_ms)])
        stored.begins_late(0, 0)
        return stored

    whole = balance(events, stored_from((5_000, 10, 0), (5_010, 10, WIDTH_MS), (5_025, 5, WIDTH_MS)))
    assert found(whole) == [(STORED, Kind.LOST, 5)]
    assert [each.status for each in whole.windows] == ["expired", "lost 5"]
    # What retention has taken of the target is what was there before the first that is left.
    whole = balance(events, stored_from((5_015, 15, WIDTH_MS)))
    assert found(whole) == []
    assert [each.status for each in whole.windows] == ["expired", "expired"]


def test_record_that_no_mirror_brought_is_lost_though_the_log_of_the_target_has_expired() -> None:
    stored = StoredLog(WIDTH_MS)
    stored.is_emptied(0)
    whole = balance([brought(18, reached=20)], stored, source=of_source(20, 20))
    assert found(whole) == [(MIRRORED, Kind.LOST, 2)]


def test_without_the_source_the_log_is_compared_with_what_mirrors_told() -> None:
    whole = balance([brought(20)], log((0, 19)))
    assert found(whole) == [(STORED, Kind.LOST, 1)]
    assert whole.windows[0].produced == 0


def test_event_of_a_mirror_is_read_as_it_was_told_and_a_broken_one_is_refused() -> None:
    event = brought(20, first=3)
    assert MonitoringEvent.from_json(event.to_json()) == event
    for broken in (
        b'"upstream":3',
        b'"upstream":{"topic":"t"}',
        b'"upstream":{"topic":"t","topic_id":"","counted":[]}',
    ):
        value = event.to_json()
        value = value[: value.index(b'"upstream"')] + broken + b"}"
        with pytest.raises(BadEventError):
            MonitoringEvent.from_json(value)
