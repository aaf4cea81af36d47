"""Provides alternatives to system calls of Linux: locks, positioned reads, flushes, limits and priorities of a process.

Linux is the system that Barnabas is developed and tested on. Each function has an alternative for systems without the
system call that Linux has; `tests/interop/test_other_platforms.py` runs a broker and clients with the alternatives.
"""

from __future__ import annotations

import contextlib
import os
import threading

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

TYPE_CHECKING = False
if TYPE_CHECKING:  # imported for type checking only: each command imports this module
    from collections.abc import Sequence

    from typing_extensions import Buffer

CLOSE_ON_EXEC = getattr(os, "O_CLOEXEC", 0)
"""A flag of `os.open`; on Windows, file descriptors are never inherited by default."""
NO_SYMLINKS = getattr(os, "O_NOFOLLOW", 0)
BINARY = getattr(os, "O_BINARY", 0)
"""A flag of `os.open`, without which Windows changes the ends of lines."""
FILES_MAX = 8192
"""The maximum number of open files of a process on Windows, where no system call returns or changes it."""

_FULL_FLUSH = getattr(fcntl, "F_FULLFSYNC", None)
"""macOS: fsync leaves the data in the cache of the disk, and this command of fcntl flushes the cache, too."""
_position = threading.Lock()
"""Held while a read moves the position of a file. Writes append, so they do not use the position."""


def _read_at(fd: int, size: int, position: int, /) -> bytes:
    with _position:
        os.lseek(fd, position, os.SEEK_SET)
        return os.read(fd, size)


def _write_joined(fd: int, chunks: Sequence[Buffer], /) -> int:
    return os.write(fd, b"".join(chunks))


pread = getattr(os, "pread", _read_at)
"""Read up to `size` bytes of a file from a position: `pread(fd, size, position)`."""
writev = getattr(os, "writev", _write_joined)
"""Write chunks to a file, and return the number of written bytes: `writev(fd, chunks)`."""


def flush_file(fd: int) -> None:
    """Write the data of a file to the disk."""
    if _FULL_FLUSH is not None and fcntl is not None:
        try:
            fcntl.fcntl(fd, _FULL_FLUSH)
        except OSError:  # not every file system has this command
            os.fsync(fd)
    else:
        os.fsync(fd)


def flush_folder(path: str | os.PathLike[str]) -> None:
    """Write the names in a folder to the disk. Windows cannot open folders, and does nothing here."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | CLOSE_ON_EXEC)
    try:
        flush_file(descriptor)
    finally:
        os.close(descriptor)


def try_lock(fd: int) -> bool:
    """Lock a file for this process, and return whether this succeeded. The lock ends when the file is closed."""
    try:
        if fcntl is not None:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        else:
            _lock_first_byte(fd)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _lock_first_byte(fd: int) -> None:
    try:
        import msvcrt  # noqa: PLC0415 - only Windows has it
    except ImportError:  # no kind of lock: the user must not start two processes with the same files
        return
    os.lseek(fd, 0, os.SEEK_SET)
    msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]


def open_files_limit() -> int | None:
    """Return the maximum number of open files and sockets of this process; None means no limit."""
    if resource is None:
        return FILES_MAX
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard limit.

    :raises OSError: the system refuses it; the message has both limits.
    """
    if resource is None:
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError) as error:
        raise OSError(f"cannot raise the limit of open files from {soft} to {hard}: {error}") from None


def cpu_s() -> float:
    """Return the CPU seconds, user and system, of this process with all its threads."""
    if resource is None:
        times = os.times()
        return times.user + times.system
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def lower_priority(niceness: int) -> None:
    """Let other processes run first, where the system has priorities of this kind."""
    if hasattr(os, "nice"):
        os.nice(niceness)


def limit_memory(bytes_max: int) -> None:
    """Limit the memory of this process, and write no core files, where the system has such limits."""
    if resource is None:
        return
    for limit, value in ((resource.RLIMIT_AS, bytes_max), (resource.RLIMIT_CORE, 0)):
        with contextlib.suppress(OSError, ValueError):  # macOS refuses a limit of the address space
            resource.setrlimit(limit, (value, value))
