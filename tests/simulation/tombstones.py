"""Tombstones that compaction took away, and who could not learn of them any more.

A tombstone stays for `delete.retention.ms` after it was first compacted, and then goes. A replica that was away for
longer is never told of it, nor is a reader that was on its way for longer: they keep the record that it deleted. Who
was told of it has no older record of its key, and nobody's cleaner takes it before its time.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.model import TopicPartition
from barnabas.records import BATCH_HEADER_SIZE, Record
from barnabas.records.codec import decode_records
from barnabas.records.header import BatchHeader, iter_headers


class Rewritten(NamedTuple):
    """What a cleaner made of some segments of a log.

    :param is_superseded: whether there is a later record of a key than that at an offset.
    """

    before: bytes
    after: bytes
    now_ms: int
    is_superseded: Callable[[bytes, int], bool]


class Tombstone(NamedTuple):
    """One in a log, and from when on it may go; None: it was not compacted yet."""

    key: bytes
    horizon_ms: int | None


class Tombstones:
    """Those of one place, in the logs of all brokers.

    :param retention_ms: the place's `delete.retention.ms`.
    :param say: told what is broken.
    """

    def __init__(self, place: TopicPartition, retention_ms: int, say: Callable[[str], None]) -> None:
        self._place = place
        self._retention_ms = retention_ms
        self._say = say
        self._gone: list[tuple[bytes, int]] = []
        """Keys and offsets of those whose time was over, as they went from one log after another."""
        self._taken: dict[int, set[int]] = defaultdict(set)
        """Of each broker, the offsets of those that its log had, and that its cleaner took."""

    def note_rewritten(self, number: int, rewritten: Rewritten) -> None:
        """Take note of what a broker's cleaner took away, and check that it was time for it."""
        before, after = self._in(rewritten.before), self._in(rewritten.after)
        for offset, (key, horizon_ms) in before.items():
            if offset in after:
                if horizon_ms is None:
                    self._check_horizon(number, offset, after[offset].horizon_ms, rewritten.now_ms)
                continue
            self._taken[number].add(offset)
            if rewritten.is_superseded(key, offset):
                continue
            self._gone.append((key, offset))
            if horizon_ms is None or horizon_ms > rewritten.now_ms:
                self._say(f"{self._place}: the cleaner of broker {number} took the tombstone at {offset} too early")

    def _check_horizon(self, number: int, offset: int, horizon_ms: int | None, now_ms: int) -> None:
        if horizon_ms is not None and horizon_ms < now_ms + self._retention_ms:
            self._say(f"{self._place}: the tombstone at {offset} on broker {number} is to go too early")

    def note_end(self, number: int, end: int) -> None:
        """Take note of where a broker's log ends that was opened, or cut: it had nothing from there on."""
        self._taken[number] = {offset for offset in self._taken[number] if offset < end}

    @property
    def gone_count(self) -> int:
        """How often one has gone because its time was over."""
        return len(self._gone)

    def gone(self, key: bytes, offset: int, *, since: int = 0) -> set[int]:
        """Return where tombstones of a key were, from an offset on, that have gone because their time was over.

        :param since: what `gone_count` was; only those that went from a log later.
        """
        return {at for of, at in self._gone[since:] if of == key and at >= offset}

    def missed(self, number: int, offsets: set[int], log: bytes) -> set[int]:
        """Return at which of these offsets a broker never had the tombstone.

        :param log: all batches of its log.
        """
        return offsets - self._taken[number] - self._in(log).keys()

    def _in(self, batches: bytes) -> dict[int, Tombstone]:
        """Return the tombstones in some batches, by their offsets."""
        return {
            record.offset: Tombstone(bytes(record.key or b""), header.delete_horizon_ms)
            for header, records in _decoded(batches, self._place)
            for record in records
            if record.value is None
        }


def records_in(batches: bytes, place: TopicPartition) -> list[Record]:
    """Return all records in some batches."""
    return [record for _, records in _decoded(batches, place) for record in records]


def _decoded(batches: bytes, place: TopicPartition) -> Iterator[tuple[BatchHeader, list[Record]]]:
    view = memoryview(batches)
    for position, header in iter_headers(view):
        body = view[position + BATCH_HEADER_SIZE : position + header.size]
        yield header, decode_records(body, header, *place, header.base_offset)
