"""An end for the test that has none.

pytest's `timeout` raises an exception in the test, where an alarm finds it. That does not end a test that waits in a
library in C, that has set an alarm of its own, or whose tidying waits for what hangs: such a one would keep all others
from their end, and nobody would be told which it was. So the process of the test is ended a little later, from a thread
that needs nothing of Python's. This thread writes the stack of each thread into a file, and pytest-xdist ends the run
with the test's name. The process that distributes the tests prints the stacks, and repeats them in short with the
failures. Shortly before, a thread of Python's writes what the kernel knows of each thread; if it is missing, a thread
in C keeps the interpreter lock.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import re
import sys
import tempfile
import threading
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from pytest_timeout import Settings

from barnabas.clock import SYSTEM_CLOCK

GRACE_S = 60
"""So much longer than its `timeout` a phase of a test may take: setup, the test itself, teardown."""

STACKS = "stacks_folder"
"""The key of `workerinput` under which a worker finds the folder for its file."""
FRAMES_MAX = 8
_FRAME = re.compile(r'^  File "(?P<path>.+)", line (?P<line>\d+) in (?P<name>.+)$')


class Watchdog:
    """The plugin: `tests/conftest.py` registers it."""

    def __init__(self, config: pytest.Config, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._left_s: float | None = None
        self._ends_at_s: float | None = None
        threading.Thread(target=self._note_waits, name="watchdog", daemon=True).start()
        worker: dict[str, Any] | None = getattr(config, "workerinput", None)
        if worker is not None:
            self._output = os.open(Path(worker[STACKS]) / worker["workerid"], os.O_WRONLY | os.O_CREAT)
            return
        with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            self._output = os.dup(2)  # pytest catches what is written to the usual one
        config.pluginmanager.register(_Collector(config))

    @pytest.hookimpl(tryfirst=True)
    def pytest_timeout_set_timer(self, settings: Settings) -> None:
        """Learn how long the test may take, of its marker, the command line or the configuration."""
        self._left_s = settings.timeout + self._grace_s

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None]:
        """Watch over the fixtures' beginning."""
        with self._watching():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None]:
        """Watch over the test."""
        with self._watching():
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None]:
        """Watch over the fixtures' end."""
        try:
            with self._watching():
                return (yield)
        finally:
            self._left_s = None

    @contextlib.contextmanager
    def _watching(self) -> Iterator[None]:
        # Phase by phase: pytest calls off whatever is to be told later as soon as a test has failed.
        if self._left_s is None:  # without a timeout
            yield
            return
        faulthandler.dump_traceback_later(self._left_s, exit=True, file=self._output)
        self._ends_at_s = SYSTEM_CLOCK.monotonic() + self._left_s
        try:
            yield
        finally:
            self._ends_at_s = None
            faulthandler.cancel_dump_traceback_later()

    def _note_waits(self) -> None:
        lead_s = min(5.0, self._grace_s / 2)
        while True:
            SYSTEM_CLOCK.sleep(lead_s / 5)
            ends_at_s = self._ends_at_s
            if ends_at_s is not None and SYSTEM_CLOCK.monotonic() > ends_at_s - lead_s:
                os.write(self._output, kernel_waits().encode())
                self._ends_at_s = None


def kernel_waits() -> str:
    """Return a line for each thread of this process: its id, name, state, and the system call in which it waits."""
    lines = []
    for task in sorted(Path("/proc/self/task").glob("*")):
        try:
            state = (task / "stat").read_text().rpartition(")")[2].split()[0]
            about = [task.name, (task / "comm").read_text().strip(), state, (task / "wchan").read_text()]
            lines.append(" ".join([*about, (task / "syscall").read_text().strip()]))
        except OSError:  # the thread has ended, or the system does not tell
            continue
    return "\n".join(["threads in the kernel:", *lines, ""])


class _Collector:
    """Prints the stacks of workers that were ended, in the process that distributes the tests."""

    def __init__(self, config: pytest.Config) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="stacks-")
        self._root = config.rootpath
        config.add_cleanup(self._folder.cleanup)

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a worker where to write."""
        node.workerinput[STACKS] = self._folder.name

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Print all stacks of a worker at once, because the run may be killed before its end."""
        sys.stderr.write(self._stacks_of(node.gateway.id))

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Repeat the stacks in short."""
        for worker in sorted(each.name for each in Path(self._folder.name).iterdir()):
            if stacks := self._stacks_of(worker):
                terminalreporter.section(f"stacks of {worker}, innermost first")
                terminalreporter.write_line("\n".join(shortened(stacks, self._root)))

    def _stacks_of(self, worker: str) -> str:
        try:
            return (Path(self._folder.name) / worker).read_text()
        except FileNotFoundError:  # the worker ended before its configuration
            return ""


def shortened(stacks: str, root: Path) -> list[str]:
    """Return a line for each thread, with its innermost frames.

    >>> shortened('Thread 0x7f (most recent call first):\\n  File "/a/b/c.py", line 3 in f\\n', Path("/a"))
    ['Thread 0x7f: b/c.py:3 f']
    """
    lines: list[str] = []
    frames = 0
    for line in stacks.splitlines():
        if (frame := _FRAME.match(line)) is None:
            lines.append(line.partition(" (most recent")[0] + ":" * line.endswith("(most recent call first):"))
            frames = 0
        elif frames < FRAMES_MAX:
            path = Path(frame["path"])
            short = path.relative_to(root) if path.is_relative_to(root) else path.name
            lines[-1] += f"{' <' if frames else ''} {short}:{frame['line']} {frame['name']}"
            frames += 1
    return [line for line in lines if line]
