"""The ACLs on subjects and on the cluster, which the registry reads from the brokers on demand.

The ACLs of a decision are at most `AGE_S_MAX` old. If no broker responds, the registry uses the last ACLs for at most
`GRACE_S`, and then refuses all requests.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from barnabas.client.cluster import Cluster
from barnabas.clock import Clock
from barnabas.errors import ApiError, BarnabasError, ErrorCode, UnsupportedVersionError
from barnabas.log_lines import LimitedLog
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas.registry.errors import RegistryError
from barnabas.security.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.authorizer import Acls, Authorizer
from barnabas.security.principal import Principal
from barnabas.shielded import completed

AGE_S_MAX = 1.0
"""The maximum age of ACLs in seconds."""
GRACE_S = 10.0
"""The time in seconds for which the last ACLs are valid while no broker responds."""
FETCH_S_MAX = 5.0
"""The maximum time in seconds to wait for a broker."""
PAUSE_S = 0.5
"""The time in seconds between two attempts that requests cause after a failure."""
RETRY_S = 2.0
"""The time in seconds after which the registry tries again by itself."""

log = logging.getLogger(__name__)

Fetch = Callable[[], Awaitable[list[AclBinding] | None]]


class SubjectAcls:
    """Keeps an `Authorizer` up to date. Used from the event loop's thread.

    :param fetch: returns the ACLs; None if the brokers have no authorizer.
    :param super_users: returns whether a principal may do everything.
    """

    def __init__(self, fetch: Fetch, super_users: Callable[[Principal], bool], clock: Clock) -> None:
        self._fetch = fetch
        self._clock = clock
        self._authorizer = Authorizer(Acls(), super_users)
        self._bindings: list[AclBinding] | None = None
        self._is_on: bool | None = None
        """False if the brokers have no authorizer; None before the first response."""
        self._asked_s = float("-inf")
        """The time at which the last ACLs were requested."""
        self._failed_s = float("-inf")
        self._fetching: asyncio.Task[None] | None = None
        self._retry: asyncio.TimerHandle | None = None
        self.failure = ""
        """The reason why the last attempt to read ACLs has failed; empty after a success. Any thread may read it."""
        self._warnings = LimitedLog(log, clock.monotonic, "%d further times no ACLs could be read")

    async def authorizer(self) -> Authorizer | None:
        """Return the authorizer with current ACLs; None if the brokers have no authorizer.

        :raises RegistryError: no broker responds, or the registry may not read ACLs (503).
        """
        now_s = self._clock.monotonic()
        age_s = now_s - self._asked_s
        if age_s > AGE_S_MAX / 2 and now_s - self._failed_s > PAUSE_S:
            self.begin()
        # While no broker responds, requests do not wait for each attempt.
        if self._fetching is not None and age_s > (GRACE_S if self.failure else AGE_S_MAX):
            await completed(self._fetching, is_shared=True)
        age_s = self._clock.monotonic() - self._asked_s
        if self._is_on is None or age_s > GRACE_S:
            raise RegistryError.no_acls()
        return self._authorizer if self._is_on else None

    def begin(self) -> None:
        """Read the ACLs now, unless that is in progress. After a failure, read them again until it succeeds: a registry
        that is not ready may get no requests.
        """
        if self._fetching is None:
            self._fetching = asyncio.create_task(self._update())

    async def close(self) -> None:
        """Stop reading."""
        if self._retry is not None:
            self._retry.cancel()
        if self._fetching is not None:
            self._fetching.cancel()
            await asyncio.gather(self._fetching, return_exceptions=True)

    async def _update(self) -> None:
        asked_s = self._clock.monotonic()
        try:
            async with asyncio.timeout(FETCH_S_MAX):
                bindings = await self._fetch()
            if bindings is None and self._is_on:
                # A broker with other settings must not switch the protection off.
                raise ApiError(ErrorCode.SECURITY_DISABLED, "a broker has no authorizer, but another one has")
        except (BarnabasError, TimeoutError) as error:
            self._failed_s = self._clock.monotonic()
            self.failure = str(error) or f"no response within {FETCH_S_MAX:g} s"
            message = "cannot read the ACLs of subjects: %s; the registry refuses requests %g s after the last ACLs"
            self._warnings.warning(message, self.failure, GRACE_S)
            self._retry = asyncio.get_running_loop().call_later(RETRY_S, self.begin)
        else:
            self._take(bindings, asked_s)
        finally:
            self._fetching = None

    def _take(self, bindings: list[AclBinding] | None, asked_s: float) -> None:
        self._asked_s, self._is_on, self.failure = asked_s, bindings is not None, ""
        if bindings is not None and bindings != self._bindings:
            self._bindings, self._authorizer.acls = bindings, Acls(bindings)


async def fetch_acls(cluster: Cluster) -> list[AclBinding] | None:
    """Return the ACLs on subjects and on the cluster; None if the broker has no authorizer.

    :raises BarnabasError: no broker responds, or this client may not read ACLs.
    """
    found: list[AclBinding] = []
    channel = await cluster.any_channel()
    # Apache Kafka's brokers end the connection of a request with SUBJECT. Without an authorizer, they get none.
    for kind in (ResourceType.CLUSTER, ResourceType.SUBJECT):
        request = DescribeAclsRequest(
            resource_type_filter=kind,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=None,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
        try:
            response: DescribeAclsResponse = await channel.send(request, timeout_s=FETCH_S_MAX)
        except UnsupportedVersionError:  # a broker of an earlier release
            return None
        if response.error_code == ErrorCode.SECURITY_DISABLED:
            return None
        if response.error_code:
            raise ApiError(response.error_code, response.error_message or "")
        found += _bindings_of(response)
    return found


def _bindings_of(response: DescribeAclsResponse) -> Iterable[AclBinding]:
    for resource in response.resources:
        pattern = ResourcePattern(
            ResourceType(resource.resource_type), resource.resource_name, PatternType(resource.pattern_type)
        )
        for acl in resource.acls:
            entry = AclEntry(acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type))
            yield AclBinding(pattern, entry)
