"""Makes errors name standard output, and ends the command as soon as the reader of its pipe closes it.

A process notices a closed pipe only at its next write. A command that waits for records may not write for hours, so
`barnabas consume clicks | head -1` would not end. Therefore a thread watches: poll(2) reports POLLERR for a pipe
without readers, and POLLHUP for a terminal or socket whose other end is closed.
"""

from __future__ import annotations

import codecs
import io
import os
import select
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

STANDARD_OUTPUT = "standard output"

ESCAPED = "barnabas-escaped"
"""The name of the error handler for characters that the encoding of standard output does not have."""

EXIT_READER_GONE = 141
"""128 plus the number of SIGPIPE: the usual exit code of a command whose reader has closed the pipe, such as `yes` in
`yes | head`."""

SIGNAL_AGAIN_S = 0.05
"""The interval in seconds between repeated signals. One signal may be insufficient: if it arrives just before the main
thread waits for a lock, the wait continues."""


class ReaderGoneError(Exception):
    """The reader of standard output has closed it. This is not a failure, because the reader needs no more output."""


class _NamedOutput(io.FileIO):
    """A raw output file that adds its name to its errors, because the errors of a file descriptor contain no name."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


def name_standard_output() -> None:
    """Make errors of `sys.stdout` contain its name, so that users see which disk is full.

    If the process starts with standard output closed, its output is discarded.
    """
    stdout = sys.stdout
    if not isinstance(stdout, io.TextIOWrapper):
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_WRONLY), "w", encoding="utf-8")
        return
    codecs.register_error(ESCAPED, _escaped)
    sys.stdout = io.TextIOWrapper(
        io.BufferedWriter(_NamedOutput(stdout.fileno(), "w", closefd=False)),
        encoding=stdout.encoding,
        errors=ESCAPED if stdout.errors == "strict" else stdout.errors,
        line_buffering=stdout.line_buffering,
    )


def _escaped(error: UnicodeError) -> tuple[str, int]:
    r"""Replace characters that the encoding does not have by JSON escapes, so that JSON output stays valid.

    >>> _escaped(UnicodeEncodeError("latin-1", "a\u20ac\U0001f600", 1, 3, ""))
    ('\\u20ac\\ud83d\\ude00', 3)
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)), error.end


def give_up_standard_output() -> None:
    """Discard unwritten output, so that the interpreter does not fail when it flushes standard output at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@contextmanager
def ending_with_reader() -> Iterator[None]:
    """Leave the block with `ReaderGoneError` when the reader closes standard output. Call this on the main thread only.

    A SIGPIPE to the main thread interrupts any wait inside the block, as Ctrl-C does. A SIGPIPE that a socket causes is
    ignored, as usual in Python.
    """
    if not hasattr(signal, "SIGPIPE"):  # Windows: the command ends at its next write
        yield
        return
    fd = sys.stdout.fileno()
    stop_read, stop_write = os.pipe()
    main_thread = threading.get_ident()
    is_gone = False
    noticed = threading.Event()

    def on_signal(_number: int, _frame: FrameType | None) -> None:
        # Raise once only: a second exception would interrupt the cleanup below, and leave this handler installed.
        if is_gone and not noticed.is_set():
            noticed.set()
            raise ReaderGoneError

    def watch() -> None:
        nonlocal is_gone
        is_gone = _wait_for_reader_to_go(fd, stop_read)
        while is_gone and not noticed.is_set():
            signal.pthread_kill(main_thread, signal.SIGPIPE)
            noticed.wait(SIGNAL_AGAIN_S)

    before = signal.signal(signal.SIGPIPE, on_signal)
    watcher = threading.Thread(target=watch, name="barnabas-reader-watch", daemon=True)
    watcher.start()
    try:
        try:
            yield
        finally:
            noticed.set()  # the handler may raise just before this line; the outer block still cleans up
    finally:
        signal.signal(signal.SIGPIPE, before)
        os.write(stop_write, b"\0")
        watcher.join()
        os.close(stop_read)
        os.close(stop_write)


def _wait_for_reader_to_go(output: int, stop: int) -> bool:
    """Wait until the reader of `output` has closed it, or until `stop` is readable. Return True in the first case."""
    poll = select.poll()
    poll.register(output, 0)
    poll.register(stop, select.POLLIN)
    return any(fd == output and events & (select.POLLERR | select.POLLHUP) for fd, events in poll.poll())
