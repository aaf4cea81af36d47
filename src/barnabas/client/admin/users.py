"""The users of a cluster and their SCRAM credentials (KIP-554), as coroutines of the admin clients.

The requests contain salted passwords, never passwords.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from barnabas.client.admin.controller import controller_id, refusal
from barnabas.client.cluster import Cluster
from barnabas.client.offset_requests import missing_in_response
from barnabas.client.permissions import Need
from barnabas.errors import ConfigurationError
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    UserName,
)
from barnabas.security.nonces import new_salt
from barnabas.security.scram import ScramMechanism, salted_password


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """The public part of a SCRAM credential: its mechanism, for example `SCRAM-SHA-512`, and its iterations."""

    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class UserDescription:
    """A user with SCRAM credentials. A user has at most one credential for each mechanism."""

    name: str
    credentials: tuple[ScramCredentialInfo, ...]


def parse_mechanism(name: str) -> ScramMechanism:
    """Return the mechanism with this name; case does not matter.

    :raises ConfigurationError: there is no SCRAM mechanism with this name.
    """
    try:
        return ScramMechanism(name.upper())
    except ValueError:
        names = " or ".join(each.value for each in ScramMechanism)
        raise ConfigurationError(f"{name!r} is not a SCRAM mechanism; it must be {names}") from None


async def describe_users(cluster: Cluster, names: Sequence[str] | None) -> list[UserDescription]:
    """Return users, by name.

    :param names: the users, or None for all users with SCRAM credentials.
    :raises ApiError: RESOURCE_NOT_FOUND, CLUSTER_AUTHORIZATION_FAILED and other errors.
    """
    users = None if names is None else [UserName(name=name) for name in dict.fromkeys(names)]
    request = DescribeUserScramCredentialsRequest(users=users)

    async def attempt() -> list[UserDescription]:
        response: DescribeUserScramCredentialsResponse = await cluster.send(await controller_id(cluster), request)
        if response.error_code:
            raise refusal(response.error_code, "users", "users", response.error_message)
        for result in response.results:
            if result.error_code:
                raise refusal(result.error_code, f"user {result.user!r}", result.user, result.error_message)
        return [
            UserDescription(
                result.user,
                tuple(
                    ScramCredentialInfo(_mechanism_name(each.mechanism), each.iterations)
                    for each in sorted(result.credential_infos, key=lambda each: each.mechanism)
                ),
            )
            for result in sorted(response.results, key=lambda each: each.user)
        ]

    return await cluster.retrying(attempt, what="cannot describe users", needs=(Need("describe", "cluster"),))


async def set_user_password(
    cluster: Cluster, user: str, password: str, *, mechanisms: Iterable[str], iterations: int
) -> None:
    """Create or replace the credentials of a user for some mechanisms.

    :raises ApiError: UNACCEPTABLE_CREDENTIAL, CLUSTER_AUTHORIZATION_FAILED and other errors.
    :raises ConfigurationError: the password, a mechanism or the iterations are not valid.
    """
    wanted = [parse_mechanism(each) for each in mechanisms]
    if not wanted:
        raise ConfigurationError("a password needs at least one SCRAM mechanism")
    upsertions = []
    for mechanism in wanted:
        salt = new_salt()
        salted = await asyncio.to_thread(salted_password, mechanism, password, salt, iterations)
        upsertions.append(
            ScramCredentialUpsertion(
                name=user,
                mechanism=mechanism.wire_type,
                iterations=iterations,
                salt=salt,
                salted_password=salted,
            )
        )
    request = AlterUserScramCredentialsRequest(upsertions=upsertions)
    await _alter(cluster, user, request, what=f"cannot set the password of user {user!r}")


async def delete_user(cluster: Cluster, user: str, *, mechanisms: Iterable[str] | None) -> None:
    """Delete credentials of a user.

    :param mechanisms: the mechanisms, or None for all credentials.
    :raises ApiError: RESOURCE_NOT_FOUND, CLUSTER_AUTHORIZATION_FAILED and other errors.
    """
    if mechanisms is None:
        [found] = await describe_users(cluster, [user])
        mechanisms = [each.mechanism for each in found.credentials]
    deletions = [ScramCredentialDeletion(name=user, mechanism=parse_mechanism(each).wire_type) for each in mechanisms]
    if deletions:
        request = AlterUserScramCredentialsRequest(deletions=deletions)
        await _alter(cluster, user, request, what=f"cannot delete user {user!r}")


async def _alter(cluster: Cluster, user: str, request: AlterUserScramCredentialsRequest, *, what: str) -> None:
    async def attempt() -> None:
        response: AlterUserScramCredentialsResponse = await cluster.send(await controller_id(cluster), request)
        result = next((each for each in response.results if each.user == user), None)
        if result is None:
            raise missing_in_response(f"user {user!r}")
        if result.error_code:
            raise refusal(result.error_code, f"user {user!r}", user, result.error_message)

    await cluster.retrying(attempt, what=what, needs=(Need("alter", "cluster"),))


def _mechanism_name(wire_type: int) -> str:
    mechanism = ScramMechanism.of_wire_type(wire_type)
    return f"unknown ({wire_type})" if mechanism is None else mechanism.value
