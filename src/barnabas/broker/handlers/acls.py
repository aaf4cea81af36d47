"""DescribeAcls, CreateAcls and DeleteAcls, versions 1 to 3: return SECURITY_DISABLED.

These APIs return SECURITY_DISABLED, like a Kafka broker without `authorizer.class.name`. Without them, the broker would
close the connection because of an unknown API, and clients would not show the reason.
"""

from __future__ import annotations

from barnabas.broker.pipeline.call import Call, serves
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse
from barnabas.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

WHY = "no authorizer is configured on the broker; access control lists are not supported"
CODE = ErrorCode.SECURITY_DISABLED


@serves(DescribeAclsRequest)
def describe_acls(request: DescribeAclsRequest, call: Call) -> DescribeAclsResponse:
    return DescribeAclsResponse(error_code=CODE, error_message=WHY, resources=[])


@serves(CreateAclsRequest)
def create_acls(request: CreateAclsRequest, call: Call) -> CreateAclsResponse:
    """Reject each ACL. The response has one result per ACL, in order, because clients match results by position."""
    return CreateAclsResponse(results=[AclCreationResult(error_code=CODE, error_message=WHY)] * len(request.creations))


@serves(DeleteAclsRequest)
def delete_acls(request: DeleteAclsRequest, call: Call) -> DeleteAclsResponse:
    """Reject each filter. The response has one result per filter, in order."""
    refused = DeleteAclsFilterResult(error_code=CODE, error_message=WHY, matching_acls=[])
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
