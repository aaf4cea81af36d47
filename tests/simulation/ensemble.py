"""The tree of shared state with sessions that can be lost, and brokers that can be cut off from it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace

from barnabas.coordination.metadata_store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    EventKind,
    MetadataStoreUnavailableError,
    NoChildrenForEphemeralsError,
    NodeData,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    OperationResult,
    Set,
    Stat,
    Watch,
    WatchEvent,
    ancestors_of,
    check_path,
    parent_of,
)
from barnabas.coordination.watches import WatchTable
from barnabas.errors import ClosedError, CoordinationError
from tests.simulation.network import Network
from tests.simulation.turns import step
from tests.simulation.world import Host, World

NAME = "zookeeper"
"""What the network calls the ensemble."""
SLOW_S = 1.0
"""What a question to the ensemble, or its answer, may take on a bad day."""
PINGS = 3
"""So often a session is heard of within its timeout."""
OnSet = Callable[["SimulatedSession", str, bytes, bytes], None]
"""Called with who has written, the path, and the data before and after."""


class _Node:
    __slots__ = ("children", "data", "next_number", "stat")

    def __init__(self, data: bytes, stat: Stat) -> None:
        self.data = data
        self.stat = stat
        self.children: set[str] = set()
        self.next_number = 0


class Ensemble:
    """The servers, as one: what they have agreed on."""

    def __init__(self, world: World, network: Network, session_timeout_s: float) -> None:
        self.world = world
        self.network = network
        self.session_timeout_s = session_timeout_s
        self.is_up = True
        self.slow: set[str] = set()
        """Hosts that wait long for answers."""
        self.deaf: set[str] = set()
        """Hosts that get no answer to every other write: carried out at once, a while later but no later than what they
        ask next, or never."""
        self.on_set: list[OnSet] = []
        """Called when a node has other data."""
        self.on_write: list[Callable[[Sequence[Operation]], None]] = []
        """Called with the operations of each successful write."""
        self.writes = 0
        self.nodes: dict[str, _Node] = {}
        self.watches = WatchTable()
        self.sessions: dict[int, SimulatedSession] = {}
        self._change = self._session = 0
        self._fired: list[tuple[EventKind, str]] = []
        self.nodes["/"] = _Node(b"", self._stat(b"", 0))

    def connect(self, host: Host) -> SimulatedSession:
        """Open a session for a host.

        :raises MetadataStoreUnavailableError: it is cut off, or the servers are down.
        """
        if not self.reaches(host):
            raise MetadataStoreUnavailableError("ZooKeeper is out of reach")
        self._session += 1
        session = SimulatedSession(self, host, self._session)
        self.sessions[session.session_id] = session
        session.begin()
        return session

    def reaches(self, host: Host) -> bool:
        cut = self.network.is_cut(host.name, NAME) or self.network.is_cut(NAME, host.name)
        return self.is_up and host.is_alive and not cut

    def expire(self, session: SimulatedSession) -> None:
        """End a session of which nothing was heard."""
        if self.sessions.pop(session.session_id, None) is None:
            return
        self.watches.forget_session(session.session_id)
        for path in [path for path, node in self.nodes.items() if node.stat.owner == session.session_id]:
            self._remove(path)
        self._tell_all()

    def come_back(self) -> None:
        """After the servers were down every session has its whole timeout again."""
        self.is_up = True
        for session in self.sessions.values():
            session.be_heard()

    def heal(self) -> None:
        """End all that is wrong but that the servers are down."""
        self.slow.clear()
        self.deaf.clear()

    def delay_s(self, host: Host) -> float:
        """Draw how long a question or an answer is on its way."""
        draw = self.world.random
        return draw.uniform(0, SLOW_S) if host.name in self.slow else self.network.delay_s()

    # --- operations -------------------------------------------------------------------------------------

    def create(self, session: SimulatedSession, operation: Create) -> str:
        path = operation.path
        parent = self.nodes.get(parent_of(path))
        if parent is None:
            raise NoNodeError(parent_of(path) if path != "/" else path)
        if parent.stat.owner:
            raise NoChildrenForEphemeralsError(parent_of(path))
        if operation.sequential:
            path = f"{path}{parent.next_number:010}"
        if path in self.nodes:
            raise NodeExistsError(path)
        parent.next_number += 1
        owner = session.session_id if operation.ephemeral else 0
        self.nodes[path] = _Node(operation.data, self._stat(operation.data, owner))
        parent.children.add(path)
        self._fire(EventKind.CREATED, path)
        return path

    def set(self, operation: Set) -> Stat:
        node = self.node(operation.path)
        self._check_version(node, operation.path, operation.version)
        node.data = operation.data
        node.stat = replace(
            node.stat,
            version=node.stat.version + 1,
            modified_at=self._change,
            modified_ms=self._now_ms(),
            data_size=len(operation.data),
        )
        self._fire(EventKind.CHANGED, operation.path)
        return self.stat_of(node)

    def delete(self, operation: Delete) -> None:
        node = self.node(operation.path)
        self._check_version(node, operation.path, operation.version)
        if node.children:
            raise NotEmptyError(operation.path)
        self._remove(operation.path)

    def do(self, session: SimulatedSession, operations: Sequence[Operation]) -> list[OperationResult]:
        """Do all of it, or nothing."""
        self._change += 1
        self.writes += 1
        before: dict[str, tuple[bytes, Stat, set[str], int] | None] = {}
        results: list[OperationResult] = []
        try:
            for operation in operations:
                for path in self._touched(operation):
                    node = self.nodes.get(path)
                    before.setdefault(path, node and (node.data, node.stat, set(node.children), node.next_number))
                results.append(self._do_one(session, operation, before))
        except BaseException:
            for path, kept in before.items():
                if kept is None:
                    self.nodes.pop(path, None)
                else:
                    node = self.nodes[path] = self.nodes.get(path) or _Node(kept[0], kept[1])
                    node.data, node.stat, node.children, node.next_number = kept
            self._fired.clear()
            raise
        self._tell_all()
        for note in self.on_write:
            note(operations)
        for operation in operations:
            kept = before.get(operation.path)
            if isinstance(operation, Set) and kept is not None:
                for call in self.on_set:
                    call(session, operation.path, kept[0], operation.data)
        return results

    def _touched(self, operation: Operation) -> list[str]:
        return [] if isinstance(operation, Check) else [operation.path, parent_of(operation.path)]

    def _do_one(self, session: SimulatedSession, operation: Operation, before: dict[str, object]) -> OperationResult:
        check_path(operation.path)
        if isinstance(operation, Create):
            path = self.create(session, operation)
            before.setdefault(path, None)
            return path
        if isinstance(operation, Set):
            return self.set(operation)
        if isinstance(operation, Delete):
            self.delete(operation)
        else:
            self._check_version(self.node(operation.path), operation.path, operation.version)
        return None

    def node(self, path: str) -> _Node:
        node = self.nodes.get(check_path(path))
        if node is None:
            raise NoNodeError(path)
        return node

    def stat_of(self, node: _Node) -> Stat:
        stat, children = node.stat, len(node.children)
        return stat if stat.children_count == children else replace(stat, children_count=children)

    def _remove(self, path: str) -> None:
        del self.nodes[path]
        self.nodes[parent_of(path)].children.discard(path)
        self._fire(EventKind.DELETED, path)

    def _fire(self, kind: EventKind, path: str) -> None:
        self._fired.append((kind, path))

    def _tell_all(self) -> None:
        """Fire the watches for what has been done."""
        fired, self._fired = self._fired, []
        for kind, path in fired:
            for session_id, watch, event in self.watches.collect(WatchEvent(kind, path)):
                session = self.sessions.get(session_id)
                if session is not None:
                    session.tell(watch, event)

    def _check_version(self, node: _Node, path: str, version: int) -> None:
        if version not in (ANY_VERSION, node.stat.version):
            raise BadVersionError(path, f"it is {node.stat.version}, not {version}")

    def _now_ms(self) -> int:
        return int(self.world.loop.time() * 1000)

    def _stat(self, data: bytes, owner: int) -> Stat:
        now_ms = self._now_ms()
        return Stat(0, self._change, self._change, now_ms, now_ms, owner, 0, len(data))


class SimulatedSession:
    """One session with the ensemble."""

    def __init__(self, ensemble: Ensemble, host: Host, session_id: int) -> None:
        self._ensemble = ensemble
        self._host = host
        self._session_id = session_id
        self._on_end: Callable[[], None] | None = None
        self._is_closed = self._is_lost = False
        self._told_until_s = 0.0
        self._heard_s = ensemble.world.loop.time()
        self._late: list[Operation] = []

    def begin(self) -> None:
        """Be heard of from now on."""
        self._ping()
        self._look()

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def host_name(self) -> str:
        return self._host.name

    @property
    def is_of_the_living(self) -> bool:
        """Whether its host has not died since: what was asked before may be written later."""
        return self._host.is_alive

    def be_heard(self) -> None:
        """Let the servers know that it lives."""
        self._heard_s = self._ensemble.world.loop.time()

    @property
    def session_timeout_s(self) -> float | None:
        return self._ensemble.session_timeout_s

    def on_session_end(self, call: Callable[[], None]) -> None:
        self._on_end = call

    def ping(self, timeout_s: float) -> None:
        del timeout_s
        self._check()

    def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        make_parents: bool = False,
    ) -> str:
        check_path(path)
        if make_parents:
            for above in ancestors_of(path):
                if self.exists(above) is None:
                    with contextlib.suppress(NodeExistsError):  # somebody else was faster
                        self._write([Create(above)])
        (made,) = self._write([Create(path, data, ephemeral, sequential)])
        assert isinstance(made, str)
        return made

    def get(self, path: str, watch: Watch | None = None) -> NodeData:
        self._check()
        found = self._data(path)
        if watch is not None:
            self._ensemble.watches.watch_data(self._session_id, path, watch)
        return found

    def _data(self, path: str) -> NodeData:
        node = self._ensemble.node(path)
        return NodeData(node.data, self._ensemble.stat_of(node))

    def get_all(self, paths: Sequence[str]) -> dict[str, NodeData]:
        self._check()
        return {path: self._data(path) for path in paths if check_path(path) in self._ensemble.nodes}

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        (stat,) = self._write([Set(path, data, version)])
        assert isinstance(stat, Stat)
        return stat

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._write([Delete(path, version)])

    def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        self._check()
        check_path(path)
        if watch is not None:
            self._ensemble.watches.watch_data(self._session_id, path, watch)
        node = self._ensemble.nodes.get(path)
        return None if node is None else self._ensemble.stat_of(node)

    def children(self, path: str, watch: Watch | None = None) -> list[str]:
        self._check()
        node = self._ensemble.node(path)
        if watch is not None:
            self._ensemble.watches.watch_children(self._session_id, path, watch)
        return sorted(child.rpartition("/")[2] for child in node.children)

    def subtree(self, path: str) -> dict[str, NodeData]:
        self._check()
        check_path(path)
        above = "" if path == "/" else path
        found = sorted(each for each in self._ensemble.nodes if each.startswith(f"{above}/") and each != "/")
        return {each: self._data(each) for each in found}

    def multi(self, operations: Sequence[Operation]) -> list[OperationResult]:
        return self._write(operations)

    def flush(self) -> None:
        self._check()

    def _write(self, operations: Sequence[Operation]) -> list[OperationResult]:
        """Write, and be answered or not.

        :raises MetadataStoreUnavailableError: no answer came; the write may be done or not (`UnknownOutcomeError` of
            the real store).
        """
        self._check()
        ensemble = self._ensemble
        draw = ensemble.world.random
        if self._host.name not in ensemble.deaf or draw.random() < 0.5:
            return ensemble.do(self, operations)
        if draw.random() < 2 / 3:
            self._late = list(operations)
            wait_s = draw.choice([0.0, draw.uniform(0, ensemble.session_timeout_s / 2)])
            ensemble.world.loop.call_later(wait_s, self._do_late, context=ensemble.network.context)
        raise MetadataStoreUnavailableError("ZooKeeper did not answer; the outcome of the write is unknown")

    def _do_late(self) -> None:
        """Carry out what nobody waits for any longer: while the session lives, and before what it reads or writes next,
        as `MetadataStore.multi` promises."""
        late, self._late = self._late, []
        if late and self._session_id in self._ensemble.sessions:
            with contextlib.suppress(CoordinationError):
                self._ensemble.do(self, late)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            if self._ensemble.reaches(self._host):
                self._ensemble.expire(self)

    def tell(self, watch: Watch, event: WatchEvent) -> None:
        """Tell a watch what happened, a little later, and in the order of what happened."""
        world = self._ensemble.world
        self._told_until_s = max(self._told_until_s, world.loop.time() + self._ensemble.delay_s(self._host))
        self._host.after(self._told_until_s - world.loop.time(), self._call, watch, event)

    def _call(self, watch: Watch, event: WatchEvent) -> None:
        if self._is_closed or self._is_lost:
            return
        if self._ensemble.reaches(self._host):
            watch(event)
        else:
            self._host.after(1.0, self._call, watch, event)

    def _check(self) -> None:
        step()
        if self._is_closed:
            raise ClosedError("this session with the tree is closed")
        if self._is_lost or not self._ensemble.reaches(self._host):
            raise MetadataStoreUnavailableError("ZooKeeper is out of reach")
        if self._session_id not in self._ensemble.sessions:
            self._lose()
            raise MetadataStoreUnavailableError("the session is lost")
        self.be_heard()
        self._do_late()

    def _lose(self) -> None:
        if not self._is_lost and not self._is_closed:
            self._is_lost = True
            if self._on_end is not None:
                self._host.soon(self._on_end)

    def _ping(self) -> None:
        """The client's part: let the servers hear of it, and hear of its end."""
        if self._is_closed or self._is_lost:
            return
        if self._ensemble.reaches(self._host):
            if self._session_id not in self._ensemble.sessions:
                self._lose()
                return
            self.be_heard()
        self._host.after(self._ensemble.session_timeout_s / PINGS, self._ping)

    def _look(self) -> None:
        """The servers' part: end the session when nothing was heard for too long."""
        ensemble = self._ensemble
        if self._session_id not in ensemble.sessions:
            return
        left_s = self._heard_s + ensemble.session_timeout_s - ensemble.world.loop.time()
        if left_s <= 0 and ensemble.is_up:
            ensemble.expire(self)
            return
        ensemble.world.loop.call_later(max(left_s, 0.1), self._look, context=ensemble.network.context)
