"""Valid frames and valid CRCs with headers that lie: each is refused or harmless, now and after a restart."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import ApiError, CorruptBatchError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder, Compression, Record
from barnabas.records.header import BATCH_HEADER_SIZE, BatchHeader, iter_headers, pack_header, read_header, write_crc
from barnabas.storage import Log, LogConfig, OsFileSystem

OpenLog = Callable[..., Log]
MakeBatch = Callable[..., bytearray]
ReadAll = Callable[..., list[Record]]

EXTREMES: dict[str, tuple[int, ...]] = {
    "base_offset": (-(2**63), -1, 2**31, 2**63 - 1),
    "batch_length": (-(2**31), -1, 0, 48, 49, 2**31 - 1),
    "leader_epoch": (-(2**31), -1, 2**31 - 1),
    "magic": (-128, 0, 1, 3, 127),
    "attributes": (-(2**15), -1, 1, 4, 5, 7, 8, 0x10, 0x20, 0x30, 0x40, 0x80, 2**14),
    "last_offset_delta": (-(2**31), -1, 0, 2**31 - 1),
    "base_timestamp_ms": (-(2**63), -1, 2**63 - 1),
    "max_timestamp_ms": (-(2**63), -1, 0, 2**63 - 1),
    "producer_id": (-(2**63), -2, 0, 2**63 - 1),
    "producer_epoch": (-(2**15), 0, 2**15 - 1),
    "base_sequence": (-(2**31), 0, 2**31 - 1),
    "record_count": (-(2**31), -1, 0, 1, 2**31 - 1),
}
"""The values of each field of a header that are most likely to be too much for somebody."""


def with_header(batch: bytes | bytearray, **fields: int) -> bytes:
    """Return a batch whose header says something else, with a CRC that fits."""
    changed = bytearray(batch)
    pack_header(changed, read_header(changed)._replace(**fields))
    write_crc(changed, 0, len(changed))
    return bytes(changed)


def header_only(count: int) -> bytes:
    """Return a batch of 61 bytes that claims to have records."""
    builder = BatchBuilder()
    builder.append(1_000, None, b"")
    header = builder.build()[:BATCH_HEADER_SIZE]
    return with_header(header, batch_length=BATCH_HEADER_SIZE - 12, record_count=count, last_offset_delta=count - 1)


def lies() -> Iterator[dict[str, int]]:
    """Yield every field at its extremes, alone and with every other one."""
    single = [(name, value) for name, values in EXTREMES.items() for value in values]
    for name, value in single:
        yield {name: value}
    for (name, value), (other, another) in itertools.combinations(single, 2):
        if name != other:
            yield {name: value, other: another}


def code_of(log: Log, records: bytes) -> ErrorCode | None:
    """Append, and return why that was refused."""
    try:
        log.append(records, 0)
    except ApiError as error:
        return error.code
    except CorruptBatchError:
        return ErrorCode.CORRUPT_MESSAGE
    return None


def batch_offsets(log: Log) -> list[int]:
    """Return the base offset of each batch of one record, as readers are given them; bodies are not looked into."""
    found: list[int] = []
    while region := log.read(len(found), 10**6, log.high_watermark).batches:
        data = os.pread(region.file.fileno(), region.length, region.position)
        found += [header.base_offset for _, header in iter_headers(data)]
    return found


def test_batches_that_claim_two_billion_records_ruin_nothing(
    open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll
) -> None:
    log = open_log()
    for request in (header_only(2**31 - 1) * 100, header_only(2**31 - 1) * 3, header_only(2**31 - 1)):
        assert code_of(log, request) is ErrorCode.INVALID_RECORD
    for number in range(200):
        assert log.append(make_batch(), 0).base_offset == number
    assert len(read_all(log)) == 200
    log.roll()
    log.close()
    assert len(read_all(open_log(clean=True))) == 200


def test_compressed_batches_that_claim_many_records_ruin_nothing(
    open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll
) -> None:
    """Nobody looks into a compressed body, but what it cannot hold by its size it does not."""
    builder = BatchBuilder(Compression.ZSTD)
    builder.append_many(1_000, [b"v"] * 10)
    batch = builder.build()
    log = open_log()
    assert code_of(log, with_header(batch, record_count=2**31 - 1, last_offset_delta=2**31 - 2)) is (
        ErrorCode.INVALID_RECORD
    )
    # What the size allows is taken; segments end where their offsets would not fit an index.
    body = len(batch) - BATCH_HEADER_SIZE
    many = body // 4 * 18_000
    lie = with_header(batch, record_count=many, last_offset_delta=many - 1)
    taken = sum(code_of(log, lie) is None for _ in range(3))
    end = log.log_end_offset
    assert end == taken * many
    log.append(make_batch(), 0)
    log.close()
    assert open_log(clean=True).log_end_offset == end + 1


@pytest.mark.parametrize("count", [2, 9, 2**31 - 1])
def test_batch_whose_body_does_not_hold_what_its_header_counts_is_refused(
    open_log: OpenLog, make_batch: MakeBatch, count: int
) -> None:
    log = open_log()
    batch = make_batch(5)
    assert code_of(log, with_header(batch, record_count=count, last_offset_delta=count - 1)) is (
        ErrorCode.INVALID_RECORD
    )
    assert code_of(log, header_only(10)) is ErrorCode.INVALID_RECORD
    assert log.log_end_offset == 0


@pytest.mark.parametrize(
    "fields", [{"attributes": 0x10}, {"attributes": 0x20}, {"attributes": 0x40}, {"attributes": 0x80}]
)
def test_attributes_that_a_producer_must_not_set_are_refused(
    open_log: OpenLog, make_batch: MakeBatch, fields: dict[str, int]
) -> None:
    assert code_of(open_log(), with_header(make_batch(), **fields)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("producer_id", [-2, -(2**63)])
def test_producer_id_below_that_of_none_is_refused(open_log: OpenLog, make_batch: MakeBatch, producer_id: int) -> None:
    batch = with_header(make_batch(), producer_id=producer_id, producer_epoch=0, base_sequence=0)
    assert code_of(open_log(), batch) is ErrorCode.INVALID_RECORD


def test_every_field_at_its_extremes_is_refused_or_harmless(
    tmp_path: Path, clock: ManualClock, make_batch: MakeBatch
) -> None:
    """Alone and in pairs, between sound batches: those are all there, before and after a roll and a restart."""
    partition = TopicPartition("clicks", 0)
    log = Log.open(tmp_path / "clicks-0", partition, LogConfig(), clock, OsFileSystem())
    sound = bytes(make_batch(1))
    for number, lie in enumerate(lies()):
        before = log.log_end_offset
        if code_of(log, with_header(sound, **lie)) is None:
            assert log.log_end_offset == before + 1, lie
        else:
            assert log.log_end_offset == before, lie
        assert not log.is_offline, lie
        if number % 50 == 0:
            log.append(make_batch(1), 0)
            log.flush()
        if number % 400 == 0:
            log.roll()
    expected = log.log_end_offset
    assert batch_offsets(log) == list(range(expected))
    log.abandon()
    for recovery_point in (0, expected):
        reopened = Log.open(
            tmp_path / "clicks-0", partition, LogConfig(), clock, OsFileSystem(), recovery_point=recovery_point
        )
        assert reopened.log_end_offset == expected
        assert batch_offsets(reopened) == list(range(expected))
        reopened.time_search().first_at(5)
        reopened.time_search().latest()
        reopened.abandon()


def test_follower_refuses_every_lie_that_would_part_it_from_its_leader(
    open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll
) -> None:
    log = open_log()
    sound = with_header(make_batch(1), base_offset=0, leader_epoch=3)
    for lie in lies():
        header = BatchHeader(*read_header(sound))._replace(**lie)
        end = log.log_end_offset
        batch = with_header(sound, **{**lie, "base_offset": lie.get("base_offset", end)})
        try:
            log.append_as_follower(batch, 3)
        except CorruptBatchError:
            assert log.log_end_offset == end, lie
        else:
            # Further on than the end is where a leader's log goes on that was compacted.
            base_offset = lie.get("base_offset", end)
            assert base_offset >= end, lie
            assert header.leader_epoch in {3, log.leader_epochs.latest}, lie
            assert log.log_end_offset == base_offset + header.last_offset_delta + 1, lie
        assert not log.is_offline, lie
        if log.log_end_offset > 2**30:
            # Sound for a follower, which believes its leader; here there is an end to it.
            log.truncate_to(0)
