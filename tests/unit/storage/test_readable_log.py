"""The high watermark over restarts: where a replicated log begins to be read, and what is stored for the next start."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from barnabas.clock import ManualClock
from barnabas.model import TopicPartition
from barnabas.storage import Log, LogConfig, LogManager, OsFileSystem

CLICKS = TopicPartition("clicks", 0)
MakeBatch = Callable[..., bytearray]


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
    log.high_watermark = 4
    log.hold_high_watermark()
    assert log.high_watermark == 4
    log.close()


def begin_with(stored: int, folder: Path, clock: ManualClock, batch: bytearray) -> None:
    """Leave a replicated log behind, with more in it than could be read."""
    logs = LogManager(folder, LogConfig(), clock, OsFileSystem())
    log = logs.create(CLICKS)
    log.hold_high_watermark()
    log.append(batch, 0)
    log.high_watermark = stored
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
