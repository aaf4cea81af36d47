"""DescribeUserScramCredentials, version 0: the users and the iterations of their credentials, never the keys."""

from __future__ import annotations

from collections import Counter

from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.super_users import SuperUsers
from barnabas.broker.user_credentials import UserCredentials
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@serves(DescribeUserScramCredentialsRequest)
def describe_user_scram_credentials(
    users: UserCredentials, super_users: SuperUsers, request: DescribeUserScramCredentialsRequest, call: Call
) -> DescribeUserScramCredentialsResponse:
    """Describe the named users, or all users if the request names none. As in Kafka, a user that is named twice has one
    result.
    """
    if not super_users.may_administer(call.connection.principal):
        return DescribeUserScramCredentialsResponse(
            error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, error_message="only super.users manage users"
        )
    known = users.users()
    named = Counter([each.name for each in request.users or ()] or sorted(known))
    results = []
    for name, times in named.items():
        infos = [
            CredentialInfo(mechanism=mechanism.wire_type, iterations=each.iterations)
            for mechanism, each in known.get(name, {}).items()
        ]
        code, message = ErrorCode.NONE, None
        if times > 1:
            code, message, infos = ErrorCode.DUPLICATE_RESOURCE, "the request names the user twice", []
        elif not infos:
            code, message = ErrorCode.RESOURCE_NOT_FOUND, "the user has no SCRAM credentials"
        results.append(
            DescribeUserScramCredentialsResult(
                user=name, error_code=code, error_message=message, credential_infos=infos
            )
        )
    return DescribeUserScramCredentialsResponse(error_code=ErrorCode.NONE, error_message=None, results=results)
