"""How a second process asks a running `barnabas cluster up` to restart a broker: by files in the cluster's folder.

The request is `restart.json`, `{"broker": 2}`, which the supervisor removes when it carries it out; that it is done
shows in `cluster.json`, which names another process then. Whether somebody is there to carry it out shows the lock on
`cluster.lock`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
from collections.abc import Callable
from pathlib import Path

from barnabas.cli.cluster_file import ClusterFile
from barnabas.errors import BarnabasError

NAME = "restart.json"
LOCK_NAME = "cluster.lock"
REQUEST_BYTES_MAX = 1024
LOOK_S = 0.05
LOOKS_FOR_EACH_LOCK = 20
"""The lock is looked at less often than the file: a cluster that starts just then would find it taken."""


def ask_for_restart(folder: Path, broker: int) -> None:
    """Ask for a restart; what was asked before and not yet carried out is forgotten."""
    new = folder / f"{NAME}.new"
    new.write_text(json.dumps({"broker": broker}) + "\n")
    new.replace(folder / NAME)


def take_request(folder: Path) -> int | None:
    """Return the broker that is to be restarted, once; None: none is, or what stands there cannot be understood."""
    path = folder / NAME
    try:
        with path.open("rb") as file:
            text = file.read(REQUEST_BYTES_MAX)
        path.unlink()
        return int(json.loads(text)["broker"])
    except (OSError, ValueError, LookupError, TypeError):
        return None


def withdraw_request(folder: Path) -> None:
    """Ask for nothing any more."""
    with contextlib.suppress(OSError):
        (folder / NAME).unlink()


def runs_in(folder: Path) -> bool:
    """Whether a cluster runs in a folder."""
    try:
        with (folder / LOCK_NAME).open("r") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


class LocalRestart:
    """Has a broker of the cluster in a folder restarted, and returns when it serves again.

    :param patience_s: so long it may take.
    :param now_s: monotonic seconds.
    :param sleep: waits for so many seconds.
    """

    def __init__(
        self, folder: Path, patience_s: float, *, now_s: Callable[[], float], sleep: Callable[[float], object]
    ) -> None:
        self._folder = folder
        self._now_s = now_s
        self._sleep = sleep
        self._patience_s = patience_s

    def __call__(self, broker: int) -> None:
        """Restart it.

        :raises BarnabasError: it does not serve again in time, or the cluster has ended.
        """
        before = self._process_of(broker)
        ask_for_restart(self._folder, broker)
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
                    f"broker {broker} did not come back within {self._patience_s:g} s; what it says stands where"
                    " barnabas cluster up runs"
                )
            looks += 1
            self._sleep(LOOK_S)

    def _process_of(self, broker: int) -> int | None:
        return ClusterFile.read(self._folder).processes.get(broker)
