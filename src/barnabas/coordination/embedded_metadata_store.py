"""The embedded metadata store of a single broker: one SQLite file in its data directory, for one process at a time.

`embedded_database` describes the guarantees of the file.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.coordination.embedded_database import EmbeddedDatabase
from barnabas.coordination.metadata_store import (
    ANY_VERSION,
    Create,
    Delete,
    NodeData,
    NoNodeError,
    Operation,
    OperationResult,
    Set,
    Stat,
    Watch,
    ancestors_of,
    check_path,
)


class EmbeddedMetadataStore:
    """A session with the metadata store in the file `path`. The file is created if it does not exist.

    If the session that opened the file is closed, all other sessions are closed, too.

    :param keeps_sessions: True if sessions of other processes survive the restart (see `embedded_database`). Otherwise,
        they end when the file is opened.
    :raises DataFolderError: another process uses the file, it has another format, or it cannot be written.
    """

    def __init__(self, path: Path | str, clock: Clock = SYSTEM_CLOCK, *, keeps_sessions: bool = False) -> None:
        self._attach(EmbeddedDatabase(Path(path), clock, keeps_sessions=keeps_sessions), owns_store=True)

    def _attach(self, store: EmbeddedDatabase, *, owns_store: bool) -> None:
        self._store = store
        self._owns_store = owns_store
        self._session_id = store.new_session()

    def new_session(self) -> EmbeddedMetadataStore:
        """Return another session with the same metadata store, with its own ephemeral nodes and watches."""
        session = EmbeddedMetadataStore.__new__(EmbeddedMetadataStore)
        session._attach(self._store, owns_store=False)
        return session

    @property
    def store(self) -> EmbeddedDatabase:
        """The database, for the server that gives other processes access to the metadata store."""
        return self._store

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout_s(self) -> float | None:
        return None

    def on_session_end(self, call: Callable[[], None]) -> None:
        """Ignore the callback: sessions of this store end only by `close`."""

    def ping(self, timeout_s: float) -> None:
        self.exists("/")

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        operation = Create(path, data, ephemeral, sequential)
        with self._store.change(self._session_id) as change:
            if make_parents:
                for ancestor in ancestors_of(check_path(path)):
                    if change.nodes.stat(ancestor) is None:
                        change.create(Create(ancestor))
            return change.create(operation)

    def get(self, path: str, watch: Watch | None = None) -> NodeData:
        with self._store.reading(self._session_id, path) as nodes:
            found = nodes.read(path)
            if found is None:
                raise NoNodeError(path)
            if watch is not None:
                self._store.watch_data(self._session_id, path, watch)
            return found

    def get_all(self, paths: Sequence[str]) -> dict[str, NodeData]:
        for path in paths:
            check_path(path)
        with self._store.reading(self._session_id, "/") as nodes:
            found = {path: nodes.read(path) for path in paths}
        return {path: node for path, node in found.items() if node is not None}

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        with self._store.change(self._session_id) as change:
            return change.set(Set(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        with self._store.change(self._session_id) as change:
            change.delete(Delete(path, version))

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        with self._store.reading(self._session_id, path) as nodes:
            if watch is not None:
                self._store.watch_data(self._session_id, path, watch)
            return nodes.stat(path)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        with self._store.reading(self._session_id, path) as nodes:
            if nodes.stat(path) is None:
                raise NoNodeError(path)
            if watch is not None:
                self._store.watch_children(self._session_id, path, watch)
            return nodes.children(path)

    def subtree(self, path: str) -> dict[str, NodeData]:
        with self._store.reading(self._session_id, path) as nodes:
            return nodes.below(path)

    def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        if not operations:
            return []
        with self._store.change(self._session_id) as change:
            return [change.apply(operation) for operation in operations]

    def flush(self) -> None:
        self._store.flush(self._session_id)

    def close(self) -> None:
        if self._owns_store:
            self._store.close()
        else:
            self._store.end_session(self._session_id)
