"""What both twins of log compaction do, run on each: the compiled one is skipped, visibly, where it was not built."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from barnabas.errors import CorruptBatchError
from barnabas.model import Header, TimestampType
from barnabas.records import (
    BatchBuilder,
    BatchHeader,
    Compression,
    Record,
    check_batch,
    compaction_pure,
    compress,
    iter_headers,
    read_header,
    read_records,
    set_log_append_time,
    stamp,
)
from barnabas.records.compaction_pure import Filtered, Filtering
from barnabas.records.compression import Decompressor
from barnabas.records.header import DELETE_HORIZON_MASK, TIMESTAMP_TYPE_MASK, pack_header, write_crc

SECRET = bytes(range(16))
NOW_MS = 1_000_000
RETENTION_MS = 500
HORIZON_MS = NOW_MS + RETENTION_MS
DECOMPRESSED_BYTES_MAX = 1_000_000

STATM = Path("/proc/self/statm")

Row = tuple[bytes | None, bytes | None]


@pytest.fixture(params=["pure", "compiled"])
def twin(request: pytest.FixtureRequest) -> ModuleType:
    if request.param == "pure":
        return compaction_pure
    return pytest.importorskip("barnabas.records.compaction_compiled", reason="the compiled compaction was not built")


def batch(
    base_offset: int,
    rows: Sequence[Row],
    compression: Compression = Compression.NONE,
    *,
    timestamps_ms: Sequence[int] = (),
    headers: Sequence[Header] = (),
    producer: tuple[int, int, int] = (-1, -1, -1),
    leader_epoch: int = 3,
    append_time_ms: int | None = None,
) -> bytearray:
    """A batch as it stands in a log. `producer`: its id, epoch and first sequence."""
    builder = BatchBuilder(compression)
    for (key, value), timestamp_ms in zip(rows, timestamps_ms or range(100, 100 + len(rows)), strict=True):
        builder.append(timestamp_ms, key, value, headers)
    data = bytearray(builder.build(*producer))
    if append_time_ms is not None:
        set_log_append_time(data, 0, append_time_ms)
    stamp(data, 0, base_offset, leader_epoch)
    return data


def changed(data: bytearray, **fields: int) -> bytearray:
    """The batch with another header, and the CRC that belongs to it."""
    result = bytearray(data)
    pack_header(result, read_header(result)._replace(**fields))
    write_crc(result, 0, len(result))
    return result


def map_of(twin: ModuleType, log: bytes | bytearray, *, memory_bytes: int = 10_000, first_offset: int = 0) -> Any:
    offset_map = twin.OffsetMap(memory_bytes, first_offset, SECRET)
    added = offset_map.add(log, first_offset)
    assert (added.size, added.is_full) == (len(log), False)
    return offset_map


def filtering(now_ms: int = NOW_MS, **named: Any) -> Filtering:
    return Filtering(
        now_ms,
        RETENTION_MS,
        named.pop("last_of_producers", {}),
        named.pop("decompressed_bytes_max", DECOMPRESSED_BYTES_MAX),
        **named,
    )


def cleaned(twin: ModuleType, log: bytes | bytearray, now_ms: int = NOW_MS, **named: Any) -> bytes:
    """The log after a cleaning of all of it."""
    result = twin.filter_batches(log, map_of(twin, log), filtering(now_ms, **named))
    assert result.bytes_read == len(log)
    return checked(result)


def checked(result: Filtered) -> bytes:
    """What is left, after a look at every batch and all counts."""
    data = b"".join(result.chunks)
    headers = []
    for position, header in iter_headers(data):
        check_batch(data, position, header)
        headers.append(header)
    assert len(headers) == result.batches_kept <= result.batches_read
    assert sum(header.record_count for header in headers) == result.records_kept <= result.records_read
    assert len(data) == result.bytes_kept
    return data


def headers_of(data: bytes | bytearray) -> list[BatchHeader]:
    return [header for _, header in iter_headers(data)]


def records_of(data: bytes | bytearray) -> list[Record]:
    return read_records(data, "t", 0)


def offsets(data: bytes | bytearray) -> list[int]:
    return [record.offset for record in records_of(data)]


def resident_bytes() -> int:
    """The memory that this process has just now."""
    return int(STATM.read_text().split()[1]) * mmap.PAGESIZE


def test_a_map_knows_the_latest_offset_of_each_key(twin: ModuleType) -> None:
    offset_map = map_of(twin, batch(0, [(b"a", b""), (b"b", b""), (b"a", None)]) + batch(7, [(b"b", b""), (b"", b"")]))
    assert [offset_map.latest(key) for key in (b"a", b"b", b"", b"c")] == [2, 7, 8, None]
    assert (len(offset_map), offset_map.end_offset) == (3, 9)


def test_records_without_key_and_control_batches_are_not_in_a_map(twin: ModuleType) -> None:
    control = changed(batch(1, [(b"a", b"")]), attributes=0x20)
    offset_map = map_of(twin, batch(0, [(None, b"1")]) + control)
    assert (len(offset_map), offset_map.latest(b"a"), offset_map.end_offset) == (0, None, 2)


def test_a_map_begins_at_an_offset_in_the_middle_of_a_batch(twin: ModuleType) -> None:
    log = batch(5, [(b"a", b""), (b"b", b""), (b"c", b"")])
    offset_map = twin.OffsetMap(1_000, 6, SECRET)
    assert offset_map.add(log, 7) == (len(log), 8, False)
    assert [offset_map.latest(key) for key in (b"a", b"b", b"c")] == [None, None, 7]
    with pytest.raises(ValueError, match="records from offset 5 for a map from offset 6"):
        offset_map.add(log, 5)


def test_the_part_of_a_batch_at_the_end_is_left(twin: ModuleType) -> None:
    first, second = batch(0, [(b"a", b"")]), batch(1, [(b"a", b"")])
    for cut in (1, 60, 61, len(second) - 1):
        offset_map = twin.OffsetMap(1_000, 0, SECRET)
        assert offset_map.add(first + second[:cut], 0) == (len(first), 1, False)
        result = twin.filter_batches(first + second[:cut], offset_map, filtering())
        assert (checked(result), result.bytes_read, result.next_offset) == (bytes(first), len(first), 1)


def test_a_map_is_full_when_nine_of_ten_slots_are_taken(twin: ModuleType) -> None:
    offset_map = twin.OffsetMap(24 * 100, 0, SECRET)
    assert offset_map.capacity >= 100
    count = offset_map.capacity
    full = batch(0, [(b"%d" % i, b"") for i in range(count)])
    again = batch(count, [(b"7", b""), (b"8", b"")])
    more = batch(count + 2, [(b"9", b""), (b"other", b"")])
    assert offset_map.add(full + again + more, 0) == (len(full + again), count + 2, True)
    assert len(offset_map) == count
    assert [offset_map.latest(b"%d" % i) for i in range(10, count)] == list(range(10, count))
    assert offset_map.latest(b"8") == count + 1
    # The key that was remembered of the batch that did not fit makes nobody lose anything.
    log = full + again + more
    left = checked(twin.filter_batches(log, offset_map, filtering()))
    assert offsets(left) == [*range(7), *range(10, count), count, count + 1, count + 2, count + 3]


def test_a_map_takes_no_offsets_that_it_cannot_hold(twin: ModuleType) -> None:
    near, far = batch(2**40 + 3, [(b"a", b"")]), batch(2**40 + 4, [(b"a", b"")])
    offset_map = twin.OffsetMap(1_000, 5, SECRET)
    assert offset_map.add(near + far, 5) == (len(near), 2**40 + 4, True)
    assert offset_map.latest(b"a") == 2**40 + 3


@pytest.mark.parametrize("memory_bytes", [42, 100, 24 * 1_000, 2**27])
def test_a_key_takes_less_than_24_bytes(twin: ModuleType, memory_bytes: int) -> None:
    capacity = twin.OffsetMap(memory_bytes, 0, SECRET).capacity
    # Less than a slot is lost at the end, and less than a key by rounding.
    assert memory_bytes < 24 * capacity + 21 + 24


@pytest.mark.skipif(not STATM.exists(), reason="there is no /proc")
def test_a_map_has_no_memory_before_there_is_something_to_write(twin: ModuleType) -> None:
    before = resident_bytes()
    offset_map = map_of(twin, batch(0, [(b"%d" % i, b"") for i in range(20)]), memory_bytes=2**30)
    assert offset_map.latest(b"7") == 7
    assert resident_bytes() - before < 2**28


@pytest.mark.parametrize(
    ("size", "digest"),
    [
        (0, "a3817f04ba25a8e66df67214c7550293"),
        (1, "da87c1d86b99af44347659119b22fc45"),
        (8, "3b62a9ba6258f5610f83e264f31497b4"),
        (15, "5493e99933b0a8117e08ec0f97cfc3d9"),
    ],
)
def test_keys_are_hashed_with_siphash(size: int, digest: str) -> None:
    """What OpenSSL's `openssl mac -macopt size:16 SIPHASH` prints."""
    compiled = pytest.importorskip("barnabas.records.compaction_compiled", reason="it was not built")
    assert compiled.keyed_hash(SECRET, bytes(range(size))).hex() == digest


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        pytest.param((41, 0, SECRET), "41 bytes are too few for a key; at least 42 are needed", id="memory"),
        pytest.param((-1, 0, SECRET), "-1 bytes are too few for a key", id="negative memory"),
        pytest.param((1_000, -1, SECRET), "base offset -1 is out of range", id="offset"),
        pytest.param((1_000, 0, SECRET[1:]), "the secret has 15 bytes, not 16", id="secret"),
    ],
)
def test_a_map_refuses_what_it_cannot_work_with(twin: ModuleType, parameters: tuple, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        twin.OffsetMap(*parameters)


@pytest.mark.parametrize("compression", list(Compression))
def test_the_last_record_of_each_key_stays(twin: ModuleType, compression: Compression) -> None:
    headers = [("trace", b"\xff\x00"), ("none", None)]
    first = batch(10, [(b"a", b"1"), (b"b", b"2"), (b"a", b"3"), (b"c", b"4")], compression, headers=headers)
    second = batch(14, [(b"c", b"5")], compression, headers=headers)
    log = first + second
    left = cleaned(twin, log)
    assert records_of(left) == [record for record in records_of(log) if record.offset in {11, 12, 14}]
    before, after = headers_of(log)[0], headers_of(left)[0]
    assert after == before._replace(
        batch_length=after.batch_length, crc=after.crc, record_count=2, max_timestamp_ms=102
    )
    assert left[-len(second) :] == second


def test_what_does_not_change_is_a_view_of_what_was_given(twin: ModuleType) -> None:
    log = bytes(b"".join(batch(i, [(b"%d" % i, b"x" * 1_000)]) for i in range(100)))
    result = twin.filter_batches(log, map_of(twin, log), filtering())
    assert [isinstance(chunk, memoryview) and chunk.obj is log for chunk in result.chunks] == [True]
    assert checked(result) == log


def test_what_changes_stands_in_its_place(twin: ModuleType) -> None:
    log = b"".join(batch(i, [(b"%d" % (i % 70), b"x" * 1_000), (b"%d!" % i, b"")]) for i in range(0, 200, 2))
    assert offsets(cleaned(twin, log)) == [
        i for i in range(200) if i % 2 or i == max(j for j in range(0, 200, 2) if j % 70 == i % 70)
    ]


def test_records_without_key_go(twin: ModuleType) -> None:
    left = cleaned(twin, batch(0, [(None, b"1"), (b"a", b"2"), (None, None)]) + batch(3, [(None, b"4")]))
    assert offsets(left) == [1]


def test_a_batch_without_records_goes(twin: ModuleType) -> None:
    log = batch(0, [(b"a", b"")]) + batch(1, [(b"a", b"")])
    assert cleaned(twin, log) == log[len(log) // 2 :]


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.LZ4])
def test_the_newest_batch_of_an_active_producer_stays_without_its_records(
    twin: ModuleType, compression: Compression
) -> None:
    rows = [(b"a", b"1"), (b"b", b"2")]
    log = b"".join(
        batch(2 * i, rows, compression, producer=(900 + i, i, 7), append_time_ms=42, leader_epoch=i) for i in range(3)
    )
    left = cleaned(twin, log, last_of_producers={901: 3, 900: 7})
    empty = headers_of(left)[0]
    assert empty == read_header(batch(2, rows, producer=(901, 1, 7)))._replace(
        batch_length=49, crc=empty.crc, leader_epoch=1, attributes=TIMESTAMP_TYPE_MASK, record_count=0,
        base_timestamp_ms=-1, max_timestamp_ms=42,
    )  # fmt: skip
    assert empty.last_sequence == 8
    assert offsets(left) == [4, 5]
    # It stays as it is for as long as the producer is active.
    assert cleaned(twin, left, last_of_producers={901: 3}) == left
    assert cleaned(twin, left) == left[61:]


def test_the_batch_at_the_end_of_the_range_stays_without_its_records(twin: ModuleType) -> None:
    log = batch(0, [(None, b"1")]) + batch(1, [(None, b"2")])
    left = cleaned(twin, log, round_end_offset=2)
    assert [(header.base_offset, header.record_count) for header in headers_of(left)] == [(1, 0)]


def test_control_batches_stay_as_they_are(twin: ModuleType) -> None:
    control = changed(batch(0, [(b"\0\0\0\1", None)]), attributes=0x30)
    assert cleaned(twin, control + batch(1, [(b"\0\0\0\1", b"")])).startswith(control)


def test_batches_behind_the_range_of_the_map_stay_as_they_are(twin: ModuleType) -> None:
    log = batch(0, [(b"a", b"")]) + batch(1, [(b"a", None), (None, b"")])
    offset_map = map_of(twin, log[: len(batch(0, [(b"a", b"")]))])
    assert checked(twin.filter_batches(log, offset_map, filtering())) == log


@pytest.mark.parametrize("compression", list(Compression))
def test_tombstones_stay_until_the_delete_horizon_that_the_first_cleaning_sets(
    twin: ModuleType, compression: Compression
) -> None:
    log = batch(
        0, [(b"a", b"1"), (b"b", None), (b"c", b"3"), (b"a", b"4")], compression, timestamps_ms=[70, 10, 2**60, -5]
    )
    once = cleaned(twin, log)
    (header,) = headers_of(once)
    assert header.attributes == compression | DELETE_HORIZON_MASK
    assert header.base_timestamp_ms == HORIZON_MS
    assert header.max_timestamp_ms == 2**60
    assert records_of(once) == records_of(log)[1:]
    # Later cleanings let it be, until the horizon has come.
    assert cleaned(twin, once, HORIZON_MS - 1) == once
    twice = cleaned(twin, once, HORIZON_MS)
    assert records_of(twice) == records_of(log)[2:]
    assert headers_of(twice)[0].base_timestamp_ms == HORIZON_MS


def test_a_tombstone_that_was_written_over_goes_at_once(twin: ModuleType) -> None:
    log = batch(0, [(b"a", None), (b"b", b"")]) + batch(2, [(b"a", b"")])
    left = cleaned(twin, log)
    assert offsets(left) == [1, 2]
    assert not headers_of(left)[0].attributes & DELETE_HORIZON_MASK


def test_tombstones_that_are_left_alone_get_a_horizon_without_the_loss_of_a_record(twin: ModuleType) -> None:
    log = batch(0, [(b"a", b"1"), (b"b", None)], timestamps_ms=[HORIZON_MS, HORIZON_MS + 1])
    left = cleaned(twin, log)
    assert records_of(left) == records_of(log)
    assert headers_of(left)[0].base_timestamp_ms == HORIZON_MS


def test_an_old_tombstone_goes_though_nothing_new_was_written(twin: ModuleType) -> None:
    log = cleaned(twin, batch(0, [(b"a", None), (b"b", b"")]))
    nothing_new = twin.OffsetMap(100, 2, SECRET)
    assert offsets(checked(twin.filter_batches(log, nothing_new, filtering(HORIZON_MS)))) == [1]


def test_the_time_of_the_append_stays_that_of_the_batch(twin: ModuleType) -> None:
    log = batch(0, [(b"a", b""), (b"a", None)], append_time_ms=77)
    left = cleaned(twin, log)
    (record,) = records_of(left)
    assert (record.timestamp_ms, record.timestamp_type) == (77, TimestampType.LOG_APPEND_TIME)
    assert headers_of(left)[0].base_timestamp_ms == HORIZON_MS


def test_a_retention_without_end_gives_a_horizon_that_readers_understand(twin: ModuleType) -> None:
    log = batch(0, [(b"a", None)], timestamps_ms=[-1])
    for_ever = filtering()._replace(delete_retention_ms=2**63 - 1)
    left = checked(twin.filter_batches(log, map_of(twin, log), for_ever))
    assert records_of(left) == records_of(log)
    assert headers_of(left)[0].base_timestamp_ms == 2**61 - 1


@pytest.mark.parametrize("base_timestamp_ms", [-(2**63), -(2**62) + 1, 2**63 - 1])
def test_timestamps_far_from_the_horizon_stay_as_they_are(twin: ModuleType, base_timestamp_ms: int) -> None:
    far = changed(batch(0, [(b"a", None), (b"b", b"")]), base_timestamp_ms=base_timestamp_ms)
    log = far + batch(2, [(b"b", b"")])
    left = cleaned(twin, log)
    assert records_of(left) == [records_of(log)[0], records_of(log)[2]]
    assert headers_of(left)[0].base_timestamp_ms == HORIZON_MS


def test_the_greatest_timestamp_is_at_least_that_of_none(twin: ModuleType) -> None:
    left = cleaned(twin, batch(0, [(b"a", b""), (b"a", b"")], timestamps_ms=[5, -9]))
    assert [header.max_timestamp_ms for header in headers_of(left)] == [-1]


def test_a_batch_of_many_records_is_cleaned_like_one_of_few(twin: ModuleType) -> None:
    rows = [(b"%d" % (i % 6_000), b"x" * (i % 300)) for i in range(10_000)]
    log = batch(0, rows, Compression.ZSTD) + batch(10_000, rows[:100])
    offset_map = map_of(twin, log, memory_bytes=24 * 6_000)
    data = checked(twin.filter_batches(log, offset_map, filtering(decompressed_bytes_max=10**7)))
    last = {record.key: record.offset for record in records_of(log)}
    assert offsets(data) == sorted(last.values())


DAMAGED = {
    "magic": (changed(batch(1, [(b"a", b"")]), magic=1), "batch at position 69: magic 1, should be 2"),
    "crc": (batch(1, [(b"a", b"")])[:-1] + b"\x07", "batch at position 69: CRC 0x"),
    "length": (changed(batch(1, [(b"a", b"")]), batch_length=48), "batch at position 69: length 48 is too small"),
    "order": (batch(0, [(b"a", b"")]), "batch at position 69: its offsets 0 to 0 do not follow offset 0"),
    "end": (
        batch(2**63 - 1, [(b"a", b"")]),
        f"batch at position 69: its offsets {2**63 - 1} to {2**63 - 1} do not follow offset 0",
    ),
    "compression": (
        changed(batch(1, [(b"a", b"")]), attributes=5),
        "batch at position 69: compression 5 does not exist",
    ),
    "gzip": (changed(batch(1, [(b"a", b"")]), attributes=1), "batch at position 69, offset 1: gzip data is damaged"),
    "count": (
        changed(batch(1, [(b"a", b""), (b"b", b"")]), record_count=1),
        "batch at position 69, offset 1: 8 bytes after the last of 1 records",
    ),
    "too large": (
        batch(1, [(b"a", bytes(DECOMPRESSED_BYTES_MAX))], Compression.LZ4),
        f"batch at position 69, offset 1: lz4 data is larger than {DECOMPRESSED_BYTES_MAX} bytes when decompressed",
    ),
}


@pytest.mark.parametrize(("damaged", "words"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_batch_is_told_by_its_place(twin: ModuleType, damaged: bytearray, words: str) -> None:
    sound = batch(0, [(b"s", b"")])
    log = sound + damaged
    offset_map = twin.OffsetMap(1_000, 0, SECRET)
    with pytest.raises(CorruptBatchError) as error:
        offset_map.add(log, 0, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX)
    assert str(error.value).startswith(words)
    assert (offset_map.latest(b"s"), offset_map.end_offset) == (0, 1)
    behind = map_of(twin, sound + batch(1, [(b"z", b"")] * 3))
    with pytest.raises(CorruptBatchError) as error:
        twin.filter_batches(log, behind, filtering())
    assert str(error.value).startswith(words)


def test_an_empty_body_is_no_damage_where_no_records_are_announced(twin: ModuleType) -> None:
    empty = changed(batch(0, [(b"a", b"")])[:61], batch_length=49, record_count=0, attributes=4, producer_id=5)
    assert cleaned(twin, empty) == b""
    assert cleaned(twin, empty, last_of_producers={5: 0}) == empty


def test_nothing_compressed_is_no_damage_where_no_records_are_announced(twin: ModuleType) -> None:
    body = compress(Compression.ZSTD, b"")
    empty = changed(
        batch(0, [(b"a", b"")])[:61] + body, batch_length=49 + len(body), record_count=0, attributes=4, producer_id=5
    )
    assert headers_of(cleaned(twin, empty, last_of_producers={5: 0}))[0].size == 61


def test_a_damaged_batch_is_found_though_its_keys_do_not_fit(twin: ModuleType) -> None:
    damaged = changed(batch(0, [(b"a", b""), (b"b", b""), (b"c", b"")]), record_count=2)
    offset_map = twin.OffsetMap(42, 0, SECRET)
    with pytest.raises(CorruptBatchError, match="8 bytes after the last of 2 records"):
        offset_map.add(damaged, 0)


def test_a_map_that_is_added_to_refuses_to_be_used_and_one_in_use_to_be_added_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled = pytest.importorskip("barnabas.records.compaction_compiled", reason="it was not built")
    log = batch(0, [(b"a", b"")], Compression.LZ4)
    offset_map = compiled.OffsetMap(1_000, 0, SECRET)
    said = []

    class Nosy(Decompressor):
        """Does meanwhile what another thread might."""

        def decompress(self, *arguments: Any) -> Any:
            for use in (
                lambda: offset_map.latest(b"a"),
                lambda: offset_map.add(b"", 0),
                lambda: compiled.filter_batches(b"", offset_map, filtering()),
            ):
                try:
                    said.append(use())
                except RuntimeError as error:
                    said.append(str(error))
            return super().decompress(*arguments)

    monkeypatch.setattr(compiled, "Decompressor", Nosy)
    offset_map.add(log, 0)
    assert said == ["another thread is adding keys to this map"] * 3
    said.clear()
    assert checked(compiled.filter_batches(log, offset_map, filtering())) == log
    assert said == [0, "another thread is using this map to filter batches", Filtered([], *[0] * 6, -1)]
    assert offset_map.add(log, 0).size == len(log)
