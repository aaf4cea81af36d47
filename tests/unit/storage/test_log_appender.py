"""Appends to a log, the producers that it remembers, and new segments."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import ApiError, CorruptBatchError, ErrorCode
from barnabas.model import OffsetAndTimestamp, TimestampType
from barnabas.records import Record, read_header, read_records
from barnabas.records.header import CONTROL_MASK, write_crc
from barnabas.storage import Log, filesystem

START_MS = 1_700_000_000_000

OpenLog = Callable[..., Log]
MakeBatch = Callable[..., bytearray]
ReadAll = Callable[..., list[Record]]


def offsets_of(records: list[Record]) -> list[int]:
    return [record.offset for record in records]


def refused(code: ErrorCode, log: Log, batch: bytes | bytearray, leader_epoch: int = 0) -> None:
    end = log.log_end_offset
    with pytest.raises(ApiError) as caught:
        log.append(batch, leader_epoch)
    assert caught.value.code is code
    assert log.log_end_offset == end


# --- append ---


def test_append_gives_offsets_in_order(open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll) -> None:
    log = open_log()
    assert log.append(make_batch(3), 5)[:2] == (0, 2)
    assert log.append(make_batch(1), 5)[:2] == (3, 3)
    assert log.append(make_batch(2), 5)[:2] == (4, 5)
    assert log.log_end_offset == log.high_watermark == 6
    assert (log.appended_bytes, log.appended_records) == (log.size_bytes, 6)
    assert offsets_of(read_all(log)) == list(range(6))


def test_bytes_of_a_batch_pass_through(open_log: OpenLog, make_batch: MakeBatch, tmp_path: Path) -> None:
    log = open_log()
    batch = make_batch(4)
    log.append(bytes(batch), 9)
    log.append(bytes(batch), 9)
    stored = (tmp_path / "clicks-0" / f"{0:020}.log").read_bytes()
    second = stored[len(batch) :]
    assert stored[21 : len(batch)] == batch[21:]
    assert second[16:] == batch[16:]
    assert read_header(second).base_offset == 4
    assert read_header(second).leader_epoch == 9


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_read_only_and_writable_input_store_the_same(
    kind: type, open_log: OpenLog, make_batch: MakeBatch, tmp_path: Path
) -> None:
    log = open_log()
    log.append(make_batch(2), 1)
    given = kind(make_batch(3))
    log.append(given, 1)
    stored = (tmp_path / "clicks-0" / f"{0:020}.log").read_bytes()
    assert offsets_of(read_records(stored, "clicks", 0)) == [0, 1, 2, 3, 4]
    assert read_header(given).base_offset == (0 if kind is bytes else 2)


def test_one_writev_per_append(open_log: OpenLog, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    log = open_log()
    log.append(make_batch(), 0)
    calls = []
    writev = os.writev
    monkeypatch.setattr(filesystem, "writev", lambda *args: calls.append(1) or writev(*args))
    log.append(make_batch(5), 0)
    log.append(bytes(make_batch(5)), 0)
    assert len(calls) == 2


def test_damaged_batch_is_refused(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    batch = make_batch()
    batch[-1] ^= 1
    with pytest.raises(CorruptBatchError, match="CRC"):
        log.append(batch, 0)
    with pytest.raises(CorruptBatchError):
        log.append(make_batch()[:-1], 0)
    assert log.log_end_offset == 0
    assert log.size_bytes == 0


def test_batches_that_break_the_rules_are_refused(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(max_message_bytes=500, segment_bytes=2_000)
    refused(ErrorCode.MESSAGE_TOO_LARGE, log, make_batch(5))
    refused(ErrorCode.RECORD_LIST_TOO_LARGE, log, make_batch(1) * 20)
    refused(ErrorCode.INVALID_RECORD, log, b"")
    refused(ErrorCode.INVALID_RECORD, log, bytes(16) + b"\x01" + bytes(60))
    control = make_batch()
    control[22] |= CONTROL_MASK
    write_crc(control, 0, len(control))
    refused(ErrorCode.INVALID_RECORD, log, control)
    with_gap = make_batch()
    with_gap[26] += 1
    write_crc(with_gap, 0, len(with_gap))
    refused(ErrorCode.INVALID_RECORD, log, with_gap)
    refused(ErrorCode.INVALID_RECORD, log, make_batch(producer_id=1, producer_epoch=0))
    log.append(make_batch(), 3)
    refused(ErrorCode.FENCED_LEADER_EPOCH, log, make_batch(), leader_epoch=2)


@pytest.mark.parametrize("kind", [bytes, bytearray])
def test_log_append_time_is_the_broker_clock(
    kind: type, open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll, clock: ManualClock
) -> None:
    log = open_log(message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    clock.advance(60)
    info = log.append(kind(make_batch(2, timestamp_ms=5)), 0)
    assert info.log_append_time_ms == START_MS + 60_000
    assert {record.timestamp_ms for record in read_all(log)} == {START_MS + 60_000}
    assert log.time_search().first_at(START_MS) == OffsetAndTimestamp(0, START_MS + 60_000)


# --- idempotent producers ---


def test_retry_of_one_of_the_last_five_batches_is_answered_with_its_old_offsets(
    open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log()
    for number in range(6):
        log.append(make_batch(2, producer_id=7, producer_epoch=0, base_sequence=2 * number), 0)
    end = log.log_end_offset
    for number in range(1, 6):
        info = log.append(make_batch(2, producer_id=7, producer_epoch=0, base_sequence=2 * number), 0)
        assert info[:2] == (2 * number, 2 * number + 1)
        assert info.duplicate
    assert log.log_end_offset == end
    refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        log,
        make_batch(2, producer_id=7, producer_epoch=0, base_sequence=0),
    )


def test_gap_in_the_sequence_is_refused(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append(make_batch(2, producer_id=7, producer_epoch=0, base_sequence=0), 0)
    refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        log,
        make_batch(producer_id=7, producer_epoch=0, base_sequence=3),
    )
    log.append(make_batch(), 0)
    log.append(make_batch(producer_id=7, producer_epoch=0, base_sequence=2), 0)


def test_new_epoch_of_a_producer_fences_the_old_one(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append(make_batch(producer_id=7, producer_epoch=1, base_sequence=0), 0)
    refused(
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        log,
        make_batch(producer_id=7, producer_epoch=2, base_sequence=1),
    )
    log.append(make_batch(producer_id=7, producer_epoch=2, base_sequence=0), 0)
    refused(
        ErrorCode.INVALID_PRODUCER_EPOCH,
        log,
        make_batch(producer_id=7, producer_epoch=1, base_sequence=1),
    )


def test_unknown_producer_may_have_lost_what_it_sent_before_and_is_refused_once(
    open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log()
    log.append(make_batch(), 0)
    second = {"producer_id": 8, "producer_epoch": 0, "base_sequence": 1}
    refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, log, make_batch(**second))
    log.append(make_batch(producer_id=8, producer_epoch=0, base_sequence=0), 0)
    log.append(make_batch(**second), 0)
    forgotten = {"producer_id": 9, "producer_epoch": 0, "base_sequence": 30}
    refused(ErrorCode.NOT_LEADER_OR_FOLLOWER, log, make_batch(**forgotten))
    assert log.append(make_batch(**forgotten), 0).base_offset == 3


def test_sequence_wraps_after_the_greatest_number(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    refused(
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        log,
        make_batch(4, producer_id=7, producer_epoch=0, base_sequence=2**31 - 2),
    )
    log.append(make_batch(4, producer_id=7, producer_epoch=0, base_sequence=2**31 - 2), 0)
    log.append(make_batch(producer_id=7, producer_epoch=0, base_sequence=2), 0)
    assert log.log_end_offset == 5


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("rolled", [True, False])
def test_retry_across_a_restart_is_recognised(
    clean: bool, rolled: bool, open_log: OpenLog, make_batch: MakeBatch
) -> None:
    log = open_log()
    for number in range(7):
        log.append(make_batch(2, producer_id=7, producer_epoch=3, base_sequence=2 * number), 0)
        if rolled and number == 3:
            log.roll()
    if clean:
        log.close()
    else:
        log.abandon()
    log = open_log(clean=clean)
    for number in range(2, 7):
        info = log.append(make_batch(2, producer_id=7, producer_epoch=3, base_sequence=2 * number), 0)
        assert info.duplicate
        assert info.base_offset == 2 * number
    info = log.append(make_batch(2, producer_id=7, producer_epoch=3, base_sequence=14), 0)
    assert (info.base_offset, info.duplicate) == (14, False)


def test_producer_that_was_silent_for_a_day_is_forgotten(
    open_log: OpenLog, make_batch: MakeBatch, clock: ManualClock
) -> None:
    log = open_log()
    log.append(make_batch(timestamp_ms=0, producer_id=7, producer_epoch=3, base_sequence=0), 0)
    log.append(make_batch(producer_id=8, producer_epoch=0, base_sequence=0), 0)
    clock.advance(23 * 3600)
    log.append(make_batch(producer_id=8, producer_epoch=0, base_sequence=1), 0)
    log.roll()
    refused(ErrorCode.INVALID_PRODUCER_EPOCH, log, make_batch(producer_id=7, producer_epoch=2, base_sequence=0))
    clock.advance(3600)
    log.roll()
    log.append(make_batch(), 0)
    log.roll()
    log.append(make_batch(producer_id=7, producer_epoch=2, base_sequence=0), 0)
    assert log.append(make_batch(producer_id=8, producer_epoch=0, base_sequence=1), 0).duplicate


# --- segments ---


def test_segment_is_rolled_when_it_is_full(open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll) -> None:
    log = open_log(segment_bytes=1_000, index_interval_bytes=0)
    for _ in range(20):
        log.append(make_batch(), 0)
    assert log.segment_count == 4
    assert offsets_of(read_all(log, max_bytes=400)) == list(range(20))


def test_segment_is_rolled_when_its_records_span_too_much_time(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(segment_ms=1_000)
    log.append(make_batch(timestamp_ms=50_000), 0)
    log.append(make_batch(timestamp_ms=51_000), 0)
    assert log.segment_count == 1
    log.append(make_batch(timestamp_ms=51_001), 0)
    assert log.segment_count == 2


def test_segment_without_timestamps_is_rolled_by_the_clock(
    open_log: OpenLog, make_batch: MakeBatch, clock: ManualClock
) -> None:
    log = open_log(segment_ms=1_000)
    log.append(make_batch(timestamp_ms=-1), 0)
    clock.advance(1.001)
    log.append(make_batch(timestamp_ms=-1), 0)
    assert log.segment_count == 2


def test_segment_is_rolled_when_its_index_is_full(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log(segment_index_bytes=16, index_interval_bytes=0)
    for _ in range(4):
        log.append(make_batch(), 0)
    assert log.segment_count == 2


def test_rolling_an_empty_segment_does_nothing(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.roll()
    log.append(make_batch(), 0)
    log.roll()
    log.roll()
    assert log.segment_count == 2
