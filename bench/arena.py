"""The servers of a workload: started in temporary directories at their first use, and stopped at the end."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from bench.downloads import NotStartedError, UnavailableError
from bench.peers import SERVERS
from bench.peers.server import Server
from bench.progress import Progress

FOLDERS = "barnabas-bench-"


def remove_leftovers(parent: Path) -> None:
    """Remove the directories of killed benchmark runs."""
    for folder in parent.glob(f"{FOLDERS}*"):
        owner = folder.name.removeprefix(FOLDERS).partition("-")[0]
        if owner.isdigit() and not Path(f"/proc/{owner}").exists():
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def fresh_folder(parent: Path) -> Iterator[Path]:
    """Yield a temporary directory that is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix=f"{FOLDERS}{os.getpid()}-", dir=parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Arena:
    """Servers by name. An unavailable server is reported once and then skipped.

    :param parent: the parent of the servers' directories, on the disk to measure (/tmp is often in memory).
    :param progress: prints starts and unavailable servers.
    :param known: the reasons why servers were not available for earlier workloads; this class adds new reasons.
    """

    def __init__(self, parent: Path, progress: Progress, known: dict[str, str]) -> None:
        self._parent = parent
        self._progress = progress
        self._unavailable = known
        self._running: dict[str, Server] = {}
        self._folders: list[Path] = []
        self.versions: dict[str, str] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for server in self._running.values():
            server.stop()
        for folder in self._folders:
            shutil.rmtree(folder, ignore_errors=True)

    def server(self, name: str) -> Server:
        """Return a running server.

        :raises UnavailableError: if the server is not available, or has ended.
        """
        if name in self._unavailable:
            raise UnavailableError(self._unavailable[name])
        if name not in self._running:
            self._start(name)
        server = self._running[name]
        if not server.process.is_running:
            raise UnavailableError(f"{server.title} has ended: {server.process.last_lines()}")
        return server

    def _start(self, name: str) -> None:
        try:
            try:
                self._running[name] = self._started(SERVERS[name])
            except NotStartedError as error:
                self._progress.say(f"{error}; trying again")
                self._running[name] = self._started(SERVERS[name])
        except UnavailableError as error:
            self._unavailable[name] = str(error)
            self._progress.say(f"{SERVERS[name].title} is left out: {error}")
            raise

    def _started(self, kind: type[Server]) -> Server:
        self._progress.say(f"starting {kind.title}")
        folder = Path(tempfile.mkdtemp(prefix=f"{FOLDERS}{os.getpid()}-{kind.name}-", dir=self._parent))
        self._folders.append(folder)
        server = kind(folder)
        try:
            server.start()
            self.versions[kind.title] = server.version()
        except BaseException:
            server.stop()
            raise
        return server
