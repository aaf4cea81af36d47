"""Decides by the order of the log between registries that change the topic at the same time. No I/O; not thread-safe.

All registries write; there is no leader election. A registry plans a change from the records that it has read. Each
record of the change has a header with the offset up to which the registry had read (`ChangeHeader`). A change has no
effect if the log contains another change between that offset and the change. All registries read the same log, so they
agree on which changes have no effect. The registry that wrote such a change plans it again.

Records without this header come from Confluent's registry and from earlier releases, and always take effect.

Compaction keeps the last record of each key, even if the record has no effect. So if the last record of a key has no
effect, the next change of any registry writes the effective value again (`SchemaLog.entries`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum, auto
from typing import NamedTuple, Self

from barnabas.registry import records
from barnabas.registry.records import Record
from barnabas.registry.state import RegistryState


class KeyEncodings:
    """The non-canonical encodings of keys that have a value in the topic.

    A change must replace all encodings of its key. Otherwise compaction would keep the other encodings, and the old
    value would return.
    """

    def __init__(self) -> None:
        self._of: dict[bytes, set[bytes]] = {}
        self._left_over: set[bytes] = set()

    def note(self, record: Record, key: bytes, value: bytes | None) -> None:
        """Update the known encodings with a record of the topic."""
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
        """Return the records of a change as bytes, and further records with the same values for all other encodings of
        its keys.

        Another registry may have deleted only one encoding of a key. So deletions of the remaining encodings come
        first.
        """
        sent: list[tuple[bytes, bytes | None]] = [(key, None) for key in sorted(self._left_over)]
        for record in change:
            key, value = record.encoded()
            sent += [(other, value) for other in sorted(self._of.get(key, set()) - {key})]
            sent.append((key, value))
        return sent


HEADER = "barnabas-change"
"""The name of the record header that contains the name of the change and the offset."""
_FORM = re.compile(rb"([0-9]{1,19}) ([0-9a-f]{16})( repair)?")


class ChangeHeader(NamedTuple):
    """The header of a record, which identifies its change.

    :param change: a random name in hex, equal for all records of a change.
    :param after: the registry knew all records before this offset when it planned the change.
    :param is_repair: True if the record only repeats the effective value of its key.
    """

    change: str
    after: int
    is_repair: bool = False

    @property
    def header(self) -> tuple[str, bytes]:
        """The name and value of the record header.

        >>> ChangeHeader.of([ChangeHeader("9f86d081884c7d65", 17).header])
        ChangeHeader(change='9f86d081884c7d65', after=17, is_repair=False)
        """
        return HEADER, f"{self.after} {self.change}{' repair' if self.is_repair else ''}".encode()

    @classmethod
    def of(cls, headers: Iterable[tuple[str, bytes | None]]) -> Self | None:
        """Return the change header of a record; None if the record has no valid change header."""
        given = [value for name, value in headers if name == HEADER]
        form = _FORM.fullmatch(given[0] or b"") if len(given) == 1 else None
        return None if form is None else cls(form[2].decode(), int(form[1]), form[3] is not None)


class Effect(Enum):
    """The effect of a record in the topic."""

    CHANGES = auto()
    REPEATS = auto()
    """The record repeats the current value of its key."""
    NOTHING = auto()
    """The record has no effect, because another change precedes it."""


class LogEntry(NamedTuple):
    """A record to write."""

    key: bytes
    value: bytes | None
    header: tuple[str, bytes]


REPAIRS_MAX = 100
"""The maximum number of keys that one change repairs."""


class SchemaLog:
    """Applies the records of the topic, one by one, to the state of one registry."""

    def __init__(self, state: RegistryState) -> None:
        self._state = state
        self.next_offset = 0
        """The offset of the next record to read. It always corresponds to the state."""
        self._keys = KeyEncodings()
        self._last_offset = -1
        """The offset of the last record that changed the state; -1 if there is none."""
        self._last_change: str | None = None
        self._values: dict[bytes, bytes | None] = {}
        self._ineffective: set[bytes] = set()
        """The keys whose last record in the topic has no effect."""

    @property
    def needs_repairs(self) -> bool:
        """True if the last record of some key has no effect."""
        return bool(self._ineffective)

    def take(self, offset: int, key: bytes | None, value: bytes | None, change_header: ChangeHeader | None) -> Effect:
        """Apply the next record to the state, and return its effect.

        :raises UnknownRecordError: no registry writes such a record; the record has no effect.
        """
        self.next_offset = offset + 1
        record = Record.decode(key, value)
        assert key is not None, "a record without a key is unknown"
        effect = self._effect_of(change_header, key, value)
        if effect is Effect.CHANGES:
            self._state.apply(record)
            self._keys.note(record, key, value)
            if record.key["keytype"] != records.NOOP:
                self._changed(offset, change_header, key, value)
        elif self._values.get(key) == value:
            self._ineffective.discard(key)
        else:
            self._ineffective.add(key)
        return effect

    def _effect_of(self, change_header: ChangeHeader | None, key: bytes, value: bytes | None) -> Effect:
        if change_header is None:
            return Effect.CHANGES
        if self._last_offset >= change_header.after and self._last_change != change_header.change:
            return Effect.NOTHING
        is_repeated = change_header.is_repair and self._values.get(key) == value
        return Effect.REPEATS if is_repeated else Effect.CHANGES

    def _changed(self, offset: int, change_header: ChangeHeader | None, key: bytes, value: bytes | None) -> None:
        # A repair does not invalidate concurrent changes, because it does not change the state.
        if change_header is None or not change_header.is_repair:
            self._last_offset, self._last_change = offset, None if change_header is None else change_header.change
        if value is None:
            self._values.pop(key, None)
        else:
            self._values[key] = value
        self._ineffective.discard(key)

    def entries(self, name: str, change: Sequence[Record]) -> list[LogEntry]:
        """Return the records to write for a change that was planned from the current state. Repairs come first.

        :param name: the name of the change, 16 random hex digits.
        """
        change_header = ChangeHeader(name, self.next_offset)
        encoded = self._keys.encoded(change)
        to_repair = sorted(self._ineffective - {key for key, _value in encoded})[:REPAIRS_MAX]
        repair = change_header._replace(is_repair=True).header
        repairs = [LogEntry(key, self._values.get(key), repair) for key in to_repair]
        return [*repairs, *(LogEntry(key, value, change_header.header) for key, value in encoded)]
