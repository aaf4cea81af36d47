"""Logs that are deleted: renamed first, removed later, and nothing else with them."""

from __future__ import annotations

import errno
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.storage import LogConfig, LogManager, OsFileSystem
from barnabas.storage.filesystem import DataFile

CLICKS = TopicPartition("clicks", 0)
OTHER = TopicPartition("page-views.v2", 11)
MakeBatch = Callable[..., bytearray]
OpenManager = Callable[..., LogManager]


def test_deleted_log_is_renamed_then_purged(open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path) -> None:
    manager = open_manager()
    log = manager.create(CLICKS)
    log.append(make_batch(3), 0)
    region = log.read(0, 10_000, 3).batches
    manager.delete(CLICKS)
    manager.delete(CLICKS)
    assert manager.get(CLICKS) is None
    (renamed,) = (tmp_path / "data").glob("clicks-0.*-delete")
    assert manager.create(CLICKS).log_end_offset == 0
    manager.purge_deleted()
    assert not renamed.exists()
    assert region
    assert len(os.pread(region.file.fileno(), region.length, region.position)) == region.length


def test_deleted_log_does_not_come_back(open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path) -> None:
    manager = open_manager()
    manager.create(TopicPartition("t" * 249, 0)).append(make_batch(1), 0)
    manager.delete(TopicPartition("t" * 249, 0))
    manager.close()
    manager = open_manager()
    assert not manager.all()
    manager.purge_deleted()
    assert not list((tmp_path / "data").glob("*-delete"))


def test_folder_of_another_topic_is_not_touched(open_manager: OpenManager, make_batch: MakeBatch) -> None:
    manager = open_manager()
    manager.create(CLICKS, topic_id=uuid.UUID(int=5)).append(make_batch(3), 0)
    manager.close()
    manager = open_manager()
    assert manager.restore(CLICKS, None, uuid.UUID(int=6)).is_offline
    manager.abandon()
    assert open_manager().all()[CLICKS].log_end_offset == 3


def test_folder_is_renamed_when_it_is_durable_that_it_was_deleted(
    make_batch: MakeBatch, tmp_path: Path, clock: ManualClock
) -> None:
    """Else a power loss might leave the new name without the note, and no start would ever remove the folder."""
    steps: list[str] = []

    class Told(OsFileSystem):
        def open(self, path: Path | str, *, create: bool = False, writable: bool = True) -> DataFile:
            if str(path).endswith(".deleted-by-broker"):
                steps.append("note")
            return super().open(path, create=create, writable=writable)

        def fsync_folder(self, path: Path) -> None:
            if path.name == str(CLICKS):
                steps.append("fsync")
            super().fsync_folder(path)

        def replace(self, source: Path, target: Path) -> None:
            if source.name == str(CLICKS):
                steps.append("rename")
            super().replace(source, target)

    manager = LogManager(tmp_path / "data", LogConfig(), clock, Told())
    manager.create(CLICKS).append(make_batch(1), leader_epoch=0)
    steps.clear()
    manager.delete(CLICKS)
    assert steps == ["note", "fsync", "rename"]
    manager.close()


def test_only_what_a_broker_noted_as_deleted_is_removed(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    """A name is not enough, neither one that somebody else gave nor one that a broker would give."""
    data = tmp_path / "data"
    names = ["photos-to-delete", "clicks-delete", f"clicks-0.{'0' * 32}-delete", f"clicks-0.{'A' * 32}-delete"]
    for name in names:
        (data / name).mkdir(parents=True)
        (data / name / "precious").write_text("precious")
    (data / "photos-to-delete" / ".deleted-by-broker").touch()
    manager = open_manager()
    manager.create(OTHER)
    manager.delete(OTHER)
    manager.abandon()
    open_manager().purge_deleted()
    assert sorted(path.name for path in data.glob("*-delete")) == sorted(names)
    assert all((data / name / "precious").exists() for name in names)


class StubbornFileSystem(OsFileSystem):
    """Cannot remove folders of a certain name."""

    stubborn = "nothing"

    def remove_folder(self, path: Path) -> None:
        if path.name.startswith(self.stubborn):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        super().remove_folder(path)


def test_path_that_cannot_be_removed_keeps_no_other_from_it_and_is_tried_again(
    tmp_path: Path, clock: ManualClock
) -> None:
    disk = StubbornFileSystem()
    manager = LogManager(tmp_path, LogConfig(), clock, disk, file_delete_delay_ms=1_000)
    for partition in (CLICKS, OTHER):
        manager.create(partition)
        manager.delete(partition)
    disk.stubborn = "clicks"
    clock.advance(1)
    with pytest.raises(StorageError, match="cannot remove deleted files"):
        manager.purge_deleted()
    assert [path.name[:8] for path in tmp_path.glob("*-delete")] == ["clicks-0"]
    disk.stubborn = "nothing"
    manager.purge_deleted()
    assert list(tmp_path.glob("*-delete"))
    clock.advance(1)
    manager.purge_deleted()
    assert not list(tmp_path.glob("*-delete"))
    manager.close()


def test_log_whose_folder_is_gone_can_be_deleted_and_made_again(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    manager = open_manager()
    manager.create(CLICKS).append(make_batch(10), 0)
    shutil.rmtree(tmp_path / "data" / "clicks-0")
    manager.delete(CLICKS)
    assert manager.create(CLICKS).append(make_batch(1), 0).base_offset == 0


def test_log_deleted_before_its_old_files_were_removed(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    manager = open_manager()
    log = manager.create(CLICKS)
    log.append(make_batch(10), 0)
    log.delete_records_before(10)
    manager.remove_deleted_records()
    manager.delete(CLICKS)
    manager.purge_deleted()
    manager.purge_deleted()
    assert not list((tmp_path / "data").glob("clicks*"))


def test_new_log_does_not_inherit_offsets_of_a_deleted_one(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    manager = open_manager()
    log = manager.create(CLICKS)
    log.append(make_batch(10), 0)
    log.delete_records_before(4)
    manager.remove_deleted_records()
    manager.checkpoint_recovery_points()
    manager.delete(CLICKS)
    manager.create(CLICKS).append(make_batch(20), 0)
    manager.abandon()
    for name in ("log-start-offset-checkpoint", "recovery-point-offset-checkpoint"):
        assert (tmp_path / "data" / name).read_text() == "0\n0\n"
    assert open_manager().all()[CLICKS].log_start_offset == 0


@pytest.mark.parametrize("when", ["deleted, and then killed", "deleted by the next start"])
def test_log_that_is_to_be_there_lacks_nothing_of_a_deleted_one_of_its_name(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path, when: str
) -> None:
    """A topic was deleted and made again, the second time while the broker was away."""
    manager = open_manager(cluster_id="castle", boot_id="monday")
    manager.note_boot()
    manager.create(CLICKS, topic_id=uuid.UUID(int=1)).append(make_batch(10), 0)
    manager.get(CLICKS).flush()  # type: ignore[union-attr]
    manager.checkpoint_recovery_points()
    if when == "deleted, and then killed":
        manager.delete(CLICKS)
    manager.abandon()
    manager = open_manager(cluster_id="castle", boot_id="monday")
    if when == "deleted by the next start":
        manager.delete(CLICKS)
    log = manager.restore(CLICKS, None, uuid.UUID(int=2))
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert (manager.missing, manager.gone) == ({CLICKS}, set())


def test_log_whose_folder_is_gone_is_missed_though_another_was_deleted(
    open_manager: OpenManager, make_batch: MakeBatch, tmp_path: Path
) -> None:
    """What the checkpoints say of it is all that tells; a log of a deleted topic's name is restored before it."""
    manager = open_manager(cluster_id="castle", boot_id="monday")
    manager.note_boot()
    for number, partition in enumerate([CLICKS, OTHER]):
        manager.create(partition, topic_id=uuid.UUID(int=number)).append(make_batch(10), 0)
        manager.get(partition).flush()  # type: ignore[union-attr]
    manager.checkpoint_recovery_points()
    manager.delete(CLICKS)
    manager.abandon()
    shutil.rmtree(tmp_path / "data" / str(OTHER))
    manager = open_manager(cluster_id="castle", boot_id="monday")
    manager.restore(CLICKS, None, uuid.UUID(int=2))
    manager.restore(OTHER, None, uuid.UUID(int=1))
    assert (manager.missing, manager.gone) == ({CLICKS, OTHER}, {OTHER})
    manager.abandon()
    assert not open_manager(cluster_id="castle", boot_id="monday").is_checkpointed(CLICKS)


def test_nothing_is_left_of_a_deleted_log_in_the_checkpoints_when_its_folder_goes(
    open_manager: OpenManager, make_batch: MakeBatch, clock: ManualClock
) -> None:
    """The folder says that what they say is of no use any more."""
    manager = open_manager(cluster_id="castle", boot_id="monday", file_delete_delay_ms=60_000)
    manager.note_boot()
    manager.create(CLICKS).append(make_batch(10), 0)
    manager.get(CLICKS).flush()  # type: ignore[union-attr]
    manager.checkpoint_recovery_points()
    manager.delete(CLICKS)
    clock.advance(60)
    manager.purge_deleted()
    manager.abandon()
    manager = open_manager(cluster_id="castle", boot_id="monday")
    assert not manager.is_checkpointed(CLICKS)
