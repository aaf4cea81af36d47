"""AlterUserScramCredentials, version 0: create, change and delete the credentials of users."""

from __future__ import annotations

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.super_users import SuperUsers
from barnabas.broker.user_credentials import Upsertion, UserCredentials
from barnabas.errors import ApiError, ErrorCode
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


@serves(AlterUserScramCredentialsRequest, entries_max=1_000)
async def alter_user_scram_credentials(
    users: UserCredentials, super_users: SuperUsers, request: AlterUserScramCredentialsRequest, call: Call
) -> AlterUserScramCredentialsResponse:
    """Change credentials. The changes are in force on this broker when it responds."""
    wanted = [Upsertion(each.name, each.mechanism) for each in request.deletions] + [
        Upsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))
        for each in request.upsertions
    ]
    if super_users.may_manage_users(call.connection.principal):
        results = await users.alter(wanted)
    else:
        refusal = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only super.users manage users")
        results = dict.fromkeys((each.user for each in wanted), refusal)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=error_code(error), error_message=error_message(error))
            for user, error in results.items()
        ]
    )
