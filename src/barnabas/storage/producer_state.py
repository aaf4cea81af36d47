"""The last batches of idempotent producers, so that a log stores each batch once and in order (KIP-98).

The state of a producer id is its epoch and its last five batches, because a producer has at most five batches in
flight. This module does no I/O: it encodes and decodes snapshots, `DerivedFiles` writes them, and recovery reads them.

Snapshot file (Kafka's `<offset>.snapshot`): version i16, CRC-32C u32 of the rest, entry count i32. Each entry is
producer id i64, epoch i16, last sequence i32, last offset i64, offset delta i32, timestamp i64, coordinator epoch i32,
first offset of the open transaction i64. Kafka stores one batch per producer. Barnabas stores an entry for each of the
five batches, oldest first, to detect retries after a restart. If Kafka reads such a file, it uses the last entry of
each producer.

Expiry. An entry contains the monotonic time at which the broker received the batch. Record timestamps are not used,
because a producer that sends last year's events is still active. Wall-clock time is not used either, because active
producers would expire if the clock was temporarily wrong. A snapshot stores wall-clock time, as Kafka does. A start
uses only the differences between the entries of the snapshot, and gives the newest entry the age 0. So a producer
expires if the broker runs for a day without receiving a batch from it.

Invariant. An update replaces an entry as a whole, so a shallow copy of all entries is a consistent snapshot.

Threads. Only the owner of the log uses this module. While a roll or a flush may copy the entries, the owner holds the
state lock.

Errors. ApiError is raised for a batch that is not the producer's next batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from crc32c import crc32c

from barnabas.clock import Clock
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import NO_PRODUCER_ID, PLAUSIBLE_PRODUCER_IDS
from barnabas.records.header import SEQUENCE_MAX, BatchHeader
from barnabas.records.scan import BATCHES_KEPT

PRODUCER_EXPIRATION_S = 24 * 60 * 60
"""The time without batches after which the state of a producer expires (Kafka's producer.id.expiration.ms)."""

STRANGERS_MAX = 1_000
"""The maximum number of remembered rejections of unknown producers. The oldest rejection is dropped first."""
STRANGER_EXPIRATION_S = 10 * 60
"""The time for which a rejection is remembered.

It is longer than producers retry: the default of delivery.timeout.ms is two minutes, and of librdkafka's
message.timeout.ms five minutes.
"""

_VERSION = 1
_SNAPSHOT_HEAD = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
_NO_COORDINATOR_EPOCH = -1
_NO_TRANSACTION = -1


class ProducerBatch(NamedTuple):
    """A batch of a producer in the log."""

    first_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    appended_s: float
    """The monotonic time at which the broker received the batch."""


@dataclass(frozen=True, slots=True)
class ProducerEntry:
    """A producer's epoch and its last batches, oldest first."""

    epoch: int
    batches: tuple[ProducerBatch, ...]


class ProducerStates:
    """The states of the producers of one log."""

    def __init__(self, entries: dict[int, ProducerEntry] | None = None) -> None:
        self._entries = entries if entries is not None else {}
        self.highest_id = _highest_plausible(self._entries)
        """The highest producer id that a broker may have allocated; -1 if there is none.

        The value stays when the producer expires.
        """
        self._strangers: dict[tuple[int, int, int], float] = {}
        """The monotonic time of each rejection of an unknown producer's batch, by producer id, epoch and sequence."""

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, producer_id: object) -> bool:
        return producer_id in self._entries

    def entries(self) -> dict[int, ProducerEntry]:
        """Return a copy of all entries, by producer id."""
        return dict(self._entries)

    def check(self, header: BatchHeader, now_s: float) -> ProducerBatch | None:
        """Check the sequence of a producer's batch.

        :param now_s: the monotonic time.
        :returns: the batch in the log if `header` belongs to a retry of this batch, otherwise None.
        :raises ApiError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER; NOT_LEADER_OR_FOLLOWER if the producer
            must send all its unacknowledged batches again.
        """
        entry = self._entry(header.producer_id)
        if entry is None:
            self._check_stranger(header, now_s)
            return None
        if header.producer_epoch < entry.epoch:
            raise ApiError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} sent epoch {header.producer_epoch}; its current epoch is {entry.epoch}",
            )
        if header.producer_epoch > entry.epoch:
            expected = 0
        else:
            for batch in reversed(entry.batches):
                if batch.first_sequence == header.base_sequence and batch.last_sequence == header.last_sequence:
                    return batch
            expected = _following(entry.batches[-1].last_sequence)
        if header.base_sequence != expected:
            raise ApiError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence}; the next sequence is {expected}",
            )
        return None

    def accepts_next(self, producer_id: int, epoch: int, base_sequence: int) -> bool:
        """Return whether `check` would accept a batch with this sequence as a new batch, with any number of records.

        >>> ProducerStates().accepts_next(7, 0, 0)
        True
        """
        entry = self._entry(producer_id)
        if entry is None:
            return base_sequence == 0
        if epoch != entry.epoch:
            return epoch > entry.epoch and base_sequence == 0
        if base_sequence != _following(entry.batches[-1].last_sequence):
            return False
        return all(batch.first_sequence != base_sequence for batch in entry.batches)

    def update(self, header: BatchHeader, base_offset: int, appended_s: float) -> None:
        """Add a batch of the log to the state of its producer.

        :param header: the header of the batch; its base offset is ignored.
        :param appended_s: the monotonic time.
        """
        batch = ProducerBatch(
            header.base_sequence,
            header.last_sequence,
            base_offset,
            base_offset + header.last_offset_delta,
            appended_s,
        )
        entry = self._entry(header.producer_id)
        if entry is not None and entry.epoch == header.producer_epoch:
            batches = (*entry.batches[1 - BATCHES_KEPT :], batch)
        else:
            batches = (batch,)
        self._entries[header.producer_id] = ProducerEntry(header.producer_epoch, batches)

    def add_batches(
        self, producer_id: int, epoch: int, batches: Sequence[tuple[int, int, int, int]], appended_s: float
    ) -> None:
        """Add batches of the log to the state of a producer, oldest first.

        :param batches: first sequence, last sequence, base offset and last offset of each batch.
        :param appended_s: the monotonic time.
        """
        entry = self._entry(producer_id)
        earlier = entry.batches if entry is not None and entry.epoch == epoch else ()
        found = tuple(ProducerBatch(*each, appended_s) for each in batches)
        self._entries[producer_id] = ProducerEntry(epoch, (*earlier, *found)[-BATCHES_KEPT:])

    def replace_with(self, other: ProducerStates) -> None:
        """Replace all states with the states in another object, after a truncation of the log."""
        self._entries, self._strangers = other._entries, other._strangers
        self.highest_id = other.highest_id

    def expire(self, now_s: float) -> None:
        """Remove the producers without batches for a day.

        :param now_s: the monotonic time.
        """
        for producer_id, entry in self.entries().items():
            if now_s - entry.batches[-1].appended_s >= PRODUCER_EXPIRATION_S:
                del self._entries[producer_id]

    def _entry(self, producer_id: int) -> ProducerEntry | None:
        return self._entries.get(producer_id)

    def _check_stranger(self, header: BatchHeader, now_s: float) -> None:
        """Reject a batch from an unknown producer with a sequence above 0 the first time, and accept its retry.

        There are two possible causes, and the batch does not show which one applies. Either the state of the producer
        has expired, and the producer continues its sequence (KIP-360). Or an earlier batch has not arrived yet, for
        example because the producer sent it to the former leader. In the second case, an acknowledgement would lose or
        reorder records: librdkafka would treat the earlier batch as stored, and other clients would send it too late.
        So the log rejects the batch once, with an error after which all producers send their unacknowledged batches
        again, in order. Then no earlier batch is missing.

        More than `STRANGERS_MAX` producers may be unknown at the same time, for example after the deletion of all
        records of a busy log. Then each rejection could be dropped before the retry. So the log accepts every second
        batch immediately in this case.
        """
        stranger = header.producer_id, header.producer_epoch, header.base_sequence
        if header.base_sequence == 0:
            return
        refused_s = self._strangers.get(stranger)
        if refused_s is not None:
            if now_s - refused_s < STRANGER_EXPIRATION_S:
                return
            del self._strangers[stranger]  # the entries stay sorted by their time
        if len(self._strangers) >= STRANGERS_MAX:
            oldest = next(iter(self._strangers))
            if now_s - self._strangers.pop(oldest) < STRANGER_EXPIRATION_S:
                return
        self._strangers[stranger] = now_s
        raise ApiError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"unknown producer {header.producer_id} sent sequence {header.base_sequence}: send "
            "all unacknowledged batches again, in order",
        )


class PendingProducers(ProducerStates):
    """The producer states after the write of an append group. The object contains only the entries that change.

    :param states: the producer states of the log; `commit` changes them.
    """

    def __init__(self, states: ProducerStates) -> None:
        super().__init__()
        self._states = states
        self._strangers = states._strangers

    def commit(self) -> None:
        """Apply the changes to the producer states of the log, after the batches were written."""
        states = self._states
        states._entries.update(self._entries)
        for producer_id in self._entries:
            if states.highest_id < producer_id < PLAUSIBLE_PRODUCER_IDS:
                states.highest_id = producer_id
        self._entries.clear()

    def discard(self) -> None:
        """Drop the changes, because the batches were not written. So a retry of such a batch is not a duplicate."""
        self._entries.clear()

    def _entry(self, producer_id: int) -> ProducerEntry | None:
        entry = self._entries.get(producer_id)
        return self._states._entry(producer_id) if entry is None else entry


def _highest_plausible(producer_ids: Iterable[int]) -> int:
    return max((each for each in producer_ids if each < PLAUSIBLE_PRODUCER_IDS), default=NO_PRODUCER_ID)


def _following(sequence: int) -> int:
    return 0 if sequence == SEQUENCE_MAX else sequence + 1


def encode_snapshot(entries: dict[int, ProducerEntry], clock: Clock) -> bytes:
    """Return the content of a snapshot file."""
    # the offset from monotonic to wall-clock time; a single offset preserves the differences
    ahead_ms = clock.time_ms() - clock.monotonic() * 1000
    rows = [
        _ENTRY.pack(
            producer_id,
            entry.epoch,
            batch.last_sequence,
            batch.last_offset,
            batch.last_offset - batch.base_offset,
            round(ahead_ms + batch.appended_s * 1000),
            _NO_COORDINATOR_EPOCH,
            _NO_TRANSACTION,
        )
        for producer_id, entry in entries.items()
        for batch in entry.batches
    ]
    content = _COUNT.pack(len(rows)) + b"".join(rows)
    return _SNAPSHOT_HEAD.pack(_VERSION, crc32c(content)) + content


def decode_snapshot(data: bytes, now_s: float) -> ProducerStates:
    """Decode the content of a snapshot file.

    :param now_s: the current monotonic time. The newest entry gets this time.
    :raises ValueError: the content is damaged.
    """
    head_size = _SNAPSHOT_HEAD.size + _COUNT.size
    if len(data) < head_size:
        raise ValueError(f"{len(data)} bytes are too short for a producer snapshot")
    version, crc = _SNAPSHOT_HEAD.unpack_from(data)
    if version != _VERSION or crc != crc32c(memoryview(data)[_SNAPSHOT_HEAD.size :]):
        raise ValueError("the version or the CRC of the producer snapshot is wrong")
    (count,) = _COUNT.unpack_from(data, _SNAPSHOT_HEAD.size)
    if len(data) != head_size + count * _ENTRY.size:
        raise ValueError(f"a producer snapshot with {count} entries cannot have {len(data)} bytes")
    entries: dict[int, ProducerEntry] = {}
    rows = list(_ENTRY.iter_unpack(memoryview(data)[head_size:]))
    newest_ms = max((timestamp_ms for _, _, _, _, _, timestamp_ms, _, _ in rows), default=0)
    for producer_id, epoch, last_sequence, last_offset, offset_delta, timestamp_ms, _, _ in rows:
        first_sequence = last_sequence - offset_delta
        if first_sequence < 0:
            first_sequence += SEQUENCE_MAX + 1
        appended_s = now_s - (newest_ms - timestamp_ms) / 1000
        batch = ProducerBatch(first_sequence, last_sequence, last_offset - offset_delta, last_offset, appended_s)
        known = entries.get(producer_id)
        earlier = known.batches if known is not None and known.epoch == epoch else ()
        entries[producer_id] = ProducerEntry(epoch, (*earlier, batch)[-BATCHES_KEPT:])
    return ProducerStates(entries)
