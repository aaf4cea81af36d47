"""The age of ACLs in the registry, and brokers that do not respond."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

pytest.importorskip("uvicorn")

from barnabas.clock import ManualClock
from barnabas.errors import ApiError, DisconnectedError, ErrorCode
from barnabas.registry.errors import RegistryError
from barnabas.registry.subject_acls import AGE_S_MAX, GRACE_S, SubjectAcls
from barnabas.security.acls import AclBinding, AclEntry, Operation, Permission, ResourcePattern, ResourceType
from barnabas.security.principal import Principal

ALICE = Principal("User", "alice")
ADMIN = Principal("User", "admin")
READ = AclBinding(
    ResourcePattern(ResourceType.SUBJECT, "clicks-value"),
    AclEntry(str(ALICE), "*", Operation.READ, Permission.ALLOW),
)


class Brokers:
    """Returns ACLs, or fails."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.bindings: list[AclBinding] | None = [READ]
        self.failure: Exception | None = None
        self.requests = 0
        self.acls = SubjectAcls(self.fetch, {ADMIN}.__contains__, self.clock)

    async def fetch(self) -> list[AclBinding] | None:
        self.requests += 1
        await asyncio.sleep(0)
        if self.failure is not None:
            raise self.failure
        return self.bindings

    async def may_read(self, principal: Principal = ALICE) -> bool:
        authorizer = await self.acls.authorizer()
        return authorizer is None or authorizer.allows(
            principal, "10.0.0.1", Operation.READ, ResourceType.SUBJECT, "clicks-value"
        )


def run(check: Callable[[Brokers], Awaitable[None]]) -> None:
    async def checked() -> None:
        brokers = Brokers()
        await check(brokers)
        await brokers.acls.close()

    asyncio.run(checked())


def test_revoked_acl_is_in_force_after_a_second_at_most() -> None:
    async def check(brokers: Brokers) -> None:
        assert await brokers.may_read()
        brokers.bindings = []
        brokers.clock.advance(AGE_S_MAX + 0.01)
        assert not await brokers.may_read()
        assert await brokers.may_read(ADMIN)

    run(check)


def test_simultaneous_requests_share_one_request_to_the_brokers() -> None:
    async def check(brokers: Brokers) -> None:
        assert all(await asyncio.gather(*(brokers.may_read() for _ in range(100))))
        assert all(await asyncio.gather(*(brokers.may_read() for _ in range(100))))
        assert brokers.requests == 1

    run(check)


def test_last_acls_are_valid_for_a_short_time_without_brokers() -> None:
    async def check(brokers: Brokers) -> None:
        assert await brokers.may_read()
        brokers.failure = DisconnectedError("no broker responds")
        for _ in range(int(GRACE_S)):
            brokers.clock.advance(1)
            assert await brokers.may_read()
        brokers.clock.advance(1)
        for principal in (ALICE, ADMIN):
            with pytest.raises(RegistryError) as refused:
                await brokers.may_read(principal)
            assert refused.value.status == 503
        brokers.failure = None
        brokers.clock.advance(1)
        assert await brokers.may_read()

    run(check)


@pytest.mark.parametrize(
    "failure",
    [DisconnectedError("no broker responds"), ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not allowed")],
)
def test_registry_refuses_all_requests_until_it_has_read_acls(failure: Exception) -> None:
    async def check(brokers: Brokers) -> None:
        brokers.failure = failure
        with pytest.raises(RegistryError):
            await brokers.may_read(ADMIN)

    run(check)


def test_brokers_without_authorizer_allow_everything() -> None:
    async def check(brokers: Brokers) -> None:
        brokers.bindings = None
        assert await brokers.may_read(Principal("User", "anybody"))
        brokers.bindings = []
        brokers.clock.advance(2)
        assert not await brokers.may_read()

    run(check)


def test_broker_without_authorizer_does_not_switch_protection_off() -> None:
    async def check(brokers: Brokers) -> None:
        brokers.bindings = []
        assert not await brokers.may_read()
        brokers.bindings = None
        brokers.clock.advance(2)
        assert not await brokers.may_read()
        brokers.clock.advance(GRACE_S)
        with pytest.raises(RegistryError):
            await brokers.may_read()

    run(check)
