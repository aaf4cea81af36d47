"""The session of a consumer with its group in ZooKeeper: the I/O of `ZooKeeperAssignment` (the paper, 3.2).

The tree's calls block, so a `SerialThread` runs them one after the other. A call that was given up completes before the
next one begins. A second thread sends the pings, so that a call that hangs does not delay them.

A session without a response for two thirds of its timeout counts as lost. So the consumer stops returning records
before the servers let other consumers claim its partitions.

This is the only module of the client that imports `barnabas.coordination`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import queue
import threading
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from typing import Any, TypeVar

from barnabas.client.cluster import Cluster
from barnabas.client.committed_offsets import commit_offsets, committed_offsets
from barnabas.client.consumer.classic_group_session import rebalanced_error
from barnabas.client.consumer.state import ConsumerState
from barnabas.client.consumer.zookeeper_assignment import AssignmentStep, SubscriptionSnapshot, ZooKeeperAssignment
from barnabas.coordination import paths
from barnabas.coordination.consumers import ConsumerRegistry
from barnabas.coordination.metadata_store import (
    MetadataStore,
    MetadataStoreUnavailableError,
    NodeExistsError,
    NoNodeError,
)
from barnabas.coordination.zookeeper.config import ZooKeeperConfig
from barnabas.errors import ApiError, ClosedError, CoordinationError, DisconnectedError, ErrorCode, TimedOutError
from barnabas.model import OffsetAndMetadata, TopicPartition

log = logging.getLogger(__name__)

T = TypeVar("T")


class SerialThread:
    """Runs functions that block, one after the other, on a daemon thread, until `stop`. The first call starts the
    thread."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._begun = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run a function after all that were submitted before; skip it if its future is cancelled by then."""
        if not self._begun:
            self._begun = True
            self._thread.start()
        future: Future[T] = Future()
        self._calls.put((call, future))
        return future

    def stop(self) -> None:
        """End the thread after the submitted calls; does not wait."""
        self._calls.put(None)

    def _run(self) -> None:
        while (given := self._calls.get()) is not None:
            call, future = given
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - whoever waits for it decides
                future.set_exception(error)
            del given, call, future  # the waiting thread keeps nothing alive


PAUSE_S_MAX = 1.0
"""The longest wait for a partition of another consumer; its watch usually ends the wait earlier."""

SILENCE = 2 / 3
"""The part of the session timeout after which a consumer without a response owns nothing."""

CONNECTION_TIMEOUT_S = 10.0
"""Time limit of an attempt to open a session, so that the log says early if no server answers."""

PINGS = 6
"""The least number of pings in a session timeout."""


def open_zookeeper_session(connect: str, session_timeout_s: float) -> MetadataStore:
    """Open a session with the ZooKeeper servers at `host:port,host:port/chroot`.

    :raises ConfigurationError: the address is invalid.
    :raises MetadataStoreUnavailableError: no server granted a session in time.
    """
    from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore  # noqa: PLC0415  kazoo, where it is asked for

    wait_s = min(session_timeout_s, CONNECTION_TIMEOUT_S)
    return ZooKeeperMetadataStore(
        ZooKeeperConfig(connect, session_timeout_s=session_timeout_s, connection_timeout_s=wait_s)
    )


class ZooKeeperGroupSession:
    """The session of one consumer; implements `GroupSession`.

    :param open_tree: opens a session; called again after the loss of one.
    :param new_thread: makes a thread with a name; a simulation has others.
    """

    def __init__(
        self,
        state: ConsumerState,
        cluster: Cluster,
        assignment: ZooKeeperAssignment,
        open_tree: Callable[[], MetadataStore],
        new_thread: Callable[[str], SerialThread] = SerialThread,
    ) -> None:
        self._state = state
        self._guard = state.guard
        self._cluster = cluster
        self._assignment = assignment
        self._open_tree = open_tree
        self._tree: MetadataStore | None = None
        """The current session; set on the tree's thread."""
        self._registry: ConsumerRegistry | None = None
        self._timeout_s = state.config.session_timeout_ms / 1000
        """The requested session timeout; servers have limits of their own."""
        self._patience_s = state.config.default_api_timeout_ms / 1000
        self._opened_for = 0
        """The number of the current session in `ZooKeeperAssignment`."""
        self._heard_s = 0.0
        """The monotonic time at which the last answered request was sent."""
        self._thread = new_thread("barnabas-consumer-tree")
        self._ping_thread = new_thread("barnabas-consumer-ping")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        """Set when the registries have changed, or a partition of another consumer may be free."""
        self._must_look = asyncio.Event()

    # --- the tree's thread ------------------------------------------------------------------------------

    async def _in_thread(self, function: Callable[[ConsumerRegistry], T], session: int | None = None) -> T:
        """Call a function with this consumer's registry on the tree's thread; open a session if there is none.

        :param session: the session of the decision; a decision of one session must not be carried out in another.
        :raises MetadataStoreUnavailableError: that session is over.
        """
        self._loop = asyncio.get_running_loop()
        return await asyncio.wrap_future(self._thread.submit(lambda: function(self._opened_in(session))))

    def _opened_in(self, session: int | None) -> ConsumerRegistry:
        registry = self._opened()
        if session not in (None, self._opened_for):
            raise MetadataStoreUnavailableError("the session with the tree is over")
        return registry

    def _opened(self) -> ConsumerRegistry:
        session = self._assignment.session
        if session != self._opened_for:
            self._drop()  # its owner nodes are not in `held` any more
        if self._registry is None:
            tree = self._open_tree()
            self._opened_for = session
            self._heard(tree, self._state.now_s())
            try:
                tree.ping(self._timeout_s)  # so that the time to open the session does not count
            except CoordinationError:
                tree.close()
                raise
            self._registry = ConsumerRegistry(
                tree, self._assignment.group, self._assignment.consumer_id, lambda: self._soon(self._on_change)
            )
            self._tree = tree
            tree.on_session_end(lambda: self._soon(lambda: self._on_lost(tree, "the session with the tree is over")))
        return self._registry

    def _heard(self, tree: MetadataStore, asked_s: float) -> None:
        """The servers have answered a request that was sent at `asked_s`."""
        self._heard_s = asked_s
        timeout_s = tree.session_timeout_s
        with self._guard.lock:
            self._assignment.on_answered(math.inf if timeout_s is None else asked_s + timeout_s * SILENCE)

    def _drop(self) -> None:
        tree, self._tree, self._registry = self._tree, None, None
        if tree is not None:
            try:
                tree.close()
            except CoordinationError as error:
                log.debug("group %s: closing the session: %s", self._assignment.group, error)

    def _soon(self, call: Callable[[], None]) -> None:
        """From the tree's threads: call a function on the event loop, unless the loop has ended."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            log.debug("group %s: word of the tree after the consumer's end", self._assignment.group)

    # --- what the tree says -----------------------------------------------------------------------------

    def _on_change(self) -> None:
        with self._guard.lock:
            self._assignment.on_change()
        self._changed.set()
        self._must_look.set()

    def _on_lost(self, tree: MetadataStore, reason: str) -> None:
        if tree is not self._tree:
            return
        with self._guard.lock:
            self._assignment.on_session_lost(reason)
        self._thread.submit(lambda: self._drop() if tree is self._tree else None)
        self._changed.set()
        self._state.notify_change()

    # --- taking partitions ------------------------------------------------------------------------------

    async def join(self) -> list[TopicPartition] | None:
        """Take this consumer's partitions by Algorithm 1. Tries until it succeeds.

        :raises DisconnectedError: the tree has not answered for `default_api_timeout_ms`.
        """
        assignment = self._assignment
        with self._guard.lock:
            assignment.begin(self._state.subscription.topics)
        try:
            return await self._take()
        finally:
            with self._guard.lock:
                assignment.on_join_failed()

    async def _take(self) -> list[TopicPartition]:
        assignment = self._assignment
        tries = 0
        why: CoordinationError | None = None
        answered_s = self._state.now_s()
        while True:
            with self._guard.lock:
                step, session = assignment.next_step(), assignment.session
            assert step is not None
            try:
                async with asyncio.timeout(max(answered_s + self._patience_s - self._state.now_s(), 0)):
                    partitions = await self._do(step, session)
                answered_s = self._state.now_s()
            except TimeoutError:
                raise self._unreachable(why) from why
            except (MetadataStoreUnavailableError, NoNodeError, NodeExistsError) as error:
                log.log(logging.DEBUG if tries else logging.WARNING, "group %s: %s", assignment.group, error)
                if not isinstance(error, MetadataStoreUnavailableError):
                    answered_s = self._state.now_s()
                why = error
                await asyncio.sleep(self._cluster.backoff.delay_s(tries))
                tries += 1
                continue
            if partitions is not None:
                self._cluster.request_refresh(is_stale=True)  # the tree may have newer partitions than the metadata
                return partitions

    def _unreachable(self, why: CoordinationError | None) -> DisconnectedError:
        where = self._state.config.coordination
        return DisconnectedError(
            f"group {self._assignment.group!r} cannot share its partitions out: nothing was heard of {where} for "
            f"{self._patience_s:g} s{f': {why}' if why else ''}; does ZooKeeper run there?"
        )

    async def _do(self, step: AssignmentStep, session: int) -> list[TopicPartition] | None:
        """Do one step; return this consumer's partitions after the last step."""
        assignment = self._assignment
        if step is AssignmentStep.REGISTER:
            topics, now_ms = assignment.topics, self._state.clock.time_ms()
            await self._in_thread(lambda registry: registry.register(topics, now_ms), session)
            self._if_in(session, assignment.on_registered)
        elif step is AssignmentStep.RELEASE:
            held = assignment.held
            await self._in_thread(lambda registry: registry.release(held), session)
            self._if_in(session, assignment.on_released)
        elif step is AssignmentStep.PAUSE:
            await self._pause()
            self._if_in(session, assignment.on_paused)
        elif step is AssignmentStep.READ:
            await self._read(session)
        else:
            return await self._claim(session)
        return None

    def _if_in(self, session: int, outcome: Callable[[], T]) -> T | None:
        """Under the guard: apply the end of a step, unless its session is over."""
        with self._guard.lock:
            return outcome() if self._assignment.session == session else None

    async def _read(self, session: int) -> None:
        with self._guard.lock:
            self._assignment.on_reading()
            topics = self._assignment.topics
        members = await self._in_thread(lambda registry: registry.read(topics), session)
        self._if_in(session, lambda: self._assignment.on_read(SubscriptionSnapshot(*members)))

    async def _claim(self, session: int) -> list[TopicPartition] | None:
        assignment = self._assignment
        self._changed.clear()
        claim = self._if_in(
            session, lambda: None if assignment.next_step() is not AssignmentStep.CLAIM else assignment.on_claiming()
        )
        if claim is None:
            return None
        try:
            refused = await self._in_thread(lambda registry: _claim_or_watch(registry, claim), session)
        except CoordinationError:
            self._if_in(session, assignment.on_refused)
            raise
        if refused:
            self._if_in(session, assignment.on_refused)
            return None
        partitions = self._if_in(session, assignment.on_claimed)
        self._must_look.set()  # the registries may have changed meanwhile
        return partitions

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(PAUSE_S_MAX):
                await self._changed.wait()
        except TimeoutError:
            return

    # --- keeping them -----------------------------------------------------------------------------------

    async def maintain(self) -> None:
        """Follow the registries, and notice the loss of the session or of the application; never returns."""
        await asyncio.gather(self._follow(), self._live())

    async def _follow(self) -> None:
        while True:
            await self._must_look.wait()
            self._must_look.clear()
            with self._guard.lock:
                must_look, session = self._assignment.must_read, self._assignment.session
            if not must_look:
                continue
            try:
                await self._read(session)
            except CoordinationError as error:
                log.debug("group %s: %s", self._assignment.group, error)
                await asyncio.sleep(self._cluster.backoff.delay_s(0))
                self._must_look.set()
            self._state.notify_change()

    async def _live(self) -> None:
        heartbeat_s = self._state.config.heartbeat_interval_ms / 1000
        while True:
            tree = self._tree
            timeout_s = None if tree is None else tree.session_timeout_s
            await asyncio.sleep(min(heartbeat_s, (timeout_s or self._timeout_s) / PINGS))
            if self._assignment.owns and not self._state.polls_in_time():
                log.warning("group %s: no poll for max_poll_interval_ms; leaving", self._assignment.group)
                await self.leave("poll was not called in time")
                self._state.notify_change()
            if tree is not None and timeout_s is not None:
                await self._listen(tree, timeout_s * SILENCE)

    async def _listen(self, tree: MetadataStore, silence_s_max: float) -> None:
        """Ping the servers; without a response in time, own nothing any more."""
        asked_s = self._state.now_s()
        left_s = self._heard_s + silence_s_max - asked_s
        if left_s > 0:
            try:
                await asyncio.wrap_future(self._ping_thread.submit(lambda: tree.ping(left_s)))
            except (CoordinationError, ClosedError) as error:  # closed: the polling call has checked the clock before
                log.debug("group %s: no sign of life: %s", self._assignment.group, error)
            else:
                if tree is self._tree:
                    self._heard(tree, asked_s)
        if self._state.now_s() >= self._heard_s + silence_s_max:
            self._on_lost(tree, "no word from the tree")

    async def leave(self, reason: str) -> None:
        """Release all partitions and leave the group. A failure does no harm: the nodes end with the session."""
        with self._guard.lock:
            self._assignment.on_left(reason)
            held, session = self._assignment.held, self._assignment.session
        if self._registry is None:
            return
        try:
            await self._in_thread(lambda registry: registry.leave(held), session)
        except CoordinationError as error:
            log.debug("group %s: leaving: %s", self._assignment.group, error)
        else:
            self._if_in(session, self._assignment.on_released)

    async def close(self) -> None:
        """End the session and the threads."""
        self._ping_thread.stop()
        dropped = self._thread.submit(self._drop)
        self._thread.stop()
        await asyncio.shield(asyncio.wrap_future(dropped))  # the session ends even if no caller waits for it

    # --- offsets ----------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None = None) -> None:
        """Commit offsets of partitions that this consumer owns; for partitions that were assigned by hand, of any.

        :raises ApiError: this consumer does not own a partition any more, or its topic does not exist.
        :raises TimedOutError: the tree did not answer in time.
        :raises DisconnectedError: the session was lost meanwhile; the outcome is unknown.
        """
        group, by_topics = self._assignment.group, self._state.subscription.by_topics
        session = None
        if by_topics:
            with self._guard.lock:
                session = self._assignment.session
                owned = self._assignment.held if self._state.assignment_is_valid() else frozenset[TopicPartition]()
                if not owned.issuperset(offsets):
                    raise rebalanced_error(ErrorCode.UNKNOWN_MEMBER_ID, group)
        if self._state.config.offsets_storage == "kafka":
            await commit_offsets(self._cluster, group, offsets, timeout_s=timeout_s)
            return
        now_ms = self._state.clock.time_ms()
        try:
            await self._in_time(
                lambda registry: registry.commit(offsets, now_ms, as_owner=by_topics), timeout_s, session
            )
        except NoNodeError as refused:
            if refused.path in {paths.topic(tp.topic) for tp in offsets}:
                raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"commit in {group!r}: {refused}") from refused
            raise rebalanced_error(ErrorCode.UNKNOWN_MEMBER_ID, group) from refused

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of the group; partitions without one are missing.

        :raises TimedOutError: the tree did not answer in time.
        :raises DisconnectedError: the session was lost meanwhile.
        """
        wanted = list(partitions)
        if self._state.config.offsets_storage == "kafka":
            return await committed_offsets(self._cluster, self._assignment.group, wanted, timeout_s=timeout_s)
        return await self._in_time(lambda registry: registry.committed(wanted), timeout_s)

    async def _in_time(
        self, function: Callable[[ConsumerRegistry], T], timeout_s: float | None, session: int | None = None
    ) -> T:
        timeout_s = self._patience_s if timeout_s is None else timeout_s
        try:
            async with asyncio.timeout(timeout_s):
                return await self._in_thread(function, session)
        except MetadataStoreUnavailableError as error:
            raise DisconnectedError(str(error)) from error  # retriable for the application
        except TimeoutError:
            raise TimedOutError(f"the tree did not answer in {timeout_s:g} s") from None


def _claim_or_watch(registry: ConsumerRegistry, partitions: Iterable[TopicPartition]) -> bool:
    """Claim partitions; return whether the claim was refused, and watch for the release of the refused partition."""
    refused = registry.claim(partitions)
    if refused is None:
        return False
    registry.await_release(refused)
    return True
