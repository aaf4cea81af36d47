"""A follower appends what its leader sent, as it is: same bytes, same offsets, same epochs."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from barnabas.errors import ApiError, CorruptBatchError, ErrorCode
from barnabas.records import Record, read_header
from barnabas.records.header import CONTROL_MASK, pack_header, stamp, write_crc
from barnabas.storage import Log, LogConfig
from barnabas.storage.checkpoints import EpochStart
from barnabas.storage.log_appender import OFFSET_MAX
from barnabas.storage.log_config import CleanupPolicy
from tests.support.compacted_logs import Batch
from tests.support.log_steps import read

OpenLog = Callable[..., Log]
MakeBatch = Callable[..., bytearray]
ReadAll = Callable[..., list[Record]]


def placed(batch: bytearray, base_offset: int, epoch: int = 0) -> bytes:
    stamp(batch, 0, base_offset, epoch)
    return bytes(batch)


def content(log: Log) -> bytes:
    region = log.read(log.log_start_offset, 10**6, log.log_end_offset).batches
    assert region
    return os.pread(region.file.fileno(), region.length, region.position)


def test_bytes_are_those_of_the_leader(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    sent = placed(make_batch(3), 0, 4) + placed(make_batch(2), 3, 4)
    info = log.append_as_follower(sent, 4)
    assert (info.base_offset, info.last_offset) == (0, 4)
    assert content(log) == sent
    assert log.leader_epochs.entries == (EpochStart(4, 0),)


def test_epochs_are_learned_and_written_down_before_the_batches(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append_as_follower(placed(make_batch(3), 0, 1) + placed(make_batch(1), 3, 4) + placed(make_batch(1), 4, 6), 7)
    assert log.leader_epochs.entries == (EpochStart(1, 0), EpochStart(4, 3), EpochStart(6, 4))
    log.abandon()
    assert open_log().leader_epochs.entries == log.leader_epochs.entries


@pytest.mark.parametrize(
    ("base_offset", "epoch"), [(1, 5), (2, 6), (2, 3)], ids=["before", "later epoch", "earlier epoch"]
)
def test_what_does_not_come_next_is_refused(
    open_log: OpenLog, make_batch: MakeBatch, base_offset: int, epoch: int
) -> None:
    log = open_log()
    log.append_as_follower(placed(make_batch(2), 0, 4), 5)
    with pytest.raises(CorruptBatchError):
        log.append_as_follower(placed(make_batch(1), base_offset, epoch), 5)
    assert log.log_end_offset == 2


def test_nothing_is_appended_where_one_of_several_batches_is_damaged(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    damaged = bytearray(placed(make_batch(1), 1))
    damaged[-1] ^= 1
    with pytest.raises(CorruptBatchError):
        log.append_as_follower(placed(make_batch(1), 0) + bytes(damaged), 0)
    assert log.log_end_offset == 0


def test_an_older_leader_is_refused(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    log.append_as_follower(placed(make_batch(1), 0, 5), 5)
    with pytest.raises(ApiError) as caught:
        log.append_as_follower(placed(make_batch(1), 1, 4), 4)
    assert caught.value.code is ErrorCode.FENCED_LEADER_EPOCH


def test_rules_for_producers_are_not_asked_again(open_log: OpenLog, make_batch: MakeBatch) -> None:
    """The leader took them: control batches, batches larger than the setting, sequences that begin anywhere."""
    log = open_log(max_message_bytes=100)
    control = make_batch(1)
    header = read_header(control)
    pack_header(control, header._replace(attributes=CONTROL_MASK))
    write_crc(control, 0, len(control))
    producer = {"producer_id": 7, "producer_epoch": 2}
    sent = [
        placed(control, 0),
        placed(make_batch(50), 1),
        placed(make_batch(1, **producer, base_sequence=90), 51),
    ]
    for batch in sent:
        log.append_as_follower(batch, 0)
    assert content(log) == b"".join(sent)
    log.configure(LogConfig())
    again = log.append(make_batch(1, **producer, base_sequence=90), 0)
    assert again.duplicate
    assert again.base_offset == 51


def test_segments_roll_and_nothing_is_no_batch(open_log: OpenLog, make_batch: MakeBatch, read_all: ReadAll) -> None:
    size = len(make_batch(1))
    log = open_log(segment_bytes=2 * size)
    for number in range(7):
        log.append_as_follower(placed(make_batch(1), number), 0)
        assert log.append_as_follower(b"", 0).last_offset == number
    assert log.segment_count == 4
    assert len(read_all(log)) == 7


# --- a leader whose log was compacted ---


def test_gaps_of_the_leader_are_taken_over(open_log: OpenLog, make_batch: MakeBatch) -> None:
    """Before the first batch, between batches, and batches that have lost all their records."""
    log = open_log(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    producer = {"producer_id": 5, "producer_epoch": 0, "base_sequence": 6}
    empty = Batch(6, 9, producer_id=5, producer_epoch=0, base_sequence=2).encode()
    sent = placed(make_batch(2), 3) + empty + placed(make_batch(1, **producer), 12)
    assert log.append_as_follower(sent, 0)[:2] == (3, 12)
    assert log.append_as_follower(placed(make_batch(2), 20), 0)[:2] == (20, 21)
    assert content(log) == sent + placed(make_batch(2), 20)
    for _ in range(2):
        assert (log.log_start_offset, log.log_end_offset) == (0, 22)
        assert [tuple(batch)[:4] for batch in log.producers[5].batches] == [(2, 5, 6, 9), (6, 6, 12, 12)]
        log.abandon()
        log = open_log(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))


def test_gap_that_no_index_can_span_begins_a_segment(open_log: OpenLog, make_batch: MakeBatch) -> None:
    far = 3 * 2**31 + 5
    log = open_log(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    for base_offset, segment in ((far, far), (2 * far, 2 * far), (2 * far + 2**31, 2 * far + 2)):
        log.append_as_follower(placed(make_batch(2), base_offset), 0)
        assert (log.active_base_offset, log.log_end_offset) == (segment, base_offset + 2)
    for _ in range(2):
        offset, found = 0, []
        while region := read(log, offset, 10**6, log.log_end_offset):
            header = read_header(os.pread(region.file.fileno(), region.length, region.position))
            found.append(header.base_offset)
            offset = header.next_offset
        assert found == [far, 2 * far, 2 * far + 2**31]
        log.abandon()
        log = open_log(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))


def test_gap_where_a_segment_is_full_is_none_between_segments(open_log: OpenLog, make_batch: MakeBatch) -> None:
    """There it would look like a loss, where the machine crashes before the segments are flushed."""
    log = open_log(cleanup_policy=frozenset({CleanupPolicy.COMPACT}), segment_bytes=len(make_batch(1)))
    for base_offset in (0, 7, 20):
        log.append_as_follower(placed(make_batch(1), base_offset), 0)
    assert [each.base_offset for each in log.segments_before(log.log_end_offset)] == [0, 1]
    assert (log.active_base_offset, log.log_end_offset) == (8, 21)


def test_offsets_end_somewhere(open_log: OpenLog, make_batch: MakeBatch) -> None:
    log = open_log()
    with pytest.raises(CorruptBatchError, match="the log ends at 0"):
        log.append_as_follower(placed(make_batch(1), OFFSET_MAX + 1), 0)
    assert log.log_end_offset == 0
