"""A log moves to another data folder, and the process dies at any operation on files: one whole log is left."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import BarnabasError, StorageError
from barnabas.model import TopicPartition
from barnabas.records import Record
from barnabas.storage import FileSystem, Log, LogConfig, LogManager, OsFileSystem
from barnabas.storage.data_folders import DataFolders
from barnabas.storage.future_logs import LogMove

MakeBatch = Callable[..., bytearray]
ReadAll = Callable[[Log], list[Record]]
CONFIG = LogConfig(segment_bytes=400)
TOPIC_ID = uuid.UUID(int=7)
COUNT = 12
START = 3
"""Records before this offset were deleted."""


def copy_all(move: LogMove) -> None:
    """Copy piece by piece what a log has."""
    move.prepare()
    while move.missing:
        region = move.current.read(move.future.log_end_offset, 300, move.current.log_end_offset).batches
        assert region
        move.append(move.current.bytes_of(region), 7)


class Home:
    """A broker's two data folders, with one log in the first one."""

    def __init__(self, folder: Path, partition: TopicPartition) -> None:
        self.paths = [folder / "a", folder / "b"]
        self.partition = partition
        self.managers: list[LogManager] = []

    def open(self, filesystem: FileSystem) -> DataFolders:
        def open_folder(path: Path) -> LogManager:
            manager = LogManager(path, CONFIG, ManualClock(), filesystem, cluster_id="castle", boot_id="1", loads=False)
            self.managers.append(manager)
            return manager

        return DataFolders(self.paths, filesystem, open_folder)

    def fill(self, make_batch: MakeBatch) -> None:
        folders = self.open(OsFileSystem())
        log = folders.create(self.partition, CONFIG, TOPIC_ID)
        for number in range(COUNT):
            log.append(make_batch([b"%d" % number * 30]), number // 5)
        log.delete_records_before(START)
        folders.remove_deleted_records()
        folders.note_boot()
        folders.close()

    def move(self, filesystem: FileSystem) -> Log:
        """Move the log, as the broker does; what fails ends it."""
        folders = self.open(filesystem)
        folders.restore(self.partition, CONFIG, TOPIC_ID)
        move = folders.begin_move(self.partition, self.paths[1])
        is_done = False
        try:
            copy_all(move)
            log = folders.swap(move)
            move.transfer_state(log)
            is_done = True
        finally:
            folders.end_move(move, is_done=is_done)
        return log

    def crash(self) -> None:
        for manager in self.managers:
            manager.abandon()

    def check(self, read_all: ReadAll, where: str = "ab") -> None:
        """There is one log, whole, also after the next start."""
        for _ in range(2):
            folders = self.open(OsFileSystem())
            log = folders.restore(self.partition, CONFIG, TOPIC_ID)
            assert not log.is_offline
            assert not folders.missing
            assert [record.value for record in read_all(log)] == [b"%d" % each * 30 for each in range(START, COUNT)]
            assert log.leader_epochs.latest == (COUNT - 1) // 5
            assert log.folder.parent.name in where
            folders.close()
            folders = self.open(OsFileSystem())
            folders.purge_deleted()
            folders.close()
        left = {path.relative_to(self.paths[0].parent) for each in self.paths for path in each.iterdir()}
        assert len({path for path in left if path.name.startswith("clicks")}) == 1, left


@pytest.fixture
def home(memory_path: Path, partition: TopicPartition, make_batch: MakeBatch) -> Home:
    made = Home(memory_path, partition)
    made.fill(make_batch)
    return made


def test_log_that_was_moved_has_all_that_it_had(home: Home, read_all: ReadAll, make_batch: MakeBatch) -> None:
    log = home.move(OsFileSystem())
    assert log.folder == home.paths[1] / "clicks-0"
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (START, COUNT, COUNT)
    assert log.recovery_point == COUNT
    home.crash()
    home.check(read_all, "b")


@pytest.mark.parametrize("loses_power", [False, True], ids=["killed", "power lost"])
def test_one_whole_log_is_left_wherever_a_move_ends(
    memory_path: Path,
    partition: TopicPartition,
    make_batch: MakeBatch,
    read_all: ReadAll,
    faulty_filesystem: Any,
    loses_power: bool,
) -> None:
    dry = Home(memory_path / "dry", partition)
    dry.fill(make_batch)
    counting = faulty_filesystem()
    dry.move(counting)
    dry.crash()
    for fail_at in range(len(counting.operations)):
        home = Home(memory_path / str(fail_at), partition)
        home.fill(make_batch)
        filesystem = faulty_filesystem(fail_at)
        with contextlib.suppress(BarnabasError, OSError):
            home.move(filesystem)
        assert filesystem.failed
        home.crash()
        if loses_power:
            filesystem.lose_power()
        home.check(read_all)


def test_move_goes_on_when_the_log_is_cut_meanwhile(home: Home, make_batch: MakeBatch, read_all: ReadAll) -> None:
    folders = home.open(OsFileSystem())
    log = folders.restore(home.partition, CONFIG, TOPIC_ID)
    move = folders.begin_move(home.partition, home.paths[1])
    move.prepare()
    region = log.read(START, 10_000, log.log_end_offset).batches
    assert region
    move.append(log.bytes_of(region), 7)
    log.truncate_to(START + 1)
    for number in range(START + 1, COUNT):
        log.append(make_batch([b"%d" % number * 30]), 2)
    move.prepare()
    assert move.missing == COUNT - START
    folders.end_move(move, is_done=False)
    assert not folders.moves
    folders.close()
    home.check(read_all, "a")


def test_move_that_was_given_up_does_not_take_place(home: Home, read_all: ReadAll) -> None:
    folders = home.open(OsFileSystem())
    folders.restore(home.partition, CONFIG, TOPIC_ID)
    move = folders.begin_move(home.partition, home.paths[1])
    folders.end_move(move, is_done=False)
    with pytest.raises(BarnabasError, match="was canceled"):
        folders.swap(move)
    folders.close()
    home.check(read_all, "a")


def test_move_that_took_place_when_the_broker_stopped_is_ended_by_the_next_start(home: Home, read_all: ReadAll) -> None:
    folders = home.open(OsFileSystem())
    folders.restore(home.partition, CONFIG, TOPIC_ID)
    move = folders.begin_move(home.partition, home.paths[1])
    copy_all(move)
    folders.swap(move)
    folders.end_move(move, is_done=False)
    folders.close()
    home.check(read_all, "b")


def test_copy_does_not_take_the_place_of_a_log_that_was_cut_meanwhile(home: Home, read_all: ReadAll) -> None:
    folders = home.open(OsFileSystem())
    log = folders.restore(home.partition, CONFIG, TOPIC_ID)
    move = folders.begin_move(home.partition, home.paths[1])
    copy_all(move)
    log.truncate_to(COUNT - 2)
    assert not move.missing
    with pytest.raises(StorageError, match="was truncated"):
        folders.swap(move)
    folders.end_move(move, is_done=False)
    assert not log.is_offline
    assert [record.value for record in read_all(log)] == [b"%d" % each * 30 for each in range(START, COUNT - 2)]
    folders.close()
