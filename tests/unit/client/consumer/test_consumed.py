"""What a consumer was handed: each record once by its position, whatever was decoded, dropped and decoded again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.audit.account import offsets_of
from barnabas.audit.events import CONSUMED, MonitoringEvent, Reach
from barnabas.audit.windows import WINDOW_MS, tally
from barnabas.client.consumer.consumed import Consumed, Offsets, offsets_in
from barnabas.client.consumer.subscription import PartitionState
from barnabas.model import TopicPartition
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.records import BatchBuilder
from barnabas.records.header import CONTROL_MASK, stamp, write_crc
from tests.consumer_core import TOPIC, Scene, make_batch

TP = TopicPartition("clicks", 3)
WHO = offsets_of(3)


def batch(offset: int, *times_ms: int) -> bytes:
    builder = BatchBuilder()
    for time_ms in times_ms:
        builder.append(time_ms, None, b"x")
    data = bytearray(builder.build())
    stamp(data, 0, offset, 0)
    return bytes(data)


def placed(position: int = 0) -> PartitionState:
    state = PartitionState(TP)
    state.move_to(position)
    return state


def test_records_are_found_by_windows_from_the_position_up_to_the_end() -> None:
    data = batch(0, 1, 2, WINDOW_MS) + batch(3, WINDOW_MS, WINDOW_MS) + b"damaged"
    assert list(offsets_in(data, 1, 4)) == [Offsets(1, 1, 0), Offsets(2, 1, WINDOW_MS), Offsets(3, 1, WINDOW_MS)]


def test_damage_is_not_looked_into_where_nothing_of_it_was_handed_out() -> None:
    whole, damaged = batch(0, 1, 2), bytearray(batch(2, 1))
    damaged[-1] ^= 1
    assert list(offsets_in(damaged, 2, 2)) == []
    assert list(offsets_in(damaged + whole, 3, 3)) == []
    assert list(offsets_in(whole + damaged, 0, 2)) == [Offsets(0, 2, 0)]
    marker = bytearray(batch(2, 1))
    marker[22] |= CONTROL_MASK
    write_crc(marker, 0, len(marker))
    damaged[:8] = (3).to_bytes(8, "big")
    assert list(offsets_in(whole + marker + damaged, 0, 3)) == [Offsets(0, 2, 0)]


def test_a_checksum_that_nobody_checks_is_not_missed_here() -> None:
    data = bytearray(batch(0, 1, 2))
    data[17] ^= 1  # of the CRC itself
    assert list(offsets_in(data, 0, 2)) == [Offsets(0, 2, 0)]


def test_only_what_was_handed_out_counts_and_it_is_told_once() -> None:
    consumed, state = Consumed("readers"), placed()
    consumed.coming(state, 0, 10, [Offsets(0, 6, 0), Offsets(6, 4, WINDOW_MS)])
    consumed.count(lambda _state: 4)
    (event,) = consumed.news().values()
    assert (event.tier, event.application, event.window_ms) == (CONSUMED, "readers", 0)
    assert (event.offsets, event.reached) == ({3: tally(WHO, 0, 4, 0)}, {3: Reach(0, 4)})
    assert MonitoringEvent.from_json(event.to_json()) == event
    assert not consumed.has_news
    consumed.count(lambda _state: 8)
    first, second = consumed.news().values()
    assert first.offsets == {3: tally(WHO, 0, 6, 0)}
    assert second.offsets == {3: tally(WHO, 6, 2, 0)}
    assert second.number > first.number > event.number
    assert len({each.instance for each in (event, first, second)}) == 1


def test_what_was_decoded_and_dropped_is_counted_when_it_is_handed_out() -> None:
    consumed, state = Consumed("readers"), placed()
    consumed.coming(state, 0, 10, [Offsets(0, 10, 0)])
    state.position = 5
    state.refetch()
    assert not consumed.knows(state, 10)
    consumed.coming(state, 5, 10, [Offsets(5, 5, 0)])
    assert consumed.knows(state, 10)
    consumed.count(lambda _state: 7)
    assert consumed.news()["clicks", 0].offsets == {3: tally(WHO, 0, 7, 0)}


def test_what_is_handed_out_again_counts_again_and_what_is_skipped_does_not() -> None:
    consumed, state = Consumed("readers"), placed()
    consumed.coming(state, 0, 10, [Offsets(0, 10, 0)])
    consumed.count(lambda _state: 4)
    consumed.moved([state])
    consumed.coming(state, 2, 10, [Offsets(2, 8, 0)])
    consumed.count(lambda _state: 4)
    assert consumed.news()["clicks", 0].offsets == {3: tally(WHO, 0, 4, 0).plus(tally(WHO, 2, 2, 0))}
    consumed.moved([state])
    consumed.count(lambda _state: 100)
    assert not consumed.has_news


def test_what_could_not_be_told_is_news_again() -> None:
    consumed, state = Consumed("readers"), placed()
    consumed.coming(state, 0, 10, [Offsets(0, 10, 0)])
    consumed.count(lambda _state: 4)
    news = consumed.news()
    consumed.not_told(news)
    (again,) = consumed.news().values()
    assert again.offsets == news["clicks", 0].offsets
    consumed.tell_all_again()
    assert consumed.has_news


@given(st.lists(st.tuples(st.integers(1, 20), st.integers(0, 2)), min_size=1), st.lists(st.integers(1, 15)))
def test_all_that_was_handed_out_is_counted_however_it_is_cut(decoded: list[tuple[int, int]], steps: list[int]) -> None:
    consumed, state = Consumed("readers"), placed()
    windows: list[int] = []
    for records, window in decoded:
        first = len(windows)
        windows += [window * WINDOW_MS] * records
        consumed.coming(state, first, len(windows), [Offsets(first, records, window * WINDOW_MS)])
    position = 0
    for step in steps:
        position = min(position + step, len(windows))
        consumed.count(lambda _state, position=position: position)  # type: ignore[misc]
    counted = sum(event.offsets[3].records for event in consumed.news().values())
    assert counted == position


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
