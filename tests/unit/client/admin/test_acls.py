"""Access control lists, over a cluster that is a list of answers."""

from __future__ import annotations

import pytest

from barnabas.client.admin.acls import create_acls, delete_acls, describe_acls
from barnabas.errors import ApiError, ConfigurationError, ErrorCode
from barnabas.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import (
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
from tests.unit.client.test_admin_requests import ask, requests_of

CLICKS = ResourcePattern(ResourceType.TOPIC, "clicks")
READING = AclBinding(CLICKS, AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW))
WRITING = AclBinding(
    ResourcePattern(ResourceType.SUBJECT, "clicks-", PatternType.PREFIXED),
    AclEntry("User:bob", "10.0.0.0/8", Operation.WRITE, Permission.DENY),
)


def described(*bindings: AclBinding, code: ErrorCode = ErrorCode.NONE):
    resources = [
        DescribeAclsResource(
            resource_type=pattern.type,
            resource_name=pattern.name,
            pattern_type=pattern.pattern_type,
            acls=[
                AclDescription(
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission,
                )
            ],
        )
        for pattern, entry in bindings
    ]
    message = "no authorizer is configured" if code else None
    return {DescribeAclsRequest: [DescribeAclsResponse(error_code=code, error_message=message, resources=resources)]}


def created(*codes: ErrorCode):
    results = [AclCreationResult(error_code=each, error_message="why" if each else None) for each in codes]
    return CreateAclsResponse(results=results)


def deleted(*results: list[AclBinding] | ErrorCode):
    return DeleteAclsResponse(
        filter_results=[
            DeleteAclsFilterResult(error_code=each, error_message="why", matching_acls=[])
            if isinstance(each, ErrorCode)
            else DeleteAclsFilterResult(
                error_code=0,
                error_message=None,
                matching_acls=[
                    DeleteAclsMatchingAcl(
                        error_code=0,
                        error_message=None,
                        resource_type=pattern.type,
                        resource_name=pattern.name,
                        pattern_type=pattern.pattern_type,
                        principal=entry.principal,
                        host=entry.host,
                        operation=entry.operation,
                        permission_type=entry.permission,
                    )
                    for pattern, entry in each
                ],
            )
            for each in results
        ]
    )


def test_acls_are_described_in_order_of_their_resources() -> None:
    sent = []
    acl_filter = AclFilter(ResourceType.TOPIC, "clicks", PatternType.MATCH, principal="User:alice")
    found = ask(lambda cluster: describe_acls(cluster, acl_filter), described(WRITING, READING), sent)
    assert found == [READING, WRITING]
    [(_, request)] = requests_of(sent, DescribeAclsRequest)
    asked = request.resource_type_filter, request.resource_name_filter, request.pattern_type_filter
    assert asked == (ResourceType.TOPIC, "clicks", PatternType.MATCH)
    assert (request.principal_filter, request.host_filter, request.operation) == ("User:alice", None, Operation.ANY)


def test_brokers_without_an_authorizer_are_named() -> None:
    with pytest.raises(ApiError, match="no authorizer is configured") as refused:
        ask(lambda cluster: describe_acls(cluster, None), described(code=ErrorCode.SECURITY_DISABLED))
    assert refused.value.code is ErrorCode.SECURITY_DISABLED


def test_acls_are_created_and_the_first_refused_one_is_named() -> None:
    sent = []
    ask(lambda cluster: create_acls(cluster, [READING, WRITING]), {CreateAclsRequest: [created(0, 0)]}, sent)
    [(_, request)] = requests_of(sent, CreateAclsRequest)
    assert [(each.resource_name, each.host, each.operation) for each in request.creations] == [
        ("clicks", "*", Operation.READ),
        ("clicks-", "10.0.0.0/8", Operation.WRITE),
    ]
    with pytest.raises(ApiError, match=r"deny User:bob write subject:clicks-\* from 10.0.0.0/8': why"):
        ask(
            lambda cluster: create_acls(cluster, [READING, WRITING]),
            {CreateAclsRequest: [created(ErrorCode.NONE, ErrorCode.INVALID_REQUEST)]},
        )


def test_refusal_is_not_hidden_behind_a_temporary_error() -> None:
    sent = []
    answers = [created(ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.INVALID_REQUEST)]
    with pytest.raises(ApiError, match="INVALID_REQUEST"):
        ask(lambda cluster: create_acls(cluster, [READING, WRITING]), {CreateAclsRequest: answers}, sent)
    assert len(requests_of(sent, CreateAclsRequest)) == 1


def test_incomplete_acl_is_not_sent() -> None:
    sent = []
    wrong = AclBinding(ResourcePattern(ResourceType.ANY, "clicks"), READING.entry)
    with pytest.raises(ConfigurationError, match="one type of resource"):
        ask(lambda cluster: create_acls(cluster, [READING, wrong]), {CreateAclsRequest: [created(0)]}, sent)
    assert requests_of(sent, CreateAclsRequest) == []


def test_deleted_acls_are_returned_by_filter_even_after_a_retry() -> None:
    answers = [deleted([READING], ErrorCode.REQUEST_TIMED_OUT), deleted([], [WRITING])]
    mine, subjects = AclFilter(principal="User:alice"), AclFilter(ResourceType.SUBJECT)
    found = ask(lambda cluster: delete_acls(cluster, [mine, subjects, mine]), {DeleteAclsRequest: answers})
    assert found == {mine: [READING], subjects: [WRITING]}


def test_refused_deletion_is_an_error() -> None:
    with pytest.raises(ApiError, match="CLUSTER_AUTHORIZATION_FAILED"):
        ask(
            lambda cluster: delete_acls(cluster, [AclFilter()]),
            {DeleteAclsRequest: [deleted(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]},
        )
