"""DescribeClientQuotas, versions 0 and 1: the quotas of the entities that match a filter."""

from __future__ import annotations

from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.quotas.client_quotas import ClientQuotas
from barnabas.broker.quotas.entities import (
    QUOTAS_IN_RESPONSES,
    EntityFilter,
    FilterComponent,
    in_response_order,
)
from barnabas.errors import ApiError, ErrorCode
from barnabas.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuotaEntity,
    DescribedQuotaEntityPart,
    QuotaValue,
)


@serves(DescribeClientQuotasRequest)
def describe_client_quotas(
    client_quotas: ClientQuotas, request: DescribeClientQuotasRequest, call: Call
) -> DescribeClientQuotasResponse:
    components = (FilterComponent(each.entity_type, each.match_type, each.match) for each in request.components)
    try:
        found = client_quotas.describe(EntityFilter(components, strict=request.strict))
    except ApiError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.reason, entries=None)
    return DescribeClientQuotasResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        entries=[
            DescribedQuotaEntity(
                entity=[
                    DescribedQuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in in_response_order(of)
                ],
                values=[QuotaValue(key=key, value=quotas[key]) for key in QUOTAS_IN_RESPONSES if key in quotas],
            )
            for of, quotas in found
        ],
    )
