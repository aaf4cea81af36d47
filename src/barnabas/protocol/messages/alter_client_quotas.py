"""AlterClientQuotas (key 49): set and remove the quotas of users, client ids and addresses (KIP-546).

Version 1 is the first flexible version.
"""

from __future__ import annotations

from barnabas.protocol.declare import (
    BOOLEAN,
    FLOAT64,
    INT16,
    INT32,
    STRING,
    array,
    field,
    message,
    nullable,
    struct,
)


@struct
class AlteredQuotaEntityPart:
    entity_type: str = field(STRING)
    entity_name: str | None = field(nullable(STRING))


@struct
class QuotaOperation:
    key: str = field(STRING)
    value: float = field(FLOAT64)
    remove: bool = field(BOOLEAN)


@struct
class QuotaAlteration:
    entity: list[AlteredQuotaEntityPart] = field(array(AlteredQuotaEntityPart))
    ops: list[QuotaOperation] = field(array(QuotaOperation))


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[QuotaAlteration] = field(array(QuotaAlteration))
    validate_only: bool = field(BOOLEAN)


@struct
class QuotaAlterationResult:
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))
    entity: list[AlteredQuotaEntityPart] = field(array(AlteredQuotaEntityPart))


@message(api_key=49, versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = field(INT32, default=0)
    entries: list[QuotaAlterationResult] = field(array(QuotaAlterationResult))
