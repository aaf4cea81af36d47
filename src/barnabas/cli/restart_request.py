"""Requests to a running `barnabas cluster up` to restart a broker, as files in the cluster's directory.

The request is `restart.json`, `{"broker": 2}`; the supervisor deletes it and restarts the broker. After the restart,
`cluster.json` contains the new process id of the broker. If `cluster.lock` is locked, a supervisor is running.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

from barnabas.cli.cluster_file import ClusterFile
from barnabas.errors import BarnabasError
from barnabas.portable import try_lock

NAME = "restart.json"
LOCK_NAME = "cluster.lock"
REQUEST_BYTES_MAX = 1024
LOOK_S = 0.05
LOOKS_FOR_EACH_LOCK = 20
"""The number of checks of `cluster.json` per check of `cluster.lock`. Checks of the lock are rare, because a cluster
that starts during the check would find the lock taken."""


def request_restart(folder: Path, broker: int) -> None:
    """Request a restart, replacing a pending request."""
    new = folder / f"{NAME}.new"
    new.write_text(json.dumps({"broker": broker}) + "\n")
    new.replace(folder / NAME)


def take_request(folder: Path) -> int | None:
    """Return the broker to restart, and delete the request. Return None if there is no valid request."""
    path = folder / NAME
    try:
        with path.open("rb") as file:
            text = file.read(REQUEST_BYTES_MAX)
        path.unlink()
        return int(json.loads(text)["broker"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def withdraw_request(folder: Path) -> None:
    """Delete the request."""
    with contextlib.suppress(OSError):
        (folder / NAME).unlink()


def runs_in(folder: Path) -> bool:
    """Return whether a cluster runs in a directory."""
    try:
        with (folder / LOCK_NAME).open("r") as lock:
            return not try_lock(lock.fileno())
    except OSError:
        return False


class LocalRestart:
    """Restarts brokers of the cluster in a directory, and waits until each one serves again.

    :param patience_s: time limit in seconds.
    :param now_s: returns the monotonic time in seconds.
    :param sleep: sleeps for a number of seconds.
    """

    def __init__(
        self, folder: Path, patience_s: float, *, now_s: Callable[[], float], sleep: Callable[[float], object]
    ) -> None:
        self._folder = folder
        self._now_s = now_s
        self._sleep = sleep
        self._patience_s = patience_s

    def __call__(self, broker: int) -> None:
        """Restart a broker.

        :raises BarnabasError: the broker does not serve again in time, or the cluster has ended.
        """
        before = self._process_of(broker)
        request_restart(self._folder, broker)
        try:
            self._wait(broker, before)
        finally:
            withdraw_request(self._folder)

    def _wait(self, broker: int, before: int | None) -> None:
        deadline_s = self._now_s() + self._patience_s
        looks = 0
        while self._process_of(broker) in {None, before}:
            if looks % LOOKS_FOR_EACH_LOCK == 0 and not runs_in(self._folder):
                raise BarnabasError(f"no cluster runs in {self._folder} any more")
            if self._now_s() >= deadline_s:
                raise BarnabasError(
                    f"broker {broker} has not restarted within {self._patience_s:g} s; its log is in the output of"
                    " barnabas cluster up"
                )
            looks += 1
            self._sleep(LOOK_S)

    def _process_of(self, broker: int) -> int | None:
        return ClusterFile.read(self._folder).processes.get(broker)
