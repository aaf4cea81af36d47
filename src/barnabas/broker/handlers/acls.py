"""DescribeAcls, CreateAcls and DeleteAcls, versions 1 to 3.

Without `authorizer.class.name` these APIs return SECURITY_DISABLED, like a Kafka broker without an authorizer. A filter
for all types of resources does not find the ACLs of subjects, because Kafka's clients fail on types that they do not
know.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.broker.authorization.cluster_acls import ClusterAcls
from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.pipeline.call import Call, Steps, is_pause_due, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.security_log import SecurityLog
from barnabas.errors import BarnabasError, CoordinationError, ErrorCode
from barnabas.log_lines import LogEvent
from barnabas.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from barnabas.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from barnabas.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

WHY = "no authorizer is configured on the broker; set authorizer.class.name to use access control lists"
CODE = ErrorCode.SECURITY_DISABLED
UNKNOWN = "the filter has a resource type, pattern type, operation or permission that does not exist"
ACLS_MAX = 10_000
"""The maximum number of ACLs in a request."""


@serves(DescribeAclsRequest)
def describe_acls(cluster_acls: ClusterAcls, request: DescribeAclsRequest, call: Call) -> Steps[DescribeAclsResponse]:
    """Return the ACLs that match the filter."""
    if not cluster_acls.are_in_force:
        return DescribeAclsResponse(error_code=CODE, error_message=WHY, resources=[])
    acl_filter = _filter(request)
    if acl_filter.has_unknown:
        return DescribeAclsResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=UNKNOWN, resources=[])
    resources: dict[ResourcePattern, DescribeAclsResource] = {}
    found = yield from cluster_acls.find(acl_filter)
    for number, (pattern, entry) in enumerate(found):
        if is_pause_due(number):
            yield
        if pattern not in resources:
            resources[pattern] = DescribeAclsResource(
                resource_type=pattern.type, resource_name=pattern.name, pattern_type=pattern.pattern_type, acls=[]
            )
        resources[pattern].acls.append(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    return DescribeAclsResponse(error_code=ErrorCode.NONE, error_message=None, resources=list(resources.values()))


@serves(CreateAclsRequest, entries_max=ACLS_MAX)
async def create_acls(
    cluster_acls: ClusterAcls,
    security_log: SecurityLog,
    scheduler: CooperativeScheduler,
    request: CreateAclsRequest,
    call: Call,
) -> CreateAclsResponse:
    """Create ACLs. The response has one result per ACL, in order, because clients match results by position."""
    count = len(request.creations)
    if not cluster_acls.are_in_force:
        return CreateAclsResponse(results=[AclCreationResult(error_code=CODE, error_message=WHY)] * count)
    wanted = [
        AclBinding(
            ResourcePattern(
                ResourceType(each.resource_type), each.resource_name, PatternType(each.resource_pattern_type)
            ),
            AclEntry(each.principal, each.host, Operation(each.operation), Permission(each.permission_type)),
        )
        async for each in scheduler.each(request.creations)
    ]
    errors: Sequence[BarnabasError | None]
    try:
        errors = await cluster_acls.create(wanted)
    except CoordinationError as error:
        errors = [error] * count
    async for binding, failure in scheduler.each(zip(wanted, errors, strict=True)):
        security_log.note_change(
            LogEvent.ACLS_CHANGED, call.source, "create", str(binding.pattern), failure, str(binding)
        )
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=error_code(each), error_message=error_message(each)) for each in errors]
    )


@serves(DeleteAclsRequest, entries_max=ACLS_MAX)
async def delete_acls(
    cluster_acls: ClusterAcls,
    security_log: SecurityLog,
    scheduler: CooperativeScheduler,
    request: DeleteAclsRequest,
    call: Call,
) -> DeleteAclsResponse:
    """Delete the ACLs that match the filters. The response has one result per filter, in order."""
    if not cluster_acls.are_in_force:
        refused = DeleteAclsFilterResult(error_code=CODE, error_message=WHY, matching_acls=[])
        return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
    results = []
    for each in request.filters:
        results.append(await _delete(cluster_acls, security_log, scheduler, each, call))
        await scheduler.pause()
    return DeleteAclsResponse(filter_results=results)


async def _delete(
    cluster_acls: ClusterAcls,
    security_log: SecurityLog,
    scheduler: CooperativeScheduler,
    wanted: DeleteAclsFilter,
    call: Call,
) -> DeleteAclsFilterResult:
    acl_filter = _filter(wanted)
    if acl_filter.has_unknown:
        return DeleteAclsFilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=UNKNOWN, matching_acls=[])
    try:
        deleted = await cluster_acls.delete(acl_filter)
    except CoordinationError as error:
        security_log.note_change(LogEvent.ACLS_CHANGED, call.source, "delete", str(wanted.resource_name_filter), error)
        code, message = error_code(error), error_message(error)
        return DeleteAclsFilterResult(error_code=code, error_message=message, matching_acls=[])
    results = []
    async for binding in scheduler.each(deleted):
        security_log.note_change(LogEvent.ACLS_CHANGED, call.source, "delete", str(binding.pattern), None, str(binding))
        results.append(_deleted(binding))
    return DeleteAclsFilterResult(error_code=ErrorCode.NONE, error_message=None, matching_acls=results)


def _deleted(binding: AclBinding) -> DeleteAclsMatchingAcl:
    pattern, entry = binding
    return DeleteAclsMatchingAcl(
        error_code=ErrorCode.NONE,
        error_message=None,
        resource_type=pattern.type,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )


def _filter(wanted: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    return AclFilter(
        ResourceType(wanted.resource_type_filter),
        wanted.resource_name_filter,
        PatternType(wanted.pattern_type_filter),
        wanted.principal_filter,
        wanted.host_filter,
        Operation(wanted.operation),
        Permission(wanted.permission_type),
    )
