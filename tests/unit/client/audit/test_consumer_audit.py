"""The counts of a consumer: each record once by its position, whatever was decoded, dropped and decoded again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.audit.account import offsets_of
from barnabas.audit.events import CONSUMED, MonitoringEvent, Reach
from barnabas.audit.windows import WINDOW_MS, tally
from barnabas.client.audit import consumer_audit
from barnabas.client.audit.consumer_audit import ConsumedCounts, ConsumerAudit, Offsets
from barnabas.model import TopicPartition
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.records import BatchBuilder, Compression, decompress, reader, stamp
from tests.support.consumer_core import TOPIC, Scene, make_batch

TP = TopicPartition("clicks", 3)
WHO = offsets_of(3)


def test_only_what_was_handed_out_counts_and_it_is_told_once() -> None:
    counts = ConsumedCounts("readers")
    counts.note_decoded(TP, 0, [Offsets(0, 6, 0), Offsets(6, 4, WINDOW_MS)])
    counts.count({TP: 4})
    (event,) = counts.take_unreported()
    assert (event.tier, event.application, event.window_ms) == (CONSUMED, "readers", 0)
    assert (event.offsets, event.reached) == ({3: tally(WHO, 0, 4, 0)}, {3: Reach(0, 4)})
    assert MonitoringEvent.from_json(event.to_json()) == event
    assert not counts.has_unreported
    counts.count({TP: 8})
    first, second = counts.take_unreported()
    assert first.offsets == {3: tally(WHO, 0, 6, 0)}
    assert second.offsets == {3: tally(WHO, 6, 2, 0)}
    assert second.number > first.number > event.number
    assert len({each.instance for each in (event, first, second)}) == 1


def test_what_was_decoded_and_dropped_is_counted_when_it_is_handed_out() -> None:
    counts = ConsumedCounts("readers")
    counts.note_decoded(TP, 0, [Offsets(0, 10, 0)])
    counts.note_decoded(TP, 5, [Offsets(5, 5, 0)])
    counts.count({TP: 7})
    (event,) = counts.take_unreported()
    assert event.offsets == {3: tally(WHO, 0, 7, 0)}


def test_what_is_handed_out_again_counts_again_and_what_is_skipped_does_not() -> None:
    counts = ConsumedCounts("readers")
    counts.note_decoded(TP, 0, [Offsets(0, 10, 0)])
    counts.count({TP: 4})
    counts.forget_decoded([TP])
    counts.note_decoded(TP, 2, [Offsets(2, 8, 0)])
    counts.count({TP: 4})
    (event,) = counts.take_unreported()
    assert event.offsets == {3: tally(WHO, 0, 4, 0).plus(tally(WHO, 2, 2, 0))}
    counts.forget_decoded([TP])
    counts.count({TP: 100})
    assert not counts.has_unreported


def test_what_could_not_be_told_is_news_again() -> None:
    counts = ConsumedCounts("readers")
    counts.note_decoded(TP, 0, [Offsets(0, 10, 0)])
    counts.count({TP: 4})
    news = counts.take_unreported()
    counts.restore_unreported(news)
    (again,) = counts.take_unreported()
    assert again.offsets == news[0].offsets
    counts.report_all_again()
    assert counts.has_unreported


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 2)), min_size=1), st.lists(st.integers(1, 15)))
def test_all_that_was_handed_out_is_counted_however_it_is_cut(decoded: list[tuple[int, int]], steps: list[int]) -> None:
    counts = ConsumedCounts("readers")
    windows: list[int] = []
    for records, window in decoded:
        first = len(windows)
        windows += [window * WINDOW_MS] * records
        counts.note_decoded(TP, first, [Offsets(first, records, window * WINDOW_MS)])
    position = 0
    for step in steps:
        position = min(position + step, len(windows))
        counts.count({TP: position})
    counted = sum(event.offsets[3].records for event in counts.take_unreported())
    assert counted == position


def test_a_topic_that_is_made_again_is_another_one() -> None:
    ids = ["a1"]
    counts = ConsumedCounts("readers", lambda _topic: ids[-1])
    counts.note_decoded(TP, 0, [Offsets(0, 10, 0)])
    counts.count({TP: 4})
    ids.append("b2")
    counts.note_decoded(TP, 0, [Offsets(0, 3, 0)])
    counts.count({TP: 3})
    assert [(event.topic_id, event.offsets) for event in counts.take_unreported()] == [
        ("a1", {3: tally(WHO, 0, 4, 0)}),
        ("b2", {3: tally(WHO, 0, 3, 0)}),
    ]


def test_more_windows_than_can_be_remembered_are_told_to_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_audit, "UNREPORTED_MAX", 3)
    counts = ConsumedCounts("readers")
    counts.note_decoded(TP, 0, [Offsets(each, 1, each * WINDOW_MS) for each in range(8)])
    counts.count({TP: 2})
    under_way = counts.take_unreported()
    counts.count({TP: 7})
    counts.restore_unreported(under_way)
    assert counts.window_count == 1
    unknown, event = counts.take_unreported()
    assert (event.offsets, event.reached, event.unknown) == ({3: tally(WHO, 6, 1, 0)}, {3: Reach(6, 7)}, {})
    assert (unknown.offsets, unknown.reached, unknown.unknown) == ({}, {}, {3: Reach(0, 6)})
    assert MonitoringEvent.from_json(unknown.to_json()) == unknown


def test_what_is_left_out_is_told_though_nothing_else_of_its_topic_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumer_audit, "UNREPORTED_MAX", 3)
    counts, other = ConsumedCounts("readers"), TopicPartition("views", 0)
    counts.note_decoded(TP, 0, [Offsets(each, 1, each * WINDOW_MS) for each in range(3)])
    counts.note_decoded(other, 0, [Offsets(0, 1, 0)])
    counts.count({TP: 3, other: 1})
    news = counts.take_unreported()
    assert [(event.topic, event.unknown) for event in news] == [("clicks", {3: Reach(0, 3)}), ("views", {})]
    assert not counts.has_unreported
    counts.restore_unreported(news)
    assert counts.has_unreported
    again = counts.take_unreported()
    assert [(event.key, event.unknown) for event in again] == [(event.key, event.unknown) for event in news]


def test_what_is_left_out_of_one_outage_says_nothing_of_what_was_told_before_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumer_audit, "UNREPORTED_MAX", 3)
    counts = ConsumedCounts("readers")
    counts.note_decoded(TP, 0, [Offsets(each, 1, each * WINDOW_MS) for each in range(12)])
    told: list[MonitoringEvent] = []
    for position in (4, 5, 6, 7, 8, 12):
        counts.count({TP: position})
        told += counts.take_unreported()
    unknown = [event for event in told if event.unknown]
    assert [event.unknown for event in unknown] == [{3: Reach(0, 3)}, {3: Reach(8, 9)}]
    assert len({event.key for event in unknown}) == 2


def test_of_an_event_that_is_too_large_it_is_told_that_its_offsets_are_unknown() -> None:
    counts = ConsumedCounts("readers")
    counts.note_decoded(TP, 0, [Offsets(0, 10, 0)])
    counts.count({TP: 4})
    (large,) = counts.take_unreported()
    (instead,) = counts.replacements_of([large])
    assert (instead.key, instead.offsets, instead.reached, instead.unknown) == (large.key, {}, {}, {3: Reach(0, 4)})
    assert instead.number > large.number
    counts.count({TP: 9})
    (later,) = counts.take_unreported()
    assert (later.key, later.offsets, later.unknown) == (large.key, {}, {3: Reach(0, 9)})
    assert counts.replacements_of([later]) == []


def scene_of(*, audit: bool = True, **settings: Any) -> tuple[Scene, ConsumerAudit]:
    """Return a consumer with one assigned partition, and an audit that belongs to it if `audit` is set."""
    interceptor = ConsumerAudit("readers")
    scene = Scene(partitions=1, group="readers", interceptors=[interceptor] if audit else [], **settings)
    interceptor.attach(scene.context())
    scene.core.assign([(TOPIC, 0)])
    return scene, interceptor


def read_with_damage(*, audit: bool, check_crcs: bool) -> list[object]:
    """Poll five times a log of three batches, of which the first is damaged; return offsets, or what was raised."""
    damaged = bytearray(make_batch(0, 0, 3))
    damaged[-1] ^= 1
    stored = {0: bytes(damaged), 3: make_batch(0, 3, 3), 6: make_batch(0, 6, 3)}
    scene, _audit = scene_of(audit=audit, check_crcs=check_crcs)
    scene.place_all()
    found: list[object] = []
    for _ in range(5):
        while (fetch := scene.fetch()) is not None:
            ((part,),) = (topic.partitions for topic in fetch.request.topics)
            answer = PartitionData(
                partition_index=0, error_code=0, high_watermark=9, records=stored.get(part.fetch_offset)
            )
            topics = [FetchableTopicResponse(topic=TOPIC, partitions=[answer])]
            scene.state.fetcher.on_response(fetch, FetchResponse(responses=topics))
            if answer.records is None:
                break
        poll = scene.poll(timeout_s=0)
        found.append(str(poll.error) if poll.error else [record.offset for record in poll.result])
    return found


@pytest.mark.parametrize("check_crcs", [True, False])
def test_damage_stops_an_audited_consumer_as_it_stops_others(check_crcs: bool) -> None:
    found = read_with_damage(audit=True, check_crcs=check_crcs)
    assert found == read_with_damage(audit=False, check_crcs=check_crcs)
    assert all("seek past it to continue" in str(each) for each in found)


def batch_of_minutes(offset: int, count: int) -> bytes:
    """Records of which each is in the window of its offset."""
    builder = BatchBuilder(Compression.LZ4)
    for place in range(offset, offset + count):
        builder.append(place * WINDOW_MS, None, b"x")
    data = bytearray(builder.build())
    stamp(data, 0, offset, 0)
    return bytes(data)


def deliver(scene: Scene, batches: bytes, end: int) -> None:
    """Answer the next fetch."""
    fetch = scene.fetch()
    assert fetch is not None
    answer = PartitionData(partition_index=0, error_code=0, high_watermark=end, records=batches)
    topics = [FetchableTopicResponse(topic=TOPIC, partitions=[answer])]
    scene.state.fetcher.on_response(fetch, FetchResponse(responses=topics))


def handed(scene: Scene, audit: ConsumerAudit) -> list[int]:
    """Return the windows of the records that were handed out, by their numbers."""
    audit.counts.count(scene.state.positions())
    news = audit.counts.take_unreported()
    minutes = sorted((event.window_ms // WINDOW_MS, event.offsets) for event in news)
    assert all(offsets == {0: tally(offsets_of(0), number, 1, 0)} for number, offsets in minutes)
    return [number for number, _offsets in minutes]


def test_ways_of_reading_may_be_mixed_and_each_record_is_told_of_when_it_was_handed_out() -> None:
    scene, audit = scene_of()
    scene.place_all()
    deliver(scene, batch_of_minutes(0, 5) + batch_of_minutes(5, 5), 10)
    assert len(scene.poll(records_max=2, timeout_s=0).result) == 2
    assert handed(scene, audit) == [0, 1]
    assert scene.call(scene.core.poll_columns(4, 0)).result.num_rows == 4
    assert handed(scene, audit) == [2, 3, 4, 5]
    assert scene.call(scene.core.poll_columns(1, 0)).result.num_rows == 1
    assert len(scene.poll(records_max=1, timeout_s=0).result) == 1
    assert handed(scene, audit) == [6, 7]
    assert scene.call(scene.core.poll_columns(100, 0)).result.num_rows == 2
    assert handed(scene, audit) == [8, 9]


def test_what_a_deserializer_refuses_is_not_told_of() -> None:
    def refuse(value: bytes) -> bytes:
        if value == b"0/2":
            raise ValueError("no")
        return value

    scene, audit = scene_of(value_deserializer=refuse)
    scene.deliver(count=4)
    assert len(scene.poll(timeout_s=0).result) == 2
    scene.answer(scene.fetch(), count=2)
    assert "offset 2" in str(scene.poll(timeout_s=0).error)
    audit.counts.count(scene.state.positions())
    (event,) = audit.counts.take_unreported()
    assert event.offsets == {0: tally(offsets_of(0), 0, 2, 0)}


@pytest.mark.parametrize("way", ["poll", "poll_columns"])
def test_a_batch_is_decompressed_as_often_as_without_the_audit(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    counts = []
    for audit in (False, True):
        unpacked: list[int] = []

        def count(
            compression: Compression, body: memoryview, limit: int, unpacked: list[int] = unpacked
        ) -> bytes | memoryview:
            unpacked.append(len(body))
            return decompress(compression, body, limit)

        monkeypatch.setattr(reader, "decompress", count)
        scene, _audit = scene_of(audit=audit)
        scene.place_all()
        deliver(scene, batch_of_minutes(0, 500) + batch_of_minutes(500, 500), 1_000)
        assert len(scene.call(getattr(scene.core, way)(1_000, 0)).result) == 1_000
        counts.append(len(unpacked))
    assert counts == [2, 2]
