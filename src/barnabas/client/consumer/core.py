"""The core of a consumer: the application's calls, without I/O, threads or an event loop.

`ConsumerCore` has a method for each call of `Consumer` and `AsyncConsumer`. A call that may wait is a generator of
`CallSteps`, which a driver runs (`sync_async_drivers`). The background fetches, sends heartbeats and finds positions
between the calls; both sides share the `ConsumerState`.

A poll rejoins the group if necessary (`Rebalancing`). It then returns buffered records (`FetchedRecords`), raises a
pending error, or waits. Each call for more records marks the previous records as processed.

`Rebalancing` changes the assignment during polls only, because it calls the application's listeners. An eager member
commits, calls `on_revoke`, gives up all partitions, joins, and calls `on_assign`. A cooperative member (KIP-429)
commits, and continues to read while it joins. It gives up the revoked partitions and takes the new ones. If it has
given up any partition, it joins again, so that another member gets the partition. A member that missed a rebalance has
lost its partitions.

Each such change is a procedure: a generator that yields the `ListenerCall` or `BackgroundTask` that it waits for. Any
poll continues the procedure, and a poll that times out leaves it unchanged. One procedure runs at a time.
"""

from __future__ import annotations

import logging
import operator
import re
from collections.abc import Awaitable, Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.config import ConsumerConfig, make_config
from barnabas.client.consumer.call_steps import (
    FOREVER_S,
    AssignmentChange,
    BackgroundTask,
    CallSteps,
    Commit,
    CommittedLookup,
    Guard,
    Join,
    Leave,
    ListenerCall,
    Query,
    Wait,
)
from barnabas.client.consumer.fetched_records import Cursor, Deserializers, FetchedRecords
from barnabas.client.consumer.fetcher import AssignedPartition
from barnabas.client.consumer.group_membership import GroupMembership
from barnabas.client.consumer.message_streams import StreamPlan
from barnabas.client.consumer.state import ConsumerState
from barnabas.client.interceptors import ConsumerInterceptors
from barnabas.client.offset_requests import list_offsets
from barnabas.clock import Clock
from barnabas.errors import BarnabasError, ClosedError, ConfigurationError, TimedOutError
from barnabas.model import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from barnabas.protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from barnabas.records import Record

if TYPE_CHECKING:
    import pyarrow

    from barnabas.records.arrow import ArrowReader

log = logging.getLogger(__name__)
T = TypeVar("T")


def consumer_config(bootstrap: Any, group: str | None, settings: Mapping[str, Any]) -> ConsumerConfig:
    """Return the settings of a consumer.

    :raises ConfigurationError: a setting is invalid (see `make_config`), or a topic is passed in place of the bootstrap
        addresses.
    """
    if "bootstrap_servers" in settings and bootstrap is not None and not isinstance(bootstrap, Mapping):
        raise ConfigurationError(
            f"the first argument, {bootstrap!r}, is the bootstrap address, but bootstrap_servers= is given, too; "
            "call subscribe(topics) to read topics"
        )
    if group is not None:
        settings = {**settings, "group": group}
    return make_config(ConsumerConfig, bootstrap, settings)


def topic_names(topics: object) -> frozenset[str]:
    """Return the topic names that the application has passed as one string or as an iterable of strings.

    :raises TypeError: the argument is neither a string nor an iterable of strings.

    >>> sorted(topic_names(["b", "a"])), sorted(topic_names("ab"))
    (['a', 'b'], ['ab'])
    """
    names = [topics] if isinstance(topics, str) else topics
    if not isinstance(names, Iterable) or isinstance(names, (bytes, bytearray)):
        raise TypeError(f"topics must be a name or a list of names, not {topics!r}")
    found = frozenset(names)
    for name in found:
        if not isinstance(name, str):
            raise TypeError(f"a topic's name must be a str, not {name!r}")
    return found


def checked_partition(tp: object) -> TopicPartition:
    """Return a partition that the application has passed as a pair.

    :raises TypeError: the argument is not a pair of topic and number.

    >>> checked_partition(("clicks", 3))
    TopicPartition(topic='clicks', partition=3)
    """
    if isinstance(tp, tuple | list) and len(tp) == 2 and isinstance(tp[0], str) and isinstance(tp[1], int):
        return TopicPartition(*tp)
    raise TypeError(f"a partition is a pair of topic and number, for example ('clicks', 0), not {tp!r}")


def single_partition(tps: object) -> TopicPartition | None:
    """Return the partition if the argument is one pair; None if it is an iterable of pairs.

    >>> single_partition(("clicks", 3)), single_partition([("clicks", 3)])
    (TopicPartition(topic='clicks', partition=3), None)
    """
    is_pair = isinstance(tps, tuple | list) and len(tps) == 2 and isinstance(tps[0], str)
    return checked_partition(tps) if is_pair else None


def checked_partitions(tps: object) -> list[TopicPartition]:
    """Return the partitions that the application has passed as pairs.

    :raises TypeError: the argument is not an iterable of pairs.
    """
    if not isinstance(tps, Iterable) or isinstance(tps, (str, bytes)):
        raise TypeError(f"partitions must be a list of pairs, for example [('clicks', 0)], not {tps!r}")
    return [checked_partition(tp) for tp in tps]


def checked_offset(given: object) -> int:
    """Return an offset that the application has passed.

    :raises TypeError: the argument is not an integer.
    :raises ConfigurationError: the offset is negative.
    """
    try:
        number = operator.index(given)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(f"an offset must be an integer, not {given!r}") from None
    if number < 0:
        raise ConfigurationError(f"offset {number} is negative; see seek_to_beginning and seek_to_end")
    return number


def offsets_to_commit(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """Return the offsets to commit by partition. The application passes each offset with or without metadata.

    :raises TypeError: the argument is not a dict of partitions and offsets.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(f"offsets must be a dict of partitions and offsets, {{('clicks', 0): 5}}, not {offsets!r}")
    return {checked_partition(tp): _offset_and_metadata(each) for tp, each in offsets.items()}


def _offset_and_metadata(given: object) -> OffsetAndMetadata:
    if isinstance(given, tuple) and 1 <= len(given) <= 3:
        return OffsetAndMetadata(checked_offset(given[0]), *given[1:])
    return OffsetAndMetadata(checked_offset(given))


COMMIT_ON_THE_WAY_OUT_S = 5.0
"""The time limit in seconds of the last auto-commit: before a rebalance, in `close`, or at the exit of the program."""

Procedure = Generator[BackgroundTask | ListenerCall, None, None]


class Rebalancing:
    """Updates a consumer's assignment. Thread-safe, because the threads of several message streams may call it.

    Invariant: no call returns records while a listener runs, or while the last commit before a rebalance is in flight.
    The application would process these records, but the member could no longer commit them. During a join, a
    cooperative member continues to return records of its partitions.
    """

    def __init__(self, state: ConsumerState) -> None:
        self.listening: frozenset[AssignmentChange] = frozenset()
        """The assignment changes for which the application has a listener."""
        self._state = state
        self._guard = state.guard
        self._procedure: Procedure | None = None
        self._awaited: BackgroundTask | ListenerCall | None = None
        self._interrupted_call: ListenerCall | None = None
        """The listener call whose poll was interrupted before the listener ran."""

    @property
    def is_due(self) -> bool:
        """Return whether the next poll must start or continue a procedure."""
        if not self._state.subscription.by_topics:
            return False
        if self._awaited is not None:
            return self._awaited.done or not isinstance(self._awaited, Join)
        membership = self._state.membership
        if membership is None:
            return self._state.view_changed
        return membership.rejoin_needed or self._state.now_s() >= membership.valid_until_s

    # --- going on ---------------------------------------------------------------------------------------

    def rebalance_if_due(self, deadline_s: float, *, nested: bool) -> CallSteps[bool]:
        """Join the group if necessary, or take new partitions.

        :param nested: True if a listener calls this method. The procedure waits for this listener, so the procedure
            cannot continue now.
        :return: True if the poll may return records now; False at the deadline.
        """
        while self._state.subscription.by_topics:
            wake_count = self._guard.wake_count
            with self._guard.lock:
                self._state.check_usable()  # a consumer that was closed during the wait must not join again
                call = self._advance(self._begin)
                if call is None and (self._awaited is None or nested or self._reads_on()):
                    break
                if call is None:
                    self._state.check_usable()
                    self._state.raise_pending_error()
                    if self._state.now_s() >= deadline_s:
                        return False
            yield from self._call_listener_or_wait(call, self._state.wait(deadline_s, wake_count))
        return True

    def _call_listener_or_wait(self, call: ListenerCall | None, wait: Wait) -> CallSteps[None]:
        """Yield the pending listener call; otherwise yield a wait."""
        if call is None:
            yield wait
            return
        try:
            yield call
        finally:
            with self._guard.lock:
                if self._awaited is call and not (call.done or call.goes_on):
                    self._interrupted_call = call

    def _reads_on(self) -> bool:
        return isinstance(self._awaited, Join) and bool(self._state.subscription.partitions)

    def _begin(self) -> Procedure | None:
        membership = self._state.membership
        if membership is None:
            return self._take_all() if self._state.view_changed else None
        if self._state.now_s() >= membership.valid_until_s:
            membership.on_expired()
        return self._rebalance(membership) if membership.rejoin_needed else None

    def _advance(self, begin: Callable[[], Procedure | None]) -> ListenerCall | None:
        """Continue the procedure until it has to wait. Return the listener call that it waits for, or None. The caller
        must hold the guard.
        """
        if self._interrupted_call is not None:
            call, self._interrupted_call = self._interrupted_call, None
            return call
        while self._awaited is None or self._awaited.done:
            if self._procedure is None:
                self._procedure = begin()
                if self._procedure is None:
                    return None
            try:
                self._awaited = next(self._procedure)
            except StopIteration:
                self._procedure = self._awaited = None
            except BaseException:
                self._procedure = self._awaited = None
                raise
            else:
                if isinstance(self._awaited, ListenerCall):
                    return self._awaited
        return None

    # --- taking -----------------------------------------------------------------------------------------

    def _take_all(self) -> Procedure:
        """Assign all partitions of the subscribed topics. Called for a consumer without a group.

        The partitions of a topic that the consumer may no longer describe stay assigned. Otherwise the consumer would
        lose its positions, and skip or repeat records once it has the permission again. A topic that is subscribed by a
        pattern is an exception: brokers do not list such a topic, so it looks deleted.
        """
        state = self._state
        state.view_changed = False
        before = state.subscription.partitions  # replaced, not changed, by the new assignment
        refused = {topic for topic in state.subscription.topics if state.view.is_refused(topic)}
        partitions = state.view.partitions_of(sorted(state.subscription.topics))
        partitions += [tp for tp in before if tp.topic in refused]
        state.replace_partitions(partitions)
        for each in state.subscription.partitions.values():
            each.is_refused = each.tp.topic in refused
        self._guard.wake_background()
        new = [tp for tp in partitions if tp not in before]
        if new:
            yield from self._call_listener("assigned", new)

    def _rebalance(self, membership: GroupMembership) -> Procedure:
        yield from self._prepare(membership)
        join = Join()
        self._state.add_task(join)
        try:
            yield join
        finally:
            if not join.done:
                self._state.abandon_task(join)
        if join.error is not None:
            raise join.error
        if join.partitions is not None:  # The member has lost its partitions; the next iteration handles this.
            yield from self._take(membership, join.partitions)

    def _prepare(self, membership: GroupMembership) -> Procedure:
        """Give up the partitions that a member must not own during a join.

        :raises FencedError: another consumer has the same instance id, so the member must not join.
        """
        subscription = self._state.subscription
        if membership.lost:
            yield from self._lose(membership)
        elif membership.is_cooperative:
            yield from self._commit_done()
            yield from self._give_up([tp for tp in subscription.partitions if tp.topic not in subscription.topics])
        else:
            yield from self._give_up_all()
        if membership.fenced is not None:
            raise membership.fenced.error()

    def _take(self, membership: GroupMembership, partitions: list[TopicPartition]) -> Procedure:
        """Take the newly assigned partitions, and give up the revoked ones."""
        before = set(self._state.subscription.partitions)
        revoked = before.difference(partitions)
        if revoked:
            # Join again, so that other members get the revoked partitions in the next generation.
            membership.rejoin("revoked partitions are free for other members")
            yield from self._commit_done()
        try:
            yield from self._give_up(revoked)
        finally:
            self._state.replace_partitions(partitions)
        log.info("group %s: assigned %s", membership.group, ", ".join(map(str, partitions)) or "no partitions")
        self._guard.wake_background()
        new = [tp for tp in partitions if tp not in before]
        if new or not membership.is_cooperative:
            yield from self._call_listener("assigned", new)

    # --- giving up --------------------------------------------------------------------------------------

    def _give_up_all(self) -> Procedure:
        """Commit the processed records and call the listener for all partitions, before other members get them."""
        given_up = list(self._state.subscription.partitions)
        if given_up:
            yield from self._commit_done()
            yield from self._give_up(given_up)

    def _lose(self, membership: GroupMembership) -> Procedure:
        """Call the listener for lost partitions. There is no commit, because other members already read these
        partitions.
        """
        lost = list(self._state.subscription.partitions)
        if lost:
            log.warning(
                "group %s: partitions %s are lost: %s", membership.group, ", ".join(map(str, lost)), membership.reason
            )
        yield from self._give_up(lost, "lost" if "lost" in self.listening else "revoked")
        membership.on_lost_given_up()

    def _give_up(self, partitions: Iterable[TopicPartition], change: AssignmentChange = "revoked") -> Procedure:
        """Call the listener, and then stop returning records of these partitions."""
        given_up = sorted(partitions)
        if given_up:
            yield from self._call_listener(change, given_up)
            self._state.replace_partitions([tp for tp in self._state.subscription.partitions if tp not in given_up])

    def _call_listener(self, change: AssignmentChange, partitions: list[TopicPartition]) -> Procedure:
        if change in self.listening:
            call = ListenerCall(change, partitions)
            yield call
            if call.error is not None:
                raise call.error

    def _commit_done(self) -> Generator[BackgroundTask, None, None]:
        commit = (
            self._state.commit_of_processed(COMMIT_ON_THE_WAY_OUT_S) if self._state.config.enable_auto_commit else None
        )
        if commit is None:
            return
        self._state.add_task(commit)
        yield commit
        if isinstance(commit.error, BarnabasError):
            log.warning("auto-commit failed: %s", commit.error)
        elif commit.error is not None:
            raise commit.error

    # --- leaving ----------------------------------------------------------------------------------------

    def leave(self, reason: str, *, nested: bool) -> CallSteps[None]:
        """Give up the subscription and the membership, after a call of the listener.

        :raises ConfigurationError: a listener has called `unsubscribe`, but the procedure waits for this listener.
        """
        membership = self._state.membership
        if membership is None or not self._state.subscription.by_topics:
            return
        if nested:
            raise ConfigurationError("a listener must not call unsubscribe(); call it after poll() returns")
        procedures = iter([self._leave(membership, reason)])
        while True:
            wake_count = self._guard.wake_count
            with self._guard.lock:
                self._state.check_usable()
                if isinstance(self._awaited, Join):
                    self.abandon()
                call = self._advance(lambda: next(procedures, None))
                if self._procedure is None:
                    return
            yield from self._call_listener_or_wait(call, Wait(FOREVER_S, wake_count))

    def _leave(self, membership: GroupMembership, reason: str) -> Procedure:
        if membership.lost:
            yield from self._lose(membership)
        yield from self._give_up_all()
        leave = Leave(reason)
        self._state.add_task(leave)
        yield leave

    def finish(self, reason: str) -> Generator[BackgroundTask, None, None]:
        """Commit and leave the group, without a listener call, because the consumer is being closed. The generator
        yields each task that it waits for. The caller holds the guard when it resumes the generator.
        """
        membership = self._state.membership
        if membership is None:
            return
        if not (membership.lost and self._state.subscription.by_topics):
            yield from self._commit_done()
        leave = Leave(reason)
        self._state.add_task(leave)
        yield leave

    def abandon(self) -> None:
        """Cancel the current procedure. The caller must hold the guard."""
        procedure, self._procedure, self._awaited, self._interrupted_call = self._procedure, None, None, None
        if procedure is not None:
            procedure.close()


Committable = OffsetAndMetadata | int


class ConsumerCore:
    """The core of one consumer. Arguments and errors are those of the methods of `Consumer`."""

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
        """True if the application has closed the consumer."""
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
        # Check the clock before each record only if the partitions are valid for a limited time (ZooKeeper).
        self._may_go_on = None if config.coordination is None else self.state.assignment_is_valid

    @property
    def cursor(self) -> Cursor:
        """The cursor of a consumer without message streams."""
        return self.state.cursors[0]

    # --- subscription and assignment
    # -----------------------------------------------------------------------------------

    def subscribe(
        self, topics: str | Iterable[str], pattern: str | re.Pattern[str] | None, listening: Iterable[AssignmentChange]
    ) -> None:
        """Subscribe to topics. `listening` contains the assignment changes for which the application has a listener."""
        self.state.check_usable()
        names = topic_names(topics)
        with self._guard.lock:
            self._subscription.subscribe(names, pattern)
            self._rebalancing.listening = frozenset(listening)
            self.state.view_changed = True
            if self.state.membership is not None:
                self.state.membership.rejoin("the subscription has changed")
        self.state.note_poll()
        self._guard.wake_background()

    def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        self.state.check_usable()
        tps = checked_partitions(partitions)
        with self._guard.lock:
            before = self._subscription.partitions
            self._subscription.assign_by_hand(tps)
            self.state.drop_unassigned(before)
        self._guard.wake_background()

    def assignment(self) -> set[TopicPartition]:
        with self._guard.lock:
            return set(self._subscription.partitions)

    def unsubscribe(self, *, nested: bool) -> CallSteps[None]:
        """Stop reading, and leave the group."""
        self.state.check_usable()
        yield from self._rebalancing.leave("unsubscribed", nested=nested)
        with self._guard.lock:
            before = self._subscription.partitions
            self._subscription.unsubscribe()
            self.state.drop_unassigned(before)

    def create_streams(self, counts: Mapping[str, int]) -> list[tuple[str, int, Cursor]]:
        """Divide the subscription into message streams; return the topic, number and cursor of each stream."""
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
        """Check that the application may read from the consumer itself, and not from a stream.

        :raises ConfigurationError: there is no subscription or assignment, or the consumer has message streams.
        """
        if self.state.streams is not None:
            raise ConfigurationError("this consumer has message streams; iterate over the streams")
        if self.state.stopped is None:  # if the consumer is stopped, the next call raises its error
            self._subscription.check_something_to_read()

    # --- reading ----------------------------------------------------------------------------------------

    def next_slice(self, cursor: Cursor, *, nested: bool = False) -> CallSteps[Iterator[Record[Any, Any]]]:
        """Wait for records, and return an iterator over some buffered records."""
        with self._guard.lock:
            cursor.mark_processed()
        return (yield from self._all_or_nothing(cursor, self._next_slice(cursor, nested)))

    def _next_slice(self, cursor: Cursor, nested: bool) -> CallSteps[Iterator[Record[Any, Any]]]:
        with self._guard.lock:
            if cursor.has_records and self.state.stopped is None and not self._rebalancing.is_due:
                self.state.note_poll()
                return cursor.take_iterator(self.config.max_poll_records, self._may_go_on)
        while not (yield from self._ask(FOREVER_S, lambda: self._fetched.load(cursor), nested)):
            pass
        with self._guard.lock:
            return cursor.take_iterator(self.config.max_poll_records, self._may_go_on)

    def poll(self, records_max: int, timeout_s: float, *, nested: bool = False) -> CallSteps[list[Record[Any, Any]]]:
        """Wait for records, and return at most `records_max` buffered records."""
        deadline_s = self.state.now_s() + timeout_s
        cursor = self.cursor
        with self._guard.lock:
            cursor.mark_processed()
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
        """Wait for records, and return at most `records_max` buffered records as columns.

        :raises ConfigurationError: pyarrow is not installed.
        """
        deadline_s = self.state.now_s() + timeout_s
        cursor = self.cursor
        with self._guard.lock:
            cursor.mark_processed()
        return (yield from self._all_or_nothing(cursor, self._poll_columns(cursor, records_max, deadline_s, nested)))

    def _poll_columns(
        self, cursor: Cursor, records_max: int, deadline_s: float, nested: bool
    ) -> CallSteps[pyarrow.RecordBatch]:
        if self._columns is None:
            from barnabas.records.arrow import ArrowReader  # noqa: PLC0415  pyarrow is optional

            self._columns = ArrowReader()
        columns = self._columns
        yield from self._ask(deadline_s, lambda: self._fetched.fill_columns(cursor, columns, records_max), nested)
        return columns.finish()

    @contextmanager
    def taken_back_on_failure(self) -> Iterator[None]:
        """Return a context manager that takes back the records of the last poll if its block raises. The next poll
        returns these records again.
        """
        try:
            yield
        except BaseException:
            self._fetched.take_back(self.cursor)
            raise

    def _all_or_nothing(self, cursor: Cursor, steps: CallSteps[T]) -> CallSteps[T]:
        """Run the steps of a call that returns records. If the call is interrupted, the next call returns its records
        again.
        """
        try:
            return (yield from steps)
        # The call has raised an expected error or was waiting, so it has taken no records from the buffer.
        except (GeneratorExit, BarnabasError):
            raise
        except BaseException:
            self._columns = None
            self._fetched.take_back(cursor)
            raise

    def _ask(self, deadline_s: float, get: Callable[[], bool], nested: bool) -> CallSteps[bool]:
        """Wait until `get` returns True; return False at the deadline. The wait counts as a poll for
        `max_poll_interval_ms`.
        """
        state = self.state
        with self._guard.lock:
            state.waiting += 1
        try:
            while True:
                wake_count = self._guard.wake_count
                state.check_usable()
                may_read = True
                if self._rebalancing.is_due:
                    may_read = yield from self._rebalancing.rebalance_if_due(deadline_s, nested=nested)
                if may_read and get():
                    return True
                with self._guard.lock:
                    state.raise_pending_error()
                began_s = state.now_s()
                if began_s >= deadline_s:
                    return False
                yield state.wait(deadline_s, wake_count)
                with self._guard.lock:
                    state.metrics.idle_s.add(state.now_s() - began_s)
        finally:
            with self._guard.lock:
                state.waiting -= 1
            state.note_poll()

    # --- positions --------------------------------------------------------------------------------------

    def position(self, tp: tuple[str, int], timeout_s: float | None) -> CallSteps[int]:
        """Return the offset of the next record of a partition; request it from a broker if it is unknown."""
        tp = checked_partition(tp)
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
                raise TimedOutError(f"the position of {tp} is still unknown after {timeout_s:g} s")
            yield self.state.wait(deadline_s, wake_count)

    def seek(self, tp: tuple[str, int], offset: int) -> None:
        number = checked_offset(offset)
        self._move(lambda state: state.move_to(number), [tp])

    def seek_by_policy(self, tps: Iterable[tuple[str, int]], policy: str) -> None:
        """Continue at the first or the end offset of these partitions, or of all assigned
        partitions if none are given.
        """
        self._move(lambda state: state.forget_position(policy), tps)

    def _move(self, move: Callable[[AssignedPartition], None], tps: Iterable[tuple[str, int]]) -> None:
        self.state.check_usable()
        with self._guard.lock:
            subscription = self._subscription
            states = [subscription.state(checked_partition(tp)) for tp in tps] or list(subscription.partitions.values())
            self.state.announce_reposition(states)
            for cursor in self.state.cursors:
                cursor.drop(lambda state: state in states)
            for state in states:
                move(state)
            self.state.fetcher.drop_stale()
            self._guard.wake_application()
        self._guard.wake_background()

    def set_paused(self, tps: Iterable[tuple[str, int]], paused: bool) -> None:
        """Pause or resume these partitions."""
        self.state.check_usable()
        with self._guard.lock:
            for state in [self._subscription.state(checked_partition(tp)) for tp in tps]:
                state.paused = paused
            self._guard.wake_application()
        self._guard.wake_background()

    # --- offsets ----------------------------------------------------------------------------------------

    def commit(self, offsets: Mapping[TopicPartition, Committable] | None, timeout_s: float | None) -> CallSteps[None]:
        """Commit offsets for the group. With None, commit the offsets after all returned records."""
        self.state.check_usable()
        self._need_group()
        given = None if offsets is None else offsets_to_commit(offsets)
        with self._guard.lock:
            commit = self._commit_in_hand(timeout_s) if given is None else Commit(given, timeout_s)
            self.state.add_task(commit)
        yield from self.state.until_done(commit)

    def _commit_in_hand(self, timeout_s: float | None) -> Commit:
        """Return the commit of all returned records, including the current one. The caller must hold the guard."""
        positions: dict[AssignedPartition, int] = {}
        for state in self._subscription.partitions.values():
            if (offset := self.state.cursor_of(state).position(state)) is not None:
                positions[state] = offset
        offsets = {state.tp: OffsetAndMetadata(offset) for state, offset in positions.items()}
        versions = {state: state.version for state in positions}
        return Commit(offsets, timeout_s, done_with=positions, in_hand=versions)

    def _need_group(self) -> None:
        if self.config.group is None:
            raise ConfigurationError("a consumer without a group cannot commit; pass a group: Consumer(..., group=...)")

    def committed(
        self, tps: tuple[str, int] | Iterable[tuple[str, int]], timeout_s: float | None
    ) -> CallSteps[OffsetAndMetadata | dict[TopicPartition, OffsetAndMetadata | None] | None]:
        """Return the committed offset of one partition, or the committed offsets of several."""
        self._need_group()
        single = single_partition(tps)
        look_up = CommittedLookup(checked_partitions(tps) if single is None else [single], timeout_s)
        yield from self._until_done(look_up)
        found = {tp: look_up.answer.get(tp) for tp in look_up.partitions}
        return found if single is None else found[single]

    def beginning_offsets(self, tps: Iterable[tuple[str, int]]) -> CallSteps[dict[TopicPartition, int]]:
        return self._ends(tps, EARLIEST_TIMESTAMP)

    def end_offsets(self, tps: Iterable[tuple[str, int]]) -> CallSteps[dict[TopicPartition, int]]:
        return self._ends(tps, LATEST_TIMESTAMP)

    def _ends(self, tps: Iterable[tuple[str, int]], which: int) -> CallSteps[dict[TopicPartition, int]]:
        found = yield from self.offsets_for_times(dict.fromkeys(checked_partitions(tps), which))
        return {tp: at.offset for tp, at in found.items() if at is not None}

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> CallSteps[dict[TopicPartition, OffsetAndTimestamp | None]]:
        wanted = {checked_partition(tp): at_ms for tp, at_ms in timestamps_ms.items()}
        return (yield from self._query(lambda cluster: list_offsets(cluster, wanted))) if wanted else {}

    def topics(self) -> CallSteps[set[str]]:
        views = yield from self._query(
            lambda cluster: cluster.retrying(lambda: cluster.describe(None), what="cannot list topics")
        )
        return {view.name for view in views if not view.is_internal}

    def partitions_for_topic(self, topic: str) -> CallSteps[set[int] | None]:
        (name,) = topic_names([topic])
        (view,) = yield from self._query(
            lambda cluster: cluster.retrying(lambda: cluster.describe([name]), what=f"cannot describe topic {name!r}")
        )
        return {each.partition for each in view.partitions} or None

    def metrics(self) -> dict[str, Any]:
        """Return the current metrics by name."""
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
        """Commit the processed records and leave the group. Every later call raises an error.

        :param all_done: True if the application has processed the current record.
        :raises TimedOutError: the commit or leaving the group did not complete before the deadline.
        """
        if self.state.stopped is not None:
            return
        self.stop(all_done=all_done)
        closing_tasks = self.closing_tasks()
        while (task := self.next_closing_task(closing_tasks)) is not None:
            if not (yield from self.state.await_end(task, deadline_s)):
                undone = "leave its group" if isinstance(task, Leave) else "commit its last offsets"
                raise TimedOutError(f"close() timed out before the consumer could {undone}")

    def closing_tasks(self) -> Iterator[BackgroundTask]:
        """Return an iterator over the closing tasks of a stopped consumer, for `next_closing_task`."""
        return self._rebalancing.finish("the consumer was closed")

    def next_closing_task(self, tasks: Iterator[BackgroundTask]) -> BackgroundTask | None:
        """Submit and return the next closing task, or return None if there are no more. Call this when the previous
        task has ended.
        """
        with self._guard.lock:
            return next(tasks, None)

    def stop(self, *, all_done: bool) -> None:
        """Run the part of `close` that needs no broker."""
        with self._guard.lock:
            self.closed = True
            self.state.stop_with(ClosedError("this consumer is closed; make a new one"))
            if all_done:
                for cursor in self.state.cursors:
                    cursor.mark_processed()
            self._rebalancing.abandon()
            self._guard.wake_application()

    def __str__(self) -> str:
        group = f" in group {self.config.group!r}" if self.config.group else ""
        return f"{group}{', closed' if self.closed else ''}"
