"""Standard output: what fails there says so, and a reader that goes away ends the command at once.

Who writes to a pipe learns from the next write that nobody reads it any more. A command that waits for records may not
write for hours, and `barnabas consume clicks | head -1` would wait with it. So a thread watches: poll(2) reports
POLLERR for a pipe without readers and POLLHUP for a terminal or a socket whose other end is closed, asked for or not.
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
"""What becomes of characters that the encoding of standard output lacks."""

EXIT_READER_GONE = 141
"""128 and SIGPIPE's number: what a shell shows for other commands whose reader has gone, such as `yes | head`."""

SIGNAL_AGAIN_S = 0.05
"""A signal that comes just before a thread begins to wait for a lock does not end that wait; one of the next does."""


class ReaderGoneError(Exception):
    """Nobody reads standard output any more. No failure: whoever read it has seen enough."""


class _NamedOutput(io.FileIO):
    """A file whose errors name it; those of file descriptors do not."""

    def write(self, data: ReadableBuffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            error.filename = STANDARD_OUTPUT
            raise


def name_standard_output() -> None:
    """Let the errors of `sys.stdout` carry its name, so that it is clear which disk is full.

    Where the command is started with its standard output closed, what it prints goes nowhere.
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
    r"""Write characters that the encoding lacks as JSON escapes them, so that JSON stays JSON.

    >>> _escaped(UnicodeEncodeError("latin-1", "a\u20ac\U0001f600", 1, 3, ""))
    ('\\u20ac\\ud83d\\ude00', 3)
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2)), error.end


def give_up_standard_output() -> None:
    """Let go of what was not written, so that the interpreter does not fail to write it at its exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


@contextmanager
def ending_with_reader() -> Iterator[None]:
    """Leave the block with `ReaderGoneError` as soon as nobody reads standard output; in the main thread alone.

    The block is left as by Ctrl-C, whatever it waits for: by a signal to the main thread, SIGPIPE. Where that comes
    from a socket, it means nothing here, as usual in Python.
    """
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
            noticed.set()  # if the handler raises just before this line, the outer block still cleans up
    finally:
        signal.signal(signal.SIGPIPE, before)
        os.write(stop_write, b"\0")
        watcher.join()
        os.close(stop_read)
        os.close(stop_write)


def _wait_for_reader_to_go(output: int, stop: int) -> bool:
    """Wait until the reader of `output` has gone (True), or there is something to read from `stop` (False)."""
    poll = select.poll()
    poll.register(output, 0)
    poll.register(stop, select.POLLIN)
    return any(fd == output and events & (select.POLLERR | select.POLLHUP) for fd, events in poll.poll())
