"""Users, ACLs with the reason of each decision, and quotas."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException
from starlette.responses import Response

from barnabas.console.context import Context
from barnabas.console.pages.listing import listing
from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.security.acls import (
    CLUSTER_NAME,
    OPERATIONS_ON,
    WILDCARD,
    AclBinding,
    AclFilter,
    Operation,
    ResourceType,
)
from barnabas.security.authorizer import SUPER_USERS, Acls, Decision, authorizer_of_broker
from barnabas.security.principal import Principal

KEYS = {
    "name": lambda each: (each.entry.principal, each.pattern, each.entry),
    "resource": lambda each: (each.pattern, each.entry),
    "operation": lambda each: each.entry.operation.name,
}
KINDS = [each for each in ResourceType if each in OPERATIONS_ON]
OPERATIONS = sorted({operation.name for found in OPERATIONS_ON.values() for operation in found})


@dataclass(frozen=True, slots=True)
class Part:
    """A part of the page: what the brokers answer, or the reason why there is nothing."""

    rows: Any
    problem: str = ""


async def security(context: Context) -> Response:
    """Show the page; a script gets only the table of ACLs."""
    view = context.view
    users, acls, quotas = await asyncio.gather(
        _part(context, view.admin.describe_users()),
        _part(context, _acls(context)),
        _part(context, view.admin.describe_client_quotas()),
    )
    rows = listing(context, acls.rows, str, KEYS)
    if context.is_partial:
        return context.page("_acls.html", list=rows, acls=acls)
    fields = {name: context.query(name) for name in ("principal", "resource", "address")}
    fields |= {"operation": context.query("operation", "read"), "kind": context.query("kind", "topic")}
    decision = None
    if fields["principal"] and not acls.problem:
        decision = _decide(fields, acls.rows, await view.within(_broker_settings(context)))
    return context.page(
        "security.html",
        title="Security",
        users=users,
        list=rows,
        acls=acls,
        quotas=quotas,
        kinds=[each.name.lower() for each in KINDS],
        operations=[each.lower() for each in OPERATIONS],
        fields=fields,
        decision=decision,
    )


async def _part(context: Context, call: Coroutine[Any, Any, list[Any]]) -> Part:
    try:
        return Part(await context.view.within(call))
    except BarnabasError as error:
        return Part([], str(error))


async def _acls(context: Context) -> list[AclBinding]:
    found = await context.view.admin.describe_acls(AclFilter())
    try:
        found += await context.view.admin.describe_acls(AclFilter(ResourceType.SUBJECT))
    except BarnabasError:
        return found  # brokers of Apache Kafka know no subjects
    return found


async def _broker_settings(context: Context) -> Mapping[str, str]:
    """Return the settings of a broker that take part in decisions."""
    admin = context.view.admin
    cluster = await context.view.cluster()
    found = await admin.describe_config(broker=cluster.brokers[0].id)
    return {name: each.value or "" for name, each in found.items()}


def _decide(fields: Mapping[str, str], acls: list[AclBinding], settings: Mapping[str, str]) -> Decision:
    """Return the decision that a form asks for.

    :raises HTTPException: a field is not valid.
    """
    try:
        principal = Principal.parse(
            fields["principal"] if ":" in fields["principal"] else f"User:{fields['principal']}"
        )
        kind = ResourceType[fields["kind"].upper()]
        operation = Operation[fields["operation"].upper()]
    except (ConfigurationError, KeyError) as error:
        raise HTTPException(400, f"this is not a valid question: {error}") from None
    if kind not in OPERATIONS_ON or operation not in OPERATIONS_ON[kind]:
        raise HTTPException(400, f"{operation.name} does not exist on {kind.name}")
    try:
        authorizer = authorizer_of_broker(Acls(acls), kind, settings)
    except ConfigurationError as error:
        raise HTTPException(502, f"the broker's setting {SUPER_USERS} cannot be read: {error}") from None
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else fields["resource"]
    return authorizer.decide(principal, fields["address"] or WILDCARD, operation, kind, name)
