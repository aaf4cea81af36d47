"""Appends batches to a log, and begins new segments.

Invariants. An append is one transaction. It checks everything before it writes the first byte; then it writes the
batches, accounts for them, and returns where they are. An error between the write and the accounting takes the log
offline, so no later batch is acknowledged behind bytes that are not accounted for. An append looks at no record.
An append does no other work on files: one that needs a new segment says so (`append_until_roll`), and `roll` makes the
segment. A new leader epoch is in memory until the next flush; recovery learns it from the batches.

Threads. The owner of the log appends. `roll` and `write_append` may wait for the disk on another thread, while no
append runs. Segments, epochs and producers change under the state lock.

Errors. A refused request is a BarnabasError in its outcome, and the log is as it was. If room, file descriptors or
memory are short, what was written is taken back. After any other refusal of the disk the log is offline.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.records.header import Buffer, read_header
from barnabas.records.scan import StampedBatch
from barnabas.storage.append import AppendInfo
from barnabas.storage.append_group import AppendGroup, LogState, Outcome, stamp_own_batch
from barnabas.storage.health import LogHealth
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log_config import LogConfig
from barnabas.storage.log_flusher import LogFlusher
from barnabas.storage.log_offsets import OffsetTracker
from barnabas.storage.producer_state import ProducerStates
from barnabas.storage.segment_list import SegmentList

UNFLUSHED_SEGMENTS_MAX = 8
"""The most segments sealed and not flushed: each holds a file open. A roll beyond flushes first."""


class LogAppender:
    """The part of a log that lets it grow.

    :param on_rolled: called after a segment was sealed. The segment keeps its file open until it is flushed.
    """

    __slots__ = (
        "_clock",
        "_config",
        "_epochs",
        "_flusher",
        "_health",
        "_offsets",
        "_on_rolled",
        "_partition",
        "_producers",
        "_segments",
        "_state_lock",
        "_unaccounted",
        "active_since_ms",
    )

    def __init__(
        self,
        partition: TopicPartition,
        config: LogConfig,
        clock: Clock,
        segments: SegmentList,
        offsets: OffsetTracker,
        epochs: LeaderEpochs,
        producers: ProducerStates,
        flusher: LogFlusher,
        health: LogHealth,
        on_rolled: Callable[[], None],
    ) -> None:
        self._partition = partition
        self._config = config
        self._clock = clock
        self._segments = segments
        self._offsets = offsets
        self._epochs = epochs
        self._producers = producers
        self._flusher = flusher
        self._health = health
        self._state_lock = offsets.state_lock
        self._on_rolled = on_rolled
        self._unaccounted: AppendGroup | None = None
        self.active_since_ms = clock.time_ms()
        """When the active segment was begun, or the log was opened."""

    def configure(self, config: LogConfig) -> None:
        """Use these settings from the next append on."""
        self._config = config

    # --- append ---

    def append_all(self, requests: Sequence[Buffer], leader_epoch: int) -> list[Outcome]:
        """Append the batches of several requests, in their order, as a leader does; wait for the disk if need be.

        Each request is judged alone, after those before it. An error of a request is its outcome.
        """
        outcomes = self.append_until_roll(requests, leader_epoch)
        while len(outcomes) < len(requests):
            try:
                self.roll()
            except BarnabasError as error:
                outcomes.append(error)
            outcomes += self.append_until_roll(requests[len(outcomes) :], leader_epoch)
        return outcomes

    def append_until_roll(self, requests: Sequence[Buffer], leader_epoch: int) -> list[Outcome]:
        """Do as `append_all` does, with one write, up to the first request that needs a new segment: `roll` makes it.

        :returns: the outcomes of the requests before that one; of all if there is none.
        """
        if (refusal := self._refusal(leader_epoch)) is not None:
            return [refusal] * len(requests)
        group = self._begin_group(leader_epoch)
        group.take_all(requests)
        with suppress(BarnabasError):  # the outcomes have it
            self.write_append(group)
            self._unaccounted = None
            self._account_for(group)
        return group.outcomes

    def append_own_batch(self, batch: bytearray, leader_epoch: int) -> bool:
        """Append a batch that this broker made, of records with keys, if nothing stands in the way.

        The batch is checked and stamped as `append_until_roll` does. The rest of `append_until_roll` is most of the
        cost of a batch of a few bytes.

        :returns: False where the batch is not in the log. `append_until_roll` returns why, or what must be done first.
        """
        if self._refusal(leader_epoch) is not None or leader_epoch > self._epochs.latest:
            return False
        active = self._segments.active
        stamped = stamp_own_batch(batch, active, self._offsets.current.log_end_offset, leader_epoch, self._config)
        if not stamped:
            return False
        with suppress(BarnabasError):  # the next append returns it
            active.append([batch], self._health)
            self._note(stamped)
            return True
        return False

    def append_as_follower(self, records: Buffer, leader_epoch: int) -> AppendInfo:
        """Append batches of a leader, with their offsets and epochs, after all others; wait for the disk if need be.

        Batches are checked for damage, as a leader does. The leader has decided whether a producer may send them.
        There may be gaps before and between the batches, since the leader's log may have been compacted.

        :param records: of one fetch answer, whole batches only.
        :param leader_epoch: of the leader that the batches come from.
        :raises CorruptBatchError: a batch is damaged, or does not follow the one before; nothing was appended.
        :raises ApiError: FENCED_LEADER_EPOCH; nothing was appended.
        :raises StorageError: the disk refused; nothing was appended.
        """
        view = memoryview(records)
        while (group := self.begin_append(lambda group: group.replicate(view), leader_epoch)) is None:
            self.roll(read_header(view).base_offset)
        self.write_append(group)
        outcome = self.finish_append(group)
        if not isinstance(outcome, AppendInfo):
            raise outcome
        return outcome

    # --- append in three steps ---

    def begin_append(self, take: Callable[[AppendGroup], bool], leader_epoch: int) -> AppendGroup | None:
        """Begin an append of records that are too many for the owner's thread to write at once.

        `write_append` puts the batches into the file, on any thread. Then `finish_append` ends the append, on the
        owner's thread. No other append runs meanwhile.

        :param take: puts one request into a group, by `AppendGroup.take` or `AppendGroup.replicate`.
        :returns: None if a new segment is needed first: `roll`.
        :raises BarnabasError: as `Log.append` does.
        """
        if (refusal := self._refusal(leader_epoch)) is not None:
            raise refusal
        group = self._begin_group(leader_epoch)
        return group if take(group) else None

    def write_append(self, group: AppendGroup) -> None:
        """Write the batches of a group, on any thread. `finish_append` returns an error, if there is one."""
        self._unaccounted = group
        try:
            self._health.check()
            if group.chunks:
                self._segments.active.append(group.chunks, self._health)
        except BarnabasError as error:
            group.fail(error)

    def finish_append(self, group: AppendGroup) -> Outcome:
        """End an append; return its outcome."""
        self._unaccounted = None
        with suppress(BarnabasError):  # the outcomes have it
            self._account_for(group)
        return group.outcomes[0]

    # --- new segments ---

    @property
    def is_roll_due(self) -> bool:
        """Whether the active segment has been written to for as long as the settings allow."""
        since_ms = self._clock.time_ms() - self.active_since_ms
        return self._segments.active.size > 0 and since_ms > self._config.roll_ms

    def roll(self, base_offset: int | None = None) -> None:
        """Begin a new segment, unless the active one is empty. May be called from another thread; no append runs.

        :param base_offset: where the new segment begins if the active one is empty; the log then ends there. Otherwise
            the new segment begins with the end of the log: recovery takes a gap between two segments for a loss, so
            there is none except where offsets would not fit a segment.
        :raises StorageError: the disk refused.
        """
        self._health.check()
        log_end = self._offsets.current.log_end_offset
        is_empty = not self._segments.active.size
        base_offset = max(base_offset or 0, log_end) if is_empty else log_end
        if not is_empty or base_offset > log_end:
            self._flusher.note_change()
            if self._segments.unflushed_count >= UNFLUSHED_SEGMENTS_MAX:
                self._flusher.flush()
            with self._health.offline_on_error("roll", even_if_short=False):
                self._roll(base_offset, self._clock.time_ms())

    def _roll(self, base_offset: int, now_ms: int) -> None:
        with self._state_lock:
            self._producers.expire(self._clock.monotonic())
            indexes = self._segments.active.encode_indexes(closing=True)
        active = self._flusher.seal(indexes, base_offset, self._config.index_interval_bytes)
        with self._state_lock:
            self._segments.seal_active(active)
            self._offsets.move_log_end(base_offset)
            self._flusher.note_new_segment()
        self.active_since_ms = now_ms
        self._on_rolled()

    # --- inside ---

    def _refusal(self, leader_epoch: int) -> BarnabasError | None:
        """Return why nothing can be appended in this epoch, or None."""
        try:
            if self._unaccounted is not None:
                self._health.go_offline("append", RuntimeError("an append before it has not come to its end"))
            self._health.check()
        except BarnabasError as error:
            return error
        if leader_epoch < (latest := self._epochs.latest):
            message = f"{self._partition}: leader epoch {leader_epoch}, {latest} is known"
            return ApiError(ErrorCode.FENCED_LEADER_EPOCH, message)
        return None

    def _begin_group(self, leader_epoch: int) -> AppendGroup:
        state = LogState(
            self._segments.active,
            self.active_since_ms,
            self._offsets.current.log_start_offset,
            self._epochs.latest,
            self._producers,
            self._config,
        )
        return AppendGroup(state, leader_epoch, self._clock.time_ms(), self._clock.monotonic())

    def _account_for(self, group: AppendGroup) -> None:
        """:raises BarnabasError: what was written may not be acknowledged; the outcomes have the error."""
        if group.failure is not None:
            raise group.failure
        if not group.chunks:
            return
        try:
            self._note(group.batches, group)
        except BarnabasError as error:
            group.fail(error)
            raise

    def _note(self, batches: Sequence[StampedBatch], group: AppendGroup | None = None) -> None:
        """Account for batches that are in the file.

        :raises BarnabasError: they may not be acknowledged.
        """
        try:
            with self._state_lock:
                self._segments.active.note_all(batches)
                if group is not None:
                    group.producers.settle()
                    for epoch in group.epochs:
                        self._epochs.assign(*epoch)
                self._offsets.move_log_end(batches[-1][1] + 1)
            # A flush may have failed meanwhile: these batches may never reach the disk.
            self._health.check()
        except BarnabasError:
            raise
        except BaseException as error:
            # An unexpected error: it is not known what is accounted for.
            raise self._health.go_offline("append", error) from error
        self._health.note_success()
