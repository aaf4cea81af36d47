"""The data folder: lock, identity, clean marker, recovery points, deletion."""

from __future__ import annotations

import json
import os
import shutil
import struct
import threading
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import CorruptBatchError, DataFolderError, StorageError
from barnabas.model import TopicPartition
from barnabas.records import Record
from barnabas.storage import FileSystem, Log, LogConfig, LogManager, OsFileSystem, recovery
from barnabas.storage.filesystem import DataFile
from barnabas.storage.segment import ActiveSegment

CLICKS = TopicPartition("clicks", 0)
OTHER = TopicPartition("page-views.v2", 11)
MakeBatch = Callable[..., bytearray]
OpenManager = Callable[..., LogManager]


def test_logs_are_found_again(open_manager: OpenManager, make_batch: MakeBatch) -> None:
    manager = open_manager(cluster_id="castle")
    topic_id = uuid.UUID(int=0x1234)
    manager.create(CLICKS, topic_id=topic_id).append(make_batch(3), 0)
    manager.create(OTHER).append(make_batch(1), 0)
    manager.close()
    manager = open_manager()
    assert manager.was_clean
    assert manager.cluster_id == "castle"
    assert set(manager.all()) == {CLICKS, OTHER}
    log = manager.get(CLICKS)
    assert log is not None
    assert log.log_end_offset == log.recovery_point == 3
    assert manager.topic_ids == {CLICKS: topic_id}
    assert manager.create(CLICKS) is log
    assert manager.get(TopicPartition("missing", 0)) is None


def test_files_are_those_of_kafka(open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path) -> None:
    topic_id = uuid.UUID("fa7bd9a3-8ff5-4f0c-a1ae-b43e22a8a6ac")
    manager = open_manager(cluster_id="castle", broker_id=3, new_id=lambda: topic_id)
    manager.create(CLICKS, topic_id=topic_id).append(make_batch(3), 4)
    manager.close()
    data = tmp_path / "data"
    assert {path.name for path in (data / "clicks-0").iterdir()} == {
        "00000000000000000000.log",
        "00000000000000000000.index",
        "00000000000000000000.timeindex",
        "00000000000000000003.snapshot",
        "leader-epoch-checkpoint",
        "partition.metadata",
    }
    assert (data / "clicks-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n4 0\n"
    assert (data / "clicks-0" / "partition.metadata").read_text() == "version: 0\ntopic_id: -nvZo4_1TwyhrrQ-IqimrA"
    assert (data / "recovery-point-offset-checkpoint").read_text() == "0\n1\nclicks 0 3\n"
    assert json.loads((data / ".kafka_cleanshutdown").read_text()) == {"version": 0, "brokerEpoch": -1}
    meta = ["version=0", "broker.id=3", "cluster.id=castle", "directory.id=-nvZo4_1TwyhrrQ-IqimrA"]
    assert (data / "meta.properties").read_text().splitlines() == meta


def test_folder_in_use_is_refused(open_manager: OpenManager, tmp_path: Path) -> None:
    open_manager()
    with pytest.raises(DataFolderError, match=f"data is used by another broker .process {os.getpid()}"):
        open_manager()


@pytest.mark.parametrize("content", ["", "version=9\n", "version=0\nbroker.id=x\ncluster.id=c", "noise"])
def test_damaged_meta_properties_are_named(content: str, open_manager: OpenManager, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "meta.properties").write_text(content)
    with pytest.raises(DataFolderError, match=r"cannot read .*meta\.properties"):
        open_manager()


def test_clean_marker_is_removed_at_start(open_manager: OpenManager, tmp_path: Path) -> None:
    manager = open_manager()
    marker = tmp_path / "data" / ".kafka_cleanshutdown"
    manager.close()
    assert marker.exists()
    manager = open_manager()
    assert manager.was_clean
    assert not marker.exists()
    manager.abandon()
    assert not open_manager().was_clean


def test_log_that_cannot_be_loaded_is_offline_and_the_others_go_on(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    manager = open_manager()
    manager.create(CLICKS).append(make_batch(3), 0)
    manager.create(OTHER).append(make_batch(1), 0)
    manager.close()
    in_the_way = tmp_path / "data" / "clicks-0" / f"{0:020}.log"
    in_the_way.rename(tmp_path / "moved")
    in_the_way.mkdir()
    manager = open_manager()
    log = manager.all()[CLICKS]
    assert log.is_offline
    assert "clicks-0: cannot load the log" in caplog.text
    for call in (lambda: log.append(make_batch(1), 0), lambda: log.read(0, 1, 1), log.flush, log.roll):
        with pytest.raises(StorageError, match="offline"):
            call()
    assert manager.all()[OTHER].append(make_batch(1), 0).base_offset == 1
    with pytest.raises(StorageError, match="not closed cleanly: clicks-0"):
        manager.close()
    in_the_way.rmdir()
    (tmp_path / "moved").rename(in_the_way)
    assert open_manager().all()[CLICKS].log_end_offset == 3


@pytest.mark.parametrize(
    "error",
    [ValueError("x"), OverflowError("x"), struct.error("x"), RecursionError("x"), CorruptBatchError("x"), KeyError(1)],
    ids=lambda error: type(error).__name__,
)
def test_whatever_goes_wrong_with_one_log_keeps_no_other_from_being_used(
    error: Exception, open_manager: OpenManager, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = open_manager()
    manager.create(CLICKS)
    manager.create(OTHER).append(make_batch(1), 0)
    manager.close()
    load_log = recovery.load_log

    def load_all_but_one(filesystem: FileSystem, folder: Path, *rest: object, **named: object) -> recovery.LoadedLog:
        if folder.name == str(CLICKS):
            raise error
        return load_log(filesystem, folder, *rest, **named)  # type: ignore[arg-type]

    monkeypatch.setattr("barnabas.storage.log.load_log", load_all_but_one)
    logs = open_manager().all()
    assert (logs[CLICKS].is_offline, logs[OTHER].is_offline) == (True, False)


def test_damaged_partition_metadata_is_set_aside(open_manager: OpenManager, tmp_path: Path) -> None:
    manager = open_manager()
    manager.create(CLICKS, topic_id=uuid.UUID(int=5))
    manager.close()
    metadata = tmp_path / "data" / "clicks-0" / "partition.metadata"
    metadata.write_text("noise")
    manager = open_manager()
    assert manager.topic_ids == {}
    assert metadata.with_name("partition.metadata.damaged").read_text() == "noise"
    assert not manager.restore(CLICKS, None, uuid.UUID(int=5)).is_offline
    manager.close()
    assert open_manager().topic_ids == {CLICKS: uuid.UUID(int=5)}


class CountingFileSystem(OsFileSystem):
    """Notes which files are opened, and which folders listed."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.listed: list[str] = []

    def open(self, path: Path | str, *, create: bool = False, writable: bool = True) -> DataFile:
        self.opened.append("/".join(Path(path).parts[-2:]))
        return super().open(path, create=create, writable=writable)

    def list_folder(self, path: Path | str) -> list[str]:
        self.listed.append(Path(path).name)
        return super().list_folder(path)


def test_start_opens_each_file_once_and_only_those_that_it_needs(
    open_manager: OpenManager, make_batch: MakeBatch
) -> None:
    """With thousands of logs and nothing in the page cache, the number of files decides how long a start takes."""
    manager = open_manager()
    for partition in (CLICKS, OTHER):
        manager.create(partition, topic_id=uuid.UUID(int=1)).append(make_batch(1), 0)
    manager.close()
    disk = CountingFileSystem()
    open_manager(disk=disk)
    for partition in (CLICKS, OTHER):
        wanted = ["00000000000000000000.log", "00000000000000000001.snapshot", "leader-epoch-checkpoint"]
        opened = sorted(name for name in disk.opened if name.startswith(f"{partition}/"))
        assert opened == [f"{partition}/{name}" for name in [*wanted, "partition.metadata"]]
        assert disk.listed.count(str(partition)) == 1


class MeetingFileSystem(OsFileSystem):
    """Lists a log's folder only when somebody else wants to list another one."""

    def __init__(self) -> None:
        self.meeting = threading.Barrier(2, timeout=60)

    def list_folder(self, path: Path | str) -> list[str]:
        if Path(path).name in {str(CLICKS), str(OTHER)}:
            self.meeting.wait()
        return super().list_folder(path)


@pytest.mark.parametrize("clean", [True, False])
def test_start_waits_for_the_disk_for_several_logs_at_once(open_manager: OpenManager, clean: bool) -> None:
    manager = open_manager()
    manager.create(OTHER)
    manager.create(CLICKS)
    if clean:
        manager.close()
    else:
        manager.abandon()
    manager = open_manager(disk=MeetingFileSystem())
    assert manager.was_clean is clean
    assert list(manager.all()) == sorted([CLICKS, OTHER], key=str)
    assert not any(log.is_offline for log in manager.all().values())


def test_logs_share_what_is_the_same_for_all_of_a_topic(open_manager: OpenManager, make_batch: MakeBatch) -> None:
    partitions = [TopicPartition("clicks", number) for number in range(2)]
    manager = open_manager()
    for partition in partitions:
        manager.create(partition, topic_id=uuid.UUID(int=1)).append(make_batch(1), 0)
    manager.close()
    manager = open_manager()
    first, second = manager.all().values()
    assert [first.partition, second.partition] == partitions
    assert first.partition.topic is second.partition.topic
    assert first.leader_epochs.entries is second.leader_epochs.entries
    assert manager.topic_ids[first.partition] is manager.topic_ids[second.partition]


def test_log_of_which_there_is_no_trace_was_never_made_unless_the_folder_is_new(open_manager: OpenManager) -> None:
    new = open_manager(cluster_id="castle", boot_id="monday")
    new.restore(CLICKS, None, uuid.UUID(int=5))
    assert new.gone == {CLICKS}
    new.abandon()
    still_new = open_manager(cluster_id="castle", boot_id="monday")
    still_new.restore(OTHER, None, uuid.UUID(int=6))
    assert still_new.gone == {OTHER}
    still_new.note_boot()
    still_new.abandon()
    old = open_manager(cluster_id="castle", boot_id="monday")
    more = TopicPartition("more", 0)
    old.restore(more, None, uuid.UUID(int=7))
    assert (old.missing, old.gone) == ({more}, set())


def test_log_without_files_begins_where_it_had_been(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Of what is stored the greatest counts: no offset is used twice."""
    manager = open_manager()
    manager.create(CLICKS).append(make_batch(30), 0)
    manager.close()
    for path in (tmp_path / "data" / "clicks-0").iterdir():
        path.unlink()
    log = open_manager().all()[CLICKS]
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (30, 30, 30)
    assert "the log starts again at offset 30" in caplog.text
    assert log.append(make_batch(1), 0).base_offset == 30


def test_what_comes_behind_a_lost_end_does_not_count_as_compacted(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    manager = open_manager()
    manager.create(CLICKS).append(make_batch(3), 0)
    manager.close()
    (tmp_path / "data" / "cleaner-offset-checkpoint").write_text("0\n1\nclicks 0 7\n")
    assert open_manager().all()[CLICKS].first_dirty_offset == 3


def test_log_whose_folder_is_gone_begins_where_it_had_been(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    manager = open_manager()
    manager.create(CLICKS, topic_id=uuid.UUID(int=5)).append(make_batch(30), 0)
    manager.close()
    shutil.rmtree(tmp_path / "data" / "clicks-0")
    manager = open_manager()
    assert manager.all() == {}
    assert manager.restore(CLICKS, None, uuid.UUID(int=5)).log_start_offset == 30
    assert manager.topic_ids == {CLICKS: uuid.UUID(int=5)}


@pytest.mark.parametrize("clean", [True, False])
def test_log_that_lost_its_end_goes_on_behind_it(
    clean: bool,
    open_manager: OpenManager,
    make_batch: MakeBatch,
    read_all: Callable[..., list[Record]],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What two checkpoints say is believed; the offsets between are passed over by readers."""
    manager = open_manager()
    log = manager.create(CLICKS)
    for _ in range(3):
        log.append(make_batch(10), 0)
    manager.close()
    os.truncate(tmp_path / "data" / "clicks-0" / f"{0:020}.log", log.size_bytes // 3 + 1)
    if not clean:
        (tmp_path / "data" / ".kafka_cleanshutdown").unlink()
    log = open_manager().all()[CLICKS]
    assert "ends at offset 10, below recovery point 30 or high watermark 30" in caplog.text
    assert log.append(make_batch(1), 0).base_offset == 30
    assert [record.offset for record in read_all(log)] == [*range(10), 30]
    log.roll()
    log.flush()


def test_one_checkpoint_alone_is_not_believed_against_the_files(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    manager = open_manager()
    manager.create(CLICKS).append(make_batch(3), 0)
    manager.close()
    (tmp_path / "data" / "replication-offset-checkpoint").write_text("0\n1\nclicks 0 99\n")
    assert open_manager().all()[CLICKS].log_end_offset == 3


def test_folder_that_cannot_be_written_is_named(tmp_path: Path, clock: ManualClock) -> None:
    (tmp_path / "data").write_text("a file")
    with pytest.raises(DataFolderError, match="data: cannot be used as a data directory"):
        LogManager(tmp_path / "data", LogConfig(), clock, OsFileSystem())


def test_other_folders_are_left_alone(open_manager: OpenManager, tmp_path: Path) -> None:
    (tmp_path / "data" / "warehouse").mkdir(parents=True)
    (tmp_path / "data" / "notes-1").write_text("a file")
    manager = open_manager()
    assert not manager.all()
    manager.close()
    assert (tmp_path / "data" / "warehouse").exists()


@pytest.mark.parametrize("content", ["", "0\n1\n", "0\n1\nclicks 0 99999\n", "9\n0\n", "0\n1\nclicks zero 1\n"])
def test_damaged_recovery_points_only_cost_time(
    content: str, open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    manager = open_manager()
    manager.create(CLICKS).append(make_batch(3), 0)
    manager.abandon()
    (tmp_path / "data" / "recovery-point-offset-checkpoint").write_text(content)
    log = open_manager().get(CLICKS)
    assert log is not None
    assert log.log_end_offset == 3
    assert log.recovery_point <= 3


def test_sealed_segments_are_flushed_and_the_recovery_points_stored(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    manager = open_manager()
    log = manager.create(CLICKS)
    log.append(make_batch(3), 0)
    manager.flush_sealed()
    assert log.recovery_point == 0
    log.roll()
    log.append(make_batch(2), 0)
    manager.flush_sealed()
    assert log.recovery_point == 5
    assert (tmp_path / "data" / "recovery-point-offset-checkpoint").read_text() == "0\n1\nclicks 0 5\n"


def test_truncation_lowers_the_stored_recovery_point(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    manager = open_manager()
    log = manager.create(CLICKS)
    for _ in range(3):
        log.append(make_batch(1), 0)
    log.flush()
    manager.checkpoint_recovery_points()
    log.truncate_to(1)
    assert (tmp_path / "data" / "recovery-point-offset-checkpoint").read_text() == "0\n1\nclicks 0 1\n"


def test_stored_log_start_stays_while_the_log_reaches_back_to_a_batch(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    manager = open_manager()
    log = manager.create(CLICKS)
    log.truncate_fully_and_start_at(2)
    checkpoint = tmp_path / "data" / "log-start-offset-checkpoint"
    stored = checkpoint.read_text()
    assert stored == "0\n1\nclicks 0 2\n"
    log.lower_log_end_to(0)
    assert checkpoint.read_text() == stored
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (2, 0, 0)
    log.append(make_batch(4), 0)
    manager.abandon()
    found = open_manager().get(CLICKS)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset) == (2, 4)


def test_no_checkpoint_stores_a_lower_log_start_while_the_log_reaches_back_to_a_batch(
    open_manager: OpenManager, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = open_manager()
    log = manager.create(CLICKS)
    log.truncate_fully_and_start_at(2)
    create, starts = ActiveSegment.create, []

    def create_and_look(*args: Any) -> ActiveSegment:
        starts.append(log.log_start_offset_to_store)  # as another thread's checkpoint does
        return create(*args)

    monkeypatch.setattr(ActiveSegment, "create", create_and_look)
    log.lower_log_end_to(0)
    assert starts == [2]


def test_log_that_ends_before_its_stored_start_lacks_records(open_manager: OpenManager) -> None:
    manager = open_manager()
    log = manager.create(CLICKS)
    log.truncate_fully_and_start_at(2)
    log.lower_log_end_to(0)
    manager.abandon()
    found = open_manager().get(CLICKS)
    assert found is not None
    assert (found.log_start_offset, found.log_end_offset, found.lost_from) == (0, 0, 0)


def test_log_that_cannot_be_made_leaves_nothing_behind(open_manager: OpenManager, tmp_path: Path) -> None:
    manager = open_manager()
    (tmp_path / "data" / "clicks-0").write_text("a file in the way")
    with pytest.raises(StorageError, match="clicks-0"):
        manager.create(CLICKS)
    assert manager.get(CLICKS) is None


def test_where_logs_begin_survives(open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path) -> None:
    manager = open_manager()
    log = manager.create(CLICKS)
    manager.create(OTHER).append(make_batch(5), 0)
    log.append(make_batch(10), 0)
    log.delete_records_before(4)
    manager.remove_deleted_records()
    assert (tmp_path / "data" / "log-start-offset-checkpoint").read_text() == "0\n1\nclicks 0 4\n"
    assert log.recovery_point == 10
    manager.abandon()
    manager = open_manager()
    assert {str(partition): each.log_start_offset for partition, each in manager.all().items()} == {
        str(CLICKS): 4,
        str(OTHER): 0,
    }


def test_where_logs_begin_does_not_go_back_when_two_threads_store_it(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    manager = open_manager()
    log = manager.create(CLICKS)
    log.append(make_batch(10), 0)
    log.delete_records_before(4)
    other = threading.Thread(target=manager.remove_deleted_records)

    def overtaken(log: Log) -> int:
        begins = log.log_start_offset
        log.delete_records_before(8)
        other.start()
        other.join(0.2)  # it either ends now, or waits for this thread
        return begins

    manager._store("log-start-offset-checkpoint", overtaken)
    other.join()
    assert (tmp_path / "data" / "log-start-offset-checkpoint").read_text() == "0\n1\nclicks 0 8\n"


def test_files_of_deleted_records_stay_for_the_delay(make_batch: MakeBatch, tmp_path: Path, clock: ManualClock) -> None:
    manager = LogManager(tmp_path, LogConfig(), clock, OsFileSystem(), file_delete_delay_ms=60_000)
    log = manager.create(CLICKS)
    log.append(make_batch(10), 0)
    log.roll()
    log.delete_records_before(10)
    manager.remove_deleted_records()
    manager.create(OTHER)
    clock.advance(30)
    manager.delete(OTHER)
    clock.advance(29)
    manager.purge_deleted()
    assert len(list(tmp_path.glob("clicks-0/*.deleted"))) == 3
    clock.advance(2)
    manager.purge_deleted()
    assert not list(tmp_path.glob("clicks-0/*.deleted"))
    assert list(tmp_path.glob("*-delete"))
    clock.advance(30)
    manager.purge_deleted()
    assert not list(tmp_path.glob("*-delete"))
    manager.close()


@pytest.mark.parametrize("content", ["", "0\n1\n", "0\n1\nclicks 0 99\n", "0\n1\nclicks zero 1\n"])
def test_damaged_log_starts_delete_nothing(
    content: str, open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    manager = open_manager()
    log = manager.create(CLICKS)
    for _ in range(3):
        log.append(make_batch(10), 0)
        log.roll()
    manager.close()
    (tmp_path / "data" / "log-start-offset-checkpoint").write_text(content)
    log = open_manager().all()[CLICKS]
    assert (log.log_start_offset, log.log_end_offset) == (0, 30)
