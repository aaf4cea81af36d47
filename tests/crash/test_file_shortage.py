"""The system is short of file descriptors for a while: requests fail, and no log is given up."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.records import Record
from barnabas.storage import Log, LogConfig, LogManager, OsFileSystem
from barnabas.storage.filesystem import DataFile

CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=100)

MakeBatch = Callable[..., bytearray]
ReadAll = Callable[[Log], list[Record]]


class ShortFileSystem(OsFileSystem):
    """Opens so many files more, then none; -1: any number."""

    def __init__(self) -> None:
        self.left = -1
        self.error = errno.EMFILE

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> DataFile:
        if not self.left:
            raise OSError(self.error, os.strerror(self.error), str(path))
        self.left -= 1
        return super().open(path, create=create, writable=writable)


@contextmanager
def no_descriptors() -> Iterator[None]:
    """Let the process open no file at all."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextmanager
def all_descriptors_used() -> Iterator[None]:
    """Let the process open as many files as it closes, and no more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1, hard))
    fillers = []
    try:
        # There may be holes below the limit: a number that is freed above it would be of no use to anybody.
        with suppress(OSError):
            while True:
                fillers.append(os.open("/dev/null", os.O_RDONLY))
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for filler in fillers:
            os.close(filler)


@pytest.fixture
def log(tmp_path: Path, partition: TopicPartition, make_batch: MakeBatch) -> Iterator[Log]:
    """A log of several segments, all flushed, none of them open."""
    opened = Log.open(tmp_path / str(partition), partition, CONFIG, ManualClock(), OsFileSystem())
    for number in range(6):
        opened.append(make_batch([b"%d" % number * 50] * 2), 0)
    opened.close()
    again = Log.open(opened.folder, partition, CONFIG, ManualClock(), OsFileSystem(), clean=True)
    assert again.segment_count > 2
    yield again
    again.abandon()


def test_read_fails_while_no_file_can_be_opened_and_works_again_after(log: Log, read_all: ReadAll) -> None:
    with no_descriptors():
        for ask in (
            lambda: log.read(0, 1000, 12),
            lambda: log.time_search().first_at(1),
            lambda: log.time_search().latest(),
        ):
            with pytest.raises((StorageError, OSError), match="Too many open files"):
                ask()
    assert not log.is_offline
    assert len(read_all(log)) == 12


def test_flush_without_descriptors_is_done_by_the_next_one(log: Log, make_batch: MakeBatch) -> None:
    log.append(make_batch([b"x"]), 0)
    log.roll()
    with no_descriptors(), pytest.raises(StorageError, match="Too many open files"):
        log.flush()
    assert log.recovery_point < log.log_end_offset
    log.flush()
    assert log.recovery_point == log.log_end_offset
    assert not log.is_flush_due


@pytest.mark.parametrize("error", [errno.EMFILE, errno.ENFILE, errno.ENOMEM])
def test_append_that_cannot_roll_changes_nothing(
    error: int, tmp_path: Path, partition: TopicPartition, make_batch: MakeBatch, read_all: ReadAll
) -> None:
    """Whichever file cannot be opened: an index, the snapshot, or the new segment."""
    disk = ShortFileSystem()
    for left in range(8):
        folder = tmp_path / f"{left}" / str(partition)
        log = Log.open(folder, partition, CONFIG, ManualClock(), disk)
        log.append(make_batch([b"a" * 200]), 0)
        disk.left, disk.error = left, error
        try:
            log.append(make_batch([b"b" * 200]), 1)
        except StorageError:
            assert log.log_end_offset == log.segment_count == 1
        else:
            assert left >= 4
        disk.left = -1
        log.flush()
        log.append(make_batch([b"c"]), 1)
        values = [record.value for record in read_all(log)]
        log.close()
        reopened = Log.open(folder, partition, CONFIG, ManualClock(), disk)
        assert [record.value for record in read_all(reopened)] == values
        assert reopened.leader_epochs.end_offset_for(0, 9).start_offset == 1
        reopened.abandon()


def test_flush_needs_no_more_files_than_sealed_segments_hold(log: Log, make_batch: MakeBatch) -> None:
    for number in range(4):
        log.append(make_batch([b"%d" % number]), 0)
        log.roll()
    with all_descriptors_used():
        log.flush()
    assert log.recovery_point == log.log_end_offset


def test_files_of_deleted_segments_are_set_aside_later(
    log: Log, tmp_path: Path, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.delete_records_before(12)
    with no_descriptors(), pytest.raises(StorageError, match="Too many open files"):
        log.rename_deleted_files()
    assert log.rename_deleted_files()
    assert not log.is_offline


def test_flush_is_asked_for_when_many_segments_hold_their_files_open(tmp_path: Path, make_batch: Any) -> None:
    asked: list[None] = []
    manager = LogManager(tmp_path, CONFIG, ManualClock(), OsFileSystem(), on_flush_due=lambda: asked.append(None))
    log = manager.create(TopicPartition("clicks", 0))
    while not asked:
        log.append(make_batch([b"x" * 200]), 0)
        assert log.segment_count < 100
    assert log.segment_count > 2
    asked.clear()
    manager.flush_sealed()
    log.append(make_batch([b"x" * 200]), 0)
    assert not asked
    manager.close()
