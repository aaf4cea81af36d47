"""The batch header: reading, checking, stamping."""

from __future__ import annotations

import pytest

from barnabas.errors import CorruptBatchError
from barnabas.model import TimestampType
from barnabas.records import (
    BATCH_HEADER_SIZE,
    BatchBuilder,
    Compression,
    check_batch,
    iter_headers,
    read_header,
    read_records,
    set_log_append_time,
    stamp,
)
from barnabas.records.header import SEQUENCE_MAX, read_producer, set_identity, write_crc


def make_batch(count: int = 3, **producer: int) -> bytearray:
    builder = BatchBuilder()
    builder.append_many(1_000, [b"value"] * count)
    return builder.build(**producer)


def test_stamping_leaves_the_crc_valid() -> None:
    batch = make_batch()
    stamp(batch, 0, 2**40, 7)
    header = read_header(batch)
    check_batch(batch, 0, header)
    assert (header.base_offset, header.last_offset, header.next_offset) == (2**40, 2**40 + 2, 2**40 + 3)
    assert header.leader_epoch == 7
    assert header.size == len(batch)


def test_log_append_time_replaces_the_time_of_every_record() -> None:
    batch = make_batch()
    set_log_append_time(batch, 0, 99_000)
    header = read_header(batch)
    check_batch(batch, 0, header)
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert [record.timestamp_ms for record in read_records(batch, "t", 0)] == [99_000] * 3


def test_a_batch_gets_another_identity_and_all_else_stays() -> None:
    batch = make_batch(3, producer_id=1, producer_epoch=0, base_sequence=5)
    before = read_header(batch)
    body = bytes(batch[61:])
    stamp(batch, 0, 77, 9)
    set_identity(batch, 2**62 + 9, 2**15 - 1, SEQUENCE_MAX)
    header = read_header(batch)
    check_batch(batch, 0, header)
    changed = before._replace(producer_id=2**62 + 9, producer_epoch=2**15 - 1, base_sequence=SEQUENCE_MAX)
    assert header == changed._replace(crc=header.crc, base_offset=0, leader_epoch=-1)
    assert read_producer(batch) == (2**62 + 9, 2**15 - 1, SEQUENCE_MAX)
    assert batch[61:] == body


def test_functions_work_within_a_larger_buffer() -> None:
    batch = make_batch()
    buffer = bytearray(b"\xff" * 10) + batch + b"\xff" * 10
    stamp(buffer, 10, 5, 1)
    set_log_append_time(memoryview(buffer), 10, 77)
    header = read_header(buffer, 10)
    check_batch(buffer, 10, header)
    assert (header.base_offset, header.max_timestamp_ms) == (5, 77)


def test_sequence_numbers_wrap_to_zero() -> None:
    assert read_header(make_batch(3, producer_id=1, producer_epoch=0, base_sequence=5)).last_sequence == 7
    wrapping = make_batch(3, producer_id=1, producer_epoch=0, base_sequence=SEQUENCE_MAX - 1)
    assert read_header(wrapping).last_sequence == 0
    assert read_header(make_batch(3)).last_sequence == -1


def test_partial_batch_at_the_end_is_ignored_on_request_only() -> None:
    batch = bytes(make_batch())
    for cut in (1, BATCH_HEADER_SIZE - 1, BATCH_HEADER_SIZE, len(batch) - 1):
        buffer = batch + batch[:cut]
        assert [position for position, _ in iter_headers(buffer, partial_ok=True)] == [0]
        with pytest.raises(CorruptBatchError, match=f"position {len(batch)}"):
            list(iter_headers(buffer))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48])
def test_length_too_small_for_a_batch_is_refused(length: int) -> None:
    batch = make_batch()
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatchError, match="too small"):
        list(iter_headers(batch, partial_ok=True))
    with pytest.raises(CorruptBatchError, match="too small"):
        check_batch(batch, 0, read_header(batch))


@pytest.mark.parametrize(
    ("position", "replacement", "message"),
    [
        (16, b"\x01", "magic 1"),
        (0, b"\xff" * 8, "offsets"),
        (23, b"\xff" * 4, "offsets"),
        (57, b"\xff" * 4, "records"),
        (57, b"\x7f\xff\xff\xff", "records"),
        (22, b"\x05", "compression 5"),
        (60, b"\x02", "CRC"),
        (70, b"\x00", "CRC"),
    ],
)
def test_damage_is_named(position: int, replacement: bytes, message: str) -> None:
    batch = make_batch()
    batch[position : position + len(replacement)] = replacement
    with pytest.raises(CorruptBatchError, match=message):
        check_batch(batch, 0, read_header(batch))


def test_attributes_are_told_apart() -> None:
    batch = BatchBuilder(Compression.ZSTD)
    batch.append(1, None, b"")
    data = batch.build()
    data[22] |= 0x30
    write_crc(data, 0, len(data))
    header = read_header(data)
    assert header.compression is Compression.ZSTD
    assert header.is_transactional
    assert header.is_control
