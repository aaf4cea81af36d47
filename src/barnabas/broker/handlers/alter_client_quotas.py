"""AlterClientQuotas, versions 0 and 1: set and remove the quotas of users, client ids and addresses."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.broker.error_codes import error_code, error_message
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.quotas.client_quotas import Alteration, ClientQuotas, Parts
from barnabas.broker.quotas.entities import in_response_order
from barnabas.broker.security_log import SecurityLog
from barnabas.broker.super_users import SuperUsers
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.log_lines import LogEvent
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotaEntityPart,
    QuotaAlterationResult,
)
from barnabas.security.acls import CLUSTER_NAME, Operation


@serves(AlterClientQuotasRequest, entries_max=2_000)
async def alter_client_quotas(
    client_quotas: ClientQuotas,
    security_log: SecurityLog,
    super_users: SuperUsers,
    request: AlterClientQuotasRequest,
    call: Call,
) -> AlterClientQuotasResponse:
    """Change quotas. The changes are in force on this broker when it responds."""
    alterations = [
        Alteration(
            tuple((part.entity_type, part.entity_name) for part in each.entity),
            [(op.key, None if op.remove else op.value) for op in each.ops],
        )
        for each in request.entries
    ]
    results: Mapping[Parts, BarnabasError | None]
    if super_users.may_administer(call.connection.principal):
        results = await client_quotas.alter(alterations, validate_only=request.validate_only)
    else:
        refusal = ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only super.users change quotas")
        security_log.note_refusal(call.source, Operation.ALTER_CONFIGS, f"cluster:{CLUSTER_NAME}", refusal.reason)
        results = {each.parts: refusal for each in alterations}
    if not request.validate_only:
        for each in alterations:
            resource = ",".join(f"{kind}:{'(default)' if name is None else name}" for kind, name in each.parts)
            change = ",".join(f"{key}={'(removed)' if value is None else value}" for key, value in each.values)
            security_log.note_change(
                LogEvent.QUOTAS_CHANGED, call.source, "alter", resource, results.get(each.parts), change
            )
    return AlterClientQuotasResponse(
        entries=[
            QuotaAlterationResult(
                error_code=error_code(error),
                error_message=error_message(error),
                entity=[
                    AlteredQuotaEntityPart(entity_type=kind, entity_name=name)
                    for kind, name in in_response_order(parts)
                ],
            )
            for parts, error in results.items()
        ]
    )
