"""A process dies at the operation on files that it is to die at, and nothing of it happens afterwards."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.storage.file_names import RESERVE
from tests.simulation.disk import Death, Disk, SimulatedFileSystem
from tests.simulation.loop import DiedError
from tests.simulation.world import Host, HostClock, World

LOG = Path("/data/log")


@pytest.mark.parametrize(("share", "left"), [(0.0, b"first"), (0.5, b"firstsec"), (1.0, b"firstsecond")])
def test_write_is_done_before_the_death_in_part_or_not_at_all(share: float, left: bytes) -> None:
    world = World(1)
    disk, host = Disk(world), Host(world, "one", HostClock(world.loop, 1.0, 0))
    filesystem = SimulatedFileSystem(disk, host)
    filesystem.make_folder(LOG.parent)
    file = filesystem.open(LOG, create=True)
    told: list[str] = []

    def die(operation: str) -> None:
        told.append(operation)
        host.kill()

    disk.death = Death(2, share, die)
    filesystem.writev(file, [b"first"])
    with pytest.raises(DiedError):
        filesystem.writev(file, [b"sec", b"ond"])
    with pytest.raises(OSError, match="Input/output error"):
        filesystem.writev(file, [b"third"])
    assert told == [f"writev of {LOG}"]
    next_life = SimulatedFileSystem(disk, Host(world, "one", HostClock(world.loop, 1.0, 0)))
    assert next_life.read_all(next_life.open(LOG)) == left
    world.end()


def test_file_whose_making_is_the_death_is_there_or_not() -> None:
    for share, is_there in ((0.0, False), (1.0, True)):
        world = World(1)
        disk, host = Disk(world), Host(world, "one", HostClock(world.loop, 1.0, 0))
        filesystem = SimulatedFileSystem(disk, host)
        filesystem.make_folder(LOG.parent)
        disk.death = Death(1, share, lambda _, host=host: host.kill())  # type: ignore[misc]
        with pytest.raises(DiedError):
            filesystem.open(LOG, create=True)
        assert filesystem.exists(LOG) is is_there
        world.end()


def test_disk_that_is_restored_has_what_its_copy_had() -> None:
    world = World(1)
    disk, host = Disk(world), Host(world, "one", HostClock(world.loop, 1.0, 0))
    filesystem = SimulatedFileSystem(disk, host)
    filesystem.make_folder(LOG.parent)
    file = filesystem.open(LOG, create=True)
    filesystem.writev(file, [b"first"])
    copy, room = disk.copy(), disk.room
    filesystem.writev(file, [b"second"])
    filesystem.open(LOG.with_name("other"), create=True)
    host.kill()
    disk.restore(copy)
    assert (disk.content(LOG), disk.content(LOG.with_name("other")), disk.room) == (b"first", None, room)
    next_life = SimulatedFileSystem(disk, Host(world, "one", HostClock(world.loop, 1.0, 0)))
    next_life.writev(next_life.open(LOG), [b"third"])
    disk.lose_power()
    assert copy.content(LOG) == b"first", "the copy may be restored once more"
    world.end()


def test_a_file_that_is_allocated_has_zeros_and_takes_room() -> None:
    world = World(1)
    disk, host = Disk(world), Host(world, "one", HostClock(world.loop, 1.0, 0))
    filesystem = SimulatedFileSystem(disk, host)
    filesystem.make_folder(LOG.parent)
    room = disk.room
    file = filesystem.open(LOG.with_name(RESERVE), create=True)
    filesystem.allocate(file, 3000)
    filesystem.allocate(file, 4000)
    assert (filesystem.size_of(file), disk.room) == (4000, room - 4000)
    assert filesystem.pread(file, 500, 3900) == bytes(100)
    filesystem.truncate(file, 1500)
    assert filesystem.read_all(file) == bytes(1500)
    with pytest.raises(OSError, match="No space left"):
        filesystem.allocate(file, room + 1)
    filesystem.unlink(LOG.with_name(RESERVE))
    assert disk.room == room
    world.end()
