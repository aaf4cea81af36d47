"""Watches that outlive connections.

ZooKeeper's servers drop the watches of a connection when it ends. kazoo then calls each watch with an event of type
NONE and drops the watch, too. Therefore a watch in this module keeps the node's state from the read that set the watch.
After a reconnection, the node is read again. If its state is equal, the watch is set again; if it differs, the watch
fires. So no change during a disconnection is missed, with these limits:

- The event may have another kind: a node that was deleted and created again is reported as deleted.
- If a node was created and deleted during the disconnection, the change is not detected.
- A watch that is set before the loss of the connection, and again during the reconnection, may fire twice.

The module runs on the store's thread, which also calls the watches. So missed events are delivered before new events.
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
"""The numbers of two changes: the creation of the node, and the last change of its watched part.

None if there is no node.
"""


class Reading(enum.Enum):
    """The kind of read that set a watch.

    It determines the events that fire the watch, and the read that sets the watch again.
    """

    DATA = "data"
    EXISTENCE = "existence"
    CHILDREN = "children"


class ArmedWatch:
    """A watch that is passed to kazoo.

    kazoo keeps the watches of a node in a set, so it keeps equal watches once, and it removes all of them at an event.
    A watch that is set again is a new object and not equal to the old watch, which may have fired already.
    """

    def __init__(self, watches: Watches, path: str, reading: Reading, watch: Watch, number: int = 0) -> None:
        self.path = path
        self.reading = reading
        self.watch = watch
        self.is_spent = False
        self.request: Any = None
        """The pending read that sets the watch. kazoo adds the watch to its set after the response."""
        self._watches = watches
        self._number = number

    @property
    def key(self) -> tuple[str, bool, Watch]:
        """The watched path, the kind of watch, and the function to call."""
        return self.path, self.reading is Reading.CHILDREN, self.watch

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ArmedWatch) and (self.key, self._number) == (other.key, other._number)

    def __hash__(self) -> int:
        return hash(self.key)

    def __call__(self, event: WatchedEvent) -> None:
        self._watches.on_event(self, event)

    def send(self, client: KazooClient) -> Any:
        """Read the node and set the watch."""
        match self.reading:
            case Reading.DATA:
                return client.get_async(self.path, self)
            case Reading.EXISTENCE:
                return client.exists_async(self.path, self)
            case Reading.CHILDREN:
                return client.get_children_async(self.path, self, include_data=True)

    def snapshot(self, answer: Any) -> Snapshot:
        """Return the snapshot in the response to `send`."""
        if answer is None or isinstance(answer, kazoo.NoNodeError):
            return None
        stat = answer if self.reading is Reading.EXISTENCE else answer[1]
        return stat.czxid, stat.pzxid if self.reading is Reading.CHILDREN else stat.mzxid

    def difference(self, before: Snapshot, now: Snapshot) -> EventKind | None:
        """Return the event for the difference between two snapshots; None if they are equal."""
        if before == now:
            return None
        if before is None:
            return EventKind.CREATED
        if now is None or before[0] != now[0]:
            return EventKind.DELETED
        return EventKind.CHILDREN_CHANGED if self.reading is Reading.CHILDREN else EventKind.CHANGED


class Watches:
    """The watches of a session. All methods except `read` run on the store's thread."""

    def __init__(self, session: Session, call_timeout_s: float) -> None:
        self._session = session
        self._call_timeout_s = call_timeout_s
        self._lock = threading.Lock()
        self._cut_off: list[ArmedWatch] = []
        self._number = 0
        self._event: WatchedEvent | None = None
        self._notified: set[Watch] = set()
        """The functions that were already called for the event `_event`."""
        session.on_connected = self._set_again

    def read(self, path: str, reading: Reading, watch: Watch, deadline: Deadline) -> Any:
        """Read a node and set a watch on it; return kazoo's result."""
        return self._session.read(self._sending(ArmedWatch(self, path, reading, watch)), deadline)

    def _sending(self, armed: ArmedWatch) -> Callable[[KazooClient], Any]:
        def send(client: KazooClient) -> Any:
            with self._lock:
                armed.request = armed.send(client)
            return armed.request

        return send

    def on_event(self, armed: ArmedWatch, event: WatchedEvent) -> None:
        """Process an event from kazoo: the watched node has changed, or the connection was lost."""
        if self._session.is_over or armed.is_spent:
            return
        if event.type == EventType.NONE:
            self._cut_off.append(armed)
            return
        if event is not self._event:
            self._event, self._notified = event, set()
        if armed.watch not in self._notified:
            self._notified.add(armed.watch)
            _fire(armed, _KINDS[event.type])

    def _set_again(self) -> None:
        """Read the nodes of all dropped watches. Fire a watch if its node has changed; otherwise, set it again."""
        if not self._cut_off:
            return
        cut_off, self._cut_off = list({armed.key: armed for armed in self._cut_off}.values()), []
        again = [self._renewed(armed) for armed in cut_off]
        try:
            answers = self._session.read_all([self._sending(armed) for armed in again], Deadline(self._call_timeout_s))
        except MetadataStoreUnavailableError:
            # Keep all watches. They are set again after the next connection, or by this method if the servers were only
            # slow.
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
        # A `get` of a missing node would set no watch.
        reading = Reading.EXISTENCE if old.reading is Reading.DATA else old.reading
        return ArmedWatch(self, old.path, reading, old.watch, self._number)

    def _compare(self, old: ArmedWatch, armed: ArmedWatch, answer: Any) -> None:
        if isinstance(answer, kazoo.ZookeeperError) and not isinstance(answer, kazoo.NoNodeError):
            kind: EventKind | None = EventKind.CHANGED  # The owner of the watch reads the node and gets the error.
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
    except Exception:  # noqa: BLE001 - an error of one watch must not stop the others
        _log.exception("watch on %s failed; other watches still fire", armed.path)
