"""Counting by headers: what is complete by them is complete, and what is wrong is wrong by them."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.audit.balance import Balance, balance
from barnabas.audit.batch_windows import batches_by_window
from barnabas.audit.events import PRODUCED, MonitoringEvent
from barnabas.audit.header_windows import batches_by_likely_window, believable
from barnabas.audit.identities import Producer
from barnabas.audit.reported_counts import ReportedCounts
from barnabas.audit.stored_log import StoredLog
from barnabas.audit.windows import NOTHING, tally, window_of
from barnabas.records import BatchBuilder, Compression
from barnabas.records.header import BATCH_HEADER_SIZE, stamp, write_crc
from tests.support.searches import examples

WIDTH_MS = 60_000
ONE, OTHER = Producer(7, 0, 0), Producer(8, 0, 0)


def batch_of(producer: Producer, sequence: int, times_ms: list[int], compression: Compression) -> bytearray:
    builder = BatchBuilder(compression)
    for time_ms in times_ms:
        builder.append(time_ms, None, b"x")
    return bytearray(builder.build(producer.producer_id, producer.producer_epoch, sequence))


class Sent:
    """Two producers, of which one tells: what they have sent, and what is in the log."""

    def __init__(self, batches: list[tuple[bool, list[int], int, Compression]]) -> None:
        sequences = {ONE: 0, OTHER: 0}
        reported: dict[int, dict[Producer, tuple[int, int, int]]] = {}
        self.log = bytearray()
        offset = 0
        for tells, times_ms, copies, compression in batches:
            producer = ONE if tells else OTHER
            for number, time_ms in enumerate(times_ms):
                of_window = reported.setdefault(window_of(time_ms, WIDTH_MS), {})
                one = tally(producer, sequences[producer] + number, 1, 0)
                of_window[producer] = one.plus(of_window.get(producer, NOTHING))  # type: ignore[arg-type]
            for _ in range(copies):
                batch = batch_of(producer, sequences[producer], times_ms, compression)
                stamp(batch, 0, offset, 0)
                offset += len(times_ms)
                self.log += batch
            sequences[producer] += len(times_ms)
        self.events = [
            MonitoringEvent(
                "clicks", PRODUCED, window_ms, WIDTH_MS, "i", 1, "h", "a", {ONE: counted[ONE]}, is_last=True
            )  # type: ignore[dict-item]
            for window_ms, counted in reported.items()
            if ONE in counted
        ]

    def by_records(self) -> Balance:
        stored = StoredLog(WIDTH_MS)
        for header, windows in batches_by_window(self.log, WIDTH_MS):
            stored.add(0, header, windows)
        return balance(self.events, stored)

    def by_headers(self) -> Balance:
        stored = StoredLog(WIDTH_MS)
        believed = believable(ReportedCounts(self.events, "", WIDTH_MS))
        for header, windows, _is_likely in batches_by_likely_window(self.log, WIDTH_MS, believed):
            stored.add(0, header, windows)
        return balance(self.events, stored)


batches = st.lists(
    st.tuples(
        st.booleans(),
        st.lists(st.integers(-1, 3 * WIDTH_MS), min_size=1, max_size=4),
        st.sampled_from([1, 1, 1, 1, 0, 2]),
        st.sampled_from([Compression.NONE, Compression.LZ4]),
    ),
    max_size=12,
)


@settings(max_examples=examples(200))
@given(batches)
def test_what_headers_say_is_right_or_shows_as_wrong(
    given_batches: list[tuple[bool, list[int], int, Compression]],
) -> None:
    sent = Sent(given_batches)
    by_headers, by_records = sent.by_headers(), sent.by_records()
    if by_records.is_wrong:
        assert by_headers.is_wrong
    if not by_headers.is_wrong:
        assert by_headers == by_records


def test_record_that_is_earlier_than_the_first_of_its_batch_shows_as_lost_from_its_window() -> None:
    sent = Sent([(True, [WIDTH_MS + 1, 5, WIDTH_MS + 2], 1, Compression.LZ4)])
    assert not sent.by_records().is_wrong
    assert [window.status for window in sent.by_headers().windows] == ["lost 1", "extra 1"]


def test_batches_of_audited_producers_are_neither_decompressed_nor_decoded() -> None:
    batch = batch_of(ONE, 0, [1, 2, 3], Compression.LZ4)
    batch[BATCH_HEADER_SIZE:] = b"\xff" * (len(batch) - BATCH_HEADER_SIZE)  # no frame, and no record
    write_crc(batch, 0, len(batch))
    ((_header, windows, is_likely),) = batches_by_likely_window(batch, WIDTH_MS, {ONE.producer_id})
    assert windows == [(3, 0)]
    assert is_likely
