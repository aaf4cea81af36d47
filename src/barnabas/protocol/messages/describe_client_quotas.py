"""DescribeClientQuotas (key 48): return the quotas of the entities that match a filter (KIP-546).

Version 1 is the first flexible version.
"""

from __future__ import annotations

from barnabas.protocol.declare import (
    BOOLEAN,
    FLOAT64,
    INT8,
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
class QuotaFilterComponent:
    entity_type: str = field(STRING)
    match_type: int = field(INT8)
    match: str | None = field(nullable(STRING))


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: list[QuotaFilterComponent] = field(array(QuotaFilterComponent))
    strict: bool = field(BOOLEAN)


@struct
class DescribedQuotaEntityPart:
    entity_type: str = field(STRING)
    entity_name: str | None = field(nullable(STRING))


@struct
class QuotaValue:
    key: str = field(STRING)
    value: float = field(FLOAT64)


@struct
class DescribedQuotaEntity:
    entity: list[DescribedQuotaEntityPart] = field(array(DescribedQuotaEntityPart))
    values: list[QuotaValue] = field(array(QuotaValue))


@message(api_key=48, versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))
    entries: list[DescribedQuotaEntity] | None = field(nullable(array(DescribedQuotaEntity)))
