"""What a consumer was handed: each record once by its position, whatever was decoded, dropped and decoded again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.audit.account import offsets_of
from barnabas.audit.events import CONSUMED, MonitoringEvent, Reach
from barnabas.audit.windows import WINDOW_MS, tally
from barnabas.client.consumer import consumed as consumed_module
from barnabas.client.consumer.consumed import Consumed, Offsets
from barnabas.client.consumer.subscription import PartitionState
from barnabas.model import TopicPartition
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.records import BatchBuilder, Compression, decompress, reader, stamp
from tests.consumer_core import TOPIC, Scene, make_batch

TP = TopicPartition("clicks", 3)
WHO = offsets_of(3)


def placed(position: int = 0) -> PartitionState:
    state = PartitionState(TP)
    state.move_to(position)
    return state


def test_only_what_was_handed_out_counts_and_it_is_told_once() -> None:
    consumed, state = Consumed("readers"), placed()
    consumed.coming(state, 0, [Offsets(0, 6, 0), Offsets(6, 4, WINDOW_MS)])
    consumed.count(lambda _state: 4)
    (event,) = consumed.news()
    assert (event.tier, event.application, event.window_ms) == (CONSUMED, "readers", 0)
    assert (event.offsets, event.reached) == ({3: tally(WHO, 0, 4, 0)}, {3: Reach(0, 4)})
    assert MonitoringEvent.from_json(event.to_json()) == event
    assert not consumed.has_news
    consumed.count(lambda _state: 8)
    first, second = consumed.news()
    assert first.offsets == {3: tally(WHO, 0, 6, 0)}
    assert second.offsets == {3: tally(WHO, 6, 2, 0)}
    assert second.number > first.number > event.number
    assert len({each.instance for each in (event, first, second)}) == 1


def test_what_was_decoded_and_dropped_is_counted_when_it_is_handed_out() -> None:
    consumed, state = Consumed("readers"), placed()
    consumed.coming(state, 0, [Offsets(0, 10, 0)])
    state.position = 5
    state.refetch()
    consumed.coming(state, 5, [Offsets(5, 5, 0)])
    consumed.count(lambda _state: 7)
    (event,) = consumed.news()
    assert event.offsets == {3: tally(WHO, 0, 7, 0)}


def test_what_is_handed_out_again_counts_again_and_what_is_skipped_does_not() -> None:
    consumed, state = Consumed("readers"), placed()
    consumed.coming(state, 0, [Offsets(0, 10, 0)])
    consumed.count(lambda _state: 4)
    consumed.moved([state])
    consumed.coming(state, 2, [Offsets(2, 8, 0)])
    consumed.count(lambda _state: 4)
    (event,) = consumed.news()
    assert event.offsets == {3: tally(WHO, 0, 4, 0).plus(tally(WHO, 2, 2, 0))}
    consumed.moved([state])
    consumed.count(lambda _state: 100)
    assert not consumed.has_news


def test_what_could_not_be_told_is_news_again() -> None:
    consumed, state = Consumed("readers"), placed()
    consumed.coming(state, 0, [Offsets(0, 10, 0)])
    consumed.count(lambda _state: 4)
    news = consumed.news()
    consumed.not_told(news)
    (again,) = consumed.news()
    assert again.offsets == news[0].offsets
    consumed.tell_all_again()
    assert consumed.has_news


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 2)), min_size=1), st.lists(st.integers(1, 15)))
def test_all_that_was_handed_out_is_counted_however_it_is_cut(decoded: list[tuple[int, int]], steps: list[int]) -> None:
    consumed, state = Consumed("readers"), placed()
    windows: list[int] = []
    for records, window in decoded:
        first = len(windows)
        windows += [window * WINDOW_MS] * records
        consumed.coming(state, first, [Offsets(first, records, window * WINDOW_MS)])
    position = 0
    for step in steps:
        position = min(position + step, len(windows))
        consumed.count(lambda _state, position=position: position)  # type: ignore[misc]
    counted = sum(event.offsets[3].records for event in consumed.news())
    assert counted == position


def test_a_topic_that_is_made_again_is_another_one() -> None:
    ids = ["a1"]
    consumed, state = Consumed("readers", lambda _topic: ids[-1]), placed()
    consumed.coming(state, 0, [Offsets(0, 10, 0)])
    consumed.count(lambda _state: 4)
    ids.append("b2")
    consumed.coming(state, 0, [Offsets(0, 3, 0)])
    consumed.count(lambda _state: 3)
    assert [(event.topic_id, event.offsets) for event in consumed.news()] == [
        ("a1", {3: tally(WHO, 0, 4, 0)}),
        ("b2", {3: tally(WHO, 0, 3, 0)}),
    ]


def test_more_windows_than_can_be_remembered_are_told_to_be_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumed_module, "UNTOLD_MAX", 3)
    consumed, state = Consumed("readers"), placed()
    consumed.coming(state, 0, [Offsets(each, 1, each * WINDOW_MS) for each in range(8)])
    consumed.count(lambda _state: 2)
    under_way = consumed.news()
    consumed.count(lambda _state: 7)
    consumed.not_told(under_way)
    assert consumed.window_count == 1
    unknown, event = consumed.news()
    assert (event.offsets, event.reached, event.unknown) == ({3: tally(WHO, 6, 1, 0)}, {3: Reach(6, 7)}, {})
    assert (unknown.offsets, unknown.reached, unknown.unknown) == ({}, {}, {3: Reach(0, 6)})
    assert MonitoringEvent.from_json(unknown.to_json()) == unknown


def test_what_is_left_out_is_told_though_nothing_else_of_its_topic_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(consumed_module, "UNTOLD_MAX", 3)
    consumed, state, other = Consumed("readers"), placed(), PartitionState(TopicPartition("views", 0))
    consumed.coming(state, 0, [Offsets(each, 1, each * WINDOW_MS) for each in range(3)])
    consumed.coming(other, 0, [Offsets(0, 1, 0)])
    consumed.count(lambda counted: 3 if counted is state else 1)
    news = consumed.news()
    assert [(event.topic, event.unknown) for event in news] == [("clicks", {3: Reach(0, 3)}), ("views", {})]
    assert not consumed.has_news
    consumed.not_told(news)
    assert consumed.has_news
    again = consumed.news()
    assert [(event.key, event.unknown) for event in again] == [(event.key, event.unknown) for event in news]


def test_what_is_left_out_of_one_outage_says_nothing_of_what_was_told_before_the_next(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(consumed_module, "UNTOLD_MAX", 3)
    consumed, state = Consumed("readers"), placed()
    consumed.coming(state, 0, [Offsets(each, 1, each * WINDOW_MS) for each in range(12)])
    told: list[MonitoringEvent] = []
    for position in (4, 5, 6, 7, 8, 12):
        consumed.count(lambda _state, position=position: position)  # type: ignore[misc]
        told += consumed.news()
    unknown = [event for event in told if event.unknown]
    assert [event.unknown for event in unknown] == [{3: Reach(0, 3)}, {3: Reach(8, 9)}]
    assert len({event.key for event in unknown}) == 2


def test_of_an_event_that_is_too_large_it_is_told_that_its_offsets_are_unknown() -> None:
    consumed, state = Consumed("readers"), placed()
    consumed.coming(state, 0, [Offsets(0, 10, 0)])
    consumed.count(lambda _state: 4)
    (large,) = consumed.news()
    (instead,) = consumed.instead_of([large])
    assert (instead.key, instead.offsets, instead.reached, instead.unknown) == (large.key, {}, {}, {3: Reach(0, 4)})
    assert instead.number > large.number
    consumed.count(lambda _state: 9)
    (later,) = consumed.news()
    assert (later.key, later.offsets, later.unknown) == (large.key, {}, {3: Reach(0, 9)})
    assert consumed.instead_of([later]) == []


def read_with_damage(*, audit: bool, check_crcs: bool) -> list[object]:
    """Poll five times a log of three batches, of which the first is damaged; return offsets, or what was raised."""
    damaged = bytearray(make_batch(0, 0, 3))
    damaged[-1] ^= 1
    stored = {0: bytes(damaged), 3: make_batch(0, 3, 3), 6: make_batch(0, 6, 3)}
    scene = Scene(partitions=1, group="readers", audit=audit, check_crcs=check_crcs)
    scene.core.assign([(TOPIC, 0)])
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
    assert all("seek past it to go on" in str(each) for each in found)


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


def handed(scene: Scene) -> list[int]:
    """Return the windows of the records that were handed out, by their numbers."""
    scene.state.count_consumed()
    assert scene.state.consumed is not None
    news = scene.state.consumed.news()
    minutes = sorted((event.window_ms // WINDOW_MS, event.offsets) for event in news)
    assert all(offsets == {0: tally(offsets_of(0), number, 1, 0)} for number, offsets in minutes)
    return [number for number, _offsets in minutes]


def test_ways_of_reading_may_be_mixed_and_each_record_is_told_of_when_it_was_handed_out() -> None:
    scene = Scene(partitions=1, group="readers", audit=True)
    scene.core.assign([(TOPIC, 0)])
    scene.place_all()
    deliver(scene, batch_of_minutes(0, 5) + batch_of_minutes(5, 5), 10)
    assert len(scene.poll(records_max=2, timeout_s=0).result) == 2
    assert handed(scene) == [0, 1]
    assert scene.call(scene.core.poll_columns(4, 0)).result.num_rows == 4
    assert handed(scene) == [2, 3, 4, 5]
    assert scene.call(scene.core.poll_columns(1, 0)).result.num_rows == 1
    assert len(scene.poll(records_max=1, timeout_s=0).result) == 1
    assert handed(scene) == [6, 7]
    assert scene.call(scene.core.poll_columns(100, 0)).result.num_rows == 2
    assert handed(scene) == [8, 9]


def test_what_a_deserializer_refuses_is_not_told_of() -> None:
    def refuse(value: bytes) -> bytes:
        if value == b"0/2":
            raise ValueError("no")
        return value

    scene = Scene(partitions=1, group="readers", audit=True, value_deserializer=refuse)
    scene.core.assign([(TOPIC, 0)])
    scene.deliver(count=4)
    assert len(scene.poll(timeout_s=0).result) == 2
    scene.answer(scene.fetch(), count=2)
    assert "offset 2" in str(scene.poll(timeout_s=0).error)
    scene.state.count_consumed()
    assert scene.state.consumed is not None
    (event,) = scene.state.consumed.news()
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
        scene = Scene(partitions=1, group="readers", audit=audit)
        scene.core.assign([(TOPIC, 0)])
        scene.place_all()
        deliver(scene, batch_of_minutes(0, 500) + batch_of_minutes(500, 500), 1_000)
        assert len(scene.call(getattr(scene.core, way)(1_000, 0)).result) == 1_000
        counts.append(len(unpacked))
    assert counts == [2, 2]
