"""The disk fails at any one operation, or the machine stops there: nothing acknowledged is lost, nothing is torn."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import BarnabasError, DataFolderError, StorageError
from barnabas.model import TopicPartition
from barnabas.records import Record
from barnabas.storage import Log, LogConfig, LogManager, OsFileSystem

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)
OTHER = TopicPartition("other", 0)

MakeBatch = Callable[..., bytearray]
ReadAll = Callable[[Log], list[Record]]


class Workload:
    """Appends numbered values to a log until the disk fails; knows what was acknowledged and what was flushed."""

    def __init__(self, folder: Path, partition: TopicPartition, make_batch: MakeBatch, sound: OsFileSystem) -> None:
        self.folder = folder
        self.sound = sound
        """A file system that does not fail, nor wait for the disk."""
        self.partition = partition
        self.make_batch = make_batch
        self.acknowledged = 0
        self.flushed = 0
        self.deleted = 0
        """Below this nothing may be read ever again: it was acknowledged as deleted."""
        self.closed_cleanly = False
        self.manager: LogManager | None = None

    def run(self, filesystem: OsFileSystem) -> None:
        """:raises BarnabasError: the disk failed."""
        self.manager = LogManager(self.folder, CONFIG, ManualClock(), filesystem, cluster_id="castle")
        log = self.manager.create(self.partition)
        for number in range(12):
            self.append(log, number // 5)
            if number % 4 == 3:
                log.flush()
                self.flushed = self.acknowledged
            if number in {5, 9}:
                self.delete(log, number)
        self.manager.flush_sealed()
        self.manager.purge_deleted()
        self.append(log, 3)
        self.manager.close()
        self.closed_cleanly = True

    def append(self, log: Log, epoch: int) -> None:
        values = [str(self.acknowledged + index).encode() * 10 for index in range(2)]
        producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": self.acknowledged}
        log.append(self.make_batch(values, 1_000 + self.acknowledged, **producer), epoch)
        self.acknowledged += 2

    def delete(self, log: Log, offset: int) -> None:
        assert self.manager is not None
        log.delete_records_before(offset)
        self.manager.remove_deleted_records()
        self.deleted = offset
        self.flushed = max(self.flushed, offset)

    def crash(self) -> None:
        if self.manager is not None:
            self.manager.abandon()

    def check_after_restart(self, read_all: ReadAll, at_least: int) -> None:
        """The log holds all that must be there, in order and once, and can be used."""
        manager = LogManager(self.folder, CONFIG, ManualClock(), self.sound, cluster_id="castle")
        if manager.was_clean:
            # The marker may be there although making it durable failed; what it says must be true.
            at_least = self.acknowledged
        log = manager.get(self.partition) or manager.create(self.partition)
        records = read_all(log)
        assert [record.value for record in records] == [str(record.offset).encode() * 10 for record in records]
        assert log.log_start_offset >= self.deleted
        assert log.log_end_offset >= at_least
        assert len(records) == log.log_end_offset - log.log_start_offset
        end = log.log_end_offset
        if end:
            retry = self.make_batch([b"", b""], producer_id=1, producer_epoch=0, base_sequence=end - 2)
            assert log.append(retry, 3).duplicate
        assert log.append(self.make_batch([b"more"]), 3).base_offset == end
        manager.close()
        again = LogManager(self.folder, CONFIG, ManualClock(), self.sound)
        assert again.was_clean
        reopened = again.get(self.partition)
        assert reopened is not None
        assert reopened.log_start_offset == log.log_start_offset
        assert len(read_all(reopened)) == end + 1 - log.log_start_offset
        again.abandon()


@pytest.fixture
def operation_count(memory_path: Path, partition: TopicPartition, make_batch: MakeBatch, faulty_filesystem: Any) -> int:
    """How many operations the workload needs when nothing fails."""
    filesystem = faulty_filesystem()
    workload = Workload(memory_path / "dry run", partition, make_batch, filesystem)
    workload.run(filesystem)
    assert workload.closed_cleanly
    kinds = {operation.split()[0] for operation in filesystem.operations}
    assert kinds >= {"create", "write", "fsync", "rename", "mkdir", "truncate"}
    return len(filesystem.operations)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("stays_broken", [True, False], ids=["dead", "once"])
def test_fault_at_every_operation_then_kill(
    error: int,
    stays_broken: bool,
    operation_count: int,
    memory_path: Path,
    partition: TopicPartition,
    make_batch: MakeBatch,
    read_all: ReadAll,
    faulty_filesystem: Any,
) -> None:
    for number in range(operation_count):
        filesystem = faulty_filesystem(number, error, stays_broken=stays_broken)
        workload = Workload(memory_path / f"data {number}", partition, make_batch, faulty_filesystem())
        with suppress(StorageError, DataFolderError):
            workload.run(filesystem)
        # A broker starts on a full disk, too: it can do without its process id in the lock file.
        its_id = {"truncate .lock", "write .lock"}
        dispensable = error == errno.ENOSPC and not stays_broken and filesystem.operations[number] in its_id
        assert workload.closed_cleanly == dispensable
        workload.crash()
        workload.check_after_restart(read_all, at_least=workload.acknowledged)


@pytest.mark.parametrize("checkpoint_bytes", [100, 10**6], ids=["often", "rarely"])
@pytest.mark.parametrize("keeps", ["nothing", "half", "all"])
def test_power_loss_at_every_operation(
    keeps: str,
    operation_count: int,
    memory_path: Path,
    partition: TopicPartition,
    make_batch: MakeBatch,
    read_all: ReadAll,
    faulty_filesystem: Any,
    checkpoint_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of what was not fsynced, nothing, a part or all is still there: what was flushed is there in any case."""
    kept: dict[str, Callable[[int, int], int]] = {
        "nothing": lambda durable, size: durable,
        "half": lambda durable, size: (durable + size) // 2,
        "all": lambda durable, size: size,
    }
    monkeypatch.setattr("barnabas.storage.log_flusher.CHECKPOINT_BYTES", checkpoint_bytes)
    for number in range(operation_count):
        filesystem = faulty_filesystem(number)
        workload = Workload(memory_path / f"data {number}", partition, make_batch, faulty_filesystem())
        with pytest.raises(BarnabasError):
            workload.run(filesystem)
        workload.crash()
        filesystem.lose_power(kept[keeps])
        workload.check_after_restart(read_all, at_least=workload.flushed)


def test_whose_a_log_is_survives_a_loss_of_power(
    memory_path: Path, partition: TopicPartition, make_batch: MakeBatch, faulty_filesystem: Any
) -> None:
    filesystem = faulty_filesystem()
    manager = LogManager(memory_path, CONFIG, ManualClock(), filesystem, cluster_id="castle")
    manager.create(partition, topic_id=uuid.UUID(int=5)).append(make_batch([b"a"]), 0)
    assert {"fsync folder clicks-0", f"fsync folder {memory_path.name}"} <= set(filesystem.operations)
    manager.abandon()
    filesystem.lose_power()
    again = LogManager(memory_path, CONFIG, ManualClock(), OsFileSystem())
    assert again.topic_ids == {partition: uuid.UUID(int=5)}
    again.close()


def test_log_whose_write_failed_is_offline_and_the_others_go_on(
    memory_path: Path, partition: TopicPartition, make_batch: MakeBatch, faulty_filesystem: Any
) -> None:
    filesystem = faulty_filesystem(error=errno.EIO, stays_broken=False)
    manager = LogManager(memory_path, CONFIG, ManualClock(), filesystem)
    log, other = manager.create(partition), manager.create(OTHER)
    log.append(make_batch([b"first"]), 0)
    filesystem.fail_at = len(filesystem.operations)
    with pytest.raises(StorageError, match="Input/output error"):
        log.append(make_batch([b"torn"]), 0)
    assert log.is_offline
    for call in (lambda: log.append(make_batch([b"x"]), 0), lambda: log.read(0, 1, 1), log.flush, log.roll):
        with pytest.raises(StorageError, match="offline"):
            call()
    assert other.append(make_batch([b"fine"]), 0).base_offset == 0
    with pytest.raises(StorageError, match="not closed cleanly: clicks-0"):
        manager.close()
    assert not (memory_path / ".kafka_cleanshutdown").exists()
    reopened = LogManager(memory_path, CONFIG, ManualClock(), OsFileSystem())
    mended = reopened.get(partition)
    assert mended is not None
    assert mended.log_end_offset == 1
    reopened.close()


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_stops_writes_until_there_is_room_and_reads_go_on(
    error: int,
    memory_path: Path,
    partition: TopicPartition,
    make_batch: MakeBatch,
    read_all: ReadAll,
    faulty_filesystem: Any,
) -> None:
    filesystem = faulty_filesystem(error=error, stays_broken=False)
    manager = LogManager(memory_path, CONFIG, ManualClock(), filesystem)
    log = manager.create(partition)
    log.append(make_batch([b"first"]), 0)
    for _ in range(3):
        filesystem.fail_at = len(filesystem.operations)
        with pytest.raises(StorageError, match=os.strerror(error)):
            log.append(make_batch([b"torn in the middle"]), 0)
        assert [record.value for record in read_all(log)] == [b"first"]
    assert log.append(make_batch([b"second"]), 0).base_offset == 1
    assert [record.value for record in read_all(log)] == [b"first", b"second"]
    manager.close()
    reopened = LogManager(memory_path, CONFIG, ManualClock(), OsFileSystem())
    assert reopened.was_clean
    mended = reopened.get(partition)
    assert mended is not None
    assert [record.value for record in read_all(mended)] == [b"first", b"second"]
    reopened.close()


def test_what_cannot_be_taken_back_takes_the_log_offline(
    memory_path: Path, partition: TopicPartition, make_batch: MakeBatch, faulty_filesystem: Any
) -> None:
    filesystem = faulty_filesystem(error=errno.ENOSPC, stays_broken=True)
    log = Log.open(memory_path / str(partition), partition, CONFIG, ManualClock(), filesystem)
    log.append(make_batch([b"first"]), 0)
    filesystem.fail_at = len(filesystem.operations)
    with pytest.raises(StorageError, match="offline"):
        log.append(make_batch([b"torn"]), 0)
    assert log.is_offline


def test_append_that_never_came_to_its_end_takes_the_log_offline(
    memory_path: Path, partition: TopicPartition, make_batch: MakeBatch
) -> None:
    """Behind bytes that nobody accounted for nothing is acknowledged."""
    log = Log.open(memory_path / str(partition), partition, CONFIG, ManualClock(), OsFileSystem())
    view = memoryview(make_batch([b"first"]))
    group = log.begin_append(lambda group: group.take(view), 0)
    assert group is not None
    log.write_append(group)
    with pytest.raises(StorageError, match="offline"):
        log.append(make_batch([b"second"]), 0)
    assert log.log_end_offset == log.high_watermark == 0


def test_error_that_nobody_foresaw_takes_the_log_offline(
    memory_path: Path, partition: TopicPartition, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind bytes that nobody accounted for nothing is acknowledged."""
    log = Log.open(memory_path / str(partition), partition, CONFIG, ManualClock(), OsFileSystem())
    log.append(make_batch([b"first"]), 0)

    def fail(*_: object) -> None:
        raise OverflowError("unsigned int is greater than maximum")

    monkeypatch.setattr("barnabas.storage.segment.ActiveSegment.note_all", fail)
    with pytest.raises(StorageError, match="unsigned int is greater"):
        log.append(make_batch([b"second"]), 0)
    monkeypatch.undo()
    with pytest.raises(StorageError, match="offline"):
        log.append(make_batch([b"third"]), 0)
    reopened = Log.open(memory_path / str(partition), partition, CONFIG, ManualClock(), OsFileSystem())
    assert reopened.log_end_offset == 2
    assert reopened.append(make_batch([b"third"]), 0).base_offset == 2
    reopened.abandon()


def test_failed_fsync_is_never_tried_again(
    memory_path: Path, partition: TopicPartition, make_batch: MakeBatch, faulty_filesystem: Any
) -> None:
    filesystem = faulty_filesystem(stays_broken=False)
    log = Log.open(memory_path / str(partition), partition, CONFIG, ManualClock(), filesystem)
    log.append(make_batch([b"first"]), 0)
    filesystem.fail_at = len(filesystem.operations)
    with pytest.raises(StorageError, match="flush failed"):
        log.flush()
    assert log.recovery_point == 0
    count = len(filesystem.operations)
    for call in (log.flush, log.close):
        with pytest.raises(StorageError, match="offline"):
            call()
    assert not [operation for operation in filesystem.operations[count:] if operation.startswith("fsync")]
