"""The metadata store in an ensemble of ZooKeeper servers, through one session.

In addition to the contract of `MetadataStore`:

- Each call ends within `ZooKeeperConfig.call_timeout_s` or raises `MetadataStoreUnavailableError`. For a call that
  reads many nodes, this limit applies to each batch of a few hundred nodes. A lost connection is not an error: the call
  waits for a new connection to any server.
- If the connection is lost during a write, its outcome is unknown at first. The store then reads the nodes to find the
  outcome (`outcomes`). If the write was done, the call returns; if not, it repeats the write. If other sessions have
  changed the nodes, the outcome may remain unknown, and the call raises `UnknownOutcomeError`.
- After the loss of the session, each call raises `SessionLostError`, and the object is no longer usable.
- A server may lag behind. A read may miss a recent write of another session, but never a write of its own session. A
  session never reads an older state than in its previous read.
- A request of more than about 1 MB raises `TooLargeError`, because ZooKeeper's servers would close the connection.

`subtree` reads node by node, with many reads in flight. When a write returns, it is on the disks of a majority of the
servers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo

from barnabas.coordination.metadata_store import (
    ANY_VERSION,
    Create,
    Delete,
    NodeData,
    NodeExistsError,
    NoNodeError,
    Operation,
    OperationResult,
    Set,
    Stat,
    Watch,
    ancestors_of,
    check_path,
)
from barnabas.coordination.zookeeper.answers import as_node, as_stat, refuse
from barnabas.coordination.zookeeper.config import ZooKeeperConfig
from barnabas.coordination.zookeeper.operations import read_children, read_nodes, write
from barnabas.coordination.zookeeper.outcomes import is_sequential
from barnabas.coordination.zookeeper.session import Deadline, Session
from barnabas.coordination.zookeeper.watches import Reading, Watches


class ZooKeeperMetadataStore:
    """A session with the ensemble in `config`. The constructor creates the chroot if it is missing.

    :raises MetadataStoreUnavailableError: no server granted a session in time.
    :raises NotAllowedError: the chroot is missing, and the session has no permission to create it.
    """

    def __init__(self, config: ZooKeeperConfig) -> None:
        self._call_timeout_s = config.call_timeout_s or config.session_timeout_s
        self._session = Session(config)
        self._watches = Watches(self._session, self._call_timeout_s)

    @property
    def session_id(self) -> int:
        return self._session.session_id

    @property
    def session_timeout_s(self) -> float | None:
        return self._session.timeout_s

    @property
    def writes(self) -> int:
        """The number of writes that this session has sent, including failed writes."""
        return self._session.writes

    def expire(self) -> None:
        """End the session on the servers, as after its timeout; see `Session.expire`."""
        self._session.expire(self._call_timeout_s)

    def on_session_end(self, call: Callable[[], None]) -> None:
        self._session.on_end(call)

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
        try:
            (created,) = self.multi([operation])
        except NoNodeError:
            if not make_parents:
                raise
            self._make_parents(path)
            (created,) = self.multi([operation])
        assert isinstance(created, str)
        return created

    def _make_parents(self, path: str) -> None:
        for ancestor in ancestors_of(path):
            if self.exists(ancestor) is None:
                try:
                    self.create(ancestor)
                except NodeExistsError:
                    continue  # Another session has just created the node.

    def get(self, path: str, watch: Watch | None = None) -> NodeData:
        if watch is None:
            return as_node(self._read(path, lambda client: client.get_async(path)))
        return as_node(self._read_watching(path, Reading.DATA, watch))

    def get_all(self, paths: Sequence[str]) -> dict[str, NodeData]:
        for path in paths:
            check_path(path)
        return read_nodes(self._session, paths, Deadline(self._call_timeout_s))

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (stat,) = self.multi([Set(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self.multi([Delete(path, version)])

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        if watch is None:
            found = self._read(path, lambda client: client.exists_async(path))
        else:
            found = self._read_watching(path, Reading.EXISTENCE, watch)
        return None if found is None else as_stat(found)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        if watch is None:
            return sorted(self._read(path, lambda client: client.get_children_async(path)))
        names, _ = self._read_watching(path, Reading.CHILDREN, watch)
        return sorted(names)

    def subtree(self, path: str) -> dict[str, NodeData]:
        check_path(path)
        deadline = Deadline(self._call_timeout_s)
        found: dict[str, NodeData] = {}
        inner = [path]
        while inner:
            below = read_children(self._session, inner, deadline)
            nodes = read_nodes(self._session, below, deadline)
            found.update(nodes)
            inner = [each for each, node in nodes.items() if node.stat.children_count]
        return dict(sorted(found.items(), key=lambda item: item[0].split("/")))

    def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        for operation in operations:
            # A digit is appended for the check, because the path of a sequential node may end with `/`: its name then
            # consists of digits.
            check_path(operation.path + "0" if is_sequential(operation) else operation.path)
        return write(self._session, operations, Deadline(self._call_timeout_s))

    def ping(self, timeout_s: float) -> None:
        # `ping` sends a `sync` and not a read, because a server without a quorum still responds to reads, but cannot
        # keep the session alive.
        self._session.read(lambda client: client.sync_async("/"), Deadline(timeout_s))

    def flush(self) -> None:
        self._session.check_alive()

    def close(self) -> None:
        self._session.close()

    # -- inside --------------------------------------------------------------------------------------------

    def _read(self, path: str, send: Callable[[Any], Any]) -> Any:
        check_path(path)
        try:
            return self._session.read(send, Deadline(self._call_timeout_s))
        except kazoo.ZookeeperError as refused:
            refuse(path, refused)

    def _read_watching(self, path: str, reading: Reading, watch: Watch) -> Any:
        check_path(path)
        try:
            return self._watches.read(path, reading, watch, Deadline(self._call_timeout_s))
        except kazoo.ZookeeperError as refused:
            refuse(path, refused)
