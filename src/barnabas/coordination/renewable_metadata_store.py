"""A metadata store that replaces lost sessions: calls always use the current session.

Between the loss of a session and the start of the next session, each call raises `MetadataStoreUnavailableError`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.coordination.metadata_store import (
    ANY_VERSION,
    MetadataStore,
    MetadataStoreUnavailableError,
    NodeData,
    Operation,
    OperationResult,
    Stat,
    Watch,
)


class RenewableMetadataStore:
    """A `MetadataStore` that delegates to the current session.

    :param open_session: opens a session with the metadata store.
    :raises MetadataStoreUnavailableError: no session could be opened.
    """

    def __init__(self, open_session: Callable[[], MetadataStore]) -> None:
        self._open_session = open_session
        self._session: MetadataStore | None = open_session()

    def renew(self) -> None:
        """Replace the current session, which is lost, with a new session.

        :raises MetadataStoreUnavailableError: no session could be opened. Until the next `renew`, there is no session.
        """
        lost, self._session = self._session, None
        if lost is not None:
            lost.close()
        self._session = self._open_session()

    @property
    def session(self) -> MetadataStore:
        """The current session.

        :raises MetadataStoreUnavailableError: there is no session.
        """
        if self._session is None:
            raise MetadataStoreUnavailableError("no session with the metadata store")
        return self._session

    @property
    def session_id(self) -> int:
        return self.session.session_id

    @property
    def session_timeout_s(self) -> float | None:
        return self.session.session_timeout_s

    def on_session_end(self, call: Callable[[], None]) -> None:
        self.session.on_session_end(call)

    def ping(self, timeout_s: float) -> None:
        self.session.ping(timeout_s)

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        return self.session.create(path, data, ephemeral=ephemeral, sequential=sequential, make_parents=make_parents)

    def get(self, path: str, watch: Watch | None = None) -> NodeData:
        return self.session.get(path, watch)

    def get_all(self, paths: Sequence[str]) -> dict[str, NodeData]:
        return self.session.get_all(paths)

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return self.session.set(path, data, version)

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self.session.delete(path, version)

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        return self.session.exists(path, watch)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        return self.session.children(path, watch)

    def subtree(self, path: str) -> dict[str, NodeData]:
        return self.session.subtree(path)

    def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        return self.session.multi(operations)

    def flush(self) -> None:
        self.session.flush()

    def close(self) -> None:
        if self._session is not None:
            self._session.close()
