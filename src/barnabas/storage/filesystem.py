"""The interface for all file access of the storage package, and the health of a log.

Tests implement the interface to inject faults.

Invariants. Files are never memory-mapped, because the truncation of a mapped file would kill the process. A shortage of
disk space, file descriptors or memory is temporary and not a disk failure. On a full disk, writes fail and reads
continue. If the content of the files is unknown after a shortage, the caller puts the log offline. An offline log stays
offline until it is opened again.

Threads. Any thread may use a `FileSystem` and read the health of a log.

Errors. File operations raise OSError. `LogHealth` converts it to StorageError and puts the log offline. After the log
was closed, `LogHealth` raises ClosedError.
"""

from __future__ import annotations

import errno
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
from barnabas.portable import BINARY, CLOSE_ON_EXEC, flush_file, flush_folder, pread, try_lock, writev

logger = logging.getLogger(__name__)

Chunk = bytes | bytearray | memoryview

FilePath = Path | str
"""A file path. It may be a string, because thousands of strings take a tenth of the time and memory of Path objects."""

_IOVECS_MAX = 1024
"""The maximum number of buffers of one writev on Linux."""

_JOINED_BYTES = 4096
"""The size below which copying a buffer takes less time than passing another buffer to writev."""

OPEN_FILES = frozenset({errno.EMFILE, errno.ENFILE})
"""The error numbers that mean that the process or the system has no free file descriptors."""

_TO_READ = CLOSE_ON_EXEC | BINARY | os.O_RDONLY
_TO_WRITE = CLOSE_ON_EXEC | BINARY | os.O_RDWR | os.O_APPEND
_TO_CREATE = _TO_WRITE | os.O_CREAT

_SMALL_BYTES = 4096
"""The size of the first read when a whole file is read. Most files are smaller, so one read is enough."""

_NOT_SUPPORTED = frozenset({errno.EBADF, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP})
"""The error numbers that mean that the file system cannot allocate space without writing.

EBADF comes from the C library, which then tries to write and cannot do so in append mode.
"""

_ZEROS_BYTES = 1024 * 1024

FSYNC_BOUNDS_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)

SHORTAGES = OPEN_FILES | {errno.ENOMEM, errno.ENOSPC, errno.EDQUOT}


def is_shortage(error: OSError) -> bool:
    """Return whether an error was caused by a shortage of file descriptors, memory or disk space.

    A shortage is temporary, and the data on the disk is intact.
    """
    return error.errno in SHORTAGES


class DataFile:
    """An open file that closes itself when its last reference is dropped.

    A segment and all `FileRegion`s of this segment share one `DataFile`. When the segment drops its reference, the file
    closes, unless a region is still being sent. In that case, the file closes when the last region is released. So
    storage never calls `close` on a file that a region may reference.
    """

    __slots__ = ("_descriptor", "_path")

    def __init__(self, descriptor: int, path: FilePath) -> None:
        self._descriptor = descriptor
        self._path = str(path)

    @property
    def path(self) -> Path:
        return Path(self._path)

    def fileno(self) -> int:
        """Return the file descriptor.

        :raises ValueError: the file is closed.
        """
        if self._descriptor < 0:
            raise ValueError(f"{self._path} is closed")
        return self._descriptor

    def close(self) -> None:
        """Close the file now. The caller must hold the only reference."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"DataFile({self._path})"


class FileSystem(Protocol):
    """The operations on files. Each raises OSError if the operating system returns an error."""

    def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> DataFile:
        """Open a file for reads at any position. If `writable` is true, the file can also be appended to."""
        ...

    def writev(self, file: DataFile, chunks: Sequence[Chunk]) -> int:
        """Append chunks to the file with one system call; return the number of bytes written."""
        ...

    def pread(self, file: DataFile, size: int, position: int) -> bytes:
        """Read `size` bytes. The result is shorter only at the end of the file."""
        ...

    def read_all(self, file: DataFile) -> bytes:
        """Return the whole content of a file."""
        ...

    def fsync(self, file: DataFile) -> None: ...

    def truncate(self, file: DataFile, size: int) -> None: ...

    def allocate(self, file: DataFile, size: int) -> None:
        """Enlarge a file to `size` bytes and reserve their disk space.

        The new bytes are zeros. After an error, the file may be partly enlarged.
        """
        ...

    def exists(self, path: Path) -> bool:
        """Return whether a file or directory with this name exists. Return False also if an error occurs."""
        ...

    def size(self, path: FilePath) -> int: ...

    def size_of(self, file: DataFile) -> int:
        """Return the size of an open file."""
        ...

    def modified_ms(self, path: Path) -> int:
        """Return the time of the last change of the content, in milliseconds since the epoch."""
        ...

    def set_modified_ms(self, path: Path, modified_ms: int) -> None:
        """Set the time of the last change of the content, in milliseconds since the epoch."""
        ...

    def replace(self, source: Path, target: Path) -> None:
        """Rename a file or directory; an existing file of the new name is replaced atomically."""
        ...

    def unlink(self, path: Path) -> None: ...

    def make_folder(self, path: Path) -> None: ...

    def remove_folder(self, path: Path) -> None:
        """Remove a directory with its content."""
        ...

    def list_folder(self, path: FilePath) -> list[str]: ...

    def fsync_folder(self, path: Path) -> None:
        """Make the names in a directory durable, after files were created, renamed or removed."""
        ...

    def free_bytes(self, path: Path) -> int:
        """Return the free space on the disk of a directory that this process can use, in bytes."""
        ...

    def try_lock(self, file: DataFile) -> bool:
        """Lock the file while it is open; return False if another process holds its lock."""
        ...


class OsFileSystem:
    """The files of the operating system."""

    def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> DataFile:
        flags = _TO_CREATE if create else _TO_WRITE if writable else _TO_READ
        return DataFile(os.open(path, flags, 0o644), path)

    def writev(self, file: DataFile, chunks: Sequence[Chunk]) -> int:
        return writev(file.fileno(), chunks)

    def pread(self, file: DataFile, size: int, position: int) -> bytes:
        data = pread(file.fileno(), size, position)
        if not data or len(data) == size:
            return data
        parts = [data]
        missing = size - len(data)
        while missing and (data := pread(file.fileno(), missing, position + size - missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def read_all(self, file: DataFile) -> bytes:
        data = pread(file.fileno(), _SMALL_BYTES, 0)
        return data if len(data) < _SMALL_BYTES else self.pread(file, self.size_of(file), 0)

    def fsync(self, file: DataFile) -> None:
        flush_file(file.fileno())

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
        return os.stat(path).st_size  # noqa: PTH116 - no Path, because a start reads the size of each sealed segment

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
        return os.listdir(path)  # noqa: PTH208 - only names are needed, so `os.listdir` is enough

    def fsync_folder(self, path: Path) -> None:
        flush_folder(path)

    def free_bytes(self, path: Path) -> int:
        return shutil.disk_usage(path).free

    def try_lock(self, file: DataFile) -> bool:
        return try_lock(file.fileno())


def _has_allocated(file: DataFile, size: int) -> bool:
    """Reserve disk space for a file. Return False if the file system cannot do this without writing."""
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
    """The files of the operating system. The duration of each fsync is measured.

    :param now_s: returns monotonic seconds.
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
        """Return the durations of fsyncs, in seconds, as a histogram with the bounds `FSYNC_BOUNDS_S`."""
        return self._fsyncs.read()


def write_fully(filesystem: FileSystem, file: DataFile, chunks: Sequence[Chunk]) -> None:
    """Append all chunks to the file. Further system calls follow only after a partial write.

    :raises OSError: the write failed. The file may end with a part of the chunks.
    """
    size = sum(map(len, chunks))
    if len(chunks) > 1 and (size < len(chunks) * _JOINED_BYTES or len(chunks) > _IOVECS_MAX):
        chunks = [b"".join(chunks)]
    written = filesystem.writev(file, chunks)
    while written < size:
        rest = memoryview(b"".join(chunks))[written:]
        count = filesystem.writev(file, [rest])
        if count <= 0:
            raise OSError(f"cannot write to {file.path}: only {written} of {size} bytes were written")
        written += count


def replace_file(
    filesystem: FileSystem, path: Path, content: Chunk, *, durable: bool, name_later: bool = False
) -> None:
    """Replace the content of a file atomically. Even after a crash, the file has either its old or its new content.

    :param durable: True to fsync the file and the directory before this function returns.
    :param name_later: True to leave the fsync of the directory to the caller, once for several files.
    :raises OSError: the file has either its old or its new content.
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
    """Remove a file if it exists. The removal needs no disk space.

    :raises OSError: the file system returned an error.
    """
    if filesystem.exists(path):
        filesystem.unlink(path)


def read_file(filesystem: FileSystem, path: FilePath) -> bytes:
    """Return the content of a file.

    :raises OSError: the file is missing or cannot be read.
    """
    file = filesystem.open(path, writable=False)
    try:
        return filesystem.read_all(file)
    finally:
        file.close()


def make_folder_to_stay(filesystem: FileSystem, path: Path) -> None:
    """Create a directory and its missing parents, and make them durable.

    If the name of a directory was never fsynced, a power failure may remove the directory with all its files, even
    files that were fsynced.

    :raises OSError: the directory cannot be created.
    """
    missing = [each for each in (path, *path.parents) if not filesystem.exists(each)]
    filesystem.make_folder(path)
    for each in missing:
        filesystem.fsync_folder(each.parent)


class LogHealth:
    """The health of one log: usable, offline or closed.

    :param offline: the reason if the log is offline from the start, otherwise None. The caller must have logged the
        reason.
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
        """True if the log is offline. The next start opens the log again and recovers it."""
        return self._offline is not None

    def check(self) -> None:
        """Check that the log is usable.

        :raises ClosedError, StorageError: the log is closed or offline.
        """
        if self.closed:
            raise ClosedError(f"the log {self._partition} is closed")
        if self._offline is not None:
            raise StorageError(f"the log {self._partition} is offline: {self._offline}")

    def note_success(self) -> None:
        """Record a successful write. It ends a shortage."""
        if self._is_short:
            self._is_short = False
            logger.warning("%s: writes succeed again", self._folder, extra=about(self._partition))

    def refused(self, action: str, error: OSError) -> StorageError:
        """Record a shortage that prevented an action and changed nothing; return the error to raise.

        The shortage is logged only once until a write succeeds, because log lines must not fill the disk.
        """
        if not self._is_short:
            self._is_short = True
            message = "%s: %s failed: %s; the next request tries again"
            logger.error(message, self._folder, action, error, extra=event(LogEvent.DISK_SHORT, self._partition))
        return StorageError(f"{self._partition}: {action} failed: {error}; try again later")

    def go_offline(self, action: str, error: BaseException) -> StorageError:
        """Mark the log as offline, because the content of its files is unknown; return the error to raise."""
        self._offline = f"{action} failed: {error}"
        unforeseen = not isinstance(error, OSError)
        message, extra = "%s: %s; the log is offline", event(LogEvent.LOG_OFFLINE, self._partition)
        logger.critical(message, self._folder, self._offline, exc_info=unforeseen, extra=extra)
        return StorageError(f"the log {self._partition} is offline: {self._offline}")

    def put_offline(self, reason: str) -> None:
        """Put the log offline. The caller must have logged the reason."""
        if self._offline is None:
            self._offline = reason

    def failed(self, action: str, error: OSError, *, even_if_short: bool) -> StorageError:
        """Put the log offline after an I/O error, unless the error is a shortage; return the error to raise.

        Actions on the path of each request call this method, because `offline_on_error` is slower.

        :param even_if_short: True to put the log offline also after a shortage of disk space, file descriptors or
            memory.
        """
        if is_shortage(error) and not even_if_short:
            return self.refused(action, error)
        return self.go_offline(action, error)

    @contextmanager
    def offline_on_error(
        self, action: str, *, even_if_short: bool = True, even_if_unforeseen: bool = False
    ) -> Iterator[None]:
        """Put the log offline after an I/O error in the block.

        :param even_if_short: True to include shortages of disk space, file descriptors and memory.
        :param even_if_unforeseen: True to include any other exception except BarnabasError, because the state of the
            files is unknown after such an exception.
        :raises StorageError: an I/O error occurred.
        """
        try:
            yield
        except OSError as error:
            raise self.failed(action, error, even_if_short=even_if_short) from error
        except Exception as error:
            if isinstance(error, BarnabasError) or not even_if_unforeseen:
                raise
            raise self.go_offline(action, error) from error
