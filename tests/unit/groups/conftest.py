"""A group coordinator with time that is moved by hand, and a record of who was answered what."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import count

import pytest

from barnabas.errors import ApiError, ErrorCode
from barnabas.groups import (
    GroupConfig,
    GroupCoordinator,
    GroupState,
    GroupWrite,
    JoinRequest,
    JoinResult,
    LeavingMember,
    StoredGroup,
    SyncRequest,
    SyncResult,
)
from barnabas.groups.memory import GroupMemory
from barnabas.groups.records import Change
from barnabas.state_machine import Effects, Reply

GROUP = "clicks-readers"
ALL = 1_000_000
"""More groups than there are."""


class Scene:
    """Plays the members of one group. Waiters are numbers; `joined` and `synced` return the results of waiters.

    Records come into `log` at once; or, while `disk_is_slow`, when `store` is called.
    """

    def __init__(self, memory: GroupMemory | None = None, **config: int) -> None:
        uuids, self._waiters = count(1), count(1)
        config.setdefault("initial_rebalance_delay_ms", 0)
        self.new_coordinator = lambda: GroupCoordinator(GroupConfig(**config), lambda: str(next(uuids)), memory)
        self.coordinator = self.new_coordinator()
        self.now = 0.0
        self.disk_is_slow = False
        self.writes: deque[GroupWrite] = deque()
        self.log: dict[str, StoredGroup | None] = {}
        self.answers: dict[int, JoinResult | SyncResult | ApiError | None] = {}

    def perform(self, effects: Effects[Change]) -> None:
        self.deliver(effects.replies)
        for write in effects.appends:
            assert isinstance(write, GroupWrite)
            self.writes.append(write)
        if not self.disk_is_slow:
            self.store()

    def deliver(self, replies: Sequence[Reply]) -> None:
        for waiter, result in replies:
            assert waiter not in self.answers, f"waiter {waiter} was answered twice"
            self.answers[waiter] = result

    def store(self, error: ErrorCode = ErrorCode.NONE) -> None:
        """Let the disk store all that waits, or refuse it."""
        while self.writes:
            write = self.writes.popleft()
            if error:
                self.perform(self.coordinator.failed(self.now, write, ApiError(error)))
            else:
                self.log[write.group.group_id] = write.stored
                self.perform(self.coordinator.appended(self.now, write))

    def restart(self) -> None:
        """Begin another coordinator with what is stored; those that wait get no answer."""
        self.coordinator = self.new_coordinator()
        self.writes.clear()
        for group_id, stored in self.log.items():
            if stored is not None:
                self.coordinator.load(self.now, group_id, stored)

    def join(
        self,
        member_id: str = "",
        *,
        group_id: str = GROUP,
        client_id: str = "app",
        instance: str | None = None,
        protocols: tuple[tuple[str, bytes], ...] = (("range", b"topics"),),
        protocol_type: str = "consumer",
        session_timeout_ms: int = 10_000,
        rebalance_timeout_ms: int = 30_000,
        require_member_id: bool = False,
        supports_skip_assignment: bool = False,
    ) -> int:
        waiter = next(self._waiters)
        request = JoinRequest(
            member_id=member_id,
            client_id=client_id,
            group_instance_id=instance,
            protocols=protocols,
            protocol_type=protocol_type,
            session_timeout_ms=session_timeout_ms,
            rebalance_timeout_ms=rebalance_timeout_ms,
            require_member_id=require_member_id,
            supports_skip_assignment=supports_skip_assignment,
        )
        self.perform(self.coordinator.join(self.now, waiter, group_id, request))
        return waiter

    def sync(
        self,
        member_id: str,
        generation: int | None = None,
        assignments: dict[str, bytes] | None = None,
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        waiter = next(self._waiters)
        request = SyncRequest(
            member_id=member_id,
            generation=self.generation if generation is None else generation,
            group_instance_id=instance,
            assignments=assignments or {},
            protocol_type=protocol_type,
            protocol_name=protocol_name,
        )
        self.perform(self.coordinator.sync(self.now, waiter, GROUP, request))
        return waiter

    def heartbeat(self, member_id: str, generation: int | None = None, instance: str | None = None) -> ErrorCode:
        generation = self.generation if generation is None else generation
        return self.coordinator.heartbeat(self.now, GROUP, member_id, instance, generation)

    def check_commit(self, member_id: str = "", generation: int = -1, instance: str | None = None) -> ErrorCode:
        return self.coordinator.check_commit(self.now, GROUP, member_id, instance, generation)

    def leave(self, *members: str | LeavingMember) -> list[ErrorCode]:
        leaving = [LeavingMember(each) if isinstance(each, str) else each for each in members]
        result, effects = self.coordinator.leave(self.now, GROUP, leaving)
        self.perform(effects)
        return [each.error for each in result.members] or [result.error]

    def delete(self) -> tuple[ErrorCode, int]:
        waiter = next(self._waiters)
        error, effects = self.coordinator.delete(self.now, waiter, GROUP)
        self.perform(effects)
        return error, waiter

    def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen at its time."""
        until = self.now + seconds
        while (deadline := self.coordinator.next_deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            self.perform(self.coordinator.tick(self.now, ALL))
        self.now = until

    def joined(self, waiter: int) -> JoinResult:
        result = self.answers[waiter]
        assert isinstance(result, JoinResult)
        return result

    def synced(self, waiter: int) -> SyncResult:
        result = self.answers[waiter]
        assert isinstance(result, SyncResult)
        return result

    def is_waiting(self, waiter: int) -> bool:
        return waiter not in self.answers

    @property
    def state(self) -> GroupState:
        description = self.coordinator.describe(GROUP)
        assert description is not None
        return description.state

    @property
    def generation(self) -> int:
        description = self.coordinator.describe(GROUP)
        assert description is not None
        return description.generation

    @property
    def member_ids(self) -> list[str]:
        description = self.coordinator.describe(GROUP)
        return [] if description is None else [member.member_id for member in description.members]

    def make_joined(self, size: int = 2, **options: object) -> list[str]:
        """Bring `size` members into one generation that waits for its assignment; the leader comes first."""
        waiter = self.join(**options)  # type: ignore[arg-type]
        members = [self.joined(waiter).member_id]
        for _ in range(size - 1):
            newcomer = self.join(**options)  # type: ignore[arg-type]
            waiters = [self.join(each, **options) for each in members]  # type: ignore[arg-type]
            assert not any(self.is_waiting(each) for each in [newcomer, *waiters])
            members.append(self.joined(newcomer).member_id)
        assert self.state is GroupState.COMPLETING_REBALANCE
        return members

    def make_stable(self, size: int = 2, **options: object) -> list[str]:
        """Bring `size` members into a stable group, each with its own id as assignment; the leader first."""
        members = self.make_joined(size, **options)
        for each in members:
            self.sync(each, assignments={member: member.encode() for member in members})
        assert self.state is GroupState.STABLE
        return members


@pytest.fixture
def scene() -> Scene:
    return Scene()


@pytest.fixture
def new_scene() -> Callable[..., Scene]:
    return Scene
