"""A follower truncates its log while the disk is full: what goes needs no room, and what needs room comes later."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.records import Record
from barnabas.storage import Log, LogConfig, LogManager, OsFileSystem
from barnabas.storage.checkpoints import EpochStart
from barnabas.storage.filesystem import Chunk, DataFile

SEGMENTS = {"one segment": 100_000, "many": 300}
END = 20
CUT_AT = 11
SECOND_EPOCH_AT = 10
THIRD_EPOCH_AT = 15

MakeBatch = Callable[..., bytearray]
ReadAll = Callable[[Log], list[Record]]


class FullFileSystem(OsFileSystem):
    """While it is full, what needs room is refused: new files and bytes."""

    is_full = False

    def open(self, path: Path, *, create: bool = False, writable: bool = True) -> DataFile:
        if create and not Path(path).exists():
            self._need_room(path)
        return super().open(path, create=create, writable=writable)

    def writev(self, file: DataFile, chunks: Sequence[Chunk]) -> int:
        self._need_room(file.path)
        return super().writev(file, chunks)

    def _need_room(self, path: Path) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


@pytest.fixture
def filesystem() -> FullFileSystem:
    return FullFileSystem()


@pytest.fixture(params=SEGMENTS.values(), ids=list(SEGMENTS))
def config(request: pytest.FixtureRequest) -> LogConfig:
    return LogConfig(segment_bytes=request.param, index_interval_bytes=100)


@pytest.fixture(params=[True, False], ids=["flushed", "unflushed"])
def log(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    partition: TopicPartition,
    config: LogConfig,
    make_batch: MakeBatch,
    filesystem: FullFileSystem,
) -> Log:
    """Three epochs; the third begins behind where the log will be cut."""
    log = Log.open(tmp_path / str(partition), partition, config, ManualClock(), filesystem)
    for number in range(END):
        log.append(make_batch([value_of(number)]), 0 + (number >= SECOND_EPOCH_AT) + (number >= THIRD_EPOCH_AT))
    if request.param:
        log.flush()
    return log


def value_of(number: int) -> bytes:
    return b"%03d" % number * 10


@pytest.mark.parametrize("is_flushed_again", [True, False])
def test_log_that_is_cut_on_a_full_disk_goes_on_when_there_is_room(
    log: Log,
    filesystem: FullFileSystem,
    config: LogConfig,
    make_batch: MakeBatch,
    read_all: ReadAll,
    is_flushed_again: bool,
) -> None:
    filesystem.is_full = True
    log.truncate_to(CUT_AT)
    assert log.log_end_offset == CUT_AT
    assert [record.value for record in read_all(log)] == [value_of(number) for number in range(CUT_AT)]
    with pytest.raises(StorageError, match="No space left"):
        log.append(make_batch([b"no room"]), 1)
    filesystem.is_full = False
    # The leader has more of the second epoch, also where this log had the third.
    for number in range(CUT_AT, END):
        log.append(make_batch([value_of(number)]), 1)
    if is_flushed_again:
        log.flush()
    recovery_point = log.recovery_point
    log.abandon()
    again = Log.open(log.folder, log.partition, config, ManualClock(), OsFileSystem(), recovery_point=recovery_point)
    assert [record.value for record in read_all(again)] == [value_of(number) for number in range(END)]
    assert again.leader_epochs.entries == (EpochStart(0, 0), EpochStart(1, SECOND_EPOCH_AT))
    again.abandon()


def test_cut_that_cannot_be_noted_is_refused_and_can_be_tried_again(
    tmp_path: Path,
    partition: TopicPartition,
    config: LogConfig,
    make_batch: MakeBatch,
    read_all: ReadAll,
    filesystem: FullFileSystem,
) -> None:
    manager = LogManager(tmp_path, config, ManualClock(), filesystem)
    log = manager.create(partition)
    for number in range(END):
        log.append(make_batch([value_of(number)]), 0)
    log.flush()
    manager.checkpoint_recovery_points()
    filesystem.is_full = True
    for _ in range(2):
        with suppress(StorageError):
            log.truncate_to(CUT_AT)
    assert not log.is_offline
    filesystem.is_full = False
    log.truncate_to(CUT_AT)
    log.append(make_batch([b"more"]), 0)
    assert [record.value for record in read_all(log)] == [*(value_of(number) for number in range(CUT_AT)), b"more"]
    manager.close()
