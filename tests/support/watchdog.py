"""An end for the test that has none.

pytest's `timeout` raises an exception in the test, where an alarm finds it. That does not end a test that waits in a
library in C, that has set an alarm of its own, or whose tidying waits for what hangs: such a one would keep all others
from their end, and nobody would be told which it was. So the process of the test is ended a little later, from a thread
that needs nothing of Python's. It tells where each thread stands, and pytest-xdist ends the run with the test's name.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
from collections.abc import Generator, Iterator

import pytest
from pytest_timeout import Settings

GRACE_S = 60
"""So much longer than its `timeout` a phase of a test may take: setup, the test itself, teardown."""


class Watchdog:
    """The plugin: `tests/conftest.py` registers it."""

    def __init__(self, config: pytest.Config, grace_s: float = GRACE_S) -> None:
        self._grace_s = grace_s
        self._left_s: float | None = None
        with config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            self._terminal = os.dup(2)  # pytest catches what is written to the usual one

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
        faulthandler.dump_traceback_later(self._left_s, exit=True, file=self._terminal)
        try:
            yield
        finally:
            faulthandler.cancel_dump_traceback_later()
