"""The age of ACLs in the registry, and brokers that do not respond."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

pytest.importorskip("uvicorn")

from barnabas.client.cluster import Cluster
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, DisconnectedError, ErrorCode, UnsupportedVersionError
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas.registry import subject_acls
from barnabas.registry.errors import RegistryError
from barnabas.registry.subject_acls import AGE_S_MAX, GRACE_S, SubjectAcls, fetch_acls
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
        self.hangs: asyncio.Event | None = None
        self.acls = SubjectAcls(self.fetch, {ADMIN}.__contains__, self.clock)

    async def fetch(self) -> list[AclBinding] | None:
        self.requests += 1
        await asyncio.sleep(0)
        if self.hangs is not None:
            await self.hangs.wait()
        if self.failure is not None:
            raise self.failure
        return self.bindings

    async def may_read(self, principal: Principal = ALICE) -> bool:
        authorizer = await self.acls.authorizer()
        return authorizer is None or authorizer.allows(
            principal, "10.0.0.1", Operation.READ, ResourceType.SUBJECT, "clicks-value"
        )


async def turns_until(is_true: Callable[[], bool]) -> None:
    """Let other tasks run until a condition is true."""
    for _ in range(100_000):
        if is_true():
            return
        await asyncio.sleep(0)
    raise AssertionError("the condition did not become true")


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


def test_registry_reads_acls_again_after_a_failure_without_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subject_acls, "RETRY_S", 0.0)

    async def check(brokers: Brokers) -> None:
        brokers.failure = DisconnectedError("no broker responds")
        brokers.acls.begin()
        await turns_until(lambda: brokers.requests >= 3)
        assert brokers.acls.failure == "no broker responds"
        brokers.failure = None
        await turns_until(lambda: not brokers.acls.failure)
        assert await brokers.may_read()

    run(check)


def test_requests_do_not_wait_for_a_broker_that_does_not_respond() -> None:
    async def check(brokers: Brokers) -> None:
        assert await brokers.may_read()
        brokers.failure = DisconnectedError("no broker responds")
        brokers.clock.advance(2)
        assert await brokers.may_read()
        never = asyncio.Event()
        brokers.hangs = never
        brokers.clock.advance(2)
        assert await brokers.may_read()
        never.set()

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


class AskedBroker:
    """A broker that notes the requested resource types, and responds with an error."""

    def __init__(self, error: ErrorCode | Exception) -> None:
        self.error = error
        self.asked: list[int] = []

    async def any_channel(self) -> AskedBroker:
        return self

    async def send(self, request: DescribeAclsRequest, *, timeout_s: float) -> DescribeAclsResponse:
        self.asked.append(request.resource_type_filter)
        if isinstance(self.error, Exception):
            raise self.error
        return DescribeAclsResponse(error_code=self.error, error_message=None, resources=[])


@pytest.mark.parametrize("error", [ErrorCode.SECURITY_DISABLED, UnsupportedVersionError("no such API")])
def test_brokers_without_authorizer_are_not_asked_for_subjects(error: ErrorCode | Exception) -> None:
    broker = AskedBroker(error)
    assert asyncio.run(fetch_acls(cast(Cluster, broker))) is None
    assert broker.asked == [ResourceType.CLUSTER]


def test_refusal_of_a_broker_is_an_error() -> None:
    with pytest.raises(ApiError, match="CLUSTER_AUTHORIZATION_FAILED"):
        asyncio.run(fetch_acls(cast(Cluster, AskedBroker(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))))
    broker = AskedBroker(ErrorCode.NONE)
    assert asyncio.run(fetch_acls(cast(Cluster, broker))) == []
    assert broker.asked == [ResourceType.CLUSTER, ResourceType.SUBJECT]
