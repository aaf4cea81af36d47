"""Runs the core of a consumer: the drivers that run the application's calls, and the background.

A driver runs the steps of a call (`call_steps`). `BlockingDriver` blocks the calling thread, `AsyncDriver` awaits; both
call the application's listeners. Each driver has its own kind of `Guard`, through which the calls and the background
wake each other.

`Background` runs on an event loop, concurrently with the calls: it fetches ahead, finds positions, commits, and keeps
the membership. It takes its tasks from the `ConsumerState`, and reports every result there. It never holds the guard
while it awaits.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import partial
from typing import Any, TypeVar

from barnabas.client.client_lifecycle import LoopThread
from barnabas.client.cluster import Cluster, ClusterView
from barnabas.client.consumer.call_steps import (
    FOREVER_S,
    AssignmentChange,
    BackgroundTask,
    CallSteps,
    Commit,
    CommittedLookup,
    Join,
    Leave,
    ListenerCall,
    Query,
    Wait,
)
from barnabas.client.consumer.classic_group_session import ClassicGroupSession
from barnabas.client.consumer.classic_membership import ClassicMembership
from barnabas.client.consumer.core import ConsumerCore
from barnabas.client.consumer.fetch_connections import FetchConnections
from barnabas.client.consumer.fetcher import NOWHERE, RESET_TIMESTAMPS, AssignedPartition
from barnabas.client.consumer.group_membership import GroupSession
from barnabas.client.consumer.state import ConsumerState
from barnabas.client.consumer.zookeeper_assignment import ZooKeeperAssignment
from barnabas.client.interceptors import ClientContext
from barnabas.client.offset_requests import end_offsets_for_epochs, list_offsets
from barnabas.client.standard_metrics import consumer_metrics
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.errors import BarnabasError, ClosedError, UnsupportedVersionError
from barnabas.metrics.otlp import Point
from barnabas.model import TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")

Listener = Callable[[list[TopicPartition]], object]
Listeners = Mapping[AssignmentChange, Listener]

TURN_S = 0.002
"""The time in seconds for which an `AsyncConsumer` returns buffered records before it lets other
tasks of the loop run.
"""


def listeners_of(
    on_assign: Listener | None, on_revoke: Listener | None, on_lost: Listener | None
) -> dict[AssignmentChange, Listener]:
    """Return the listeners that are not None, by kind of assignment change."""
    given: dict[AssignmentChange, Listener | None] = {"assigned": on_assign, "revoked": on_revoke, "lost": on_lost}
    return {change: listener for change, listener in given.items() if listener is not None}


class Waker:
    """Wakes the background on its event loop. All methods run on the loop's thread."""

    def __init__(self) -> None:
        self._is_pending = False
        self._on_wake: Callable[[], None] | None = None

    def wake(self) -> None:
        """Call the listener now, or as soon as a listener is set."""
        if self._on_wake is None:
            self._is_pending = True
        else:
            self._on_wake()

    def listen(self, on_wake: Callable[[], None] | None) -> None:
        """Set the listener; None removes it."""
        self._on_wake = on_wake
        if on_wake is not None and self._is_pending:
            on_wake()


class ThreadGuard:
    """The guard between the application's threads and the background thread.

    Each waiting thread has its own lock, which `wake_application` releases. A `threading.Condition` would be slower: it
    acquires the guard's lock again before it returns, and runs more Python code.

    :ivar lock: guards the core.
    :ivar waker: wakes the background on its thread.
    """

    def __init__(self, thread: LoopThread) -> None:
        self.lock = threading.RLock()
        self.wake_count = 0
        self.waker = Waker()
        self._thread = thread
        self._waiting: set[threading.Lock] = set()
        """The acquired locks of the waiting threads. Access requires the guard."""

    def after_fork(self) -> None:
        """Replace the lock in a forked child, because a thread of the parent may hold it."""
        self.lock = threading.RLock()
        self._waiting = set()

    def wake_application(self) -> None:
        self.wake_count += 1
        if self._waiting:
            waiting, self._waiting = self._waiting, set()
            for waiter in waiting:
                waiter.release()

    def wake_background(self) -> None:
        self._thread.call_soon(self.waker.wake)

    def wait_for_wake(self, wait: Wait) -> None:
        """Block until a wake-up or the deadline."""
        waiter = threading.Lock()
        waiter.acquire()
        with self.lock:
            if self.wake_count != wait.wake_count:
                return
            self._waiting.add(waiter)
        is_woken = False
        try:
            is_woken = waiter.acquire(timeout=_timeout_s(wait.until_s))
        finally:
            if not is_woken:  # the lock was not released: the deadline has passed, or a signal has interrupted the wait
                with self.lock:
                    self._waiting.discard(waiter)


def _timeout_s(until_s: float) -> float:
    """Return the timeout in seconds for `Lock.acquire`, given a deadline. -1 means no timeout."""
    return -1 if until_s == FOREVER_S else min(max(until_s - SYSTEM_CLOCK.monotonic(), 0.0), threading.TIMEOUT_MAX)


class BlockingDriver:
    """Runs the application's calls on the calling thread."""

    def __init__(self, state: ConsumerState, guard: ThreadGuard) -> None:
        self.listeners: Listeners = {}
        self._state = state
        self._guard = guard
        self._in_listener = threading.local()

    @property
    def inside_listener(self) -> bool:
        """Return whether the caller is a listener."""
        return getattr(self._in_listener, "now", False)

    def run(self, steps: CallSteps[T]) -> T:
        """Run a call and return its result."""
        try:
            while True:
                step = next(steps)
                if isinstance(step, Wait):
                    self._guard.wait_for_wake(step)
                else:
                    self._call_listener(step)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            # Close the generator: otherwise an interrupted call would count as waiting until its traceback is freed.
            steps.close()

    def _call_listener(self, call: ListenerCall) -> None:
        error: BaseException | None = None
        self._in_listener.now = True
        try:
            if call.change in self.listeners:
                self.listeners[call.change](call.partitions)
        except BaseException as raised:  # noqa: BLE001 - the consumer's call raises the listener's error
            error = raised
        finally:
            self._in_listener.now = False
            self._state.on_listener_called(call, error)


class LoopGuard:
    """The guard of an `AsyncConsumer`. It only sends wake-ups and needs no lock: all code runs on one event loop, and
    the core never awaits.

    :param clock: the clock of the core.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self.lock: AbstractContextManager[object] = nullcontext()
        self.wake_count = 0
        self.waker = Waker()
        self._rings = False
        self._waiting: set[asyncio.Future[None]] = set()

    def wake_application(self) -> None:
        self.wake_count += 1
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            _wake(future)

    def wake_background(self) -> None:
        if self._rings:
            return
        try:
            asyncio.get_running_loop().call_soon(self._ring)
            self._rings = True
        except RuntimeError:  # the event loop is not running yet
            self.waker.wake()

    def _ring(self) -> None:
        self._rings = False
        self.waker.wake()

    async def wait_for_wake(self, wait: Wait) -> None:
        """Wait for a wake-up or the deadline."""
        if self.wake_count != wait.wake_count:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        timer = None
        if wait.until_s != FOREVER_S:
            timer = loop.call_later(max(wait.until_s - self._clock.monotonic(), 0.0), _wake, future)
        self._waiting.add(future)
        try:
            await future
        finally:
            self._waiting.discard(future)
            if timer is not None:
                timer.cancel()


def _wake(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class AsyncDriver:
    """Runs the application's calls in the calling task."""

    def __init__(self, state: ConsumerState, guard: LoopGuard) -> None:
        self.listeners: Listeners = {}
        self.guard = guard
        self._state = state
        self._in_listener: set[asyncio.Task[None]] = set()
        self._turn_s = 0.0

    @property
    def inside_listener(self) -> bool:
        """Return whether the caller is a listener."""
        return asyncio.current_task() in self._in_listener

    async def run(self, steps: CallSteps[T]) -> T:
        """Run a call and return its result."""
        try:
            while True:
                step = next(steps)
                if isinstance(step, Wait):
                    await self.guard.wait_for_wake(step)
                    self._turn_s = self._state.now_s()
                else:
                    await self._call_listener(step)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            steps.close()  # close the generator, because a cancelled call must not count as waiting

    async def _call_listener(self, call: ListenerCall) -> None:
        listener = self.listeners.get(call.change)
        if listener is None:
            self._state.on_listener_called(call)
            return
        # The listener runs in its own task, so that a cancelled poll does not leave the assignment incomplete.
        call.goes_on = True
        task = asyncio.create_task(self._call(listener, call))
        self._in_listener.add(task)
        task.add_done_callback(self._in_listener.discard)
        # Do not use `shield()`: `close()` cancels the listener, not the polling task.
        await asyncio.wait({task})

    async def _call(self, listener: Listener, call: ListenerCall) -> None:
        error: BaseException | None = None
        try:
            outcome = listener(call.partitions)
            if inspect.isawaitable(outcome):
                await outcome
        except asyncio.CancelledError:
            error = ClosedError("this consumer was closed")
            raise
        except Exception as raised:  # noqa: BLE001 - the consumer's call raises the listener's error
            error = raised
        finally:
            self._state.on_listener_called(call, error)

    async def yield_to_loop(self) -> None:
        """Let other tasks of the event loop run, if this call has run for longer than `TURN_S`."""
        # Do not use `loop.time()`: uvloop does not advance it during a turn of the loop.
        if self._state.now_s() - self._turn_s >= TURN_S:
            await asyncio.sleep(0)
            self._turn_s = self._state.now_s()

    async def stop(self) -> None:
        """Cancel running listeners."""
        others = self._in_listener - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)


MISSING_TOPIC_PAUSE_S = 0.5
"""The pause in seconds between two metadata requests for missing topics."""


class Background:
    """The background work of one consumer.

    :param waker: wakes the background when there may be work; see `Guard.wake_background`.
    """

    def __init__(self, state: ConsumerState, cluster: Cluster, waker: Waker) -> None:
        self._state = state
        self._guard = state.guard
        self._config = state.config
        self._cluster = cluster
        self._waker = waker
        self._watched: object = None
        self._next_look: asyncio.TimerHandle | None = None
        """The timer for the next metadata request for missing topics."""
        self._positions_wanted = asyncio.Event()
        self._looks_for_leaders = 0
        """The number of consecutive cluster views in which a partition had no leader."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: dict[BackgroundTask, asyncio.Task[None]] = {}
        self._session = group_session_of(state, cluster)
        self._interceptors = state.interceptors
        self._is_closed = False
        self._fetches = FetchConnections(
            state, cluster, spawn=self._spawn, on_fault=self._on_fault, answered=self._answered
        )

    async def start(self) -> None:
        """Start the background work; must run on the event loop."""
        context = ClientContext(
            client_id=self._config.client_id,
            group=self._config.group,
            request_timeout_ms=self._config.request_timeout_ms,
            clock=self._state.clock,
            cluster=self._cluster,
            locked=lambda: self._guard.lock,
            positions=self._state.positions,
            standard_metrics=self._standard_metrics,
        )
        await self._interceptors.start(context)
        if self._is_closed:  # `close` was called while this method waited
            return
        self._cluster.updated.append(self._on_metadata)
        self._cluster.lost.append(self._state.on_unreachable)
        self._spawn(self._cluster.refresh_forever())
        self._spawn(self._find_positions())
        if self._session is not None:
            self._spawn(self._session.maintain())
            if self._config.enable_auto_commit:
                self._spawn(self._auto_commit())
        self._waker.listen(self._on_wake)

    def _standard_metrics(self) -> Iterator[Point]:
        assigned = None if self._config.group is None else len(self._state.subscription.partitions)
        return consumer_metrics(self._state.metrics, self._cluster.connections, assigned)

    async def finish(self, core: ConsumerCore) -> None:
        """Commit the processed records, leave the group, and close. Called for a consumer that was not closed."""
        try:
            if self._state.stopped is None:
                core.stop(all_done=False)
                closing_tasks = core.closing_tasks()
                while (task := core.next_closing_task(closing_tasks)) is not None:
                    self.run_pending()
                    await asyncio.wait({self._running[task]})
        finally:
            await self.close()

    async def close(self, deadline_s: float = FOREVER_S) -> None:
        """Stop all tasks and close all connections. After the deadline, do not wait for brokers or ZooKeeper."""
        self._is_closed = True
        self._waker.listen(None)
        try:
            await self._interceptors.close(self._left_s(deadline_s))
        finally:
            await self._end(deadline_s)

    async def _end(self, deadline_s: float) -> None:
        tasks = [*self._tasks, *self._running.values()]
        for task in tasks:
            task.cancel()
        if self._next_look is not None:
            self._next_look.cancel()
        self._fetches.close()
        self._cluster.close()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._session is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._left_s(deadline_s)):
                    await self._session.close()
        self._state.end_tasks()

    def _left_s(self, deadline_s: float) -> float | None:
        return None if deadline_s == FOREVER_S else max(0.0, deadline_s - self._state.now_s())

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        task.add_done_callback(self._on_task_done)
        self._tasks.add(task)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._on_fault(error)

    def _on_fault(self, error: BaseException) -> None:
        """Handle an unexpected error: every call raises it, instead of waiting forever."""
        log.error("the background work of a consumer stopped because of a defect", exc_info=error)
        self._state.fail(ClosedError(f"the consumer stopped because of {error!r}; make a new one"))

    # --- pending work ----------------------------------------------------------------------------

    def _on_wake(self) -> None:
        try:
            self.run_pending()
        except Exception as unforeseen:  # noqa: BLE001 - fail all calls: they would otherwise wait forever
            self._on_fault(unforeseen)

    def run_pending(self) -> None:
        """Start pending work: follow the subscribed topics, run the tasks of calls, fetch, and find positions."""
        self._watch_topics()
        while (task := self._state.next_task()) is not None:
            run = self._running[task] = asyncio.create_task(self._do(task))
            run.add_done_callback(partial(self._ended, task))
        for task, run in self._running.items():
            if task.abandoned:
                run.cancel()
        self._fetch()

    def _fetch(self) -> None:
        state = self._state
        with self._guard.lock:
            state.fetcher.wants_fetch = False
            sources = state.fetcher.sources(self._cluster.view)
            lacks_leaders = state.fetcher.lacks_leaders(self._cluster.view)
            if state.subscription.wants_positions:
                self._positions_wanted.set()
        if lacks_leaders and self._next_look is None and not self._cluster.will_refresh:
            # the last Metadata response is older than the assignment of these partitions
            self._cluster.request_refresh()
        for node_id in sources:
            self._fetches.wake(node_id)

    def _answered(self) -> None:
        """Wake the search for positions, if the offset of a partition was out of range in a response. The caller must
        hold the guard.
        """
        fetcher = self._state.fetcher
        if fetcher.lost_positions:
            fetcher.lost_positions = False
            self._positions_wanted.set()

    # --- tasks of the application's calls ------------------------------------------------------------------

    async def _do(self, task: BackgroundTask) -> None:
        if isinstance(task, Commit):
            await self._commit(task)
        elif isinstance(task, Join):
            await self._join(task)
        elif isinstance(task, Leave) and self._session is not None:
            await self._session.leave(task.reason)
        elif isinstance(task, CommittedLookup):
            assert self._session is not None
            task.answer = await self._session.committed(task.partitions, task.timeout_s)
        elif isinstance(task, Query):
            task.answer = await task.ask(self._cluster)

    def _ended(self, task: BackgroundTask, run: asyncio.Task[None]) -> None:
        del self._running[task]
        closed = ClosedError("this consumer was closed")
        self._state.finish_task(task, closed if run.cancelled() else run.exception())

    async def _join(self, task: Join) -> None:
        assert self._session is not None
        if self._state.subscription.pattern is not None and not self._cluster.view.topics:
            await self._cluster.retrying(self._cluster.refresh, what="cannot refresh the metadata")
        self._state.on_joining()
        began_s = self._state.now_s()
        task.partitions = await self._session.join()
        self._state.metrics.rebalance_ms.add((self._state.now_s() - began_s) * 1000)
        self._state.on_joined(self._cluster.view)

    async def _commit(self, task: Commit) -> None:
        assert self._session is not None
        await self._interceptors.before_commit(task.offsets, task.timeout_s)
        began_s = self._state.now_s()
        await self._session.commit(task.offsets, task.timeout_s)
        self._state.metrics.commit_ms.add((self._state.now_s() - began_s) * 1000)
        self._interceptors.on_commit(task.offsets)

    async def _auto_commit(self) -> None:
        while True:
            await asyncio.sleep(self._config.auto_commit_interval_ms / 1000)
            commit = self._state.due_auto_commit()
            if commit is None:
                continue
            try:
                await self._commit(commit)
            except BarnabasError as error:
                log.warning("auto-commit failed: %s", error)
                self._state.finish_task(commit, error)
            else:
                self._state.finish_task(commit)

    # --- metadata ---------------------------------------------------------------------------------------

    def _watch_topics(self) -> None:
        """Follow a changed subscription. New topics are created only with `allow_auto_create_topics`."""
        with self._guard.lock:
            subscription = self._state.subscription
            pattern, topics = subscription.pattern, subscription.topics
            if not subscription.by_topics:
                topics = frozenset(tp.topic for tp in subscription.partitions)
        if self._watched == (pattern, topics):
            return
        self._watched = pattern, topics
        wanted = None if pattern is not None else topics
        self._cluster.hold_topics(wanted, auto_creates=self._config.allow_auto_create_topics)
        self._cluster.request_refresh()

    def _on_metadata(self, view: ClusterView) -> None:
        lacks_topics = self._state.on_metadata(view)
        with self._guard.lock:
            lacks_leaders = self._state.fetcher.lacks_leaders(view)
        self._looks_for_leaders = self._looks_for_leaders + 1 if lacks_leaders else 0
        # Start at most one timer: each metadata response starts the next timer, so two timers would never become one
        # again.
        if self._next_look is None and (lacks_topics or lacks_leaders):
            pause_s = MISSING_TOPIC_PAUSE_S
            if lacks_leaders:
                # A partition without a leader is not fetched, so no failed fetch triggers a metadata request for it.
                pause_s = self._cluster.backoff.delay_s(self._looks_for_leaders - 1)
            self._next_look = asyncio.get_running_loop().call_later(pause_s, self._look_again)
        if self._fetches.is_backing_off:
            # a fetch has failed, so partitions may get new leaders
            self._cluster.request_refresh(is_stale=True)
        self._fetch()

    def _look_again(self) -> None:
        self._next_look = None
        self._cluster.request_refresh(is_stale=True)

    # --- positions --------------------------------------------------------------------------------------

    async def _find_positions(self) -> None:
        """Find the positions of assigned partitions, from committed offsets or by the reset policy. Never returns."""
        failures = 0
        while True:
            await self._positions_wanted.wait()
            self._positions_wanted.clear()
            try:
                await self._confirm()
                missing = self._state.missing_positions()
                if missing:
                    await self._find(missing)
                failures = 0
            except BarnabasError as error:
                log.debug("cannot find positions: %s", error)
                if not error.retriable:
                    self._state.report_error(error)
                failures += 1
                await asyncio.sleep(self._cluster.backoff.delay_s(failures))
            self._fetch()

    async def _confirm(self) -> None:
        """Validate positions: request the end offsets of leader epochs, and go back if a log was
        truncated (KIP-320).
        """
        doubted = self._state.unvalidated_positions()
        if not doubted:
            return
        try:
            ends = await end_offsets_for_epochs(
                self._cluster, {state.tp: epoch for state, (_, epoch) in doubted.items()}
            )
        except UnsupportedVersionError:
            ends = {}  # the broker does not support OffsetForLeaderEpoch
        for state, (version, _) in doubted.items():
            self._state.on_position_validated(state, version, ends.get(state.tp))

    async def _find(self, missing: Mapping[AssignedPartition, int]) -> None:
        unset = [state for state in missing if state.reset is None]
        if unset and self._session is not None:
            committed = await self._session.committed([state.tp for state in unset])
            found = {state: committed[state.tp].offset for state in unset if state.tp in committed}
            self._state.set_positions(missing, found, committed=True)
            unset = [state for state in unset if state not in found]
        policy = self._config.auto_offset_reset
        if policy == NOWHERE:
            self._state.mark_without_offset(missing, unset)
            unset = []
        resets = {state: state.reset for state in missing if state.reset in RESET_TIMESTAMPS}
        resets.update(dict.fromkeys(unset, policy))
        if resets:
            wanted = {state.tp: RESET_TIMESTAMPS[reset or policy] for state, reset in resets.items()}
            offsets = await list_offsets(self._cluster, wanted)
            found = {state: at.offset for state in resets if (at := offsets[state.tp]) is not None}
            self._state.set_positions(missing, found)


def group_session_of(state: ConsumerState, cluster: Cluster) -> GroupSession | None:
    """Return the group session of a consumer; None for a consumer without a group."""
    membership = state.membership
    if membership is None:
        return None
    if isinstance(membership, ClassicMembership):
        return ClassicGroupSession(state, cluster, membership)
    from barnabas.client.consumer.zookeeper_group_session import ZooKeeperGroupSession, open_zookeeper_session  # noqa: PLC0415  rare

    assert isinstance(membership, ZooKeeperAssignment)
    return ZooKeeperGroupSession(state, cluster, membership, lambda: open_zookeeper_session(state.config))
