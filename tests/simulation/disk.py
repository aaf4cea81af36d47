"""A disk in memory that forgets what was not synced when its machine loses power, and may run full.

Of what was not synced a loss of power leaves, file by file, all, nothing, or a part, whose last page may be torn; of
the names in a folder, all changes since its last fsync or none. Whoever needs more than that of a file system asks for
too much.
"""

from __future__ import annotations

import errno
import functools
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self, TypeVar

from barnabas.storage.filesystem import Chunk, DataFile, FilePath
from tests.simulation.loop import DiedError
from tests.simulation.world import Host, World

ROOM_BYTES = 1 << 26
"""More than any run fills; a broker keeps a sixteenth of it in reserve."""
Call = TypeVar("Call", bound=Callable[..., Any])


class _Zeros:
    """What is in a file that was allocated, as a `bytearray` that takes no memory: a broker's reserve has some
    megabytes, and nearly all memory that a run asked the machine for was for these."""

    def __init__(self, size: int) -> None:
        self._size = size

    def __len__(self) -> int:
        return self._size

    def __bytes__(self) -> bytes:
        return bytes(self._size)

    def __iadd__(self, chunk: Chunk) -> Self:
        assert not any(chunk), "a file that was allocated has no content of its own"
        self._size += len(chunk)
        return self

    def __getitem__(self, part: slice) -> bytes:
        return bytes(len(range(self._size)[part]))

    def __setitem__(self, part: slice, value: bytes) -> None:
        """What a loss of power tears is zeros afterwards, as before."""

    def __delitem__(self, part: slice) -> None:
        self._size -= len(range(self._size)[part])


class _Content:
    """What is in a file, and what of it is on the platter."""

    __slots__ = ("data", "durable", "durable_size", "locked_by", "modified_ms")

    def __init__(self) -> None:
        self.data: bytearray | _Zeros = bytearray()
        self.durable_size = 0
        self.durable: bytes | None = None
        """What would be there after a loss of power, if it is more than the beginning of `data`."""
        self.modified_ms = 0
        self.locked_by: SimulatedFile | None = None

    def sync(self) -> None:
        self.durable_size, self.durable = len(self.data), None

    def cut(self, size: int) -> None:
        if size < self.durable_size and self.durable is None:
            self.durable = bytes(self.data[: self.durable_size])
        self.durable_size = min(self.durable_size, size)
        del self.data[size:]

    def copy(self) -> _Content:
        copy = _Content()
        copy.data = _Zeros(len(self.data)) if isinstance(self.data, _Zeros) else bytearray(self.data)
        copy.modified_ms = self.modified_ms
        copy.sync()
        return copy

    def lose_power(self, world: World) -> None:
        kind = world.random.randrange(3)
        if kind == 0:  # all was written in time
            self.sync()
            return
        if self.durable is not None:
            self.data = bytearray(self.durable)
        elif kind == 1:
            del self.data[self.durable_size :]
        else:
            unsynced = len(self.data) - self.durable_size
            kept = world.random.randint(0, unsynced)
            torn = world.random.randint(0, min(kept, 64)) if world.random.random() < 0.5 else 0
            del self.data[self.durable_size + kept :]
            if torn:
                self.data[-torn:] = bytes(torn)
        self.sync()
        self.locked_by = None


class _Folder:
    __slots__ = ("durable", "names")

    def __init__(self) -> None:
        self.names: dict[str, _Content | _Folder] = {}
        self.durable: dict[str, _Content | _Folder] = {}

    def sync(self) -> None:
        self.durable = dict(self.names)

    def copy(self) -> _Folder:
        copy = _Folder()
        copy.names = {name: node.copy() for name, node in self.names.items()}
        copy.sync()
        return copy

    def size(self) -> int:
        return sum(node.size() if isinstance(node, _Folder) else len(node.data) for node in self.names.values())

    def lose_power(self, world: World) -> None:
        if world.random.random() < 0.5:
            self.names = dict(self.durable)
        self.sync()
        for node in self.names.values():
            node.lose_power(world)


class SimulatedFile(DataFile):
    """An open file."""

    __slots__ = ("content",)

    def __init__(self, content: _Content, path: FilePath) -> None:
        super().__init__(-1, path)
        self.content = content

    def read(self, size: int, position: int) -> bytes:
        return bytes(self.content.data[position : position + size])

    def close(self) -> None:
        if self.content.locked_by is self:
            self.content.locked_by = None


@dataclass
class Death:
    """What is to befall a process at one of its operations on files.

    :param operation: at which; 1 is the next one.
    :param share: how much of it is done: nothing, all, or, of what is written, so much.
    :param die: what ends the process; it is told which operation it was.
    """

    operation: int
    share: float
    die: Callable[[str], None]


class Disk:
    """What one machine keeps over the lives of its processes."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.root = _Folder()
        self.room = ROOM_BYTES
        self.death: Death | None = None
        """What is to befall the process that uses it."""

    def lose_power(self) -> None:
        """Forget what was not synced, or a part of it."""
        self.root.lose_power(self.world)

    def copy(self) -> Disk:
        """Return a copy of all that is on it now, as a snapshot or a backup is."""
        copy = Disk(self.world)
        copy.root = self.root.copy()
        return copy

    def restore(self, copy: Disk) -> None:
        """Have what a copy has, and nothing else; nothing may use the disk."""
        self.room += self.root.size() - copy.root.size()
        self.root = copy.root.copy()

    def content(self, path: Path) -> bytes | None:
        """Return what is in a file; None if there is none."""
        node: _Content | _Folder | None = self.root
        for part in path.parts[1:]:
            node = node.names.get(part) if isinstance(node, _Folder) else None
        return bytes(node.data) if isinstance(node, _Content) else None

    def holds(self, path: Path) -> bool:
        """Whether a file or a folder is there; whoever looks need not be alive."""
        node: _Content | _Folder | None = self.root
        for part in path.parts[1:]:
            node = node.names.get(part) if isinstance(node, _Folder) else None
        return node is not None


def _may_die(call: Call) -> Call:
    """Have a process die before, after or within an operation that changes what is on the disk."""

    @functools.wraps(call)
    def call_or_die(self: SimulatedFileSystem, *arguments: Any) -> Any:
        disk = self._disk
        death = disk.death
        if death is None or not self._host.is_alive:
            return call(self, *arguments)
        death.operation -= 1
        if death.operation > 0:
            return call(self, *arguments)
        disk.death = None
        if death.share > 0:
            call(self, *arguments)
            if call.__name__ == "writev":
                self._tear(*arguments, death.share)
        death.die(f"{call.__name__} of {getattr(arguments[0], 'path', arguments[0])}")
        raise DiedError

    return call_or_die  # type: ignore[return-value]


class SimulatedFileSystem:
    """A disk as one process sees it: when that is dead, nothing changes any more."""

    def __init__(self, disk: Disk, host: Host) -> None:
        self._disk = disk
        self._host = host

    def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> DataFile:
        self._check_alive()
        folder, name = self._place(path)
        node = folder.names.get(name)
        if isinstance(node, _Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if node is None:
            if not create:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            node = self._make(path)
        del writable
        return SimulatedFile(node, path)

    @_may_die
    def writev(self, file: DataFile, chunks: Sequence[Chunk]) -> int:
        content = self._content(file)
        size = sum(map(len, chunks))
        if size > self._disk.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file.path))
        self._disk.room -= size
        for chunk in chunks:
            content.data += chunk
        content.modified_ms = self._host.clock.time_ms()
        return size

    def pread(self, file: DataFile, size: int, position: int) -> bytes:
        return bytes(self._content(file).data[position : position + size])

    def read_all(self, file: DataFile) -> bytes:
        return bytes(self._content(file).data)

    @_may_die
    def fsync(self, file: DataFile) -> None:
        self._content(file).sync()

    @_may_die
    def truncate(self, file: DataFile, size: int) -> None:
        content = self._content(file)
        if size > len(content.data):
            content.data += bytes(size - len(content.data))
        else:
            self._disk.room += len(content.data) - size
            content.cut(size)

    @_may_die
    def allocate(self, file: DataFile, size: int) -> None:
        content = self._content(file)
        assert not len(content.data) or isinstance(content.data, _Zeros), "only files without content are allocated"
        missing = size - len(content.data)
        if missing > self._disk.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file.path))
        self._disk.room -= missing
        content.data = _Zeros(size)
        content.modified_ms = self._host.clock.time_ms()

    def exists(self, path: Path) -> bool:
        try:
            self._node(path)
        except OSError:
            return False
        return True

    def size(self, path: FilePath) -> int:
        node = self._node(path)
        return len(node.data) if isinstance(node, _Content) else 0

    def size_of(self, file: DataFile) -> int:
        return len(self._content(file).data)

    def modified_ms(self, path: Path) -> int:
        node = self._node(path)
        return node.modified_ms if isinstance(node, _Content) else 0

    @_may_die
    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        node = self._node(path)
        assert isinstance(node, _Content)
        node.modified_ms = modified_ms

    @_may_die
    def replace(self, source: Path, target: Path) -> None:
        self._check_alive()
        node = self._node(source)
        folder, name = self._place(target)
        old_folder, old_name = self._place(source)
        there = folder.names.get(name)
        if isinstance(there, _Folder) and (there.names or isinstance(node, _Content)):
            raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), str(target))
        folder.names[name] = node
        del old_folder.names[old_name]

    @_may_die
    def unlink(self, path: Path) -> None:
        self._check_alive()
        node = self._node(path)
        if isinstance(node, _Folder):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        folder, name = self._place(path)
        self._disk.room += len(node.data)
        del folder.names[name]

    @_may_die
    def make_folder(self, path: Path) -> None:
        self._check_alive()
        folder = self._disk.root
        for part in path.parts[1:]:
            node = folder.names.setdefault(part, _Folder())
            if not isinstance(node, _Folder):
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path))
            folder = node

    @_may_die
    def remove_folder(self, path: Path) -> None:
        self._check_alive()
        node = self._node(path)
        if not isinstance(node, _Folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        folder, name = self._place(path)
        del folder.names[name]

    def list_folder(self, path: FilePath) -> list[str]:
        node = self._node(path)
        if not isinstance(node, _Folder):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
        return sorted(node.names)

    @_may_die
    def fsync_folder(self, path: Path) -> None:
        self._check_alive()
        node = self._node(path)
        assert isinstance(node, _Folder)
        node.sync()

    @_may_die
    def _make(self, path: FilePath) -> _Content:
        folder, name = self._place(path)
        node = folder.names[name] = _Content()
        node.modified_ms = self._host.clock.time_ms()
        return node

    def _tear(self, file: DataFile, chunks: Sequence[Chunk], share: float) -> None:
        """Leave only the first share of what was just written."""
        left_out = sum(map(len, chunks))
        left_out -= int(share * left_out)
        content = self._content(file)
        del content.data[len(content.data) - left_out :]
        self._disk.room += left_out

    def free_bytes(self, path: Path) -> int:
        del path
        return self._disk.room

    def try_lock(self, file: DataFile) -> bool:
        content = self._content(file)
        if content.locked_by is not None and content.locked_by is not file:
            return False
        assert isinstance(file, SimulatedFile)
        content.locked_by = file
        self._host.on_death.append(file.close)
        return True

    def _check_alive(self) -> None:
        if not self._host.is_alive:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    def _content(self, file: DataFile) -> _Content:
        self._check_alive()
        assert isinstance(file, SimulatedFile)
        return file.content

    def _node(self, path: FilePath) -> _Content | _Folder:
        if str(path) == "/":
            return self._disk.root
        folder, name = self._place(path)
        node = folder.names.get(name)
        if node is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return node

    def _place(self, path: FilePath) -> tuple[_Folder, str]:
        """Return the folder that a path is in, and its name there."""
        parts = str(path).split("/")[1:]
        folder = self._disk.root
        for part in parts[:-1]:
            node = folder.names.get(part)
            if node is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
            if not isinstance(node, _Folder):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(path))
            folder = node
        return folder, parts[-1]
