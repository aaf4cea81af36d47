"""AlterUserScramCredentials, version 0: create, change and delete the credentials of users."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.security_log import SecurityLog
from barnabas.broker.super_users import SuperUsers
from barnabas.broker.user_credentials import Upsertion, UserCredentials
from barnabas.errors import ApiError, ErrorCode
from barnabas.log_lines import LogEvent
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from barnabas.security.acls import CLUSTER_NAME, Operation
from barnabas.security.scram import ScramMechanism

MECHANISM_NAMES = {each.wire_type: each.value for each in ScramMechanism}


@serves(AlterUserScramCredentialsRequest, entries_max=1_000)
async def alter_user_scram_credentials(
    users: UserCredentials,
    super_users: SuperUsers,
    security_log: SecurityLog,
    request: AlterUserScramCredentialsRequest,
    call: Call,
) -> AlterUserScramCredentialsResponse:
    """Change credentials. The changes are in force on this broker when it responds."""
    wanted = [Upsertion(each.name, each.mechanism) for each in request.deletions] + [
        Upsertion(each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))
        for each in request.upsertions
    ]
    if super_users.may_administer(call.connection.principal):
        results = await users.alter(wanted)
        _log_changes(security_log, call, wanted, results)
    else:
        refusal = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only super.users manage users")
        security_log.note_refusal(call.source, Operation.ALTER, f"cluster:{CLUSTER_NAME}", refusal.reason)
        results = dict.fromkeys((each.user for each in wanted), refusal)
    return AlterUserScramCredentialsResponse(
        results=[
            AlterUserScramCredentialsResult(user=user, error_code=error_code(error), error_message=error_message(error))
            for user, error in results.items()
        ]
    )


def _log_changes(
    security_log: SecurityLog, call: Call, wanted: Iterable[Upsertion], results: Mapping[str, Exception | None]
) -> None:
    for each in wanted:
        operation = "delete" if each.salted_password is None else "set"
        mechanism = MECHANISM_NAMES.get(each.mechanism, str(each.mechanism))
        error = results[each.user]
        security_log.note_change(LogEvent.USERS_CHANGED, call.source, operation, f"user:{each.user}", error, mechanism)
