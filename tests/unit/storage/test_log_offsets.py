"""The offsets of a log: their order, what moves each of them, and the high watermark over restarts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.model import TopicPartition
from barnabas.storage import Log, LogConfig, LogManager, OsFileSystem
from barnabas.storage.log_offsets import LogOffsets, OffsetTracker

CLICKS = TopicPartition("clicks", 0)
MakeBatch = Callable[..., bytearray]


def held(log_start_offset: int = 10, log_end_offset: int = 50, recovery_point: int = 20) -> OffsetTracker:
    """Return the offsets of a log with a role among other replicas."""
    tracker = OffsetTracker(log_start_offset, log_end_offset, recovery_point, high_watermark=30)
    tracker.hold_high_watermark()
    return tracker


# --- the order ---


@pytest.mark.parametrize("swapped", range(4))
def test_order_of_the_offsets_is_checked(swapped: int) -> None:
    in_order = [1, 2, 3, 4, 5]
    assert LogOffsets(*in_order, recovery_point=5).are_in_order()
    in_order[swapped], in_order[swapped + 1] = in_order[swapped + 1], in_order[swapped]
    assert not LogOffsets(*in_order, recovery_point=0).are_in_order()


def test_recovery_point_is_not_above_the_log_end() -> None:
    assert not LogOffsets(0, 0, 5, 5, 5, recovery_point=6).are_in_order()


def test_log_that_reaches_back_ends_before_its_start() -> None:
    assert LogOffsets(10, 10, 7, 7, 7, recovery_point=7).are_in_order()
    assert not LogOffsets(10, 10, 6, 6, 7, recovery_point=6).are_in_order()


def test_move_that_breaks_the_order_is_an_assertion_error() -> None:
    tracker = held()
    with pytest.raises(AssertionError, match="log_start_offset=31"):
        tracker.move_log_start(31)  # above the high watermark
    with pytest.raises(AssertionError):
        tracker.move_recovery_point(51)
    assert tracker.current == LogOffsets(10, 10, 30, 30, 50, 20)


# --- what moves each of them ---


def test_log_end_of_a_sole_replica_takes_the_high_watermark_along() -> None:
    tracker = OffsetTracker(10, 50, high_watermark=30)
    assert tracker.current == LogOffsets(10, 10, 50, 50, 50, 0)
    tracker.move_log_end(60)
    assert tracker.current == LogOffsets(10, 10, 60, 60, 60, 0)


def test_new_segment_at_the_log_end_leaves_the_high_watermark() -> None:
    tracker = OffsetTracker(0, 5)
    tracker.release_high_watermark(follows_end=False)
    tracker.move_log_end(9)
    tracker.release_high_watermark(follows_end=True)  # the flush policy was removed
    tracker.move_log_end(9)
    assert tracker.current.high_watermark == 5


def test_log_end_with_other_replicas_leaves_the_high_watermark() -> None:
    tracker = held()
    tracker.move_log_end(60)
    assert tracker.current == LogOffsets(10, 10, 30, 30, 60, 20)


def test_high_watermark_follows_flushes_of_a_sole_replica_with_a_flush_policy() -> None:
    tracker = OffsetTracker(0, 5)
    tracker.release_high_watermark(follows_end=False)
    tracker.move_log_end(9)
    assert tracker.current.high_watermark == 5
    tracker.move_high_watermark(7)
    assert tracker.current.high_watermark == 7


@pytest.mark.parametrize(("wanted", "expected"), [(0, 10), (35, 35), (99, 50)])
def test_high_watermark_stays_within_the_log(wanted: int, expected: int) -> None:
    tracker = held()
    tracker.move_high_watermark(wanted)
    assert tracker.current == LogOffsets(10, 10, expected, expected, 50, 20)


def test_log_start_takes_the_local_log_start_along() -> None:
    tracker = held()
    tracker.move_log_start(25)
    assert tracker.current == LogOffsets(25, 25, 30, 30, 50, 20)


def test_recovery_point_never_moves_back_with_a_flush() -> None:
    tracker = held()
    tracker.move_recovery_point(40)
    tracker.move_recovery_point(35)
    assert tracker.current.recovery_point == 40


@pytest.mark.parametrize(
    ("offset", "begun", "ended"),
    [
        (45, LogOffsets(10, 10, 30, 30, 50, 20), LogOffsets(10, 10, 30, 30, 45, 20)),
        (15, LogOffsets(10, 10, 15, 15, 50, 15), LogOffsets(10, 10, 15, 15, 15, 15)),
        (5, LogOffsets(10, 10, 10, 10, 50, 5), LogOffsets(5, 5, 5, 5, 5, 5)),
    ],
)
def test_truncation_lowers_what_is_readable_and_durable_before_the_log_end(
    offset: int, begun: LogOffsets, ended: LogOffsets
) -> None:
    tracker = held()
    tracker.begin_truncation(offset)
    assert tracker.current == begun
    tracker.end_truncation(min(10, offset), offset)
    assert tracker.current == ended


def test_log_that_reaches_back_has_its_high_watermark_at_its_start_after_the_append() -> None:
    tracker = held(10, 10, 10)
    tracker.begin_truncation(7)
    tracker.end_truncation(10, 7)
    assert tracker.current == LogOffsets(10, 10, 7, 7, 7, 7)
    tracker.move_log_end(12)
    assert tracker.current == LogOffsets(10, 10, 10, 10, 12, 7)


def test_offsets_of_one_moment_stay_as_they_were() -> None:
    tracker = held()
    before = tracker.current
    tracker.move_log_end(60)
    assert before.log_end_offset == 50


# --- the high watermark over restarts ---


def test_stored_high_watermark_counts_until_the_first_role() -> None:
    tracker = OffsetTracker(0, 50, high_watermark=30)
    assert (tracker.current.high_watermark, tracker.high_watermark_to_store) == (50, 30)
    tracker.release_high_watermark(follows_end=True)
    assert tracker.high_watermark_to_store == 50
    tracker.hold_high_watermark()
    assert tracker.current.high_watermark == 50


def test_replicated_log_is_opened_with_the_high_watermark_that_was_stored(
    tmp_path: Path, clock: ManualClock, make_batch: MakeBatch
) -> None:
    where = TopicPartition("clicks", 0)
    log = Log.open(tmp_path / "clicks-0", where, LogConfig(), clock, OsFileSystem())
    log.append(make_batch(5), 0)
    log.close()

    log = Log.open(tmp_path / "clicks-0", where, LogConfig(), clock, OsFileSystem(), clean=True, high_watermark=3)
    log.hold_high_watermark()
    assert log.high_watermark == 3
    log.move_high_watermark(4)
    log.hold_high_watermark()
    assert log.high_watermark == 4
    log.close()


def begin_with(stored: int, folder: Path, clock: ManualClock, batch: bytearray) -> None:
    """Leave a replicated log behind, with records above its high watermark."""
    logs = LogManager(folder, LogConfig(), clock, OsFileSystem())
    log = logs.create(CLICKS)
    log.hold_high_watermark()
    log.append(batch, 0)
    log.move_high_watermark(stored)
    logs.close()


def test_high_watermark_of_a_log_without_a_role_is_stored_as_it_was(
    tmp_path: Path, clock: ManualClock, make_batch: MakeBatch
) -> None:
    begin_with(3, tmp_path, clock, make_batch(5))
    logs = LogManager(tmp_path, LogConfig(), clock, OsFileSystem())
    logs.checkpoint_high_watermarks()
    logs.close()
    logs = LogManager(tmp_path, LogConfig(), clock, OsFileSystem())
    log = logs.all()[CLICKS]
    log.hold_high_watermark()
    assert log.high_watermark == 3
    logs.close()


def test_high_watermark_of_a_sole_replica_is_its_own_end(
    tmp_path: Path, clock: ManualClock, make_batch: MakeBatch
) -> None:
    begin_with(3, tmp_path, clock, make_batch(5))
    logs = LogManager(tmp_path, LogConfig(), clock, OsFileSystem())
    log = logs.all()[CLICKS]
    log.release_high_watermark(follows_end=True)
    log.append(make_batch(), 0)
    logs.close()
    logs = LogManager(tmp_path, LogConfig(), clock, OsFileSystem())
    log = logs.all()[CLICKS]
    log.hold_high_watermark()
    assert log.high_watermark == 6
    logs.close()
