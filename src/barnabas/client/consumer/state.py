"""The state of a consumer, which the application's calls and the background share. No I/O.

Each kind of event (new metadata, a response, an error, a call) has a method. Both sides hold the guard while they read
or change the state, but not while they wait.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Iterable, Mapping

from barnabas.client.cluster import ClusterView
from barnabas.client.config import ConsumerConfig
from barnabas.client.consumer.call_steps import FOREVER_S, BackgroundTask, CallSteps, Commit, Guard, ListenerCall, Wait
from barnabas.client.consumer.classic_membership import ClassicMembership
from barnabas.client.consumer.fetched_records import ConsumerMetrics, Cursor
from barnabas.client.consumer.fetcher import (
    NOWHERE,
    OUT_OF_RANGE,
    AssignedPartition,
    Fetcher,
    PreferredReplicas,
    Subscription,
)
from barnabas.client.consumer.group_membership import GroupMembership
from barnabas.client.consumer.message_streams import StreamPlan
from barnabas.client.consumer.zookeeper_assignment import ZooKeeperAssignment
from barnabas.client.interceptors import ConsumerInterceptors
from barnabas.client.permissions import Need, with_permission
from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError, ClosedError, ErrorCode, Failure
from barnabas.model import OffsetAndMetadata, TopicPartition

REFUSED = -1
"""Stands for the number of partitions of a topic that the consumer may not describe."""
TOPIC_REFUSED = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})

log = logging.getLogger(__name__)


class ConsumerState:
    """The subscription, buffer, membership, cursors, background tasks and pending errors of a consumer."""

    def __init__(
        self, config: ConsumerConfig, guard: Guard, clock: Clock, interceptors: ConsumerInterceptors | None = None
    ) -> None:
        self.config = config
        self.interceptors = interceptors or ConsumerInterceptors()
        self.guard = guard
        self.clock = clock
        self.now_s = clock.monotonic
        """A function that returns monotonic time in seconds."""
        self.subscription = Subscription()
        self.fetcher = Fetcher(
            self.subscription,
            reset_policy=config.auto_offset_reset,
            min_bytes=config.fetch_min_bytes,
            max_wait_ms=config.fetch_max_wait_ms,
            max_bytes=config.fetch_max_bytes,
            partition_max_bytes=config.max_partition_fetch_bytes,
            buffer_bytes_max=config.fetch_buffer_bytes,
            preferred_replicas=PreferredReplicas(
                config.client_rack, clock.monotonic, config.metadata_max_age_ms / 1000
            ),
            principal=config.principal,
        )
        self.membership: GroupMembership | None = None
        if config.group is not None and config.coordination is not None:
            self.membership = ZooKeeperAssignment(config.group, f"{config.client_id}-{uuid.uuid4()}")
        elif config.group is not None:
            self.membership = ClassicMembership(
                config.group,
                instance_id=config.group_instance_id,
                session_timeout_ms=config.session_timeout_ms,
                rebalance_timeout_ms=config.max_poll_interval_ms,
                strategies=config.partition_assignment_strategy,
            )
        self.metrics = ConsumerMetrics(clock)
        self.cursors = [Cursor()]
        """The cursor of a consumer without message streams, followed by one cursor for each message stream."""
        self.streams: StreamPlan | None = None
        self.view = ClusterView()
        self.view_changed = False
        """True if the partitions of the subscribed topics may have changed since the last rebalance."""
        self.stopped: Failure | None = None
        """The error that every call raises because the consumer has stopped; None while it runs."""
        self.waiting = 0
        """The number of calls that wait for records."""
        self._fault: Failure | None = None
        """The unexpected error that has stopped the background, or None."""
        self._unreachable: tuple[float, Failure] | None = None
        """The monotonic time since which no broker is reachable, with the reason; None if a broker is reachable."""
        self._pending: deque[BackgroundTask] = deque()
        self._no_more_work = False
        self._refused: set[str] = set()
        self._assigned_counts: dict[str, int | None] = {}
        self._last_poll_s = clock.monotonic()
        self._last_progress: tuple[int, ...] = (0,)

    # --- waiting ----------------------------------------------------------------------------------------

    def wait(self, until_s: float, wake_count: int) -> Wait:
        """Return a wait until `until_s`, or until the call must raise an error because no broker is reachable."""
        if self._unreachable is not None:
            until_s = min(until_s, self._patience_end_s(self._unreachable[0]))
        return Wait(until_s, wake_count)

    def until_done(self, task: BackgroundTask) -> CallSteps[None]:
        """Wait for the end of a task, and raise its error. If the caller is interrupted, the task is abandoned."""
        yield from self.await_end(task)
        if task.error is not None:
            raise task.error

    def await_end(self, task: BackgroundTask, deadline_s: float = FOREVER_S) -> CallSteps[bool]:
        """Wait for the end of a task; return False at the deadline. At the deadline, or if the caller is interrupted,
        the task is abandoned.
        """
        try:
            while True:
                wake_count = self.guard.wake_count
                if task.done or self.now_s() >= deadline_s:
                    return task.done
                yield Wait(deadline_s, wake_count)
        finally:
            if not task.done:
                self.abandon_task(task)

    def _patience_end_s(self, since_s: float) -> float:
        return since_s + self.config.default_api_timeout_ms / 1000

    # --- errors for the application ---------------------------------------------------------------------

    def check_usable(self) -> None:
        """Check that the consumer is usable.

        :raises ClosedError: the consumer is closed, or belongs to the parent of this forked process.
        """
        if self.stopped is not None:
            raise self.stopped.error()

    def stop_with(self, error: ClosedError) -> None:
        """Stop the consumer: every later call raises `error`."""
        self.stopped = Failure.of(error)

    def raise_pending_error(self) -> None:
        """Raise the next error for the application, if there is one. The caller must hold the guard."""
        if self._fault is not None:
            raise self._fault.error()
        error = self.fetcher.take_error()
        if error is not None:
            self.guard.wake_background()
            raise error
        # A partition can be without an offset only if the reset policy is `none`.
        if self.config.auto_offset_reset == NOWHERE and (nowhere := self.subscription.without_offset()):
            raise ApiError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{nowhere[0]} has no offset to start from: none is committed or the records are deleted, and "
                "auto_offset_reset is 'none'; call seek(), or set it to 'earliest' or 'latest'",
            )
        if self._unreachable is not None:
            since_s, failure = self._unreachable
            if self.now_s() >= self._patience_end_s(since_s):
                raise failure.error()

    def report_error(self, error: BarnabasError) -> None:
        """Store `error`, so that the next poll raises it."""
        with self.guard.lock:
            self.fetcher.add_error(error)
            self.guard.wake_application()

    def fail(self, error: ClosedError) -> None:
        """Record that the background has stopped: every call that waits for it raises `error`."""
        with self.guard.lock:
            self._fault = Failure.of(error)
            self._end_queue(self._fault)
            self.guard.wake_application()

    def notify_change(self) -> None:
        """Wake the waiting calls after a change of the state."""
        with self.guard.lock:
            self.guard.wake_application()

    def on_listener_called(self, call: ListenerCall, error: BaseException | None = None) -> None:
        """Record that the listener has returned; `error` is the exception that it raised, or None."""
        with self.guard.lock:
            call.done, call.error = True, error
            self.guard.wake_application()

    # --- work for the background ------------------------------------------------------------------------

    def add_task(self, task: BackgroundTask) -> None:
        """Submit a task to the background. The caller must hold the guard."""
        self._pending.append(task)
        if self._no_more_work:
            self.end_tasks()
        self.guard.wake_background()

    def next_task(self) -> BackgroundTask | None:
        """Remove and return the next task; None if there is none."""
        with self.guard.lock:
            return self._pending.popleft() if self._pending else None

    def finish_task(self, task: BackgroundTask, error: BaseException | None = None) -> None:
        """Record the end of a task, with its error if it failed."""
        with self.guard.lock:
            task.done, task.error = True, error
            if error is None and isinstance(task, Commit):
                for state, offset in task.done_with.items():
                    state.committed = offset
                    state.committed_version = task.in_hand.get(state, -1)
            self.guard.wake_application()

    def end_tasks(self) -> None:
        """Fail all pending and all later tasks, because the background has ended."""
        self._no_more_work = True
        self._end_queue(Failure.of(ClosedError("this consumer was closed")))

    def _end_queue(self, failure: Failure) -> None:
        """Fail all tasks that the background has not started."""
        while (task := self.next_task()) is not None:
            self.finish_task(task, failure.error())

    def abandon_task(self, task: BackgroundTask) -> None:
        """Abandon a pending or running task."""
        task.abandoned = True
        self.guard.wake_background()

    def commit_of_processed(self, timeout_s: float | None = None) -> Commit | None:
        """Return the auto-commit of all processed records, or None if they are already committed.
        The caller must hold the guard.
        """
        done = {}
        for state in self.subscription.partitions.values():
            offset = self.cursor_of(state).done(state)
            if offset is None or offset == state.committed:
                continue
            if state.committed_version == state.version and state.committed is not None and offset < state.committed:
                continue  # the application has already committed the current record
            done[state] = offset
        if not done:
            return None
        return Commit({state.tp: OffsetAndMetadata(offset) for state, offset in done.items()}, timeout_s, done)

    def due_auto_commit(self) -> Commit | None:
        """Return an auto-commit if the auto-commit interval has elapsed, or None otherwise."""
        membership = self.membership
        assert membership is not None
        with self.guard.lock:
            if self.subscription.by_topics and (membership.rejoin_needed or membership.joining):
                return None  # not now: the pending rebalance will commit the offsets
            return self.commit_of_processed()

    # --- liveness of the application ------------------------------------------------------------------

    def note_poll(self) -> None:
        """Record that the application has polled."""
        self._last_poll_s = self.now_s()

    def polls_in_time(self) -> bool:
        """Return whether the last poll was less than `max_poll_interval_ms` ago."""
        progress = tuple(cursor.unreturned_count for cursor in self.cursors)
        if self.waiting or progress != self._last_progress:
            self._last_progress = progress
            self.note_poll()
        return self.now_s() - self._last_poll_s <= self.config.max_poll_interval_ms / 1000

    # --- readers ----------------------------------------------------------------------------------------

    def assignment_is_valid(self) -> bool:
        """Return whether the assignment is still valid, so that no other consumer can own the partitions."""
        if self.membership is None or not self.subscription.by_topics:
            return True
        return self.now_s() < self.membership.valid_until_s

    def cursor_of(self, state: AssignedPartition) -> Cursor:
        """Return the cursor that reads a partition."""
        for cursor in self.cursors:
            if cursor.is_reading(state):
                return cursor
        return self.cursors[0]

    def lags(self) -> dict[TopicPartition, int]:
        """Return the number of offsets up to the last known high watermark, by partition. The caller must hold the
        guard.
        """
        lags = {}
        for state in self.subscription.partitions.values():
            position = self.cursor_of(state).position(state)
            if position is not None and state.high_watermark is not None:
                lags[state.tp] = max(state.high_watermark - position, 0)
        return lags

    def positions(self) -> dict[TopicPartition, int | None]:
        """Return the position of each partition."""
        with self.guard.lock:
            return self._reached(self.subscription.partitions.values())

    def _reached(self, states: Iterable[AssignedPartition]) -> dict[TopicPartition, int | None]:
        return {state.tp: self.cursor_of(state).position(state) for state in states}

    def announce_reposition(self, states: Iterable[AssignedPartition]) -> None:
        """Report to the interceptors that the positions of partitions are about to change. The caller must hold the
        guard.
        """
        if self.interceptors.see_repositions:
            self.interceptors.on_reposition(self._reached(states))

    def replace_partitions(self, partitions: list[TopicPartition]) -> None:
        """Replace the assigned partitions, and stop returning records of all others. The caller must hold the guard."""
        before = self.subscription.partitions
        self.subscription.replace(partitions)
        if self.streams is not None:
            self.streams.assign(partitions)
        self.drop_unassigned(before)

    def drop_unassigned(self, before: Mapping[TopicPartition, AssignedPartition]) -> None:
        """Stop returning records of partitions that are no longer assigned. The caller must hold the guard.

        :param before: the assigned partitions before the change.
        """
        self.announce_reposition([state for state in before.values() if not self.subscription.owns(state)])
        self.fetcher.drop_stale()
        for cursor in self.cursors:
            cursor.drop(lambda state: not self.subscription.owns(state))

    # --- metadata ---------------------------------------------------------------------------------------

    def on_metadata(self, view: ClusterView) -> bool:
        """Apply a new cluster view; return whether the view lacks subscribed topics."""
        with self.guard.lock:
            self.view = view
            self._unreachable = None
            if self.subscription.pattern is not None:
                names = [name for name, topic in view.topics.items() if not topic.is_internal and topic.partitions]
                if self.subscription.match_pattern(names) and self.membership is not None:
                    self.membership.rejoin("the topics that match the pattern have changed")
            counts = self._partition_counts(view)
            if counts != self._assigned_counts:
                self.view_changed = True
                if self.membership is not None and self.membership.is_leader and self._assigned_counts:
                    self.membership.rejoin("the partitions of the topics have changed")
                self._assigned_counts = counts
            self._report_refused(view)
            self.guard.wake_application()
        return any(count is None or count == REFUSED for count in counts.values())

    def _partition_counts(self, view: ClusterView) -> dict[str, int | None]:
        """Return the number of partitions of each subscribed topic; None if the topic is unknown."""
        return {
            topic: REFUSED if view.is_refused(topic) else view.partition_count(topic)
            for topic in self.subscription.topics
        }

    def _report_refused(self, view: ClusterView) -> None:
        """Add an error for each topic that the consumer cannot read. Each topic is reported once, and again after the
        consumer could read it.
        """
        self._refused -= {name for name, topic in view.topics.items() if topic.partitions}
        for name in sorted(self.subscription.topics - self._refused):
            topic = view.topics.get(name)
            if topic is not None and topic.error in TOPIC_REFUSED:
                self._refused.add(name)
                error = ApiError(topic.error, subject=f"cannot subscribe to topic {name!r}")
                needed = Need(self.config.topic_operations, "topic", name)
                self.fetcher.add_error(with_permission(error, self.config.principal, needed))

    def on_unreachable(self, since_s: float, error: BarnabasError) -> None:
        """Record that no broker is reachable, until the next cluster view arrives."""
        with self.guard.lock:
            self._unreachable = since_s, Failure.of(error)
            self.guard.wake_application()

    def on_joining(self) -> None:
        """Record that the group is about to assign the partitions of the current topics."""
        self._assigned_counts = {}

    def on_joined(self, view: ClusterView) -> None:
        """Record that the group has assigned the partitions of the topics in `view`."""
        self._assigned_counts = self._partition_counts(view)

    # --- positions --------------------------------------------------------------------------------------

    def missing_positions(self) -> dict[AssignedPartition, int]:
        """Return the partitions without a position, with their versions."""
        with self.guard.lock:
            return {state: state.version for state in self.subscription.without_position()}

    def set_positions(
        self,
        missing: Mapping[AssignedPartition, int],
        offsets: Mapping[AssignedPartition, int],
        *,
        committed: bool = False,
    ) -> None:
        """Set the positions to the offsets found, except in partitions where the application has called `seek` since
        the request.

        :param committed: True if the offsets are committed offsets of the group.
        """

        def move(state: AssignedPartition) -> None:
            state.move_to(offsets[state])
            if committed:
                state.committed = offsets[state]

        self._settle(missing, offsets, move)

    def mark_without_offset(self, missing: Mapping[AssignedPartition, int], states: list[AssignedPartition]) -> None:
        """Mark the partitions for which neither a committed offset nor a reset policy gives a position."""
        self._settle(missing, dict.fromkeys(states, 0), lambda state: state.forget_position(NOWHERE))

    def unvalidated_positions(self) -> dict[AssignedPartition, tuple[int, int]]:
        """Return the partitions whose position a leader must validate, with their versions and leader epochs."""
        with self.guard.lock:
            states = self.subscription.without_valid_position()
            return {state: (state.version, state.leader_epoch) for state in states}

    def on_position_validated(self, state: AssignedPartition, version: int, end_offset: int | None) -> None:
        """Continue a partition after its leader has returned the end offset of the last batch's leader epoch.

        :param end_offset: the end offset; None if the leader does not support the request, and -1 if it has no records
            of this epoch or an earlier one.
        """
        with self.guard.lock:
            validation_cause, fetch_offset = state.validation_cause, state.fetch_offset
            if (
                state.version != version
                or validation_cause is None
                or fetch_offset is None
                or not self.subscription.owns(state)
            ):
                return
            state.validation_cause = None
            if end_offset is not None and end_offset < fetch_offset:
                self._go_back(state, end_offset)
            elif validation_cause == OUT_OF_RANGE:
                self._forget(state, self.config.auto_offset_reset)
            else:
                state.leader_epoch = validation_cause
            self.guard.wake_application()

    def _go_back(self, state: AssignedPartition, end_offset: int) -> None:
        """Discard the records that the new leader does not have, and continue at the offset where the logs diverge."""
        cursor = self.cursor_of(state)
        position, done = cursor.position(state), cursor.done(state)
        policy = self.config.auto_offset_reset
        self._forget(state, policy)
        if position is None or end_offset < 0:
            return
        if position <= end_offset:
            state.move_to(position)
            state.done = done
            return
        lost = f"{state.tp}: a new leader truncated the log to offset {end_offset}, before the position {position}"
        if policy == NOWHERE:
            self.fetcher.add_error(
                ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{lost}; auto_offset_reset is 'none'; call seek() to continue")
            )
            return
        log.warning("%s; the consumer continues at offset %d", lost, end_offset)
        state.move_to(end_offset)

    def _forget(self, state: AssignedPartition, policy: str) -> None:
        """Discard the fetched records of a partition, and make its position unknown."""
        self.announce_reposition([state])
        for cursor in self.cursors:
            cursor.drop(lambda each: each is state)
        state.forget_position(policy)
        self.fetcher.drop_stale()

    def _settle(
        self,
        missing: Mapping[AssignedPartition, int],
        states: Mapping[AssignedPartition, int],
        settle: Callable[[AssignedPartition], object],
    ) -> None:
        with self.guard.lock:
            for state in states:
                if state.version == missing[state] and self.subscription.owns(state):
                    settle(state)
            self.guard.wake_application()

    def owned_partitions(self) -> list[TopicPartition]:
        """Return the partitions that the member keeps during a join."""
        assert self.membership is not None
        with self.guard.lock:
            return list(self.subscription.partitions) if self.membership.is_cooperative else []
