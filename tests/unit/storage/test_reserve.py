"""The reserve of room on the disk: given up where there is hardly any other, and made again in full."""

from __future__ import annotations

from pathlib import Path

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
