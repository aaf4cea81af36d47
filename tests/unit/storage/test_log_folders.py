"""Folders of logs: whose they are after a loss of power, and which are in nobody's way."""

from __future__ import annotations

import contextlib
import errno
import logging
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.storage import LogConfig, LogManager, OsFileSystem
from barnabas.storage.filesystem import Chunk, DataFile
from tests.simulation.cluster import InlineExecutor
from tests.simulation.disk import Disk, SimulatedFileSystem
from tests.simulation.world import Host, HostClock, World

CLICKS = TopicPartition("clicks", 0)
FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)
MakeBatch = Callable[..., bytearray]
OpenManager = Callable[..., LogManager]


class Machine:
    """A data folder on a disk that may lose what was not synced."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.disk = Disk(self.world)

    def start(self) -> LogManager:
        clock = HostClock(self.world.loop, 1.0, 0)
        self.host = Host(self.world, "one", clock)
        filesystem = SimulatedFileSystem(self.disk, self.host)
        # A loss of power leaves a part of each file that is drawn: the lock must be as long in each process.
        return LogManager(Path("/data"), LogConfig(), clock, filesystem, process_id=1, new_threads=InlineExecutor)

    def lose_power(self) -> None:
        self.host.kill()
        self.disk.lose_power()


def test_no_loss_of_power_leaves_records_without_it_being_known_whose_they_are(make_batch: MakeBatch) -> None:
    kept = 0
    for seed in range(400):
        machine = Machine(seed)
        machine.start().create(CLICKS, topic_id=FIRST).append(make_batch(3), 0)
        machine.lose_power()
        manager = machine.start()
        log = manager.get(CLICKS)
        if log is not None and log.log_end_offset:
            assert manager.topic_ids == {CLICKS: FIRST}
            kept += 1
        elif log is not None:
            assert manager.topic_ids.get(CLICKS, FIRST) == FIRST
            assert manager.has_no_records(CLICKS)
        machine.world.end()
    assert kept > 10


def test_metadata_that_an_older_release_lost_with_the_power_is_written_anew(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    manager = open_manager()
    manager.create(CLICKS, topic_id=FIRST).append(make_batch(3), 0)
    manager.abandon()
    metadata = tmp_path / "data" / "clicks-0" / "partition.metadata"
    metadata.write_bytes(b"")
    manager = open_manager()
    assert manager.topic_ids == {}
    assert manager.restore(CLICKS, None, FIRST).log_end_offset == 3
    assert manager.restore(CLICKS, None, FIRST) is manager.get(CLICKS)
    assert metadata.read_bytes()
    assert [path.name for path in metadata.parent.glob("*.damaged*")] == []


class TwiceBroken(OsFileSystem):
    """Refuses one operation that makes a log, and to remove what was made."""

    def __init__(self, fail_at: int) -> None:
        self.left = fail_at
        self.has_failed = False

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            self.has_failed = True
            raise OSError(errno.EIO, "Input/output error")

    def open(self, path: Path | str, *, create: bool = False, writable: bool = True) -> DataFile:
        if create:
            self._step()
        return super().open(path, create=create, writable=writable)

    def writev(self, file: DataFile, chunks: Any) -> int:
        try:
            self._step()
        except OSError:
            half: list[Chunk] = [b"".join(chunks)[:7]]
            super().writev(file, half)
            raise
        return super().writev(file, chunks)

    def fsync(self, file: DataFile) -> None:
        self._step()

    def replace(self, source: Path, target: Path) -> None:
        self._step()
        super().replace(source, target)

    def fsync_folder(self, path: Path) -> None:
        self._step()

    def remove_folder(self, path: Path) -> None:
        self._step()
        super().remove_folder(path)


@pytest.mark.parametrize("is_started_again", [False, True])
@pytest.mark.parametrize("fail_at", range(6))
def test_folder_of_a_log_that_could_be_neither_made_nor_removed_is_in_nobodys_way(
    fail_at: int, is_started_again: bool, open_manager: OpenManager, tmp_path: Path
) -> None:
    manager = open_manager()
    manager._filesystem = disk = TwiceBroken(fail_at)
    manager._folders._filesystem = manager._loader._filesystem = disk
    with pytest.raises(StorageError, match="cannot create the log"):
        manager.create(CLICKS, topic_id=FIRST)
    assert disk.has_failed
    assert (tmp_path / "data" / "clicks-0").exists()
    disk.left = 1_000
    if is_started_again:
        with contextlib.suppress(StorageError):
            manager.close()
        manager = open_manager()
        assert manager.has_no_records(CLICKS)
    assert not manager.restore(CLICKS, None, SECOND).is_offline
    assert manager.topic_ids == {CLICKS: SECOND}
    manager.abandon()
    assert open_manager().topic_ids == {CLICKS: SECOND}


def test_new_log_takes_a_folder_that_holds_nothing(
    open_manager: OpenManager, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = open_manager()
    (tmp_path / "data" / "clicks-0").mkdir()
    (tmp_path / "data" / "clicks-0" / "partition.metadata.tmp").write_text("vers")
    with caplog.at_level(logging.WARNING):
        assert manager.create(CLICKS, topic_id=SECOND).log_end_offset == 0
    assert "clicks-0 is an empty directory of a failed creation" in caplog.text
    manager.abandon()
    assert open_manager().topic_ids == {CLICKS: SECOND}


@pytest.mark.parametrize(
    ("name", "content"), [("notes.txt", ""), (f"{0:020}.log", "x"), (f"{7:020}.log", ""), (f"{7:020}.snapshot", "")]
)
def test_folder_with_anything_else_in_it_is_not_taken(
    name: str, content: str, open_manager: OpenManager, tmp_path: Path
) -> None:
    manager = open_manager()
    (tmp_path / "data" / "clicks-0").mkdir()
    (tmp_path / "data" / "clicks-0" / name).write_text(content)
    with pytest.raises(StorageError, match="clicks-0 exists and contains files of an unknown topic"):
        manager.create(CLICKS, topic_id=SECOND)
    assert (tmp_path / "data" / "clicks-0" / name).read_text() == content


def test_log_that_the_checkpoints_know_does_not_count_as_empty(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    manager = open_manager()
    manager.create(CLICKS, topic_id=FIRST).append(make_batch(3), 0)
    manager.close()
    for path in (tmp_path / "data" / "clicks-0").iterdir():
        path.unlink()
    (tmp_path / "data" / "clicks-0" / f"{0:020}.log").write_bytes(b"")
    assert not open_manager().has_no_records(CLICKS)


@pytest.mark.parametrize("count", [0, 3])
def test_records_of_another_topic_stay_and_an_empty_log_makes_room(
    count: int, open_manager: OpenManager, make_batch: MakeBatch
) -> None:
    manager = open_manager()
    log = manager.create(CLICKS, topic_id=FIRST)
    if count:
        log.append(make_batch(count), 0)
    manager.abandon()
    manager = open_manager()
    assert manager.restore(CLICKS, None, SECOND).is_offline is bool(count)
    assert (CLICKS in manager.missing) is not bool(count)


@pytest.mark.parametrize("in_doubt", [False, True])
def test_records_of_which_nobody_knows_whose_they_are_are_not_taken_where_that_is_in_doubt(
    in_doubt: bool, open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    manager = open_manager()
    manager.create(CLICKS, topic_id=FIRST).append(make_batch(3), 0)
    manager.abandon()
    (tmp_path / "data" / "clicks-0" / "partition.metadata").unlink()
    manager = open_manager()
    assert manager.restore(CLICKS, None, SECOND, in_doubt=in_doubt).is_offline is in_doubt
    manager.delete(CLICKS)
    assert (tmp_path / "data" / "clicks-0").exists() is in_doubt
