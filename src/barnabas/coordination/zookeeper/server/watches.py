"""Who wants to hear of which node: the watches of all connections, each of which fires once.

As in ZooKeeper they belong to a connection, not to a session, and are of two kinds: those on a node's data or its
existence, and those on its list of children. One connection hears once of one change of a node, though it left both.
Not thread-safe: the tree's lock guards it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Generic, TypeVar

from barnabas.coordination.metadata_store import EventKind, WatchEvent, parent_of

WATCH_BYTES = 64
"""What a watch counts for beside its path."""

Watcher = TypeVar("Watcher")

_ByPath = defaultdict[str, dict[Watcher, None]]


class ServedWatches(Generic[Watcher]):
    """The watches, by node.

    :param bytes_max: what one connection may leave, `WATCH_BYTES` and its path's length for each.
    :param total_bytes_max: the same for all connections together.
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
        """Leave a watch; False where this one, or all together, have left too many."""
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
        """Take out the watches that a change of one node fires, and return what each watcher is to hear."""
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
        """Forget all that a connection has left."""
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
