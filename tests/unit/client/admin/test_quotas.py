"""The quotas of clients, over a cluster that is a list of answers."""

from __future__ import annotations

import pytest

from barnabas.client.admin.quotas import ClientQuota, alter_client_quotas, describe_client_quotas
from barnabas.errors import ApiError, ConfigurationError, ErrorCode
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    QuotaAlterationResult,
)
from barnabas.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    DescribedQuotaEntity,
    DescribedQuotaEntityPart,
    QuotaValue,
)
from tests.unit.client.test_admin_requests import ask, requests_of


def described(*entries: DescribedQuotaEntity, code: ErrorCode = ErrorCode.NONE):
    answer = DescribeClientQuotasResponse(
        error_code=code, error_message=None, entries=list(entries) if not code else None
    )
    return {DescribeClientQuotasRequest: [answer]}


def altered(code: ErrorCode = ErrorCode.NONE, message: str | None = None):
    result = QuotaAlterationResult(error_code=code, error_message=message, entity=[])
    return {AlterClientQuotasRequest: [AlterClientQuotasResponse(entries=[result])]}


def entry(value: float, **names: str | None) -> DescribedQuotaEntity:
    return DescribedQuotaEntity(
        entity=[DescribedQuotaEntityPart(entity_type=kind, entity_name=name) for kind, name in names.items()],
        values=[QuotaValue(key="producer_byte_rate", value=value)],
    )


def test_quotas_are_described_by_name() -> None:
    sent = []
    found = ask(
        lambda cluster: describe_client_quotas(cluster, {"user": "bob", "client-id": None}, ["ip"], strict=True),
        described(entry(2.0, user="bob"), entry(1.0, user=None)),
        sent,
    )
    assert found == [
        ClientQuota({"user": None}, {"producer_byte_rate": 1.0}),
        ClientQuota({"user": "bob"}, {"producer_byte_rate": 2.0}),
    ]
    [(_, request)] = requests_of(sent, DescribeClientQuotasRequest)
    components = [(each.entity_type, each.match_type, each.match) for each in request.components]
    assert components == [("user", 0, "bob"), ("client-id", 1, None), ("ip", 2, None)]
    assert request.strict


def test_quotas_are_set_and_removed() -> None:
    sent = []
    quotas = {"producer_byte_rate": 5.0, "request_percentage": None}
    ask(
        lambda cluster: alter_client_quotas(cluster, {"user": None}, quotas, validate_only=True),
        altered(),
        sent,
    )
    [(_, request)] = requests_of(sent, AlterClientQuotasRequest)
    assert request.validate_only
    [alteration] = request.entries
    assert [(each.entity_type, each.entity_name) for each in alteration.entity] == [("user", None)]
    operations = [(each.key, each.value, each.remove) for each in alteration.ops]
    assert operations == [("producer_byte_rate", 5.0, False), ("request_percentage", 0.0, True)]


def test_refusals_name_the_entity() -> None:
    with pytest.raises(ApiError, match="quotas of user alice, default client-id: it must be above 0"):
        ask(
            lambda cluster: alter_client_quotas(
                cluster, {"user": "alice", "client-id": None}, {"producer_byte_rate": 0.0}, validate_only=False
            ),
            altered(ErrorCode.INVALID_REQUEST, "it must be above 0"),
        )
    with pytest.raises(ApiError) as refused:
        ask(
            lambda cluster: describe_client_quotas(cluster, {}, [], strict=False),
            described(code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        )
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(("entity", "quotas"), [({}, {"producer_byte_rate": 1.0}), ({"user": "alice"}, {})])
def test_empty_changes_are_not_sent(entity, quotas) -> None:
    sent = []
    with pytest.raises(ConfigurationError, match="at least one quota"):
        ask(lambda cluster: alter_client_quotas(cluster, entity, quotas, validate_only=False), altered(), sent)
    assert requests_of(sent, AlterClientQuotasRequest) == []
