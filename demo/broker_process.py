"""The broker of the demo: a process of its own that never outlives the demo."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread
from typing import IO

from barnabas.errors import BarnabasError

START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 15.0
LEFTOVER_TIMEOUT_S = 10.0


@contextmanager
def running_broker(folder: Path) -> Iterator[str]:
    """Run a broker with its data in `folder/broker`, and yield its address, `"host:port"`.

    The broker of a demo that was killed a moment ago may still be stopping, and holds the data folder till
    then: a broker that ends at once is started again for a while.

    :raises BarnabasError: it did not start; the message has what it said.
    """
    process, address = _start_patiently(folder)
    try:
        yield address
    finally:
        _stop(process)


def _start_patiently(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    for attempts_left in range(round(LEFTOVER_TIMEOUT_S), -1, -1):
        process, ready = _start(folder)
        if ready is not None:
            return process, ready
        said = _last_words(folder)
        if not attempts_left or "is used by another" not in said:
            raise BarnabasError(f"the broker did not start: {said}")
        Event().wait(1.0)
    raise AssertionError("the last attempt returns or raises")


def _start(folder: Path) -> tuple[subprocess.Popen[bytes], str | None]:
    """Return a broker's process and the address that it serves at, None where it ended instead."""
    broker = ["barnabas.cli.main", "up", "--port", "0", "--data", str(folder / "broker")]
    command = [sys.executable, "-m", "demo.ends_with_parent", str(os.getpid()), *broker]
    with (folder / "broker.log").open("wb") as log:
        # In a session of its own, so that Ctrl-C reaches the demo alone, which stops its parts in order.
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, start_new_session=True)
    assert process.stdout is not None
    try:
        return process, _wait_ready(process, process.stdout)
    except BaseException:
        _stop(process)
        raise


def _wait_ready(process: subprocess.Popen[bytes], output: IO[bytes]) -> str | None:
    answers: list[str] = []
    answered = Event()

    def read() -> None:
        for line in output:
            if line.startswith(b"ready ") and not answers:
                answers.append(line.split()[1].decode())
                answered.set()
        answered.set()

    Thread(target=read, name="demo-broker-output", daemon=True).start()
    if not answered.wait(START_TIMEOUT_S):
        raise BarnabasError(f"the broker was not ready within {START_TIMEOUT_S:.0f} s: see .barnabas/broker.log")
    if not answers:
        process.wait(STOP_TIMEOUT_S)
        return None
    return answers[0]


def _last_words(folder: Path) -> str:
    lines = (folder / "broker.log").read_text(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it said nothing"


def _stop(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
