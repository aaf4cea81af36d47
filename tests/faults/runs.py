"""Many runs side by side, each in a process of its own, whose end is the end of all that it has started."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from tests.faults.faulty_broker import PLANTED_BUG
from tests.faults.stage import Result

RUN_S_MAX = 600.0
END_S = 60.0
"""For a run that is told to end: it ends three brokers and three servers."""
TOLD_CHARACTERS = 2_000
"""So much of what a run without a result has told last is in its line: where it stood, or what it died of."""
WORKER = "PYTEST_XDIST_WORKER"
"""Tells `tests.support.ports` apart what runs side by side."""
FIRST_WORKER = 14
"""Beside tests that run at the same time, which begin at 0."""


@dataclass(frozen=True)
class Run:
    """One run, and how it ended.

    Attributes:
        scenario: Its name.
        seed: What it drew its chances from.
        folder: What it left; gone where all was well.
        result: How it ended.
    """

    scenario: str
    seed: int
    folder: Path
    result: Result

    @property
    def ok(self) -> bool:
        """Whether all was well."""
        return not self.result.problems


class Runner:
    """Starts runs, so many at once. On any exception all that run are ended before it goes on.

    Args:
        folder: Has a folder for each run that failed.
        jobs: How many at once.
        is_short: See `Stage`.
        planted: The bug that all brokers have (`tests.support.planted_bugs`), by name; empty: none.
    """

    def __init__(self, folder: Path, jobs: int, *, is_short: bool, planted: str = "") -> None:
        self._folder = folder
        self._jobs = jobs
        self._is_short = is_short
        self._planted = planted
        self._wanted: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[Run] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._is_ending = False

    def runs(self, wanted: Sequence[tuple[str, int]]) -> Generator[Run, None, None]:
        """Yield the runs of these scenarios and seeds as they end."""
        for each in wanted:
            self._wanted.put(each)
        threads = [threading.Thread(target=self._work, args=(slot,)) for slot in range(self._jobs)]
        try:
            for thread in threads:
                thread.start()
            for _ in wanted:
                yield self._done.get()
        finally:
            self._end()
            for thread in threads:
                if thread.ident is not None:
                    thread.join()

    def _work(self, slot: int) -> None:
        with contextlib.suppress(queue.Empty):
            while not self._is_ending:
                scenario, seed = self._wanted.get_nowait()
                self._done.put(self._run(scenario, seed, slot))

    def _run(self, scenario: str, seed: int, slot: int) -> Run:
        folder = self._folder / f"{scenario}-{seed}"
        shutil.rmtree(folder, ignore_errors=True)
        self._folder.mkdir(parents=True, exist_ok=True)
        told = folder.with_suffix(".log")
        command = [sys.executable, "-m", "tests.faults.one", scenario, str(seed), str(folder)]
        command += ["--short"] if self._is_short else []
        environment = os.environ | {WORKER: f"gw{FIRST_WORKER + slot}", PLANTED_BUG: self._planted}
        with told.open("wb") as log:
            process = self._start(command, environment, log)
            if process is None:
                return Run(scenario, seed, folder, Result(["not begun"]))
            try:
                process.wait(RUN_S_MAX)
            except subprocess.TimeoutExpired:
                _end(process)
            finally:
                with self._lock:
                    self._running.discard(process)
                assert process.stdin
                process.stdin.close()
        run = Run(scenario, seed, folder, _result(folder, process.returncode, told))
        if run.ok:
            shutil.rmtree(folder)
            told.unlink()
        return run

    def _start(self, command: list[str], environment: dict[str, str], log: IO[bytes]) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._is_ending:
                return None
            # In a session of its own: the terminal's Ctrl-C is for this process, which ends its runs in order. A run
            # ends as well when its standard input does, whatever has become of this process.
            process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True
            )
            self._running.add(process)
        return process

    def _end(self) -> None:
        with self._lock:
            self._is_ending = True
            running = list(self._running)
        for each in running:
            each.terminate()


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _result(folder: Path, code: int, told: Path) -> Result:
    path = folder / "result.json"
    if path.exists():
        return Result(**json.loads(path.read_text(encoding="utf-8")))
    return Result([f"it ended with exit code {code}: {told.read_text(errors='replace')[-TOLD_CHARACTERS:]}"])
