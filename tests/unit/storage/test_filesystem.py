"""What is done with the file system beyond single operations."""

from __future__ import annotations

from pathlib import Path

from barnabas.clock import ManualClock
from barnabas.storage import LogConfig, LogManager, OsFileSystem


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
