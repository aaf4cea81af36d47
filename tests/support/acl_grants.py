"""Creates and deletes ACLs for tests, by requests of an administrator."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from barnabas.client.config import AdminConfig, make_config
from barnabas.client.security import connection_security
from barnabas.net.client_connection import dial
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.security.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


def allow(
    user: str, kind: ResourceType, name: str, *operations: Operation, prefixed: bool = False
) -> list[AclCreation]:
    """Return ACLs that allow operations to a user."""
    return [
        AclCreation(
            resource_type=kind,
            resource_name=CLUSTER_NAME if kind is ResourceType.CLUSTER else name,
            resource_pattern_type=PatternType.PREFIXED if prefixed else PatternType.LITERAL,
            principal=f"User:{user}",
            host="*",
            operation=operation,
            permission_type=Permission.ALLOW,
        )
        for operation in operations
    ]


def grant(admin: Mapping[str, Any], *acls: AclCreation) -> None:
    """Create ACLs.

    :param admin: the client settings of an administrator.
    """
    response = asyncio.run(_send(admin, CreateAclsRequest(creations=list(acls))))
    assert [each.error_code for each in response.results] == [0] * len(acls), response


def revoke(admin: Mapping[str, Any], user: str, kind: ResourceType = ResourceType.ANY) -> None:
    """Delete the ACLs of a user."""
    mine = DeleteAclsFilter(
        resource_type_filter=kind,
        resource_name_filter=None,
        pattern_type_filter=PatternType.ANY,
        principal_filter=f"User:{user}",
        host_filter=None,
        operation=Operation.ANY,
        permission_type=Permission.ANY,
    )
    response = asyncio.run(_send(admin, DeleteAclsRequest(filters=[mine])))
    assert [each.error_code for each in response.filter_results] == [0]


async def _send(admin: Mapping[str, Any], request: object) -> Any:
    config = make_config(AdminConfig, admin, {})
    host, port = config.bootstrap_servers[0]
    connection = await dial(host, port, security=connection_security(config))
    try:
        return await connection.send(request)
    finally:
        connection.close()
