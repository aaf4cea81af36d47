"""The state of one mirrored partition: its copy state machine, its counts, and the failures that delay it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from barnabas.groups.arrival_times import ArrivalTimes
from barnabas.mirror.batch_verification import SourceBatch
from barnabas.mirror.ledger import PartitionMark
from barnabas.mirror.offset_map import OffsetMap
from barnabas.mirror.partition_copy import PartitionCopy
from barnabas.model import TopicPartition
from barnabas.protocol.declare import ZERO_UUID

LOOK_S = 1.0
"""The minimum time in seconds between two entries of `arrivals`."""

REPORTED_TRIES = 5
"""The number of consecutive failures at which the mirror reports a partition. A leader change alone causes fewer
failures."""


@dataclass(slots=True)
class Counts:
    """Counts of the mirrored records and failures of one partition since the mirror started."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    source_missing: int = 0
    """The number of source offsets that retention deleted before they were mirrored."""
    replaced: int = 0
    """The number of times that the mirror read the target's log to find the resume position."""


class LeaderTerm(NamedTuple):
    """The leader, the leader epoch and the connection under which a partition's log was read.

    A log loses its last records only if its leader changes or restarts. A restart closes the connection, and a leader
    change increases the epoch. So while the term is unchanged, the log still has all records that were read.
    """

    leader: int
    epoch: int
    channel: object


class Known(NamedTuple):
    """The offsets of a partition that are known before its logs are read."""

    offsets: OffsetMap | None
    origin: int | None
    last_source: SourceBatch | None


@dataclass(slots=True, eq=False)
class PartitionLink:
    """A source partition, its target partition, and the state of mirroring between them."""

    source: TopicPartition
    target: TopicPartition
    target_topic_id: bytes
    copy: PartitionCopy
    source_topic_id: bytes = ZERO_UUID
    counts: Counts = field(default_factory=Counts)
    attention: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the mirror must read the target's log again, or when a fetch offset is out of range in the source."""
    is_out_of_range: bool = False
    source_term: LeaderTerm | None = None
    """The leader term of the source at the last read of the logs; None before the first read."""
    target_term: LeaderTerm | None = None
    source_epoch: int = -1
    """The highest leader epoch seen in batches of the source."""
    confirmed: Known | None = None
    """The offsets at the last comparison in which source and target were equal; None before the first comparison."""
    diverged: str | None = None
    """The reason why source and target differ; kept until a comparison succeeds or the topic is deleted."""
    base: PartitionMark | None = None
    """The partition's mark in the ledger when the mirror first read the partition."""
    is_tried_again: bool = False
    """True if the mirror retries the stopped partition."""
    stopped: str | None = None
    """The reason why the mirror stopped the partition; None while the partition is not stopped."""
    stopped_at_s: float = 0.0
    works: bool = True
    """True if mirroring works again: since the last stop, the target acknowledged a batch or already had all
    records."""
    tries: int = 0
    """The number of failures since the last acknowledgement."""
    trouble: str | None = None
    """The last failure since the last acknowledgement; None if there was none."""
    refusals: int = 0
    """The number of consecutive fetch errors."""
    refused: str | None = None
    """The last fetch error; None if the last fetch succeeded."""
    refused_at_s: float = -inf
    source_end: int | None = None
    """The source's high watermark in the last fetch response; None before the first response. `note_source_end` sets
    it."""
    arrivals: ArrivalTimes = field(default_factory=ArrivalTimes)
    """The recent high watermarks of the source, and the times at which the mirror saw them."""
    looked_at_s: float = -inf
    """The monotonic time in seconds of the last entry in `arrivals`."""
    reported_to: int | None = None
    """The reported offset from an earlier mirror's mark, kept until this mirror reports an offset."""
    written: PartitionMark | None = None
    """The mark that was last written to the ledger."""
    task: asyncio.Task[None] | None = None

    @property
    def lag(self) -> int | None:
        """The number of source offsets that are not mirrored yet; None if it is not known.

        Zero means that both logs are equal. The lag is unknown while the logs differ, or until both logs are read in
        their current terms.
        """
        done_to = self.copy.done_to
        if self.source_end is None or done_to is None or self.diverged is not None or self.is_out_of_range:
            return None
        lag = max(0, self.source_end - done_to)
        return lag if lag or self.copy.is_placed else None

    def note_source_end(self, high_watermark: int, now_s: float) -> None:
        """Set the source's high watermark from a fetch response.

        :param now_s: the monotonic time in seconds.
        """
        self.source_end = high_watermark
        if now_s - self.looked_at_s >= LOOK_S:
            self.looked_at_s = now_s
            self.arrivals.note(now_s, high_watermark)

    def lag_s(self, now_s: float) -> float | None:
        """Return the age in seconds of the first record that is not mirrored yet; 0 without lag; None if it is not
        known."""
        done_to, lag = self.copy.done_to, self.lag
        if not lag or done_to is None:
            return None if lag is None else 0.0
        return self.arrivals.age_s(done_to, now_s)

    @property
    def is_idle(self) -> bool:
        """True if the target has acknowledged all records of the source."""
        return self.stopped is None and self.lag == 0 and not (self.copy.has_ready or self.copy.is_waiting)

    @property
    def wants_data(self) -> bool:
        return self.stopped is None and not self.is_out_of_range and self.copy.wants_data

    @property
    def known(self) -> Known:
        """A copy of the map of acknowledged offsets."""
        copy = self.copy
        offsets = None if copy.offsets is None else OffsetMap.of(copy.offsets.runs)
        return Known(offsets, copy.origin, copy.last_source)

    def rewind(self) -> None:
        """Drop the acknowledged offsets after the last successful comparison."""
        if self.confirmed is not None and self.confirmed.offsets is not None:
            self.copy.offsets = OffsetMap.of(self.confirmed.offsets.runs)
            self.copy.origin, self.copy.last_source = self.confirmed.origin, self.confirmed.last_source

    @property
    def mark(self) -> PartitionMark | None:
        """The mark to write to the ledger; None if the ledger is up to date."""
        offsets, account = self.copy.offsets, self.copy.account
        if offsets is None:
            is_news = self.base is not None and self.diverged is not None
            return replace(self.base, diverged=self.diverged) if is_news and self.base is not None else None
        reported_to = None if account is None else account.reported_to
        if reported_to is None:  # no audit account, or counting has not started
            reported_to = self.reported_to
        return PartitionMark(
            self.target_topic_id.hex(),
            self.copy.origin,
            offsets.runs,
            reported_to,
            self.diverged,
            self.copy.last_source,
        )

    def reset_after(self, why: str) -> None:
        """Record a failure, and resume from the end of the target's log, so that all unacknowledged records are fetched
        again."""
        self.note_failure(why)
        self.recheck()

    def note_failure(self, why: str) -> None:
        """Record a failure that prevents sending."""
        self.tries += 1
        self.trouble = why

    def stop_with(self, why: str, now_s: float) -> None:
        """Stop mirroring the partition until `try_again`."""
        self.copy.forget()
        self.stopped, self.stopped_at_s, self.works = why, now_s, False
        self.is_tried_again = False

    def try_again(self) -> None:
        """Retry a stopped partition, because the cause may no longer exist."""
        self.is_tried_again = True
        self.attention.set()

    def refuse(self, why: str, now_s: float) -> None:
        """Record a fetch error of the source."""
        self.refusals += 1
        self.refused, self.refused_at_s = f"source: {why}", now_s

    def recheck(self) -> None:
        """Drop unacknowledged batches, and resume from the end of the target's log."""
        self.copy.forget()
        self.attention.set()


def waiting_reason(links: Iterable[PartitionLink]) -> str | None:
    """Return the name and the failure of the first partition without progress. Return None if all partitions make
    progress."""
    waiting = {each.source: why for each in links if each.stopped is None and (why := _why(each)) is not None}
    if not waiting:
        return None
    first = min(waiting)
    return f"{first}{' and others' if len(waiting) > 1 else ''}: {waiting[first]}"


def _why(link: PartitionLink) -> str | None:
    if link.trouble and link.tries >= REPORTED_TRIES and link.lag != 0:
        return link.trouble
    return link.refused if link.refusals >= REPORTED_TRIES else None
