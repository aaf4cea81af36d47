"""The watches on nodes of the embedded tree, and the thread that calls them.

As in ZooKeeper there are two kinds: those on a node's data, left by `get` and `exists`, and those on its list
of children. A watch fires once; the same callable left twice on the same node fires once for both.

The tree calls `collect` under its lock and after the change is durable, so events queue up in the order of the
changes; one thread, started with the first watch, takes them from the queue. Not thread-safe by itself: the
tree's lock guards it.
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
    """The watches that are set, by node; each belongs to a session."""

    def __init__(self) -> None:
        self._on_data: defaultdict[str, _Watchers] = defaultdict(dict)
        self._on_children: defaultdict[str, _Watchers] = defaultdict(dict)

    def watch_data(self, session_id: int, path: str, watch: Watch) -> None:
        self._on_data[path][session_id, watch] = None

    def watch_children(self, session_id: int, path: str, watch: Watch) -> None:
        self._on_children[path][session_id, watch] = None

    def collect(self, event: WatchEvent) -> list[tuple[int, Watch, WatchEvent]]:
        """Take out the watches that a change of one node fires, with what each is to be told."""
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
    """Calls watches, one after the other, in the order in which they were queued."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[int, Watch, WatchEvent] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._gone: set[int] = set()

    def start(self) -> None:
        """Start the thread if it does not run yet."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="barnabas-tree-watches", daemon=True)
            self._thread.start()

    def put(self, session_id: int, watch: Watch, event: WatchEvent) -> None:
        self._queue.put((session_id, watch, event))

    def forget_session(self, session_id: int) -> None:
        """Deliver nothing more to this session."""
        self._gone.add(session_id)

    def stop(self) -> None:
        """Deliver what is queued and end the thread; from a watch, end it without waiting."""
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
            except Exception:  # noqa: BLE001 - any error of a watch is its own; it must not silence the others
                _log.exception("a watch on %s failed; the tree goes on", event.path)
