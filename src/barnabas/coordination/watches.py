"""The watches on nodes of the embedded metadata store, and the thread that calls the watches.

As in ZooKeeper, there are two kinds: watches on a node's data, set by `get` and `exists`, and watches on a node's list
of children. A watch fires once, even if the same callable was set twice on a node.

The store calls `collect` under its lock after a change is durable, so events are queued in the order of the changes. A
single thread takes events from the queue and calls the watches. It starts with the first watch. `WatchTable` is not
thread-safe; the store's lock protects it.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections import defaultdict

from barnabas.coordination.metadata_store import EventKind, Watch, WatchEvent, parent_of

_log = logging.getLogger(__name__)

_Watchers = dict[tuple[int, Watch], None]
_STOP = None


class WatchTable:
    """The watches that are set, by node path. Each watch belongs to a session."""

    def __init__(self) -> None:
        self._on_data: defaultdict[str, _Watchers] = defaultdict(dict)
        self._on_children: defaultdict[str, _Watchers] = defaultdict(dict)

    def watch_data(self, session_id: int, path: str, watch: Watch) -> None:
        self._on_data[path][session_id, watch] = None

    def watch_children(self, session_id: int, path: str, watch: Watch) -> None:
        self._on_children[path][session_id, watch] = None

    def collect(self, event: WatchEvent) -> list[tuple[int, Watch, WatchEvent]]:
        """Remove the watches that fire because of a change of a node; return them with their sessions and events."""
        kind, path = event
        watchers = dict(self._on_data.pop(path, {}))
        if kind is EventKind.DELETED:
            watchers.update(self._on_children.pop(path, {}))
        fired = [(session_id, watch, event) for session_id, watch in watchers]
        if kind is not EventKind.CHANGED:
            parent = parent_of(path)
            above = WatchEvent(EventKind.CHILDREN_CHANGED, parent)
            fired += [(session_id, watch, above) for session_id, watch in self._on_children.pop(parent, {})]
        return fired

    def forget_session(self, session_id: int) -> None:
        for table in (self._on_data, self._on_children):
            for path in list(table):
                table[path] = {key: None for key in table[path] if key[0] != session_id}
                if not table[path]:
                    del table[path]


class WatchThread:
    """A thread that calls watches one after the other, in the order in which they were queued."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[int, Watch, WatchEvent] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._gone: set[int] = set()

    def start(self) -> None:
        """Start the thread unless it runs."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="barnabas-tree-watches", daemon=True)
            self._thread.start()

    def put(self, session_id: int, watch: Watch, event: WatchEvent) -> None:
        self._queue.put((session_id, watch, event))

    def forget_session(self, session_id: int) -> None:
        """Deliver no further events to the watches of this session."""
        self._gone.add(session_id)

    def stop(self) -> None:
        """Deliver the queued events, end the thread, and wait for its end.

        If a watch calls this method, do not wait.
        """
        self._queue.put(_STOP)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def _run(self) -> None:
        while (item := self._queue.get()) is not _STOP:
            session_id, watch, event = item
            if session_id in self._gone:
                continue
            try:
                watch(event)
            except Exception:  # noqa: BLE001 - an error of one watch must not stop the others
                _log.exception("watch on %s failed; other watches still fire", event.path)
