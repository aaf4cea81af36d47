"""Compaction against a plain model of what stays, and its compiled twin against the one in Python: of sound batches,
of damaged ones, and of maps that are full.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import CorruptBatchError
from barnabas.records import (
    BatchBuilder,
    Compression,
    check_batch,
    compaction_pure,
    iter_headers,
    read_header,
    read_records,
    set_log_append_time,
    stamp,
)
from barnabas.records.compaction import Added, Filtering, OffsetMap, filter_batches
from barnabas.records.header import pack_header, write_crc
from tests.support.searches import examples

EXAMPLES = int(os.environ.get("PARITY_EXAMPLES", "0")) or examples(50)
"""More are run where the codec is built with a sanitizer: `tools/sanitize_codec.sh`."""

SECRET = b"sixteen bytes..."
DECOMPRESSED_BYTES_MAX = 4_000
CONTROL_MASK = 0x20

keys = st.one_of(st.none(), st.sampled_from([b"", b"a", b"b", b"key-7", b"key-77", b"eight by", b"x" * 300]))
values = st.one_of(st.none(), st.none(), st.sampled_from([b"", b"v", b"w" * 70]))
timestamps = st.one_of(st.integers(-1, 300), st.integers(-(2**63), 2**63 - 1))
headers = st.lists(st.tuples(st.sampled_from(["h", ""]), st.one_of(st.none(), st.just(b"\xff"))), max_size=2)
rows = st.tuples(keys, values, timestamps, headers)


@dataclass(frozen=True)
class Drawn:
    """A batch to be made."""

    rows: list[tuple]
    compression: Compression
    producer_id: int
    is_control: bool
    append_time_ms: int | None
    gap: int
    """Offsets that are missing before it."""


batches = st.builds(
    Drawn,
    st.lists(rows, min_size=1, max_size=6),
    st.sampled_from(list(Compression)),
    st.sampled_from([-1, -1, -1, 0, 1]),
    st.sampled_from([False] * 7 + [True]),
    st.sampled_from([None, None, None, 250]),
    st.sampled_from([0, 0, 0, 3]),
)
logs = st.lists(batches, max_size=10)


def encoded(drawn: Drawn, base_offset: int) -> bytes:
    builder = BatchBuilder(drawn.compression)
    for key, value, timestamp_ms, record_headers in drawn.rows:
        builder.append(timestamp_ms, key, value, record_headers)
    has_producer = drawn.producer_id >= 0
    batch = bytearray(builder.build(drawn.producer_id, 0 if has_producer else -1, 5 if has_producer else -1))
    if drawn.append_time_ms is not None:
        set_log_append_time(batch, 0, drawn.append_time_ms)
    stamp(batch, 0, base_offset, 1)
    if drawn.is_control:
        header = read_header(batch)
        pack_header(batch, header._replace(attributes=header.attributes | CONTROL_MASK))
        write_crc(batch, 0, len(batch))
    return bytes(batch)


def log_of(drawn: list[Drawn], base_offset: int = 0) -> list[bytes]:
    log = []
    for each in drawn:
        log.append(encoded(each, base_offset + each.gap))
        base_offset = read_header(log[-1]).next_offset
    return log


def fed(function: Any, data: bytes, chunk_bytes: int) -> list[Any]:
    """Call a function for chunk after chunk, each from where the last one ended, larger where nothing was taken."""
    results: list[Any] = []
    position, size = 0, chunk_bytes
    while position < len(data):
        results.append(function(data[position : position + size]))
        taken = results[-1].size if isinstance(results[-1], Added) else results[-1].bytes_read
        if not taken and position + size >= len(data):
            break
        size = chunk_bytes if taken else 2 * size
        position += taken
    return results


class Model:
    """What readers find in a log, and the rules by which it is cleaned."""

    def __init__(self) -> None:
        self.records: list[Any] = []
        """With the base offset of their batch; readers pass over control batches."""
        self.horizons: dict[int, int] = {}
        """By the base offset of a batch."""
        self.batches: dict[int, Any] = {}

    def append(self, batch: bytes) -> None:
        header = read_header(batch)
        self.batches[header.base_offset] = header
        self.records += [(header.base_offset, record) for record in read_records(batch, "t", 0)]

    def clean(self, dirty_offset: int, now_ms: int, retention_ms: int, last_of_producers: dict[int, int]) -> None:
        latest = {record.key: record.offset for _, record in self.records if record.offset >= dirty_offset}
        kept = [
            (base_offset, record)
            for base_offset, record in self.records
            if record.key is not None
            and record.offset >= latest.get(record.key, 0)
            and (record.value is not None or now_ms < self.horizons.get(base_offset, now_ms + 1))
        ]
        for base_offset, record in kept:
            if record.value is None:
                self.horizons.setdefault(base_offset, now_ms + retention_ms)
        filled = {base_offset for base_offset, _ in kept}
        self.records = kept
        self.batches = {
            base_offset: header
            for base_offset, header in self.batches.items()
            if header.is_control
            or base_offset in filled
            or last_of_producers.get(header.producer_id) == header.last_offset
        }


@given(st.lists(st.tuples(logs, st.integers(0, 120), st.booleans()), max_size=4), st.integers(50, 2_000))
def test_cleanings_leave_what_the_model_says(rounds: list[tuple[list[Drawn], int, bool]], chunk_bytes: int) -> None:
    model = Model()
    log = b""
    end_offset = now_ms = 0
    for drawn, later_ms, keeps_producers in rounds:
        now_ms += later_ms
        dirty_offset = end_offset
        for batch in log_of(drawn, end_offset):
            model.append(batch)
            log += batch
            end_offset = read_header(batch).next_offset
        newest = {header.producer_id: header.last_offset for _, header in iter_headers(log) if header.producer_id >= 0}
        newest = newest if keeps_producers else {}
        offset_map = OffsetMap(24 * 70, dirty_offset, SECRET)
        fed(lambda chunk: offset_map.add(chunk, dirty_offset), log, chunk_bytes)  # noqa: B023 - used at once
        filtering = Filtering(now_ms, 100, newest, DECOMPRESSED_BYTES_MAX)
        results = fed(lambda chunk: filter_batches(chunk, offset_map, filtering), log, chunk_bytes)  # noqa: B023
        log = b"".join(chunk for result in results for chunk in result.chunks)
        model.clean(dirty_offset, now_ms, 100, newest)
        assert read_records(log, "t", 0) == [record for _, record in model.records]
        assert_batches_are(model, log)
        assert sum(result.records_kept for result in results) == sum(h.record_count for _, h in iter_headers(log))


def assert_batches_are(model: Model, log: bytes) -> None:
    """Besides their records: what identifies a batch is as it was, and its header tells the truth."""
    headers = []
    for position, header in iter_headers(log):
        check_batch(log, position, header)
        headers.append(header)
    assert [header.base_offset for header in headers] == list(model.batches)
    for header in headers:
        if header.is_control:
            assert header == model.batches[header.base_offset]
            continue
        before = model.batches[header.base_offset]
        assert header == before._replace(
            batch_length=header.batch_length,
            crc=header.crc,
            attributes=header.attributes,
            base_timestamp_ms=header.base_timestamp_ms,
            max_timestamp_ms=header.max_timestamp_ms,
            record_count=sum(base_offset == header.base_offset for base_offset, _ in model.records),
        )
        assert header.timestamp_type is before.timestamp_type
        if header.record_count:
            assert header.compression is before.compression
            horizon_ms = header.base_timestamp_ms if header.attributes & 0x40 else None
            assert horizon_ms == model.horizons.get(header.base_offset)
            stamps = [record.timestamp_ms for base, record in model.records if base == header.base_offset]
            assert header.max_timestamp_ms >= max(stamps)


@given(
    st.lists(st.tuples(st.integers(0, 120), st.integers(0, 5)), max_size=200),
    st.integers(42, 1_500),
    st.sampled_from([0, 9, 2**62]),
)
def test_a_map_is_a_dict_until_it_is_full(writes: list[tuple[int, int]], memory_bytes: int, base_offset: int) -> None:
    offset_map = OffsetMap(memory_bytes, base_offset, SECRET)
    assert offset_map.capacity * 24 >= memory_bytes - 48
    model: dict[bytes, int] = {}
    offset = base_offset
    for number, gap in writes:
        key = b"%d" % number
        builder = BatchBuilder()
        builder.append(0, key, b"")
        batch = bytearray(builder.build())
        stamp(batch, 0, offset + gap, 0)
        added = offset_map.add(batch, base_offset)
        assert added.is_full == (key not in model and len(model) == offset_map.capacity)
        if not added.is_full:
            model[key] = offset + gap
        offset += gap + 1
        assert (len(offset_map), added.size) == (len(model), 0 if added.is_full else len(batch))
    for number in range(121):
        assert offset_map.latest(b"%d" % number) == model.get(b"%d" % number)


# --- the twins ---


@pytest.fixture(scope="module")
def twins() -> list[ModuleType]:
    compiled = pytest.importorskip("barnabas.records.compaction_compiled", reason="the compiled one was not built")
    return [compiled, compaction_pure]


def outcome(twin: ModuleType, data: bytes, how: dict[str, Any]) -> list[Any]:
    """All that can be seen of a cleaning."""
    offset_map = twin.OffsetMap(how["memory_bytes"], how["first_offset"], SECRET)
    results: list[Any] = []
    try:
        results += fed(
            lambda chunk: offset_map.add(
                chunk, how["first_offset"], decompressed_bytes_max=how["filtering"].decompressed_bytes_max
            ),
            data,
            how["chunk_bytes"],
        )
        results += [offset_map.latest(key) for key in (b"", b"a", b"b", b"key-7", b"key-77", b"eight by", b"x" * 300)]
    except CorruptBatchError as error:
        # What the map has of a damaged batch is nobody's business, so there is no filtering by it.
        return [*results, str(error), offset_map.end_offset]
    results += [len(offset_map), offset_map.end_offset, offset_map.capacity]
    try:
        filtered = fed(lambda chunk: twin.filter_batches(chunk, offset_map, how["filtering"]), data, how["chunk_bytes"])
    except CorruptBatchError as error:
        return [*results, str(error)]
    return [*results, *((b"".join(result.chunks), result[1:]) for result in filtered)]


@st.composite
def cleanings(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "memory_bytes": draw(st.sampled_from([42, 70, 130, 10_000])),
        "first_offset": draw(st.sampled_from([0, 0, 3, 20])),
        "chunk_bytes": draw(st.sampled_from([61, 200, 10_000])),
        "filtering": Filtering(
            draw(st.one_of(st.integers(0, 400), st.integers(-(2**62), 2**62))),
            draw(st.sampled_from([0, 100, 2**63 - 1])),
            draw(st.dictionaries(st.integers(0, 1), st.integers(0, 40), max_size=2)),
            draw(st.sampled_from([150, DECOMPRESSED_BYTES_MAX])),
            draw(st.integers(-1, 40)),
        ),
    }


@settings(max_examples=EXAMPLES)
@given(logs, cleanings())
def test_they_clean_the_same(twins: list[ModuleType], drawn: list[Drawn], how: dict[str, Any]) -> None:
    data = b"".join(log_of(drawn))
    one, other = (outcome(twin, data, how) for twin in twins)
    assert one == other


fields = st.dictionaries(
    st.sampled_from(["attributes", "last_offset_delta", "record_count", "base_timestamp_ms", "max_timestamp_ms"]),
    st.one_of(st.integers(-1, 70), st.sampled_from([2**15 - 1, -(2**15)])),
    max_size=3,
)
flips = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3)


@settings(max_examples=EXAMPLES)
@given(logs, cleanings(), st.data())
def test_they_find_the_same_damage(
    twins: list[ModuleType], drawn: list[Drawn], how: dict[str, Any], data: st.DataObject
) -> None:
    """Bytes changed at random, mostly under a CRC that says that nothing was."""
    damaged = [bytearray(batch) for batch in log_of(drawn)]
    for batch in damaged:
        pack_header(batch, read_header(batch)._replace(**data.draw(fields)))
        for place, value in data.draw(flips):
            batch[place % len(batch)] = value
        if data.draw(st.sampled_from([True] * 5 + [False])):
            write_crc(batch, 0, len(batch))
    whole = b"".join(damaged)
    cut = data.draw(st.integers(0, len(whole)))
    for content in (whole, whole[:cut]):
        one, other = (outcome(twin, content, how) for twin in twins)
        assert one == other
