"""The consumer's core: all that the calls of the application do, without I/O, threads or an event loop.

`Consumer` and `AsyncConsumer` are shells around it, which differ in how they wait. A call that may have to wait
returns `CallSteps` (see `steps`); the others return at once. What goes on between the calls (fetching, heartbeats,
looking up positions) the `Background` does, which gets its work from here and brings back how it ended.

A poll passes through here: `_ask` looks after the group (`Rebalancing`), hands out what is there (`FetchedRecords`), tells
what must be told, and else says how long to wait. In all ways of reading asking for more says that what was handed
out before has been dealt with.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.config import ConsumerConfig
from barnabas.client.consumer import arguments
from barnabas.client.consumer.call_steps import (
    FOREVER_S,
    AssignmentChange,
    BackgroundTask,
    CallSteps,
    Commit,
    CommittedLookup,
    Guard,
    Leave,
    Query,
)
from barnabas.client.consumer.fetched_records import Cursor, Deserializers, FetchedRecords
from barnabas.client.consumer.fetcher import AssignedPartition
from barnabas.client.consumer.message_streams import StreamPlan
from barnabas.client.consumer.rebalancing import Rebalancing
from barnabas.client.consumer.state import ConsumerState
from barnabas.client.interceptors import ConsumerInterceptors
from barnabas.client.offset_queries import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, list_offsets
from barnabas.clock import Clock
from barnabas.errors import BarnabasError, ClosedError, ConfigurationError, TimedOutError
from barnabas.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from barnabas.records import Record

if TYPE_CHECKING:
    import pyarrow

    from barnabas.records.arrow import ArrowReader

T = TypeVar("T")

Committable = OffsetAndMetadata | int


class ConsumerCore:
    """One consumer. Arguments and errors are those of the methods of `Consumer`."""

    def __init__(
        self,
        config: ConsumerConfig,
        guard: Guard,
        clock: Clock,
        *,
        deserializers: Deserializers | None = None,
        interceptors: ConsumerInterceptors | None = None,
    ) -> None:
        self.config = config
        self.state = ConsumerState(config, guard, clock, interceptors)
        self.closed = False
        """Whether the application has closed the consumer."""
        self._guard = guard
        self._subscription = self.state.subscription
        self._rebalancing = Rebalancing(self.state)
        self._fetched = FetchedRecords(
            guard,
            self.state.subscription,
            self.state.fetcher,
            self.state.metrics,
            self.state.interceptors,
            deserializers or Deserializers(None, None),
            check_crc=config.check_crcs,
        )
        self._columns: ArrowReader | None = None
        # Only with a lease on the partitions: it costs each record a look at the clock.
        self._may_go_on = None if config.coordination is None else self.state.assignment_is_valid

    @property
    def cursor(self) -> Cursor:
        """The reader of a consumer that was not divided into message streams."""
        return self.state.cursors[0]

    # --- what to read -----------------------------------------------------------------------------------

    def subscribe(
        self, topics: str | Iterable[str], pattern: str | re.Pattern[str] | None, listening: Iterable[AssignmentChange]
    ) -> None:
        """Read these topics from now on; tell of changes that are `listening`."""
        self.state.check_usable()
        names = arguments.topic_names(topics)
        with self._guard.lock:
            self._subscription.subscribe(names, pattern)
            self._rebalancing.listening = frozenset(listening)
            self.state.view_changed = True
            if self.state.membership is not None:
                self.state.membership.rejoin("the subscription has changed")
        self.state.note_poll()
        self._guard.wake_background()

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions."""
        self.state.check_usable()
        tps = arguments.partitions(partitions)
        with self._guard.lock:
            before = self._subscription.partitions
            self._subscription.assign_by_hand(tps)
            self.state.drop_unassigned(before)
        self._guard.wake_background()

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that are read now."""
        with self._guard.lock:
            return set(self._subscription.partitions)

    def unsubscribe(self, *, nested: bool) -> CallSteps[None]:
        """Read nothing any more; leave the group."""
        self.state.check_usable()
        yield from self._rebalancing.leave("unsubscribed", nested=nested)
        with self._guard.lock:
            before = self._subscription.partitions
            self._subscription.unsubscribe()
            self.state.drop_unassigned(before)

    def divide(self, counts: Mapping[str, int]) -> list[tuple[str, int, Cursor]]:
        """Divide what is read into streams: returns topic, number and reader of each."""
        self.state.check_usable()
        plan = StreamPlan(counts)
        streams = [
            (topic, number, Cursor(plan.accepts(topic, number)))
            for topic, count in counts.items()
            for number in range(count)
        ]
        with self._guard.lock:
            self.state.streams = plan
            self.state.cursors += [cursor for _, _, cursor in streams]
        return streams

    def check_readable(self) -> None:
        """Check that records can be asked for without naming a stream.

        :raises ConfigurationError: there is nothing to read, or there are message streams.
        """
        if self.state.streams is not None:
            raise ConfigurationError("this consumer was divided into message streams; iterate over those")
        if self.state.stopped is None:  # else that is what reading says
            self._subscription.check_something_to_read()

    # --- reading ----------------------------------------------------------------------------------------

    def next_slice(self, cursor: Cursor, *, nested: bool = False) -> CallSteps[Iterator[Record[Any, Any]]]:
        """Wait for records, and return an iterator over a stretch of them."""
        with self._guard.lock:
            cursor.finish()
        return (yield from self._all_or_nothing(cursor, self._next_slice(cursor, nested)))

    def _next_slice(self, cursor: Cursor, nested: bool) -> CallSteps[Iterator[Record[Any, Any]]]:
        with self._guard.lock:
            if cursor.has_records and self.state.stopped is None and not self._rebalancing.due:
                self.state.note_poll()
                return cursor.take_iterator(self.config.max_poll_records, self._may_go_on)
        while not (yield from self._ask(FOREVER_S, lambda: self._fetched.load(cursor), nested)):
            pass
        with self._guard.lock:
            return cursor.take_iterator(self.config.max_poll_records, self._may_go_on)

    def poll(self, records_max: int, timeout_s: float, *, nested: bool = False) -> CallSteps[list[Record[Any, Any]]]:
        """Wait for records, and return what is at hand."""
        deadline_s = self.state.now_s() + timeout_s
        cursor = self.cursor
        with self._guard.lock:
            cursor.finish()
        return (yield from self._all_or_nothing(cursor, self._poll(cursor, records_max, deadline_s, nested)))

    def _poll(
        self, cursor: Cursor, records_max: int, deadline_s: float, nested: bool
    ) -> CallSteps[list[Record[Any, Any]]]:
        if not (yield from self._ask(deadline_s, lambda: self._fetched.load(cursor), nested)):
            return []
        return self._fetched.take_list(cursor, records_max)

    def poll_columns(
        self, records_max: int, timeout_s: float, *, nested: bool = False
    ) -> CallSteps[pyarrow.RecordBatch]:
        """Wait for records, and return what is at hand as columns.

        :raises ConfigurationError: pyarrow is not installed.
        """
        deadline_s = self.state.now_s() + timeout_s
        cursor = self.cursor
        with self._guard.lock:
            cursor.finish()
        return (yield from self._all_or_nothing(cursor, self._poll_columns(cursor, records_max, deadline_s, nested)))

    def _poll_columns(
        self, cursor: Cursor, records_max: int, deadline_s: float, nested: bool
    ) -> CallSteps[pyarrow.RecordBatch]:
        if self._columns is None:
            from barnabas.records.arrow import ArrowReader  # noqa: PLC0415  not every program reads columns

            self._columns = ArrowReader()
        columns = self._columns
        yield from self._ask(deadline_s, lambda: self._fetched.fill(cursor, columns, records_max), nested)
        return columns.finish()

    @contextmanager
    def taken_back_on_failure(self) -> Iterator[None]:
        """Where what is done with records that were just handed out fails, they do not count as handed out."""
        try:
            yield
        except BaseException:
            self._fetched.begin_again(self.cursor)
            raise

    def _all_or_nothing(self, cursor: Cursor, steps: CallSteps[T]) -> CallSteps[T]:
        """Take a call that hands out records to its end. Where it is interrupted, nothing counts as handed out."""
        try:
            return (yield from steps)
        except (GeneratorExit, BarnabasError):  # it was waiting, or has found out what to say: nothing is half done
            raise
        except BaseException:
            self._columns = None
            self._fetched.begin_again(cursor)
            raise

    def _ask(self, deadline_s: float, get: Callable[[], bool], nested: bool) -> CallSteps[bool]:
        """Wait until `get` succeeds; returns False at the deadline. The application counts as alive meanwhile."""
        state = self.state
        with self._guard.lock:
            state.waiting += 1
        try:
            while True:
                wake_count = self._guard.wake_count
                state.check_usable()
                may_read = True
                if self._rebalancing.due:
                    may_read = yield from self._rebalancing.rebalance_if_due(deadline_s, nested=nested)
                if may_read and get():
                    return True
                with self._guard.lock:
                    state.raise_pending_error()
                if state.now_s() >= deadline_s:
                    return False
                yield state.wait(deadline_s, wake_count)
        finally:
            with self._guard.lock:
                state.waiting -= 1
            state.note_poll()

    # --- positions --------------------------------------------------------------------------------------

    def position(self, tp: tuple[str, int], timeout_s: float | None) -> CallSteps[int]:
        """Return the offset of the next record of a partition, looking it up if need be."""
        tp = arguments.partition(tp)
        timeout_s = self.config.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s
        deadline_s = self.state.now_s() + timeout_s
        while True:
            wake_count = self._guard.wake_count
            with self._guard.lock:
                self.state.check_usable()
                state = self._subscription.state(tp)
                position = self.state.cursor_of(state).position(state)
                if position is not None:
                    return position
                self.state.raise_pending_error()
            if self.state.now_s() >= deadline_s:
                raise TimedOutError(f"the position in {tp} is not known after {timeout_s:g} s")
            yield self.state.wait(deadline_s, wake_count)

    def seek(self, tp: tuple[str, int], offset: int) -> None:
        """Go on reading a partition at `offset`."""
        number = arguments.offset(offset)
        self._move(lambda state: state.move_to(number), [tp])

    def seek_by_policy(self, tps: Iterable[tuple[str, int]], policy: str) -> None:
        """Go to the first or the last offset of partitions, of all assigned ones if none is named."""
        self._move(lambda state: state.forget_position(policy), tps)

    def _move(self, move: Callable[[AssignedPartition], None], tps: Iterable[tuple[str, int]]) -> None:
        self.state.check_usable()
        with self._guard.lock:
            subscription = self._subscription
            states = [subscription.state(arguments.partition(tp)) for tp in tps] or list(
                subscription.partitions.values()
            )
            self.state.announce_reposition(states)
            for cursor in self.state.cursors:
                cursor.drop(lambda state: state in states)
            for state in states:
                move(state)
            self.state.fetcher.drop_stale()
            self._guard.wake_application()
        self._guard.wake_background()

    def set_paused(self, tps: Iterable[tuple[str, int]], paused: bool) -> None:
        """Hand out nothing of these partitions, or go on with them."""
        self.state.check_usable()
        with self._guard.lock:
            for state in [self._subscription.state(arguments.partition(tp)) for tp in tps]:
                state.paused = paused
            self._guard.wake_application()
        self._guard.wake_background()

    # --- offsets ----------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, Committable] | None, timeout_s: float | None) -> CallSteps[None]:
        """Commit offsets for the group; None commits everything that was handed out."""
        self.state.check_usable()
        self._need_group()
        given = None if offsets is None else arguments.offsets_to_commit(offsets)
        with self._guard.lock:
            commit = self._commit_in_hand(timeout_s) if given is None else Commit(given, timeout_s)
            self.state.add_task(commit)
        yield from self.state.until_done(commit)

    def _commit_in_hand(self, timeout_s: float | None) -> Commit:
        """Return, under the guard, the commit of all that was handed out."""
        positions: dict[AssignedPartition, int] = {}
        for state in self._subscription.partitions.values():
            if (offset := self.state.cursor_of(state).position(state)) is not None:
                positions[state] = offset
        offsets = {state.tp: OffsetAndMetadata(offset) for state, offset in positions.items()}
        versions = {state: state.version for state in positions}
        return Commit(offsets, timeout_s, done_with=positions, in_hand=versions)

    def _need_group(self) -> None:
        if self.config.group is None:
            raise ConfigurationError("this consumer has no group to commit for; give it one: Consumer(..., group=...)")

    def committed(
        self, tps: tuple[str, int] | Iterable[tuple[str, int]], timeout_s: float | None
    ) -> CallSteps[OffsetAndMetadata | dict[TopicPartition, OffsetAndMetadata | None] | None]:
        """Return the offset that the group has committed for a partition, or those of several partitions."""
        self._need_group()
        single = arguments.single_partition(tps)
        look_up = CommittedLookup(arguments.partitions(tps) if single is None else [single], timeout_s)
        yield from self._until_done(look_up)
        found = {tp: look_up.answer.get(tp) for tp in look_up.partitions}
        return found if single is None else found[single]

    def beginning_offsets(self, tps: Iterable[tuple[str, int]]) -> CallSteps[dict[TopicPartition, int]]:
        """Return the first offset of each partition."""
        return self._ends(tps, EARLIEST_TIMESTAMP)

    def end_offsets(self, tps: Iterable[tuple[str, int]]) -> CallSteps[dict[TopicPartition, int]]:
        """Return the offset after the last record of each partition."""
        return self._ends(tps, LATEST_TIMESTAMP)

    def _ends(self, tps: Iterable[tuple[str, int]], which: int) -> CallSteps[dict[TopicPartition, int]]:
        found = yield from self.offsets_for_times(dict.fromkeys(arguments.partitions(tps), which))
        return {tp: at.offset for tp, at in found.items() if at is not None}

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> CallSteps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        """Return for each partition the first offset with a timestamp of at least the one given, or None."""
        wanted = {arguments.partition(tp): at_ms for tp, at_ms in timestamps_ms.items()}
        return (yield from self._query(lambda cluster: list_offsets(cluster, wanted))) if wanted else {}

    def topics(self) -> CallSteps[set[str]]:
        """Return the names of all topics but the internal ones."""
        views = yield from self._query(
            lambda cluster: cluster.retrying(lambda: cluster.describe(None), what="topics are not known")
        )
        return {view.name for view in views if not view.is_internal}

    def partitions_for_topic(self, topic: str) -> CallSteps[set[int] | None]:
        """Return the numbers of a topic's partitions; None: there is no such topic."""
        (name,) = arguments.topic_names([topic])
        (view,) = yield from self._query(
            lambda cluster: cluster.retrying(lambda: cluster.describe([name]), what=f"topic {name!r} is not known")
        )
        return {each.partition for each in view.partitions} or None

    def metrics(self) -> dict[str, Any]:
        """Return what was counted."""
        with self._guard.lock:
            lags = self.state.lags()
            return {
                **self.state.metrics.figures(),
                "buffered_bytes": self.state.fetcher.buffered_bytes,
                "assigned_partitions": len(self._subscription.partitions),
                "lag": lags,
                "lag_max": max(lags.values(), default=0),
            }

    def _query(self, ask: Callable[[Cluster], Awaitable[T]]) -> CallSteps[T]:
        query = Query(ask)
        yield from self._until_done(query)
        answer: T = query.answer
        return answer

    def _until_done(self, task: BackgroundTask) -> CallSteps[None]:
        self.state.check_usable()
        with self._guard.lock:
            self.state.add_task(task)
        yield from self.state.until_done(task)

    # --- finishing --------------------------------------------------------------------------------------

    def close(self, *, all_done: bool, deadline_s: float = FOREVER_S) -> CallSteps[None]:
        """Commit what is dealt with, and leave the group; every other call is answered with an error from now on.

        :param all_done: what is in hand counts as dealt with.
        :raises TimedOutError: the commit or the leaving was not done at the deadline.
        """
        if self.state.stopped is not None:
            return
        self.stop(all_done=all_done)
        closing_tasks = self.closing_tasks()
        while (task := self.next_closing_task(closing_tasks)) is not None:
            if not (yield from self.state.await_end(task, deadline_s)):
                undone = "leave its group" if isinstance(task, Leave) else "commit its last offsets"
                raise TimedOutError(f"the consumer was closed before it could {undone}; the time for that was over")

    def closing_tasks(self) -> Iterator[BackgroundTask]:
        """Return what is left to do for a consumer that was stopped; see `next_closing_task`."""
        return self._rebalancing.finish("the consumer was closed")

    def next_closing_task(self, tasks: Iterator[BackgroundTask]) -> BackgroundTask | None:
        """Put down the next of the last works, when the one before has ended, and return it; None: that was all."""
        with self._guard.lock:
            return next(tasks, None)

    def stop(self, *, all_done: bool) -> None:
        """Do of `close` what needs no broker."""
        with self._guard.lock:
            self.closed = True
            self.state.stop_with(ClosedError("this consumer is closed; make a new one"))
            if all_done:
                for cursor in self.state.cursors:
                    cursor.finish()
            self._rebalancing.abandon()
            self._guard.wake_application()

    def __str__(self) -> str:
        group = f" in group {self.config.group!r}" if self.config.group else ""
        return f"{group}{', closed' if self.closed else ''}"
