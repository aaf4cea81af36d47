"""All access of storage to files, behind an interface that tests fill with faults; and the health of a log.

Invariants. Nothing is mapped: a file cut short under its map would end the process. A shortage of room, file
descriptors or memory is not a failure of the disk. It passes: while the disk is full, writes fail and reads go on.
Where a shortage may have done harm, the caller says so, and the log goes offline. An offline log stays offline until it
is opened again.

Threads. Any thread may use a file system, and ask for the health of a log.

Errors are OSErrors. `LogHealth` turns them into StorageError and takes the log offline; it raises ClosedError after the
end of a log.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import shutil
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from barnabas.errors import BarnabasError, ClosedError, StorageError
from barnabas.log_lines import LogEvent, about, event
from barnabas.metrics.metric import Histogram, Observations
from barnabas.model import TopicPartition

logger = logging.getLogger(__name__)

Chunk = bytes | bytearray | memoryview

FilePath = Path | str
"""Where thousands of files are opened and kept open, a string costs a tenth of a Path's time and room."""

_IOVECS_MAX = 1024
"""As many buffers as Linux takes in one writev."""

_JOINED_BYTES = 4096
"""To copy a buffer that is smaller costs less than to pass one more to writev."""

OPEN_FILES = frozenset({errno.EMFILE, errno.ENFILE})
"""The errors of a process, or a system, that is short of open files."""

_TO_READ = os.O_CLOEXEC | os.O_RDONLY
_TO_WRITE = os.O_CLOEXEC | os.O_RDWR | os.O_APPEND
_TO_CREATE = _TO_WRITE | os.O_CREAT

_SMALL_BYTES = 4096
"""Most files that are read whole are smaller: their size need not be asked for."""

_NOT_SUPPORTED = frozenset({errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""What file systems answer that cannot allocate room without writing; EBADF comes from the C library, which writes in
their place, but not to files that are opened to append."""

_ZEROS_BYTES = 1024 * 1024

FSYNC_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

SHORTAGES = OPEN_FILES | {errno.ENOMEM, errno.ENOSPC, errno.EDQUOT}


def is_shortage(error: OSError) -> bool:
    """Return whether there was too little of something: open files, memory, room on the disk. It passes, and what is on
    the disk is as sound as before."""
    return error.errno in SHORTAGES


class DataFile:
    """An open file that closes itself with its last reference.

    A segment and all `FileRegion`s read from it share one. Dropping the segment's reference closes the file at
    once, unless a region is still being sent: then with the last region. That is why nothing here calls close
    on a file that may have been handed out.
    """

    __slots__ = ("_descriptor", "_path")

    def __init__(self, descriptor: int, path: FilePath) -> None:
        self._descriptor = descriptor
        self._path = str(path)

    @property
    def path(self) -> Path:
        """Where it was opened."""
        return Path(self._path)

    def fileno(self) -> int:
        """:raises ValueError: the file is closed."""
        if self._descriptor < 0:
            raise ValueError(f"{self._path} is closed")
        return self._descriptor

    def close(self) -> None:
        """Close the file now; its owner must have the only reference."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"DataFile({self._path})"


class FileSystem(Protocol):
    """The operations on files. Each raises OSError when the operating system refuses."""

    def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> DataFile:
        """Open a file to read at any position and, if `writable`, to write at its end."""
        ...

    def writev(self, file: DataFile, chunks: Sequence[Chunk]) -> int:
        """Write the chunks to the end of the file in one system call; return how many bytes were taken."""
        ...

    def pread(self, file: DataFile, size: int, position: int) -> bytes:
        """Read up to `size` bytes; fewer only at the end of the file."""
        ...

    def read_all(self, file: DataFile) -> bytes:
        """Return all that is in a file."""
        ...

    def fsync(self, file: DataFile) -> None: ...

    def truncate(self, file: DataFile, size: int) -> None: ...

    def allocate(self, file: DataFile, size: int) -> None:
        """Let a file grow to `size` bytes, for all of which there is room on the disk from then on. What they hold is
        zeros, and not worth reading. Where this fails, the file may have grown by a part."""
        ...

    def exists(self, path: Path) -> bool:
        """Return whether there is a file or folder of this name; False also where that cannot be found out."""
        ...

    def size(self, path: FilePath) -> int: ...

    def size_of(self, file: DataFile) -> int:
        """Return the size of an open file."""
        ...

    def modified_ms(self, path: Path) -> int:
        """Return when the content was last changed, in milliseconds since the epoch."""
        ...

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Say when the content was last changed."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file or folder; a file that has the new name is replaced, atomically."""
        ...

    def unlink(self, path: Path) -> None: ...

    def make_folder(self, path: Path) -> None: ...

    def remove_folder(self, path: Path) -> None:
        """Remove a folder and all that is in it."""
        ...

    def list_folder(self, path: FilePath) -> list[str]: ...

    def fsync_folder(self, path: Path) -> None:
        """Make the names in a folder durable: files created, renamed and unlinked there."""
        ...

    def free_bytes(self, path: Path) -> int:
        """Return how much room this process may still use on the disk that holds a folder."""
        ...

    def try_lock(self, file: DataFile) -> bool:
        """Lock the file for as long as it is open; return False if another process has locked it."""
        ...


class OsFileSystem:
    """The real files."""

    def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> DataFile:
        flags = _TO_CREATE if create else _TO_WRITE if writable else _TO_READ
        return DataFile(os.open(path, flags, 0o644), path)

    def writev(self, file: DataFile, chunks: Sequence[Chunk]) -> int:
        return os.writev(file.fileno(), chunks)

    def pread(self, file: DataFile, size: int, position: int) -> bytes:
        data = os.pread(file.fileno(), size, position)
        if not data or len(data) == size:
            return data
        parts = [data]
        missing = size - len(data)
        while missing and (data := os.pread(file.fileno(), missing, position + size - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def read_all(self, file: DataFile) -> bytes:
        data = os.pread(file.fileno(), _SMALL_BYTES, 0)
        return data if len(data) < _SMALL_BYTES else self.pread(file, self.size_of(file), 0)

    def fsync(self, file: DataFile) -> None:
        os.fsync(file.fileno())

    def truncate(self, file: DataFile, size: int) -> None:
        os.ftruncate(file.fileno(), size)

    def allocate(self, file: DataFile, size: int) -> None:
        if _has_allocated(file, size):
            return
        missing = size - self.size_of(file)
        while missing > 0:
            write_fully(self, file, [bytes(min(missing, _ZEROS_BYTES))])
            missing -= _ZEROS_BYTES

    def exists(self, path: Path) -> bool:
        return path.exists()

    def size(self, path: FilePath) -> int:
        return os.stat(path).st_size  # noqa: PTH116 - a start asks for the size of every sealed segment

    def size_of(self, file: DataFile) -> int:
        return os.fstat(file.fileno()).st_size

    def modified_ms(self, path: Path) -> int:
        return path.stat().st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def replace(self, source: Path, target: Path) -> None:
        source.replace(target)

    def unlink(self, path: Path) -> None:
        path.unlink()

    def make_folder(self, path: Path) -> None:
        path.mkdir(parents=True, exist_ok=True)

    def remove_folder(self, path: Path) -> None:
        shutil.rmtree(path)

    def list_folder(self, path: FilePath) -> list[str]:
        return os.listdir(path)  # noqa: PTH208 - names are all that is wanted

    def fsync_folder(self, path: Path) -> None:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def free_bytes(self, path: Path) -> int:
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def try_lock(self, file: DataFile) -> bool:
        try:
            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _has_allocated(file: DataFile, size: int) -> bool:
    """Let the file system allocate room for a file; False if it cannot do so without writing."""
    if not hasattr(os, "posix_fallocate"):  # macOS
        return False
    try:
        os.posix_fallocate(file.fileno(), 0, size)
    except OSError as error:
        if error.errno in _NOT_SUPPORTED:
            return False
        raise
    return True


class MeasuredFileSystem(OsFileSystem):
    """The files of the machine. It measures how long each fsync of a file takes.

    :param now_s: monotonic seconds.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._fsyncs = Histogram(FSYNC_BOUNDS_S)

    def fsync(self, file: DataFile) -> None:
        began_s = self._now_s()
        super().fsync(file)
        took_s = self._now_s() - began_s
        with self._lock:
            self._fsyncs.observe(took_s)

    def fsync_times(self) -> Observations:
        """Return how long fsyncs took, in seconds, by the bounds `FSYNC_BOUNDS_S`."""
        return self._fsyncs.read()


def write_fully(filesystem: FileSystem, file: DataFile, chunks: Sequence[Chunk]) -> None:
    """Write all chunks to the end of the file: one system call, and more only if the first was cut short.

    :raises OSError: the file may then end with a part of the chunks.
    """
    size = sum(map(len, chunks))
    if len(chunks) > 1 and (size < len(chunks) * _JOINED_BYTES or len(chunks) > _IOVECS_MAX):
        chunks = [b"".join(chunks)]
    written = filesystem.writev(file, chunks)
    while written < size:
        rest = memoryview(b"".join(chunks))[written:]
        count = filesystem.writev(file, [rest])
        if count <= 0:
            raise OSError(f"{file.path}: {written} of {size} bytes were written, and then no more")
        written += count


def replace_file(
    filesystem: FileSystem, path: Path, content: Chunk, *, durable: bool, name_later: bool = False
) -> None:
    """Give a file new content so that a reader, and a crash, sees the old one or the new one, never a part.

    :param durable: fsync the content and the name before returning.
    :param name_later: the caller fsyncs the folder, once for several files.
    :raises OSError: the file is as it was, or has the new content.
    """
    temporary = path.with_name(path.name + ".tmp")
    file = filesystem.open(temporary, create=True)
    try:
        filesystem.truncate(file, 0)
        if content:
            write_fully(filesystem, file, [content])
        if durable:
            filesystem.fsync(file)
    finally:
        file.close()
    filesystem.replace(temporary, path)
    if durable and not name_later:
        filesystem.fsync_folder(path.parent)


def remove_if_there(filesystem: FileSystem, path: Path) -> None:
    """Remove a file, if there is one. Needs no room on the disk.

    :raises OSError: the disk refuses.
    """
    if filesystem.exists(path):
        filesystem.unlink(path)


def read_file(filesystem: FileSystem, path: FilePath) -> bytes:
    """Return a file's content. :raises OSError: it is missing or cannot be read."""
    file = filesystem.open(path, writable=False)
    try:
        return filesystem.read_all(file)
    finally:
        file.close()


def make_folder_to_stay(filesystem: FileSystem, path: Path) -> None:
    """Make a folder, and those above it that are missing, so that a loss of power leaves them there.

    What is in a folder may be as durable as can be: it is gone with a name that was never fsynced.

    :raises OSError: it cannot be made.
    """
    missing = [each for each in (path, *path.parents) if not filesystem.exists(each)]
    filesystem.make_folder(path)
    for each in missing:
        filesystem.fsync_folder(each.parent)


class LogHealth:
    """The health of one log.

    :param offline: the reason of a log that is offline from the beginning; it was logged before.
    """

    __slots__ = ("_folder", "_is_short", "_offline", "_partition", "closed")

    def __init__(self, folder: FilePath, partition: TopicPartition, offline: str | None = None) -> None:
        self._folder = str(folder)
        self._partition = partition
        self._offline = offline
        self._is_short = False
        self.closed = False

    @property
    def is_offline(self) -> bool:
        """Return whether the disk failed; the log must be opened again, which recovers it."""
        return self._offline is not None

    def check(self) -> None:
        """:raises ClosedError, StorageError: the log cannot be used."""
        if self.closed:
            raise ClosedError(f"the log {self._partition} is closed")
        if self._offline is not None:
            raise StorageError(f"the log {self._partition} is offline: {self._offline}")

    def note_success(self) -> None:
        """Note a successful write: a shortage has passed."""
        if self._is_short:
            self._is_short = False
            logger.warning("%s: writes succeed again", self._folder, extra=about(self._partition))

    def refused(self, action: str, error: OSError) -> StorageError:
        """Note a shortage that stopped an action and changed nothing; return the error to raise.

        It is logged once until a write succeeds again: log lines must not fill the disk.
        """
        if not self._is_short:
            self._is_short = True
            message = "%s: %s failed: %s; the next request tries again"
            logger.error(message, self._folder, action, error, extra=event(LogEvent.DISK_SHORT, self._partition))
        return StorageError(f"{self._partition}: {action} failed: {error}; try again later")

    def go_offline(self, action: str, error: BaseException) -> StorageError:
        """Take the log offline, because the content of its files is unknown; return the error to raise."""
        self._offline = f"{action} failed: {error}"
        unforeseen = not isinstance(error, OSError)
        message, extra = "%s: %s; the log is offline", event(LogEvent.LOG_OFFLINE, self._partition)
        logger.critical(message, self._folder, self._offline, exc_info=unforeseen, extra=extra)
        return StorageError(f"the log {self._partition} is offline: {self._offline}")

    def put_offline(self, reason: str) -> None:
        """Take the log offline for a reason that was logged already."""
        if self._offline is None:
            self._offline = reason

    def failed(self, action: str, error: OSError, *, even_if_short: bool) -> StorageError:
        """Take the log offline, because the disk refused an action, unless that changed nothing; return the error to
        raise. Actions of every request call this instead of `offline_on_error`, which is slower.

        :param even_if_short: also if room, open files or memory were short.
        """
        if is_shortage(error) and not even_if_short:
            return self.refused(action, error)
        return self.go_offline(action, error)

    @contextmanager
    def offline_on_error(
        self, action: str, *, even_if_short: bool = True, even_if_unforeseen: bool = False
    ) -> Iterator[None]:
        """Take the log offline if the disk refuses an action in the block.

        :param even_if_short: also if room, open files or memory were short.
        :param even_if_unforeseen: also after any other exception, except a BarnabasError: how far the action came is
            unknown then.
        :raises StorageError: the disk refused.
        """
        try:
            yield
        except OSError as error:
            raise self.failed(action, error, even_if_short=even_if_short) from error
        except Exception as error:
            if isinstance(error, BarnabasError) or not even_if_unforeseen:
                raise
            raise self.go_offline(action, error) from error
