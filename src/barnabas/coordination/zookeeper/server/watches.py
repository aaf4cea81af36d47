"""The watches of all client connections. Each watch fires once.

As in ZooKeeper, watches belong to a connection and not to a session. There are two kinds: watches on a node's data or
existence, and watches on its list of children. A connection with both kinds receives one event for one change. Not
thread-safe: the store's lock protects the watches.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Generic, TypeVar

from barnabas.coordination.metadata_store import EventKind, WatchEvent, parent_of

WATCH_BYTES = 64
"""The assumed size of a watch in bytes, without its path. The limits count it for each watch."""

Watcher = TypeVar("Watcher")

_ByPath = defaultdict[str, dict[Watcher, None]]


class ServedWatches(Generic[Watcher]):
    """The watches by node.

    :param bytes_max: the maximum size of the watches of one connection: `WATCH_BYTES` and the path's length for each.
    :param total_bytes_max: the maximum size of the watches of all connections.
    """

    def __init__(self, bytes_max: int, total_bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._total_bytes_max = total_bytes_max
        self._total_bytes = 0
        self._on_data: _ByPath[Watcher] = defaultdict(dict)
        self._on_children: _ByPath[Watcher] = defaultdict(dict)
        self._of: defaultdict[Watcher, set[tuple[bool, str]]] = defaultdict(set)
        self._bytes: defaultdict[Watcher, int] = defaultdict(int)

    def add(self, watcher: Watcher, path: str, *, on_children: bool) -> bool:
        """Set a watch; return False if this connection or all connections together have too many."""
        key = on_children, path
        if key in self._of[watcher]:
            return True
        size = _size(path)
        if self._bytes[watcher] + size > self._bytes_max or self._total_bytes + size > self._total_bytes_max:
            return False
        self._bytes[watcher] += size
        self._total_bytes += size
        self._of[watcher].add(key)
        self._table(on_children)[path][watcher] = None
        return True

    def fire(self, happened: WatchEvent) -> list[tuple[Watcher, WatchEvent]]:
        """Remove the watches that fire because of a change of a node; return their watchers and events."""
        kind, path = happened
        watchers = self._take(path, on_children=False)
        if kind is EventKind.DELETED:
            watchers |= self._take(path, on_children=True)
        fired = [(watcher, happened) for watcher in watchers]
        if kind is not EventKind.CHANGED:
            above = WatchEvent(EventKind.CHILDREN_CHANGED, parent_of(path))
            fired += [(watcher, above) for watcher in self._take(above.path, on_children=True)]
        return fired

    def forget(self, watcher: Watcher) -> None:
        """Remove all watches of a connection."""
        for on_children, path in self._of.pop(watcher, ()):
            table = self._table(on_children)
            del table[path][watcher]
            if not table[path]:
                del table[path]
        self._total_bytes -= self._bytes.pop(watcher, 0)

    def _table(self, on_children: bool) -> _ByPath[Watcher]:
        return self._on_children if on_children else self._on_data

    def _take(self, path: str, *, on_children: bool) -> dict[Watcher, None]:
        watchers = self._table(on_children).pop(path, {})
        for watcher in watchers:
            self._of[watcher].discard((on_children, path))
            self._bytes[watcher] -= _size(path)
            self._total_bytes -= _size(path)
        return watchers


def _size(path: str) -> int:
    return len(path) + WATCH_BYTES
