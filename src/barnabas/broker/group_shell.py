"""The group coordinator on the event loop: waiters are futures, deadlines are timers.

`barnabas.groups` makes all decisions, and knows neither futures nor timers. This module delivers its replies and
wakes it at its next deadline.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Any

from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import Clock
from barnabas.errors import ErrorCode
from barnabas.groups.coordinator import GroupCoordinator
from barnabas.groups.group import GroupConfig
from barnabas.groups.requests import JoinRequest, LeavingMember, SyncRequest
from barnabas.groups.results import GroupDescription, JoinResult, LeaveResult, Reply, SyncResult


class GroupShell:
    """Every group that this broker coordinates. Used from the event loop's thread only.

    :param wake: gives a waiting member its answer. Many answers are due together when many groups rebalance.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        wake: Callable[[asyncio.Future[Any], Any], None] = lambda waiter, result: waiter.set_result(result),
    ) -> None:
        limits = GroupConfig(
            session_timeout_ms_min=config.group_min_session_timeout_ms,
            session_timeout_ms_max=config.group_max_session_timeout_ms,
            members_max=config.group_max_size,
            initial_rebalance_delay_ms=config.group_initial_rebalance_delay_ms,
            empty_group_retention_s=config.offsets_retention_minutes * 60.0,
        )
        self._wake = wake
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._started_at_s = clock.monotonic()
        self._coordinator = GroupCoordinator(limits, lambda: str(uuid.uuid4()))
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline = 0.0

    def join(self, group_id: str, request: JoinRequest) -> asyncio.Future[JoinResult]:
        """Join, and wait until the generation is complete."""
        waiter: asyncio.Future[JoinResult] = self._loop.create_future()
        self._deliver(self._coordinator.join(self._clock.monotonic(), waiter, group_id, request))
        return waiter

    def sync(self, group_id: str, request: SyncRequest) -> asyncio.Future[SyncResult]:
        """Wait for the leader's assignment."""
        waiter: asyncio.Future[SyncResult] = self._loop.create_future()
        self._deliver(self._coordinator.sync(self._clock.monotonic(), waiter, group_id, request))
        return waiter

    def heartbeat(self, group_id: str, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Note that a member is alive."""
        now = self._clock.monotonic()
        error = self._coordinator.heartbeat(now, group_id, member_id, group_instance_id, generation)
        self._arm()
        return error

    def leave(self, group_id: str, members: Sequence[LeavingMember]) -> LeaveResult:
        """Take members out of a group."""
        result, replies = self._coordinator.leave(self._clock.monotonic(), group_id, members)
        self._deliver(replies)
        return result

    def check_commit(self, group_id: str, member_id: str, group_instance_id: str | None, generation: int) -> ErrorCode:
        """Tell whether this member may commit offsets for the group now."""
        now = self._clock.monotonic()
        error = self._coordinator.check_commit(now, group_id, member_id, group_instance_id, generation)
        self._arm()
        return error

    def describe(self, group_id: str) -> GroupDescription | None:
        """Return the group as administrators see it; None if no member has joined it lately."""
        return self._coordinator.describe(group_id)

    def subscriptions(self, group_id: str) -> list[bytes]:
        """Return what the members of a group said when they joined last, also while they rebalance."""
        return self._coordinator.subscriptions(group_id)

    def empty_for_ms(self, group_id: str) -> int:
        """Return for how long a group has had no members; at most the time since this broker started."""
        now = self._clock.monotonic()
        empty_for_s = self._coordinator.empty_for_s(now, group_id)
        return int(1000 * (now - self._started_at_s if empty_for_s is None else empty_for_s))

    def group_ids(self) -> list[str]:
        """Return the ids of the groups that have members, or had some lately."""
        return self._coordinator.group_ids()

    def delete(self, group_id: str) -> ErrorCode:
        """Forget a group without members."""
        error = self._coordinator.delete(group_id)
        self._arm()
        return error

    def forget_unused(self, with_offsets: Container[str]) -> int:
        """Forget the groups that have neither members nor, by `with_offsets`, offsets; return how many."""
        forgotten = self._coordinator.forget_unused(with_offsets)
        self._arm()
        return forgotten

    def close(self) -> None:
        """Answer everyone who waits."""
        self._deliver(self._coordinator.close())
        if self._timer:
            self._timer.cancel()

    def _deliver(self, replies: Iterable[Reply]) -> None:
        for waiter, result in replies:
            # A waiter whose connection is gone was cancelled with it.
            if not waiter.done():
                self._wake(waiter, result)
        self._arm()

    def _arm(self) -> None:
        """Have one timer run for the earliest deadline."""
        deadline = self._coordinator.next_deadline()
        if deadline is None or (self._timer and self._timer_deadline <= deadline):
            return
        if self._timer:
            self._timer.cancel()
        self._timer_deadline = deadline
        self._timer = self._loop.call_later(max(0.0, deadline - self._clock.monotonic()), self._tick)

    def _tick(self) -> None:
        self._timer = None
        self._deliver(self._coordinator.tick(self._clock.monotonic()))
