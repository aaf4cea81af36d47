"""The compiled scan over batch headers and its twin in Python tell the same, of sound, damaged and truncated bytes; and
what they keep of a segment is what appending to it keeps.
"""

from __future__ import annotations

import os
import struct
from array import array
from pathlib import Path
from typing import Any, cast

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.records import codec_pure, scan_pure
from barnabas.records.header import BatchHeader, iter_headers
from barnabas.storage.producer_state import ProducerStates
from barnabas.storage.segment import ActiveSegment
from tests.support.searches import examples

scan_compiled = pytest.importorskip("barnabas.records.scan_compiled", reason="the compiled scan was not built")

EXAMPLES = int(os.environ.get("PARITY_EXAMPLES", "0")) or examples(50)
"""More are run where the scan is built with a sanitizer: `tools/sanitize_codec.sh`."""

ATTRIBUTES = (
    "base_offset", "next_offset", "size", "wanted_bytes", "damage", "batch_count", "bytes_since_entry", "epoch",
    "first_last_offset", "first_timestamp_ms", "max_timestamp_ms", "max_timestamp_offset", "epochs", "offset_entries",
    "time_entries", "producers",
)  # fmt: skip

OFFSET_MAX = 2**63 - 1
int64s = st.one_of(st.integers(-1, 50), st.integers(-(2**63), 2**63 - 1))
bases = st.one_of(st.just(0), st.integers(0, 10_000), st.integers(2**63 - 2**32, 2**63 - 2), st.integers(0, 2**63 - 2))
deltas = st.one_of(st.integers(0, 5), st.integers(0, 2**31 - 1))
sequences = st.one_of(st.integers(-2, 40), st.integers(2**31 - 9, 2**31 - 1))
rows = st.tuples(
    st.one_of(st.integers(0, 3), deltas),
    st.sampled_from([0, 0, 0, 1, 7]),
    st.sampled_from([0, 0, 0, 0x20, 0x10, 0x08, 4, -32764]),
    int64s,
    st.one_of(st.integers(-2, 3), int64s),
    st.sampled_from([0, 0, 0, 1, -1]),
    sequences,
    st.integers(0, 120),
    st.sampled_from([0, 0, 0, 0, 1, 40, 2**31]),
)
"""Of a batch: last offset delta, what its leader epoch is more, attributes, greatest timestamp, producer id, producer
epoch, base sequence, bytes of the body, and the gap before it."""

contents = st.lists(rows, max_size=14)
plain_rows = st.tuples(
    st.integers(0, 3), st.just(0), st.just(0), st.integers(0, 99), *[st.just(-1)] * 3, st.integers(0, 60), st.just(0)
)


def segment_of(content: list[tuple], base_offset: int, epoch: int = -1) -> bytearray:
    """The bytes of a segment; sound unless offsets go beyond what there can be."""
    data = bytearray()
    for delta, epoch_step, attributes, timestamp_ms, producer_id, producer_epoch, sequence, body_bytes, gap in content:
        epoch += epoch_step
        base_offset += gap
        tail = struct.pack(
            ">hiqqqhii", attributes, delta, 0, timestamp_ms, producer_id, producer_epoch, sequence, min(delta, 5)
        ) + bytes(body_bytes)
        data += struct.pack(">qiibI", min(base_offset, 2**63 - 1), len(tail) + 9, epoch, 2, crc32c(tail)) + tail
        base_offset += delta + 1
    return data


def state(scan: Any) -> list[Any]:
    return [getattr(scan, name) for name in ATTRIBUTES]


def assert_same_scan(data: bytes, chunk_sizes: list[int], base_offset: int, **named: Any) -> Any:
    """Feed both with the same chunks; return the pure one."""
    scans = [twin.SegmentScan(base_offset, **named) for twin in (scan_compiled, scan_pure)]
    steps = 0
    while True:
        start = scans[1].size
        size = max(chunk_sizes[steps % len(chunk_sizes)], scans[1].wanted_bytes if steps % 2 else 0)
        chunk = data[start : start + size]
        answers = [scan.feed(chunk, start) for scan in scans]
        assert answers[0] == answers[1]
        assert state(scans[0]) == state(scans[1])
        steps += 1
        if scans[1].damage is not None or (scans[1].size == start and size >= scans[1].wanted_bytes):
            return scans[1]


chunk_sizes = st.lists(st.integers(0, 400), min_size=1, max_size=3)


@st.composite
def parameters(draw: st.DrawFn, base_offset: int, data: bytes) -> dict[str, Any]:
    """What a scan is told beside the base offset."""
    has_time = draw(st.booleans())
    return {
        "check_crc": draw(st.booleans()),
        "index_interval_bytes": draw(st.sampled_from([0, 80, 200, 4096])),
        "epoch": draw(st.sampled_from([-1, -1, 0, 2])),
        "next_offset": draw(st.sampled_from([None, None, base_offset])),
        "end": draw(st.one_of(st.none(), st.just(len(data)), st.integers(0, len(data)))),
        "bytes_since_entry": draw(st.sampled_from([0, 81, 4097])),
        "max_timestamp_ms": draw(st.integers(-1, 40)) if has_time else -1,
        "max_timestamp_offset": base_offset if has_time else -1,
        "gaps_up_to": draw(
            st.one_of(st.just(0), st.integers(0, min(base_offset + 60, OFFSET_MAX)), st.just(OFFSET_MAX))
        ),
    }


@settings(max_examples=EXAMPLES)
@given(contents, bases, chunk_sizes, st.data())
def test_they_scan_the_same(content: list[tuple], base_offset: int, sizes: list[int], data: st.DataObject) -> None:
    segment = bytes(segment_of(content, base_offset))
    assert_same_scan(segment, sizes, base_offset, **data.draw(parameters(base_offset, segment)))


@settings(max_examples=EXAMPLES)
@given(contents, bases, chunk_sizes, st.data())
def test_they_stop_at_the_same_damage_with_the_same_words(
    content: list[tuple], base_offset: int, sizes: list[int], data: st.DataObject
) -> None:
    segment = segment_of(content, base_offset)
    for _ in range(data.draw(st.integers(1, 3))):
        if segment:
            segment[data.draw(st.integers(0, len(segment) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        del segment[data.draw(st.integers(0, len(segment))) :]
    assert_same_scan(bytes(segment), sizes, base_offset, **data.draw(parameters(base_offset, segment)))


@settings(max_examples=EXAMPLES)
@given(st.lists(plain_rows, min_size=1, max_size=14), st.integers(0, 99), chunk_sizes, st.booleans())
def test_a_sound_segment_is_scanned_to_its_end(
    content: list[tuple], base_offset: int, sizes: list[int], check_crc: bool
) -> None:
    segment = bytes(segment_of(content, base_offset, epoch=3))
    scan = assert_same_scan(segment, sizes, base_offset, check_crc=check_crc, end=len(segment))
    assert (scan.damage, scan.size, scan.batch_count) == (None, len(segment), len(content))


@settings(max_examples=EXAMPLES)
@given(contents, st.integers(0, 10_000), chunk_sizes, st.sampled_from([0, 80, 200]))
def test_they_keep_what_appending_keeps(
    content: list[tuple], base_offset: int, sizes: list[int], index_interval_bytes: int
) -> None:
    content = [(row[0] % 100, *row[1:-1], row[-1] % 100) for row in content]
    data = bytes(segment_of(content, base_offset, epoch=0))
    scan = assert_same_scan(
        data, sizes, base_offset, check_crc=True, index_interval_bytes=index_interval_bytes, gaps_up_to=2**63 - 1
    )
    headers = [header for _, header in iter_headers(data)]
    nothing = cast("Any", None)
    segment = ActiveSegment(nothing, Path(), base_offset, nothing)
    segment._index_interval_bytes = index_interval_bytes
    if headers:
        segment.note_all([(header.size, header.last_offset, header.max_timestamp_ms) for header in headers])
    assert (scan.size, scan.next_offset, scan.bytes_since_entry) == (
        segment.size, segment.next_offset, segment._bytes_since_entry
    )  # fmt: skip
    assert (scan.max_timestamp_ms, scan.max_timestamp_offset) == (
        segment.max_timestamp_ms, segment._max_timestamp_offset
    )  # fmt: skip
    assert scan.first_timestamp_ms == segment.first_timestamp_ms
    assert [bytes(column) for column in (*scan.offset_entries, *scan.time_entries)] == index_columns(segment)
    assert scan.producers == producers_of(headers)


def index_columns(segment: ActiveSegment) -> list[bytes]:
    offsets, times = segment.offset_index.encode(), segment.time_index.encode()
    pairs, triples = list(struct.iter_unpack(">II", offsets)), list(struct.iter_unpack(">qI", times))
    return [
        bytes(array("I", [pair[0] for pair in pairs])),
        bytes(array("I", [pair[1] for pair in pairs])),
        bytes(array("q", [each[0] for each in triples])),
        bytes(array("I", [each[1] for each in triples])),
    ]


def producers_of(headers: list[BatchHeader]) -> dict[int, Any]:
    states = ProducerStates()
    for header in headers:
        if header.producer_id != -1 and not header.is_control:
            states.update(header, header.base_offset, 0)
    return {
        producer_id: (entry.epoch, tuple(batch[:4] for batch in entry.batches))
        for producer_id, entry in states.entries().items()
    }


numbers = st.one_of(
    st.integers(-3, 200), st.integers(-(2**66), 2**66), st.sampled_from([6, 2**31 - 1, 2**31, 2**63 - 1, -(2**63)])
)


@settings(max_examples=EXAMPLES)
@given(st.lists(st.tuples(numbers, st.integers(0, 90)), max_size=8), st.integers(-1, 9), st.binary(max_size=12))
def test_they_count_the_same(records: list[tuple[int, int]], count: int, tail: bytes) -> None:
    made_up = b"".join(codec_pure.varints.encode_varint(length) + bytes(size) for length, size in records) + tail
    exact = b"".join(codec_pure.varints.encode_varint(size) + bytes(size) for _, size in records)
    for body in (made_up, exact):
        for each in (count, len(records)):
            assert scan_compiled.count_records(body, each) == scan_pure.count_records(body, each)
    assert scan_pure.count_records(exact, len(records)) == all(size >= 6 for _, size in records)


def produced(row: tuple, record_count: int) -> bytearray:
    """A batch as a producer sends it: its body holds the records that its offsets say, if they are few."""
    batch = segment_of([row], 0)
    batch[61:] = bytes((12, 0, 0, 0, 0, 0, 0)) * min(row[0] + 1, 5)
    struct.pack_into(">i", batch, 57, min(record_count, 2**31 - 1))
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return batch


def in_a_row(content: list[tuple], sequence: int) -> list[tuple]:
    """The same batches, as of one producer, with sequences from `sequence` on."""
    made = []
    for row in content:
        made.append((*row[:4], 9, 2, sequence % 2**31, *row[7:]))
        sequence += row[0] + 1
    return made


@settings(max_examples=EXAMPLES)
@given(contents, st.lists(plain_rows, max_size=4), st.data())
def test_they_stamp_the_same(content: list[tuple], plain: list[tuple], data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.sampled_from([0, 1, 1, 2, -1]), min_size=18, max_size=18))
    if data.draw(st.booleans()):
        counts[:4] = [1] * 4
        plain = in_a_row(plain, data.draw(st.sampled_from([0, 7, 2**31 - 4])))
    requests = [produced(row, row[0] + count) for row, count in zip([*plain, *content], counts, strict=False)]
    if requests and data.draw(st.booleans()):
        damaged = data.draw(st.sampled_from(requests))
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(0, 255))
    limits = {
        "batch_bytes_max": data.draw(st.sampled_from([0, 80, 1_000])),
        "bytes_max": data.draw(st.sampled_from([-1, 300, 10_000])),
        "offset_max": data.draw(st.sampled_from([0, 10, 2**63 - 1])),
        "timestamp_ms_max": data.draw(st.sampled_from([-1, 50, 2**63 - 1])),
    }
    for each in requests:
        assert scan_compiled.usual_header(each, 90) == scan_pure.usual_header(each, 90)
    start, offset = data.draw(st.integers(0, 2)), data.draw(st.sampled_from([0, 9, 2**62]))
    copies = [bytearray(each) for each in requests]
    told = scan_compiled.stamp_plain_batches(requests, start, offset, 3, **limits)
    assert told == scan_pure.stamp_plain_batches(copies, start, offset, 3, **limits)
    assert requests == copies


@settings(max_examples=EXAMPLES)
@given(contents, st.lists(plain_rows, max_size=6), bases, st.data())
def test_they_find_the_same_replicas(
    content: list[tuple], plain: list[tuple], base_offset: int, data: st.DataObject
) -> None:
    batches = segment_of([*plain, *content], base_offset, epoch=3)
    if batches and data.draw(st.booleans()):
        batches[data.draw(st.integers(0, len(batches) - 1))] ^= data.draw(st.integers(0, 255))
    limits = {
        "offset_max": data.draw(st.sampled_from([0, 10, min(base_offset + 5, OFFSET_MAX), OFFSET_MAX])),
        "timestamp_ms_max": data.draw(st.sampled_from([-1, 50, 2**63 - 1])),
    }
    next_offset = data.draw(st.sampled_from([base_offset, base_offset, 0]))
    cut = batches[: data.draw(st.sampled_from([len(batches), 70]))]
    found = scan_compiled.plain_replicas(cut, next_offset, 3, **limits)
    assert found == scan_pure.plain_replicas(cut, next_offset, 3, **limits)
    headers = [header for _, header in iter_headers(cut[: sum(size for size, *_ in found)])]
    assert found == [(header.size, header.last_offset, header.max_timestamp_ms) for header in headers]


@settings(max_examples=EXAMPLES)
@given(st.binary(max_size=300), st.integers(0, 40))
def test_they_agree_on_any_bytes(data: bytes, count: int) -> None:
    assert_same_scan(data, [len(data)], 0, check_crc=True)
    assert_same_scan(data, [61], 0, check_crc=False, end=len(data))
    assert scan_compiled.count_records(data, count) == scan_pure.count_records(data, count)
    limits = {"offset_max": 2**63 - 1, "timestamp_ms_max": 2**63 - 1}
    assert scan_compiled.plain_replicas(data, count, 0, **limits) == scan_pure.plain_replicas(data, count, 0, **limits)


@given(st.binary(max_size=600), st.sampled_from([0, 0, 3_000, 9_000]))
def test_crcs_are_those_of_the_package(data: bytes, more: int) -> None:
    data += bytes(number * number % 251 for number in range(more))
    assert scan_compiled.crc32c(data) == scan_compiled.crc32c(data, portable=True) == crc32c(data)
