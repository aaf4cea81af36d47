"""The session of a consumer with its group in ZooKeeper: the I/O of `ZooKeeperAssignment` (the paper, 3.2).

Calls to ZooKeeper block, so a `SerialThread` runs them one after another. A cancelled call completes before the next
one starts. A second thread sends pings, so that a blocked call does not delay them.

A session without a response for two thirds of its timeout counts as lost. So the consumer stops returning records
before the servers expire its session and other consumers can claim its partitions.

No other module of the client imports `barnabas.coordination`.
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
from barnabas.client.config import ZOOKEEPER, ConsumerConfig
from barnabas.client.consumer.classic_group_session import rebalanced_error
from barnabas.client.consumer.state import ConsumerState
from barnabas.client.consumer.zookeeper_assignment import AssignmentStep, SubscriptionSnapshot, ZooKeeperAssignment
from barnabas.client.security import zookeeper_tls_settings
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
from barnabas.net.tls import BlockingTls
from barnabas.security.secret_sources import read_secret
from barnabas.shielded import completed

log = logging.getLogger(__name__)

T = TypeVar("T")


class SerialThread:
    """Runs blocking functions one after another on a daemon thread until `stop`. The first call starts the thread."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._begun = False

    def submit(self, call: Callable[[], T]) -> Future[T]:
        """Run a function after the functions that were submitted before, unless its future is cancelled by then."""
        if not self._begun:
            self._begun = True
            self._thread.start()
        future: Future[T] = Future()
        self._calls.put((call, future))
        return future

    def stop(self) -> None:
        """Stop the thread after the submitted functions; does not wait."""
        self._calls.put(None)

    def _run(self) -> None:
        while (given := self._calls.get()) is not None:
            call, future = given
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - the waiting caller handles the error
                future.set_exception(error)
            del given, call, future  # delete the references, so that the idle thread keeps no object alive


PAUSE_S_MAX = 1.0
"""The maximum wait in seconds for another consumer's partition. Usually a watch fires earlier."""

SILENCE = 2 / 3
"""The fraction of the session timeout after which a session without a response counts as lost."""

CONNECTION_TIMEOUT_S = 10.0
"""The time limit in seconds of an attempt to open a session. After this time, the consumer logs that no server
responds.
"""

PINGS = 6
"""The minimum number of pings in a session timeout."""


def zookeeper_config(
    config: ConsumerConfig, connect: str, session_timeout_s: float, connection_timeout_s: float
) -> ZooKeeperConfig:
    """Return the settings of a session that is not a broker's.

    :param config: the settings for the security of ZooKeeper.
    :param connect: the servers, `host:port,host:port/chroot`.
    :raises ConfigurationError: the address, a certificate file or another setting is invalid.
    """
    auth, tls = config.zookeeper_auth, zookeeper_tls_settings(config)
    set_acl = config.zookeeper_set_acl
    return ZooKeeperConfig(
        connect,
        session_timeout_s=session_timeout_s,
        connection_timeout_s=connection_timeout_s,
        auth=None if auth is None else read_secret("zookeeper_auth", auth),
        set_acl=auth is not None if set_acl is None else set_acl,
        secure=None if tls is None else BlockingTls(tls),
        has_certificate=tls is not None and tls.key_store is not None,
        is_broker=False,
    )


def open_zookeeper_session(config: ConsumerConfig) -> MetadataStore:
    """Open a session with the ZooKeeper servers of the setting `coordination`.

    :raises ConfigurationError: the address, a certificate file or another setting is invalid.
    :raises MetadataStoreUnavailableError: no server opened a session in time.
    """
    from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore  # noqa: PLC0415  kazoo is optional

    session_timeout_s = config.session_timeout_ms / 1000
    connect = (config.coordination or "").removeprefix(ZOOKEEPER)
    wait_s = min(session_timeout_s, CONNECTION_TIMEOUT_S)
    return ZooKeeperMetadataStore(zookeeper_config(config, connect, session_timeout_s, wait_s))


class ZooKeeperGroupSession:
    """The session of one consumer with its group; implements `GroupSession`.

    :param open_tree: opens a session with ZooKeeper; called again after the loss of a session.
    :param new_thread: creates a named thread for blocking calls; simulations pass their own function.
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
        """The current ZooKeeper session. Only the thread for ZooKeeper calls sets this attribute."""
        self._registry: ConsumerRegistry | None = None
        self._timeout_s = state.config.session_timeout_ms / 1000
        """The requested session timeout in seconds; the servers may choose another timeout."""
        self._patience_s = state.config.default_api_timeout_ms / 1000
        self._opened_for = 0
        """The number of the current session in `ZooKeeperAssignment`."""
        self._heard_s = 0.0
        """The monotonic time at which the last answered request was sent."""
        self._thread = new_thread("barnabas-consumer-tree")
        self._ping_thread = new_thread("barnabas-consumer-ping")
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        """Set when the registries have changed, or another consumer may have released a partition."""
        self._must_look = asyncio.Event()

    # --- the thread for ZooKeeper calls ------------------------------------------------------------------------------

    async def _in_thread(self, function: Callable[[ConsumerRegistry], T], session: int | None = None) -> T:
        """Call a function with this consumer's registry on the thread for ZooKeeper calls. Open a session if necessary.

        :param session: the number of the session that the call belongs to. The function is not called in a later
            session.
        :raises MetadataStoreUnavailableError: this session has ended.
        """
        self._loop = asyncio.get_running_loop()
        return await asyncio.wrap_future(self._thread.submit(lambda: function(self._opened_in(session))))

    def _opened_in(self, session: int | None) -> ConsumerRegistry:
        registry = self._opened()
        if session not in (None, self._opened_for):
            raise MetadataStoreUnavailableError("the session with ZooKeeper has ended")
        return registry

    def _opened(self) -> ConsumerRegistry:
        session = self._assignment.session
        if session != self._opened_for:
            self._drop()  # the session has ended, so `held` no longer contains its owner nodes
        if self._registry is None:
            tree = self._open_tree()
            self._opened_for = session
            self._heard(tree, self._state.now_s())
            try:
                tree.ping(self._timeout_s)  # ping once more, because opening the session may have taken long
            except CoordinationError:
                tree.close()
                raise
            self._registry = ConsumerRegistry(
                tree, self._assignment.group, self._assignment.consumer_id, lambda: self._soon(self._on_change)
            )
            self._tree = tree
            tree.on_session_end(lambda: self._soon(lambda: self._on_lost(tree, "the session with ZooKeeper has ended")))
        return self._registry

    def _heard(self, tree: MetadataStore, asked_s: float) -> None:
        """Record a response of the ZooKeeper servers to a request that was sent at `asked_s`."""
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
                log.debug("cannot close the ZooKeeper session of group %s: %s", self._assignment.group, error)

    def _soon(self, call: Callable[[], None]) -> None:
        """Schedule a call on the event loop, from a ZooKeeper thread. The call is dropped if the loop has ended."""
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(call)
        except RuntimeError:
            log.debug("group %s: ignoring a ZooKeeper event, because the consumer is closed", self._assignment.group)

    # --- events of ZooKeeper -----------------------------------------------------------------------------

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
        """Claim this consumer's partitions by the paper's Algorithm 1. Retries until the claim succeeds.

        :raises DisconnectedError: ZooKeeper has not responded for `default_api_timeout_ms`.
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
                log.log(
                    logging.DEBUG if tries else logging.WARNING,
                    "group %s: cannot claim partitions: %s",
                    assignment.group,
                    error,
                )
                if not isinstance(error, MetadataStoreUnavailableError):
                    answered_s = self._state.now_s()
                why = error
                await asyncio.sleep(self._cluster.backoff.delay_s(tries))
                tries += 1
                continue
            if partitions is not None:
                # the partition counts in ZooKeeper may be newer than the metadata
                self._cluster.request_refresh(is_stale=True)
                return partitions

    def _unreachable(self, why: CoordinationError | None) -> DisconnectedError:
        where = self._state.config.coordination
        return DisconnectedError(
            f"group {self._assignment.group!r} cannot assign its partitions: no response from {where} for "
            f"{self._patience_s:g} s{f': {why}' if why else ''}; does ZooKeeper run there?"
        )

    async def _do(self, step: AssignmentStep, session: int) -> list[TopicPartition] | None:
        """Execute one step. Return this consumer's partitions after the last step, or None."""
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
        """Call `outcome` with the guard held, unless the session of the step has ended. Return the result, or None."""
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
        self._must_look.set()  # check again, because the registries may have changed during the claim
        return partitions

    async def _pause(self) -> None:
        try:
            async with asyncio.timeout(PAUSE_S_MAX):
                await self._changed.wait()
        except TimeoutError:
            return

    # --- keeping them -----------------------------------------------------------------------------------

    async def maintain(self) -> None:
        """Watch the registries, and detect the loss of the session or an application that stops polling; never
        returns.
        """
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
                log.debug("group %s: cannot read the registries: %s", self._assignment.group, error)
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
                log.warning(
                    "group %s: no poll for max_poll_interval_ms; leaving the group to release its partitions",
                    self._assignment.group,
                )
                await self.leave("poll was not called in time")
                self._state.notify_change()
            if tree is not None and timeout_s is not None:
                await self._listen(tree, timeout_s * SILENCE)

    async def _listen(self, tree: MetadataStore, silence_s_max: float) -> None:
        """Ping the servers. Without a response in time, treat the session as lost."""
        asked_s = self._state.now_s()
        left_s = self._heard_s + silence_s_max - asked_s
        if left_s > 0:
            try:
                await asyncio.wrap_future(self._ping_thread.submit(lambda: tree.ping(left_s)))
            # `ClosedError`: a poll has already found the session expired, and closed it
            except (CoordinationError, ClosedError) as error:
                log.debug("group %s: no response to a ping: %s", self._assignment.group, error)
            else:
                if tree is self._tree:
                    self._heard(tree, asked_s)
        if self._state.now_s() >= self._heard_s + silence_s_max:
            self._on_lost(tree, "no response from ZooKeeper")

    async def leave(self, reason: str) -> None:
        """Release all partitions and leave the group. Errors are only logged, because the consumer's nodes are deleted
        when the session ends.
        """
        with self._guard.lock:
            self._assignment.on_left(reason)
            held, session = self._assignment.held, self._assignment.session
        if self._registry is None:
            return
        try:
            await self._in_thread(lambda registry: registry.leave(held), session)
        except CoordinationError as error:
            log.debug("cannot leave group %s: %s", self._assignment.group, error)
        else:
            self._if_in(session, self._assignment.on_released)

    async def close(self) -> None:
        """Close the session and stop the threads."""
        self._ping_thread.stop()
        dropped = self._thread.submit(self._drop)
        self._thread.stop()
        await completed(asyncio.wrap_future(dropped))  # close the session even if the caller is cancelled

    # --- offsets ----------------------------------------------------------------------------------------

    async def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout_s: float | None = None) -> None:
        """Commit offsets of partitions that this consumer owns, or of any partitions if the application used `assign`.

        :raises ApiError: this consumer does not own a partition any more, or the topic does not exist.
        :raises TimedOutError: ZooKeeper did not respond in time.
        :raises DisconnectedError: the session was lost; the outcome is unknown.
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
                raise ApiError(
                    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"cannot commit offsets of group {group!r}: {refused}"
                ) from refused
            raise rebalanced_error(ErrorCode.UNKNOWN_MEMBER_ID, group) from refused

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout_s: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of the group, without partitions that have none.

        :raises TimedOutError: ZooKeeper did not respond in time.
        :raises DisconnectedError: the session was lost.
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
            raise DisconnectedError(str(error)) from error  # let the application retry
        except TimeoutError:
            raise TimedOutError(f"ZooKeeper did not respond within {timeout_s:g} s") from None


def _claim_or_watch(registry: ConsumerRegistry, partitions: Iterable[TopicPartition]) -> bool:
    """Claim partitions. Return True if the claim was refused, because another consumer owns a partition; set a watch on
    its owner node in this case.
    """
    refused = registry.claim(partitions)
    if refused is None:
        return False
    registry.await_release(refused)
    return True
