"""The encodings of keys in the topic: other registries write keys with another `magic` or in another order. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.registry import records
from barnabas.registry.records import Record


class KeyEncodings:
    """The encodings of keys of which the topic holds a value, apart from the canonical ones.

    A change must replace all encodings of its key: compaction keeps the others, and the old value returns.
    """

    def __init__(self) -> None:
        self._of: dict[bytes, set[bytes]] = {}
        self._left_over: set[bytes] = set()

    def note(self, record: Record, key: bytes, value: bytes | None) -> None:
        """Note a record of the topic."""
        canonical = records.canonical_key(record.key)
        if canonical is None:
            return
        known = self._of.setdefault(canonical, set())
        if value is None:
            known.discard(key)
            self._left_over.discard(key)
            self._left_over |= known
        else:
            known.add(key)
            self._left_over -= known
        if not known:
            del self._of[canonical]

    def encoded(self, change: Sequence[Record]) -> list[tuple[bytes, bytes | None]]:
        """Return the bytes of a change, with the same value for all other encodings of its keys.

        Another registry may have deleted one encoding of a key: deletions of the encodings that are left come first.
        """
        sent: list[tuple[bytes, bytes | None]] = [(key, None) for key in sorted(self._left_over)]
        for record in change:
            key, value = record.encoded()
            sent += [(other, value) for other in sorted(self._of.get(key, set()) - {key})]
            sent.append((key, value))
        return sent
