"""Standard output that fails, and a reader that goes away."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from typing import TextIO

import pytest

from barnabas.cli.standard_output import ReaderGoneError, ending_with_reader

WATCHDOG_S = 60


def pipe_as_standard_output(monkeypatch) -> tuple[int, TextIO]:
    """Return the descriptor of the pipe's reader, and its writer, which is standard output from now on."""
    read_end, write_end = os.pipe()
    writer = os.fdopen(write_end, "w")
    monkeypatch.setattr(sys, "stdout", writer)
    return read_end, writer


def watchers() -> set[threading.Thread]:
    """Return the threads that watch a reader: an interrupted command of an earlier test may have left one."""
    return {thread for thread in threading.enumerate() if thread.name == "barnabas-reader-watch"}


def test_waiting_ends_when_the_reader_goes(monkeypatch) -> None:
    reader, writer = pipe_as_standard_output(monkeypatch)
    waiting = threading.Event()

    def go() -> None:
        waiting.wait(WATCHDOG_S)
        os.close(reader)

    def wait() -> None:
        with writer, ending_with_reader():
            waiting.set()
            assert not threading.Event().wait(WATCHDOG_S), "nobody sets it"
            pytest.fail("the wait was not ended")

    others = watchers()
    leaver = threading.Thread(target=go)
    leaver.start()
    with pytest.raises(ReaderGoneError):
        wait()
    leaver.join()
    assert watchers() <= others


def test_reader_that_was_gone_before_ends_the_wait(monkeypatch) -> None:
    reader, writer = pipe_as_standard_output(monkeypatch)
    os.close(reader)
    with writer, pytest.raises(ReaderGoneError), ending_with_reader():
        threading.Event().wait(WATCHDOG_S)


def test_reader_that_stays_ends_nothing_and_signals_of_sockets_do_not_either(monkeypatch) -> None:
    reader, writer = pipe_as_standard_output(monkeypatch)
    others = watchers()
    before = signal.getsignal(signal.SIGPIPE)
    with writer, ending_with_reader():
        signal.raise_signal(signal.SIGPIPE)
    os.close(reader)
    assert signal.getsignal(signal.SIGPIPE) is before
    assert watchers() <= others


def test_second_signal_interrupts_no_cleanup(monkeypatch) -> None:
    reader, writer = pipe_as_standard_output(monkeypatch)
    before = signal.getsignal(signal.SIGPIPE)

    def clean_up_while_signals_arrive() -> None:
        with writer, ending_with_reader():
            try:
                os.close(reader)
                threading.Event().wait(WATCHDOG_S)
            finally:
                signal.raise_signal(signal.SIGPIPE)
                cleaned.append("all")

    cleaned: list[str] = []
    with pytest.raises(ReaderGoneError):
        clean_up_while_signals_arrive()
    assert cleaned == ["all"]
    assert signal.getsignal(signal.SIGPIPE) is before


def test_characters_that_the_encoding_lacks_are_escaped_as_in_json() -> None:
    program = (
        "from barnabas.cli.standard_output import name_standard_output\n"
        'name_standard_output(); print(\'{"a": "\\u20ac\\xe9\\U0001f600"}\')'
    )
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True, env=environment).stdout
    assert out == b'{"a": "\\u20ac\xe9\\ud83d\\ude00"}\n'
    assert json.loads(out.decode("latin-1")) == {"a": "\u20ac\xe9\U0001f600"}
