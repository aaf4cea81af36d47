"""The consumer that programs use: iterate, poll or take streams; a background thread fetches ahead."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from types import TracebackType
from typing import Any, Self

from barnabas.client.cluster import Cluster
from barnabas.client.config import ConsumerConfig, make_config
from barnabas.client.consumer.cursor import Cursor
from barnabas.client.consumer.decoding import decode_chunk
from barnabas.client.consumer.engine import ConsumerEngine
from barnabas.client.consumer.rebalancing import Listener, Rebalancing
from barnabas.client.consumer.subscription import PartitionState
from barnabas.client.dialing import dial_with
from barnabas.client.loop_thread import LoopThread, at_exit
from barnabas.client.offset_queries import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, committed_offsets, list_offsets
from barnabas.client.streams import MessageStream, StreamPlan
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import (
    ClosedError,
    ConfigurationError,
    CorruptBatchError,
    ErrorCode,
    KafkaError,
    TimedOutError,
)
from barnabas.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from barnabas.records import Record

FOREVER_S = float("inf")

Committable = OffsetAndMetadata | int


class Consumer:
    """Reads records of topics, alone or as a member of a group.

    :param bootstrap: `"host:port,..."`, or a dict of settings under Kafka's names.
    :param group: the group's name; its members share the partitions and the committed offsets. None: the
        consumer reads alone, all partitions of what it subscribes to, and commits nothing.
    :param settings: see `barnabas.client.config.ConsumerConfig`; keyword arguments win over the dict.
    :raises ConfigurationError: a setting that does not exist or cannot be.

    One thread at a time may poll or iterate; message streams have a thread each.

        with barnabas.Consumer("localhost:9092", group="ctr") as consumer:
            consumer.subscribe("clicks")
            for record in consumer:
                ...
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str] | Mapping[str, Any] | None = None,
        *,
        group: str | None = None,
        **settings: Any,
    ) -> None:
        if group is not None:
            settings["group"] = group
        config = make_config(ConsumerConfig, bootstrap, settings)
        self._config = config
        self._clock = SYSTEM_CLOCK
        self._condition = threading.Condition()
        self._cursor = Cursor()
        self._cursors = [self._cursor]
        self._streams: StreamPlan | None = None
        self._iteration = chain.from_iterable(self._slices(self._cursor))
        self._waiting = 0
        self._last_poll_s = self._clock.monotonic()
        self._last_progress: tuple[int, ...] = ()
        self._closed = False
        self._forked: ClosedError | None = None
        self._cluster: Cluster
        self._engine: ConsumerEngine
        self._rebalancing: Rebalancing
        self._thread = LoopThread("barnabas-consumer")
        self._thread.after_fork = self._after_fork
        self._thread.call(self._start())
        at_exit(self)

    async def _start(self) -> None:
        self._cluster = Cluster(self._config, dial=dial_with(self._config), clock=self._clock, random=random.random)
        self._engine = ConsumerEngine(
            self._config,
            self._cluster,
            self._condition,
            alive=self._alive,
            done_offsets=self._done_offsets,
        )
        self._rebalancing = Rebalancing(
            self._engine,
            self._thread,
            self._condition,
            self._cursors,
            view=lambda: self._cluster.view,
            commits=self._config.enable_auto_commit,
            check=self._check_while_joining,
        )
        self._engine.start()

    def _after_fork(self, error: ClosedError) -> None:
        self._forked = error

    # --- what to read -----------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: str | Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assign: Listener | None = None,
        on_revoke: Listener | None = None,
        on_lost: Listener | None = None,
    ) -> None:
        """Read these topics from now on, instead of those before; with a group, share them with its members.

        :param pattern: a regular expression; all topics whose whole name matches, those created later too.
        :param on_assign: called with the partitions that this consumer gets; it may seek in them.
        :param on_revoke: called with those that it gives up; it may commit for them.
        :param on_lost: called instead of `on_revoke` with those that others have already, because the group has
            gone on without this consumer; nothing can be committed for them. All are called by the thread that
            polls.
        :raises ConfigurationError: neither topics nor pattern, or partitions were assigned by hand.
        """
        self._check_usable()
        names = [topics] if isinstance(topics, str) else list(topics)
        with self._condition:
            self._engine.subscription.subscribe(names, pattern)
            self._rebalancing.on_assign, self._rebalancing.on_revoke = on_assign, on_revoke
            self._rebalancing.on_lost = on_lost
            self._engine.view_changed = True
            if self._engine.membership is not None:
                self._engine.membership.rejoin("the subscription has changed")
        self._last_poll_s = self._clock.monotonic()
        self._thread.soon(self._engine.want_topics)

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions, whatever a group may say.

        :raises ConfigurationError: topics were subscribed to.
        """
        self._check_usable()
        with self._condition:
            self._engine.subscription.assign_by_hand(TopicPartition(*each) for each in partitions)
            self._rebalancing.drop_what_is_gone()
        self._thread.soon(self._engine.want_topics)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this consumer reads now."""
        with self._condition:
            return set(self._engine.subscription.partitions)

    def unsubscribe(self) -> None:
        """Read nothing any more; leave the group, if in one."""
        self._check_usable()
        self._rebalancing.leave("unsubscribed")
        with self._condition:
            self._engine.subscription.unsubscribe()
            self._rebalancing.drop_what_is_gone()

    def create_message_streams(self, counts: Mapping[str, int]) -> dict[str, list[MessageStream]]:
        """Subscribe to topics and return as many streams of each as `counts` says (paper, section 3).

        Each stream is an iterator for a thread of its own; the partitions that this consumer has are divided
        among the streams of their topic. `close()` ends them.
        """
        self._check_usable()
        plan = StreamPlan(counts)
        self._streams = self._rebalancing.streams = plan
        streams: dict[str, list[MessageStream]] = {}
        for topic, count in counts.items():
            for number in range(count):
                cursor = Cursor(plan.accepts(topic, number))
                self._cursors.append(cursor)
                streams.setdefault(topic, []).append(MessageStream(topic, number, cursor, self._slices))
        self.subscribe(counts)
        return streams

    # --- reading ----------------------------------------------------------------------------------------

    def poll(self, max_records: int = 500, timeout_s: float = 1.0) -> list[Record]:
        """Return the next records, at most `max_records`, or none if none came within `timeout_s`.

        Asking for more says that the records before have been dealt with: auto-commit commits them.

        :raises KafkaError: no valid offset to start from, a group that does not want this member ...
        :raises CorruptBatchError: a damaged batch; the position stays before it.
        :raises DisconnectedError: no broker could be reached for `default_api_timeout_ms`.
        """
        if self._streams is not None:
            raise ConfigurationError("this consumer was divided into message streams; iterate over those")
        deadline_s = self._clock.monotonic() + timeout_s
        with self._polling():
            with self._condition:
                self._cursor.finish()
            records: list[Record] = []
            if self._await_records(self._cursor, deadline_s):
                records = self._take_list(max_records)
            return records

    def _take_list(self, max_records: int) -> list[Record]:
        """Return what is at hand, without waiting."""
        records: list[Record] = []
        while len(records) < max_records:
            with self._condition:
                records += self._cursor.take_list(max_records - len(records))
            try:
                if len(records) >= max_records or not self._load(self._cursor):
                    break
            except CorruptBatchError:
                break  # the next poll meets it again, with nothing else to return
        return records

    def __iter__(self) -> Iterator[Record]:
        if self._streams is not None:
            raise ConfigurationError("this consumer was divided into message streams; iterate over those")
        return self._iteration

    def __next__(self) -> Record:
        return next(iter(self))

    def _slices(self, cursor: Cursor) -> Generator[Iterator[Record], None, None]:
        """Yield iterators over stretches of records, for ever; the group is looked after between them."""
        while True:
            try:
                with self._polling():
                    with self._condition:
                        cursor.finish()
                    while not self._await_records(cursor, FOREVER_S):
                        pass
                    with self._condition:
                        records = cursor.take_iterator(self._config.max_poll_records)
            except ClosedError:
                if self._closed:
                    return
                raise
            yield records

    @contextmanager
    def _polling(self) -> Generator[None, None, None]:
        """Mark the application as alive: it waits for records and not the other way round."""
        with self._condition:
            self._waiting += 1
        try:
            yield
        finally:
            with self._condition:
                self._waiting -= 1
            self._last_poll_s = self._clock.monotonic()

    def _alive(self) -> bool:
        """Whether the application has asked for records within `max_poll_interval_ms`."""
        progress = tuple(cursor.left for cursor in self._cursors)
        if self._waiting or progress != self._last_progress:
            self._last_progress = progress
            self._last_poll_s = self._clock.monotonic()
        return self._clock.monotonic() - self._last_poll_s <= self._config.max_poll_interval_ms / 1000

    def _await_records(self, cursor: Cursor, deadline_s: float) -> bool:
        """Wait until `cursor` has records; returns False at the deadline."""
        while True:
            self._check_usable()
            self._rebalancing.look_after(deadline_s)
            if self._load(cursor):
                return True
            remaining_s = deadline_s - self._clock.monotonic()
            if remaining_s <= 0:
                return False
            with self._condition:
                if not self._something_new(cursor):
                    self._condition.wait(None if remaining_s == FOREVER_S else remaining_s)

    def _something_new(self, cursor: Cursor) -> bool:
        """Return, under the lock, whether there is a reason not to wait. Raises what must be told."""
        error = self._engine.fetcher.take_error()
        if error is not None:
            self._thread.soon(self._engine.kick)
            raise error
        nowhere = self._engine.subscription.nowhere()
        if nowhere:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{nowhere[0]} has no offset to start from: none was committed, or it is not there any more, and "
                "auto_offset_reset is 'none'; seek, or set it to 'earliest' or 'latest'",
            )
        unreachable = self._cluster.unreachable
        patience_s = self._config.default_api_timeout_ms / 1000
        if unreachable is not None and self._clock.monotonic() - unreachable[0] > patience_s:
            raise unreachable[1]
        return self._closed or self._rebalancing.due or self._engine.fetcher.has_chunk(cursor.accepts)

    def _check_while_joining(self) -> None:
        """Raise what ends the wait for the other members of the group."""
        if self._closed:
            raise ClosedError("this consumer was closed")
        with self._condition:
            self._something_new(self._cursor)

    def _load(self, cursor: Cursor) -> bool:
        """Make sure that `cursor` has records, if some are at hand; returns whether it has."""
        with self._condition:
            if cursor.has_records:
                return True
        while True:
            with self._condition:
                chunk = self._engine.fetcher.take(cursor.accepts)
            if self._engine.idle:
                self._thread.soon(self._engine.kick)
            if chunk is None:
                return False
            position = chunk.state.position
            assert position is not None
            records, next_offset, damage = decode_chunk(chunk, position, check_crc=self._config.check_crcs)
            with self._condition:
                if chunk.version != chunk.state.version:
                    continue
                if damage is not None:
                    # What came after the damage is not to be handed out before it: fetch that again.
                    self._engine.fetcher.refetch_from(chunk.state, next_offset)
                cursor.load(chunk, records, next_offset)
                if records:
                    return True
            if damage is not None:
                self._thread.soon(self._engine.kick)
                raise CorruptBatchError(
                    f"{chunk.state.tp} at offset {next_offset}: {damage}; seek past it to go on"
                ) from damage

    # --- positions --------------------------------------------------------------------------------------

    def position(self, tp: tuple[str, int], timeout_s: float | None = None) -> int:
        """Return the offset of the next record of a partition, looking it up if need be.

        :raises ConfigurationError: the partition is not assigned to this consumer.
        :raises TimedOutError: it could not be found out in time.
        """
        self._check_usable()
        tp = TopicPartition(*tp)
        timeout_s = self._config.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s
        deadline_s = self._clock.monotonic() + timeout_s
        with self._condition:
            while True:
                state = self._engine.subscription.state(tp)
                position = self._cursor_of(state).position(state)
                if position is not None:
                    return position
                self._something_new(self._cursor)
                remaining_s = deadline_s - self._clock.monotonic()
                if remaining_s <= 0 or not self._condition.wait(remaining_s):
                    raise TimedOutError(f"the position in {tp} is not known after {timeout_s:g} s")

    def _cursor_of(self, state: PartitionState) -> Cursor:
        for cursor in self._cursors:
            if cursor.reads(state):
                return cursor
        return self._cursor

    def seek(self, tp: tuple[str, int], offset: int) -> None:
        """Go on reading a partition at `offset`: rewind, or skip ahead.

        :raises ConfigurationError: the partition is not assigned to this consumer, or the offset is negative.
        """
        if offset < 0:
            raise ConfigurationError(f"offset {offset} is negative; see seek_to_beginning and seek_to_end")
        self._move(lambda state: state.move_to(offset), [tp])

    def seek_to_beginning(self, *tps: tuple[str, int]) -> None:
        """Go to the first offset of partitions, of all assigned ones if none is named."""
        self._move(lambda state: state.forget_position("earliest"), tps)

    def seek_to_end(self, *tps: tuple[str, int]) -> None:
        """Go past the last offset of partitions, of all assigned ones if none is named."""
        self._move(lambda state: state.forget_position("latest"), tps)

    def _move(self, move: Callable[[PartitionState], None], tps: Iterable[tuple[str, int]]) -> None:
        self._check_usable()
        with self._condition:
            subscription = self._engine.subscription
            states = [subscription.state(TopicPartition(*tp)) for tp in tps] or list(subscription.partitions.values())
            for cursor in self._cursors:
                cursor.drop(lambda state: state in states)
            for state in states:
                move(state)
            self._engine.fetcher.drop_stale()
        self._thread.soon(self._engine.kick)

    def pause(self, *tps: tuple[str, int]) -> None:
        """Hand out no records of these partitions until `resume`; they stay assigned."""
        self._set_paused(tps, True)

    def resume(self, *tps: tuple[str, int]) -> None:
        """Hand out records of these partitions again."""
        self._set_paused(tps, False)

    def _set_paused(self, tps: Iterable[tuple[str, int]], paused: bool) -> None:
        self._check_usable()
        with self._condition:
            for tp in tps:
                self._engine.subscription.state(TopicPartition(*tp)).paused = paused
            self._condition.notify_all()
        self._thread.soon(self._engine.kick)

    # --- offsets ----------------------------------------------------------------------------------------

    def commit(
        self, offsets: Mapping[TopicPartition, Committable] | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Commit offsets for the group and wait until it is done.

        :param offsets: per partition the next offset to read, with or without metadata; None commits
            everything that was handed out, the record in hand included.
        :raises ConfigurationError: the consumer has no group.
        :raises KafkaError: the partitions may have gone to other members (UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION),
            or are being shared anew (REBALANCE_IN_PROGRESS: poll, then commit for what is left).
        :raises FencedError: another consumer has joined with the same `group_instance_id`.
        """
        self._check_usable()
        self._need_group()
        if offsets is None:
            with self._condition:
                states = list(self._engine.subscription.partitions.values())
                positions = {state.tp: self._cursor_of(state).position(state) for state in states}
            to_commit = {tp: OffsetAndMetadata(offset) for tp, offset in positions.items() if offset is not None}
        else:
            to_commit = {
                TopicPartition(*tp): OffsetAndMetadata(each) if isinstance(each, int) else OffsetAndMetadata(*each)
                for tp, each in offsets.items()
            }
        self._thread.call(self._engine.commit(to_commit, timeout_s))

    def committed(self, tp: tuple[str, int], timeout_s: float | None = None) -> OffsetAndMetadata | None:
        """Return what the group has committed for a partition, or None."""
        self._check_usable()
        wanted = TopicPartition(*tp)
        found = self._thread.call(committed_offsets(self._cluster, self._need_group(), [wanted], timeout_s=timeout_s))
        return found.get(wanted)

    def _need_group(self) -> str:
        if self._config.group is None:
            raise ConfigurationError("this consumer has no group to commit for; give it one: Consumer(..., group=...)")
        return self._config.group

    def _done_offsets(self) -> dict[PartitionState, int]:
        """Under the lock: what auto-commit should commit."""
        done = {state: self._cursor_of(state).done(state) for state in self._engine.subscription.partitions.values()}
        return {state: offset for state, offset in done.items() if offset is not None}

    def beginning_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self._ends(tps, EARLIEST_TIMESTAMP)

    def end_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        return self._ends(tps, LATEST_TIMESTAMP)

    def _ends(self, tps: Iterable[tuple[str, int]], which: int) -> dict[TopicPartition, int]:
        found = self.offsets_for_times(dict.fromkeys(tps, which))
        return {tp: at.offset for tp, at in found.items() if at is not None}

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return for each partition the first offset with a timestamp of at least the one given, or None."""
        self._check_usable()
        wanted = {TopicPartition(*tp): at_ms for tp, at_ms in timestamps_ms.items()}
        return self._thread.call(list_offsets(self._cluster, wanted)) if wanted else {}

    # --- finishing --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Commit (if auto-commit is on) what was handed out, leave the group, end the background thread.

        Ends running iterations and streams of other threads. May be called again.
        """
        self._close(all_done=True)

    def _close(self, *, all_done: bool) -> None:
        if self._closed or self._forked is not None:
            return
        with self._condition:
            self._closed = True
            if all_done:
                for cursor in self._cursors:
                    cursor.finish()
            self._condition.notify_all()
        self._rebalancing.finish("the consumer was closed")
        self._thread.call(self._engine.close())
        self._thread.stop()

    def close_at_exit(self) -> None:
        """Leave the group when the program ends; records in hand were not dealt with for sure."""
        self._close(all_done=False)

    def _check_usable(self) -> None:
        if self._forked is not None:
            raise self._forked
        if self._closed:
            raise ClosedError("this consumer is closed; make a new one")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception the record in hand was not dealt with: the group shall see it again.
        self._close(all_done=error is None)

    def __repr__(self) -> str:
        group = f" in group {self._config.group!r}" if self._config.group else ""
        return f"<Consumer{group}{', closed' if self._closed else ''}>"
