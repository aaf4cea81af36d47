"""The membership of this broker in the cluster: its registration in the metadata store, and the session that keeps it.

A lost connection is not a lost session. The broker continues until two thirds of the session timeout have passed
without a response from the metadata store. It then stops acting as a leader (`LeaderReplica.fence`), before the session
can expire and other brokers become leaders. In a new session, the broker registers first, then reads the current
metadata, and leads each partition again in a new leader epoch. The age of a response is measured from the time of its
request, because the metadata store may have renewed the session at that time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container
from dataclasses import replace
from typing import Any

from barnabas.broker.cluster_watch import ClusterWatch
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.metadata_store_access import InMetadataThread
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.clock import Clock
from barnabas.coordination import topic_metadata_store
from barnabas.coordination.metadata_store import NodeExistsError
from barnabas.coordination.renewable_metadata_store import RenewableMetadataStore
from barnabas.coordination.values import BrokerRegistration
from barnabas.errors import BarnabasError, UnavailableError
from barnabas.log_lines import LogEvent, event

ASKED_TIMES = 6
"""The number of pings per session timeout."""
SILENCE = 2 / 3
"""The fraction of the session timeout after which this broker stops leading if the metadata store has not responded."""
AGAIN_S = 0.2

log = logging.getLogger(__name__)

Beside = Callable[..., Awaitable[Any]]
"""Runs a function with its arguments on a thread other than the metadata store's."""


class Membership:
    """Registers this broker and keeps its session alive. Used from the event loop's thread only.

    :param registration: returns the registration without the broker epoch.
    :param new_epoch: returns a random broker epoch.
    :param beside: runs pings. The metadata store's thread cannot run them, because it may be waiting for a response.
    """

    def __init__(
        self,
        tree: RenewableMetadataStore,
        in_metadata_thread: InMetadataThread,
        beside: Beside,
        clock: Clock,
        registration: Callable[[], BrokerRegistration],
        new_epoch: Callable[[], int],
    ) -> None:
        self._tree = tree
        self._in_metadata_thread = in_metadata_thread
        self._beside = beside
        self._clock = clock
        self._registration = registration
        self._new_epoch = new_epoch
        self._loop = asyncio.get_running_loop()
        self._is_lost = asyncio.Event()
        self._is_registered = False
        self._why_lost = ""
        self._timeout_s = tree.session_timeout_s
        self._last_word_s = clock.monotonic()
        self._in_doubt: list[LeaderReplica] | None = None
        """The partitions that are fenced because the metadata store does not respond.

        This broker leads them again if its session survives.
        """
        self.epoch = -1
        """The broker epoch of the current registration (KIP-380)."""
        self.registration_count = 0
        """The number of registrations since the start of this broker."""

    @property
    def is_member(self) -> bool:
        """True if this broker is registered, and the metadata store has responded recently."""
        return self._is_registered and self._in_doubt is None and not self._is_lost.is_set()

    async def register(self) -> None:
        """Register this broker. If a broker with this id is registered, retry for one session timeout.

        :raises UnavailableError: another broker with this id is alive.
        :raises CoordinationError: the metadata store is unreachable.
        """
        self._is_registered = False
        self._is_lost.clear()
        self._why_lost = "its session with the metadata store has expired"
        self._tree.on_session_end(self._on_session_end)
        deadline = self._clock.monotonic() + (self._timeout_s or 0)
        self.epoch = self._new_epoch()
        while True:
            asked_s = self._clock.monotonic()
            try:
                await self.announce()
            except NodeExistsError as error:
                if self._clock.monotonic() > deadline:
                    raise UnavailableError(f"{error.detail or error}; choose another id with --id") from None
                await asyncio.sleep(AGAIN_S)
            else:
                self._last_word_s = asked_s
                self._is_registered = True
                self.registration_count += 1
                return

    async def announce(self) -> None:
        """Write the registration of this broker again.

        :raises CoordinationError: the metadata store is unreachable.
        """
        registration = replace(self._registration(), epoch=self.epoch)
        await self._in_metadata_thread(topic_metadata_store.register_broker, self._tree, registration)

    async def check_registration(self, brokers: Container[int]) -> None:
        """Register again if the registration was deleted; write it again if it was changed.

        Other brokers treat a broker without a registration as dead. If the registration was changed, other brokers
        reject this broker or connect to a wrong address.

        :param brokers: the ids of the registered brokers at the last read.
        :raises CoordinationError: the metadata store is unreachable.
        """
        own = replace(self._registration(), epoch=self.epoch)
        if self._is_lost.is_set():
            return
        if own.id in brokers:
            if not await self._in_metadata_thread(topic_metadata_store.is_as_registered, self._tree, own):
                log.warning(
                    "another process changed the registration of this broker in the metadata store; writing it again"
                )
                await self.announce()
        # The list of brokers may have been read before this broker registered.
        elif (
            not await self._in_metadata_thread(topic_metadata_store.is_registered, self._tree, own.id)
            and not self._is_lost.is_set()
        ):
            self._why_lost = "its registration was deleted from outside"
            self._is_lost.set()

    async def keep(self, replicas: ReplicaManager, watch: ClusterWatch) -> None:
        """Keep this broker a member until cancelled."""
        while True:
            if self._timeout_s is None:
                await self._is_lost.wait()
            else:
                await self._listen(replicas, self._timeout_s)
            if self._is_lost.is_set():
                self._fence(replicas, self._why_lost)
                # Do not unfence these partitions: after the new registration, this broker leads only in later leader
                # epochs.
                self._in_doubt = None
                await self._renew()
                watch.restart()

    async def _listen(self, replicas: ReplicaManager, timeout_s: float) -> None:
        """Ping the metadata store once, and wait until the next ping is due."""
        interval_s = timeout_s / ASKED_TIMES
        asked_s = self._clock.monotonic()
        try:
            await self._beside(self._tree.ping, interval_s)
        except BarnabasError as error:
            if self._in_doubt is None and self._clock.monotonic() - self._last_word_s > timeout_s * SILENCE:
                why = f"the metadata store has not responded for two thirds of the session timeout ({error})"
                self._in_doubt = self._fence(replicas, why)
        else:
            self._last_word_s = asked_s
            if self._in_doubt is not None and not self._is_lost.is_set():
                log.info(
                    "the metadata store responds again, and the session is alive; resuming the leadership of fenced "
                    "partitions"
                )
                for partition in self._in_doubt:
                    partition.unfence()
                self._in_doubt = None
        left_s = interval_s - (self._clock.monotonic() - asked_s)
        try:
            async with asyncio.timeout(max(left_s, interval_s / 4)):
                await self._is_lost.wait()
        except TimeoutError:
            return

    def _fence(self, replicas: ReplicaManager, why: str) -> list[LeaderReplica]:
        """Fence all partitions that this broker leads, and return these partitions."""
        log.warning("stopping leadership of all partitions: %s", why, extra=event(LogEvent.NOT_LEADING))
        led = [partition for partition in replicas.leaders() if partition.is_led]
        for partition in led:
            partition.fence()
        return led

    async def _renew(self) -> None:
        last_error = ""
        while True:
            try:
                await self._in_metadata_thread(self._tree.renew)
                await self.register()
            except BarnabasError as error:
                if str(error) != last_error:
                    extra = event(LogEvent.TREE_UNREACHABLE)
                    log.warning("cannot open a session with the metadata store: %s; retrying", error, extra=extra)
                    last_error = str(error)
                await asyncio.sleep(AGAIN_S)
            else:
                log.info("the broker is registered again, with a new broker epoch")
                return

    def _on_session_end(self) -> None:
        """Handle the end of the session. The metadata store calls this method on its own thread."""
        self._loop.call_soon_threadsafe(self._is_lost.set)
