"""The access control lists of a cluster (KIP-140, KIP-290), as coroutines of the admin clients."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from barnabas.client.admin.controller import controller_id
from barnabas.client.cluster import Cluster
from barnabas.client.offset_requests import missing_in_response
from barnabas.client.permissions import Need
from barnabas.errors import ApiError
from barnabas.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from barnabas.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    checked_binding,
)

ACLS_AT_ONCE = 1_000
"""The maximum number of ACLs or filters in a request."""


async def describe_acls(cluster: Cluster, acl_filter: AclFilter | None) -> list[AclBinding]:
    """Return the ACLs that match a filter, in order of their resources.

    :param acl_filter: None for all ACLs.
    :raises ApiError: SECURITY_DISABLED, CLUSTER_AUTHORIZATION_FAILED and other errors.
    """
    acl_filter = AclFilter() if acl_filter is None else acl_filter
    request = DescribeAclsRequest(
        resource_type_filter=acl_filter.type,
        resource_name_filter=acl_filter.name,
        pattern_type_filter=acl_filter.pattern_type,
        principal_filter=acl_filter.principal,
        host_filter=acl_filter.host,
        operation=acl_filter.operation,
        permission_type=acl_filter.permission,
    )

    async def attempt() -> list[AclBinding]:
        response: DescribeAclsResponse = await cluster.send(await controller_id(cluster), request)
        if response.error_code:
            raise ApiError(response.error_code, response.error_message or "", subject="ACLs")
        return sorted(_described(response))

    return await cluster.retrying(attempt, what="cannot describe ACLs", needs=(Need("describe", "cluster"),))


def _described(response: DescribeAclsResponse) -> Iterator[AclBinding]:
    for resource in response.resources:
        pattern = ResourcePattern(
            ResourceType(resource.resource_type), resource.resource_name, PatternType(resource.pattern_type)
        )
        for acl in resource.acls:
            entry = AclEntry(acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type))
            yield AclBinding(pattern, entry)


async def create_acls(cluster: Cluster, bindings: Sequence[AclBinding]) -> None:
    """Create ACLs.

    :raises ApiError: the error of the first refused ACL. The others exist now.
    :raises ConfigurationError: an ACL is not complete. None has been created.
    """
    creations = [_creation(checked_binding(each)) for each in bindings]
    for start in range(0, len(creations), ACLS_AT_ONCE):
        wanted = bindings[start : start + ACLS_AT_ONCE]
        request = CreateAclsRequest(creations=creations[start : start + ACLS_AT_ONCE])

        async def attempt(wanted: Sequence[AclBinding] = wanted, request: CreateAclsRequest = request) -> None:
            response: CreateAclsResponse = await cluster.send(await controller_id(cluster), request)
            if len(response.results) != len(wanted):
                raise missing_in_response("a result for each ACL")
            _raise_first(
                ApiError(result.error_code, result.error_message or "", subject=f"ACL '{binding}'")
                for binding, result in zip(wanted, response.results, strict=True)
                if result.error_code
            )

        await cluster.retrying(attempt, what="cannot create ACLs", needs=(Need("alter", "cluster"),))


def _creation(binding: AclBinding) -> AclCreation:
    pattern, entry = binding
    return AclCreation(
        resource_type=pattern.type,
        resource_name=pattern.name,
        resource_pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


async def delete_acls(cluster: Cluster, filters: Sequence[AclFilter]) -> dict[AclFilter, list[AclBinding]]:
    """Delete the ACLs that match at least one filter, and return them by filter.

    :raises ApiError: the error of the first refused filter. The ACLs of the others are deleted.
    """
    deleted: dict[AclFilter, list[AclBinding]] = {each: [] for each in filters}
    unique = list(deleted)
    for start in range(0, len(unique), ACLS_AT_ONCE):
        await _delete(cluster, unique[start : start + ACLS_AT_ONCE], deleted)
    return {each: sorted(found) for each, found in deleted.items()}


async def _delete(cluster: Cluster, filters: Sequence[AclFilter], deleted: dict[AclFilter, list[AclBinding]]) -> None:
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.type,
                resource_name_filter=each.name,
                pattern_type_filter=each.pattern_type,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in filters
        ]
    )

    async def attempt() -> None:
        response: DeleteAclsResponse = await cluster.send(await controller_id(cluster), request)
        if len(response.filter_results) != len(filters):
            raise missing_in_response("a result for each filter")
        errors: list[ApiError] = []
        for acl_filter, result in zip(filters, response.filter_results, strict=True):
            if result.error_code:
                errors.append(ApiError(result.error_code, result.error_message or "", subject="deletion of ACLs"))
            for each in result.matching_acls:
                pattern = ResourcePattern(
                    ResourceType(each.resource_type), each.resource_name, PatternType(each.pattern_type)
                )
                entry = AclEntry(each.principal, each.host, Operation(each.operation), Permission(each.permission_type))
                binding = AclBinding(pattern, entry)
                if each.error_code:
                    errors.append(ApiError(each.error_code, each.error_message or "", subject=f"ACL '{binding}'"))
                elif binding not in deleted[acl_filter]:  # an earlier attempt may have deleted a part
                    deleted[acl_filter].append(binding)
        _raise_first(errors)

    await cluster.retrying(attempt, what="cannot delete ACLs", needs=(Need("alter", "cluster"),))


def _raise_first(errors: Iterable[ApiError]) -> None:
    """Raise the first error that no retry removes, or else the first error."""
    found = list(errors)
    if found:
        raise next((each for each in found if not each.retriable), found[0])
