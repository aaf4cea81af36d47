"""Watches that outlive connections.

ZooKeeper's servers forget the watches of a connection that ends, and kazoo then calls each with an event of no kind and
forgets it too. So a watch here keeps what was read when it was set; after a reconnection the node is read again with
the watch: what is as it was is watched on, and what differs fires it. So a change that happened while there was no
connection is told, though it may be told as another kind (a node that was deleted and made again is told as deleted),
and a node that was made and deleted again in the meantime is as it was. A watch that was left before the connection was
lost, and again while it is set again, may be called twice for one change.

All of this runs on the tree's own thread, which also calls the watches: what was missed is told before what comes.
"""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable
from typing import Any

from kazoo import exceptions as kazoo
from kazoo.client import KazooClient
from kazoo.protocol.states import EventType, WatchedEvent

from barnabas.coordination.metadata_store import EventKind, MetadataStoreUnavailableError, Watch, WatchEvent
from barnabas.coordination.zookeeper.session import Deadline, Session
from barnabas.errors import ClosedError

_log = logging.getLogger(__name__)

_KINDS = {
    EventType.CREATED: EventKind.CREATED,
    EventType.CHANGED: EventKind.CHANGED,
    EventType.DELETED: EventKind.DELETED,
    EventType.CHILD: EventKind.CHILDREN_CHANGED,
}

Snapshot = tuple[int, int] | None
"""The changes that made a node and last touched what is watched; None where there is no node."""


class Reading(enum.Enum):
    """Which read set a watch: it decides what fires it, and how it is set again."""

    DATA = "data"
    EXISTENCE = "existence"
    CHILDREN = "children"


class ArmedWatch:
    """What kazoo is given as a watch.

    kazoo keeps those of a node in a set, and takes out all of them when it is told of a change. The same callable left
    twice is one there; not so one that was set again, which may have fired before kazoo hears of it.
    """

    def __init__(self, watches: Watches, path: str, reading: Reading, watch: Watch, number: int = 0) -> None:
        self.path = path
        self.reading = reading
        self.watch = watch
        self.is_spent = False
        self.request: Any = None
        """The read that set it; kazoo knows the watch from its answer on."""
        self._watches = watches
        self._number = number

    @property
    def key(self) -> tuple[str, bool, Watch]:
        """What it watches, and for whom."""
        return self.path, self.reading is Reading.CHILDREN, self.watch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArmedWatch) and (self.key, self._number) == (other.key, other._number)

    def __hash__(self) -> int:
        return hash(self.key)

    def __call__(self, event: WatchedEvent) -> None:
        self._watches.on_event(self, event)

    def send(self, client: KazooClient) -> Any:
        """Read the node and leave the watch."""
        match self.reading:
            case Reading.DATA:
                return client.get_async(self.path, self)
            case Reading.EXISTENCE:
                return client.exists_async(self.path, self)
            case Reading.CHILDREN:
                return client.get_children_async(self.path, self, include_data=True)

    def snapshot(self, answer: Any) -> Snapshot:
        """Return what an answer to `send` says of the node."""
        if answer is None or isinstance(answer, kazoo.NoNodeError):
            return None
        stat = answer if self.reading is Reading.EXISTENCE else answer[1]
        return stat.czxid, stat.pzxid if self.reading is Reading.CHILDREN else stat.mzxid

    def difference(self, before: Snapshot, now: Snapshot) -> EventKind | None:
        """Return what happened between two snapshots; None if nothing did."""
        if before == now:
            return None
        if before is None:
            return EventKind.CREATED
        if now is None or before[0] != now[0]:
            return EventKind.DELETED
        return EventKind.CHILDREN_CHANGED if self.reading is Reading.CHILDREN else EventKind.CHANGED


class Watches:
    """The watches of a session. All but `read` runs on the tree's own thread."""

    def __init__(self, session: Session, call_timeout_s: float) -> None:
        self._session = session
        self._call_timeout_s = call_timeout_s
        self._lock = threading.Lock()
        self._cut_off: list[ArmedWatch] = []
        self._number = 0
        self._event: WatchedEvent | None = None
        self._told_of_event: set[Watch] = set()
        session.on_connected = self._set_again

    def read(self, path: str, reading: Reading, watch: Watch, deadline: Deadline) -> Any:
        """Read a node and leave a watch on it; return the answer as kazoo has it."""
        return self._session.read(self._sending(ArmedWatch(self, path, reading, watch)), deadline)

    def _sending(self, armed: ArmedWatch) -> Callable[[KazooClient], Any]:
        def send(client: KazooClient) -> Any:
            with self._lock:
                armed.request = armed.send(client)
            return armed.request

        return send

    def on_event(self, armed: ArmedWatch, event: WatchedEvent) -> None:
        """Be called by kazoo: the node has changed, or the connection was lost."""
        if self._session.is_over or armed.is_spent:
            return
        if event.type == EventType.NONE:
            self._cut_off.append(armed)
            return
        if event is not self._event:
            self._event, self._told_of_event = event, set()
        if armed.watch not in self._told_of_event:
            self._told_of_event.add(armed.watch)
            _fire(armed, _KINDS[event.type])

    def _set_again(self) -> None:
        """Read all nodes whose watches the servers have forgotten, and find out what happened meanwhile."""
        if not self._cut_off:
            return
        cut_off, self._cut_off = list({armed.key: armed for armed in self._cut_off}.values()), []
        again = [self._renewed(armed) for armed in cut_off]
        try:
            answers = self._session.read_all([self._sending(armed) for armed in again], Deadline(self._call_timeout_s))
        except MetadataStoreUnavailableError:
            # None is forgotten, whether the next connection asks again or, as the servers were only slow, this does.
            self._cut_off += cut_off
            if not self._session.is_over:
                self._session.call_later(self._set_again)
            return
        except ClosedError:
            return
        for old, armed, answer in zip(cut_off, again, answers, strict=True):
            self._compare(old, armed, answer)

    def _renewed(self, old: ArmedWatch) -> ArmedWatch:
        self._number += 1
        # A node that is gone would leave no watch with the read of its data.
        reading = Reading.EXISTENCE if old.reading is Reading.DATA else old.reading
        return ArmedWatch(self, old.path, reading, old.watch, self._number)

    def _compare(self, old: ArmedWatch, armed: ArmedWatch, answer: Any) -> None:
        if isinstance(answer, kazoo.ZookeeperError) and not isinstance(answer, kazoo.NoNodeError):
            kind: EventKind | None = EventKind.CHANGED  # it must not be read any more: let the reader find out
        else:
            with self._lock:
                before = old.snapshot(old.request.get(block=False))
            kind = armed.difference(before, armed.snapshot(answer))
        if kind is not None:
            armed.is_spent = True
            _fire(armed, kind)


def _fire(armed: ArmedWatch, kind: EventKind) -> None:
    try:
        armed.watch(WatchEvent(kind, armed.path))
    except Exception:  # noqa: BLE001 - any error of a watch is its own; it must not silence the others
        _log.exception("a watch on %s failed; the tree goes on", armed.path)
