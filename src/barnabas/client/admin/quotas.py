"""The quotas of clients (KIP-546), as coroutines of the admin clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.client.admin.controller import controller_id, refusal
from barnabas.client.cluster import Cluster
from barnabas.client.offset_requests import missing_in_response
from barnabas.client.permissions import Need
from barnabas.errors import ConfigurationError
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotaEntityPart,
    QuotaAlteration,
    QuotaOperation,
)
from barnabas.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaFilterComponent,
)

EXACT, DEFAULT, ANY = 0, 1, 2
"""The match types of a filter."""


@dataclass(frozen=True, slots=True)
class ClientQuota:
    """The quotas of an entity.

    `entity` contains the names by type: `user`, `client-id` or `ip`. None as a name is the default, which applies to
    all users, client ids or addresses without a quota of their own. `quotas` contains the values by key, for example
    `producer_byte_rate`.
    """

    entity: Mapping[str, str | None]
    quotas: Mapping[str, float]


async def describe_client_quotas(
    cluster: Cluster, match: Mapping[str, str | None], types: Iterable[str], *, strict: bool
) -> list[ClientQuota]:
    """Return the entities that match a filter, with their quotas, by name.

    :param match: the names that the entities must have, by type; None for the default.
    :param types: the types that the entities must have, with any name.
    :param strict: True to leave out entities with further types.
    :raises ApiError: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST and other errors.
    """
    components = [
        QuotaFilterComponent(entity_type=kind, match_type=DEFAULT if name is None else EXACT, match=name)
        for kind, name in match.items()
    ]
    components += [QuotaFilterComponent(entity_type=kind, match_type=ANY, match=None) for kind in types]
    request = DescribeClientQuotasRequest(components=components, strict=strict)

    async def attempt() -> list[ClientQuota]:
        response: DescribeClientQuotasResponse = await cluster.send(await controller_id(cluster), request)
        if response.error_code:
            raise refusal(response.error_code, "client quotas", "quotas", response.error_message)
        found = [
            ClientQuota(
                {part.entity_type: part.entity_name for part in entry.entity},
                {each.key: each.value for each in entry.values},
            )
            for entry in response.entries or ()
        ]
        return sorted(found, key=lambda each: [(kind, name or "") for kind, name in each.entity.items()])

    return await cluster.retrying(
        attempt, what="cannot describe client quotas", needs=(Need("describe-configs", "cluster"),)
    )


async def alter_client_quotas(
    cluster: Cluster, entity: Mapping[str, str | None], quotas: Mapping[str, float | None], *, validate_only: bool
) -> None:
    """Change the quotas of an entity.

    :param quotas: the new values by key; None removes a quota.
    :raises ApiError: CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST and other errors.
    :raises ConfigurationError: the entity or the quotas are empty.
    """
    if not entity or not quotas:
        raise ConfigurationError("a change of quotas needs an entity, such as a user, and at least one quota")
    parts = [AlteredQuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in entity.items()]
    operations = [QuotaOperation(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()]
    request = AlterClientQuotasRequest(
        entries=[QuotaAlteration(entity=parts, ops=operations)], validate_only=validate_only
    )
    subject = f"quotas of {describe_entity(entity)}"

    async def attempt() -> None:
        response: AlterClientQuotasResponse = await cluster.send(await controller_id(cluster), request)
        if not response.entries:
            raise missing_in_response(subject)
        [result] = response.entries
        if result.error_code:
            raise refusal(result.error_code, subject, subject, result.error_message)

    await cluster.retrying(attempt, what=f"cannot change the {subject}", needs=(Need("alter-configs", "cluster"),))


def describe_entity(entity: Mapping[str, str | None]) -> str:
    """Return an entity as text.

    >>> describe_entity({"user": "alice", "client-id": None})
    'user alice, default client-id'
    """
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in entity.items())
