"""The reserve of room on the disk: given up where there is hardly any other, and made again in full."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.errors import StorageError
from barnabas.storage import OsFileSystem
from barnabas.storage.reserve import RESERVE_BYTES, Reserve

PLENTY = 100 * RESERVE_BYTES


class Disk(OsFileSystem):
    """A disk that says how much room it has."""

    free = PLENTY

    def free_bytes(self, path: Path) -> int:
        return self.free


def test_reserve_made_on_a_nearly_full_disk_grows_when_there_is_room(tmp_path: Path) -> None:
    disk = Disk()
    reserve, path = Reserve(disk, tmp_path), tmp_path / ".reserve"
    reserve.make()
    assert path.stat().st_size == RESERVE_BYTES
    disk.free = 0
    reserve.give_up_if_short()
    assert not path.exists()
    disk.free = RESERVE_BYTES  # which it has given up
    reserve.make()
    assert 0 < path.stat().st_size < RESERVE_BYTES
    disk.free = PLENTY
    for _ in range(2):
        reserve.make()
        assert path.stat().st_size == RESERVE_BYTES


def test_new_partitions_need_room_beside_the_reserve(tmp_path: Path) -> None:
    disk = Disk()
    reserve = Reserve(disk, tmp_path)
    reserve.check_room(1_000)
    disk.free = 1024 * 1024
    reserve.check_room(60)
    with pytest.raises(StorageError, match="1048576 bytes free, and 61 new partitions need 1064960; free disk space"):
        reserve.check_room(61)
    disk.free = 0
    with pytest.raises(StorageError, match="the disk is full"):
        reserve.check_room(0)
