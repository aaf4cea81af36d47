"""What is done with the file system beyond single operations."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.storage import LogConfig, LogManager, OsFileSystem
from barnabas.storage.filesystem import MeasuredFileSystem


class NotingFileSystem(OsFileSystem):
    """The real one; it notes of which folders the names were made durable."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[Path] = []

    def fsync_folder(self, path: Path) -> None:
        self.synced.append(path)
        super().fsync_folder(path)


def test_new_data_folder_survives_a_loss_of_power_with_those_above_it(tmp_path: Path) -> None:
    disk = NotingFileSystem()
    LogManager(tmp_path / "barnabas" / "data", LogConfig(), ManualClock(), disk).close()
    assert {tmp_path, tmp_path / "barnabas"} <= set(disk.synced)


def test_folders_that_are_there_are_not_synced_again(tmp_path: Path) -> None:
    disk = NotingFileSystem()
    (tmp_path / "data").mkdir()
    LogManager(tmp_path / "data", LogConfig(), ManualClock(), disk).close()
    assert tmp_path not in disk.synced


@pytest.mark.parametrize("refusal", [None, errno.EOPNOTSUPP, errno.EBADF, "missing"], ids=str)
def test_a_file_that_is_allocated_has_room_for_all_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int | str | None
) -> None:
    """Also where the file system cannot, or the system has no such call."""

    def refuse(_descriptor: int, _start: int, _size: int) -> None:
        assert isinstance(refusal, int)
        raise OSError(refusal, os.strerror(refusal))

    if refusal == "missing":
        monkeypatch.delattr(os, "posix_fallocate")
    elif refusal is not None:
        monkeypatch.setattr(os, "posix_fallocate", refuse)
    files = OsFileSystem()
    file = files.open(tmp_path / "room", create=True)
    for size in (100_000, 2_500_000, 100_000):
        files.allocate(file, size)
    found = os.fstat(file.fileno())
    assert found.st_size == 2_500_000
    assert found.st_blocks * 512 >= found.st_size


def test_a_full_disk_allocates_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int, _start: int, _size: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    files = OsFileSystem()
    with pytest.raises(OSError, match="No space left"):
        files.allocate(files.open(tmp_path / "room", create=True), 1000)
    assert files.size(tmp_path / "room") == 0


def test_each_fsync_is_measured(tmp_path: Path) -> None:
    clock = ManualClock()
    files = MeasuredFileSystem(clock.monotonic)
    file = files.open(tmp_path / "file", create=True)
    files.fsync(file)
    times = files.fsync_times()
    assert (times.counts[0], sum(times.counts), times.total) == (1, 1, 0.0)
