"""The state of one mirrored partition: decisions, counts, and the reason why it waits."""

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
"""The shortest time between two looks that count for the lag in seconds."""

REPORTED_TRIES = 5
"""A partition that has failed so often in a row is told: the first tries may meet a leader that moves."""


@dataclass(slots=True)
class Counts:
    """What was done since the mirror began."""

    records: int = 0
    bytes: int = 0
    batches: int = 0
    source_missing: int = 0
    """Source offsets that retention took before they were mirrored."""
    replaced: int = 0
    """How often the target's log was read to find out where to go on."""


class LeaderTerm(NamedTuple):
    """Under which leader, and over which connection to it, a partition was looked at.

    A log loses its end only when its leader changes or restarts. A restart ends the connection, a change raises the
    epoch. So while the term is the same, the log still has all that the look found there.
    """

    leader: int
    epoch: int
    channel: object


class Known(NamedTuple):
    """What is known of a partition before a look."""

    offsets: OffsetMap | None
    origin: int | None
    last_source: SourceBatch | None


@dataclass(slots=True, eq=False)
class PartitionLink:
    """A partition of the source and its mirror."""

    source: TopicPartition
    target: TopicPartition
    target_topic_id: bytes
    copy: PartitionCopy
    source_topic_id: bytes = ZERO_UUID
    counts: Counts = field(default_factory=Counts)
    attention: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the target's log has to be read, or the source has not what was asked for."""
    is_out_of_range: bool = False
    source_term: LeaderTerm | None = None
    """Of the last look; None: there was none yet."""
    target_term: LeaderTerm | None = None
    source_epoch: int = -1
    """The newest leader epoch of the source's batches that the looks and fetches met."""
    confirmed: Known | None = None
    """What was known when the source confirmed the target's last batch; None: it has not yet."""
    diverged: str | None = None
    """Why the source does not confirm what the target has; stays until the source does, or the topic is deleted."""
    base: PartitionMark | None = None
    """What the ledger had when the partition was looked at first."""
    is_tried_again: bool = False
    """Whether a partition that was stopped is to be looked at."""
    stopped: str | None = None
    """Why it is not mirrored, until somebody does something about it."""
    stopped_at_s: float = 0.0
    works: bool = True
    """Whether a batch was acknowledged, or there was none to be sent, since it was stopped."""
    tries: int = 0
    """Failures since the last acknowledgement."""
    trouble: str | None = None
    """What went wrong last, while nothing is acknowledged."""
    refusals: int = 0
    """How often in a row the source has refused to be read."""
    refused: str | None = None
    """Why."""
    refused_at_s: float = -inf
    source_end: int | None = None
    """The source's high watermark, as the last answer told. `note_source_end` writes it."""
    arrivals: ArrivalTimes = field(default_factory=ArrivalTimes)
    """When the source's high watermark reached which offset."""
    looked_at_s: float = -inf
    """When `arrivals` got its last look."""
    told_to: int | None = None
    """What an earlier mirror had told of, which is kept where this one tells nothing."""
    written: PartitionMark | None = None
    """What the ledger has."""
    task: asyncio.Task[None] | None = None

    @property
    def lag(self) -> int | None:
        """How many source offsets are not mirrored yet; None: not known.

        Zero is a claim that both logs are the same. While the logs differ, or nobody has looked at them in their
        present terms, the lag is not known.
        """
        done_to = self.copy.done_to
        if self.source_end is None or done_to is None or self.diverged is not None or self.is_out_of_range:
            return None
        lag = max(0, self.source_end - done_to)
        return lag if lag or self.copy.is_placed else None

    def note_source_end(self, high_watermark: int, now_s: float) -> None:
        """Take over the source's high watermark.

        :param now_s: monotonic seconds.
        """
        self.source_end = high_watermark
        if now_s - self.looked_at_s >= LOOK_S:
            self.looked_at_s = now_s
            self.arrivals.note(now_s, high_watermark)

    def lag_s(self, now_s: float) -> float | None:
        """Return how long ago the first record arrived that is not mirrored yet; 0 without lag, None: not known."""
        done_to, lag = self.copy.done_to, self.lag
        if not lag or done_to is None:
            return None if lag is None else 0.0
        return self.arrivals.age_s(done_to, now_s)

    @property
    def is_idle(self) -> bool:
        """Whether all that the source has was acknowledged by the target."""
        return self.stopped is None and self.lag == 0 and not (self.copy.has_ready or self.copy.is_waiting)

    @property
    def wants_data(self) -> bool:
        return self.stopped is None and not self.is_out_of_range and self.copy.wants_data

    @property
    def known(self) -> Known:
        """What was acknowledged here: a copy that may be changed."""
        copy = self.copy
        offsets = None if copy.offsets is None else OffsetMap.of(copy.offsets.runs)
        return Known(offsets, copy.origin, copy.last_source)

    def rewind(self) -> None:
        """Forget what was acknowledged and not confirmed."""
        if self.confirmed is not None and self.confirmed.offsets is not None:
            self.copy.offsets = OffsetMap.of(self.confirmed.offsets.runs)
            self.copy.origin, self.copy.last_source = self.confirmed.origin, self.confirmed.last_source

    @property
    def mark(self) -> PartitionMark | None:
        """What the ledger should have."""
        offsets, account = self.copy.offsets, self.copy.account
        if offsets is None:
            is_news = self.base is not None and self.diverged is not None
            return replace(self.base, diverged=self.diverged) if is_news and self.base is not None else None
        told_to = None if account is None else account.told_to
        if told_to is None:  # nobody counts here, or not yet
            told_to = self.told_to
        return PartitionMark(
            self.target_topic_id.hex(), self.copy.origin, offsets.runs, told_to, self.diverged, self.copy.last_source
        )

    def reset_after(self, why: str) -> None:
        """Something is not as expected: fetch again what was not acknowledged, from where the target's log ends."""
        self.note_failure(why)
        self.recheck()

    def note_failure(self, why: str) -> None:
        """Nothing can be sent now."""
        self.tries += 1
        self.trouble = why

    def stop_with(self, why: str, now_s: float) -> None:
        """Mirror no more of it, until it is tried again."""
        self.copy.forget()
        self.stopped, self.stopped_at_s, self.works = why, now_s, False
        self.is_tried_again = False

    def try_again(self) -> None:
        """Look at a partition that was stopped: the obstacle may be gone."""
        self.is_tried_again = True
        self.attention.set()

    def refuse(self, why: str, now_s: float) -> None:
        """The source does not let it be read."""
        self.refusals += 1
        self.refused, self.refused_at_s = f"source: {why}", now_s

    def recheck(self) -> None:
        """Go on from where the target's log ends."""
        self.copy.forget()
        self.attention.set()


def waiting_reason(links: Iterable[PartitionLink]) -> str | None:
    """Return why partitions wait in which nothing succeeds for some time, by the first of them; None: none does."""
    waiting = {each.source: why for each in links if each.stopped is None and (why := _why(each)) is not None}
    if not waiting:
        return None
    first = min(waiting)
    return f"{first}{' and others' if len(waiting) > 1 else ''}: {waiting[first]}"


def _why(link: PartitionLink) -> str | None:
    if link.trouble and link.tries >= REPORTED_TRIES and link.lag != 0:
        return link.trouble
    return link.refused if link.refusals >= REPORTED_TRIES else None
