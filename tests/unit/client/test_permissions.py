"""The errors of refused requests name the missing permission."""

from __future__ import annotations

import pytest

from barnabas.client.config import AdminConfig, ConsumerConfig, ProducerConfig, make_config
from barnabas.client.permissions import Need, with_permission
from barnabas.errors import ApiError, ErrorCode

READ = Need("read", "topic", "clicks")


@pytest.mark.parametrize("reason", ["", "topic authorization failed", "Topic authorization failed."])
def test_general_reason_is_replaced(reason: str) -> None:
    error = with_permission(ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, reason, "clicks-0"), "User:bob", READ)
    assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert error.message == (
        "clicks-0: User:bob lacks READ on topic:clicks; an administrator allows it with: barnabas acl allow User:bob"
        " read topic:clicks"
    )


@pytest.mark.parametrize(
    "error",
    [
        ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only super.users manage users"),
        ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED),
        ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_other_errors_stay(error: ApiError) -> None:
    assert with_permission(error, "User:bob", READ, Need("alter", "cluster")) is error


def test_error_code_selects_the_resource() -> None:
    needs = READ, Need("alter-configs", "cluster"), Need("describe", "group", "my group")
    cluster = with_permission(ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED), None, *needs)
    assert "the client lacks ALTER_CONFIGS on cluster; " in cluster.reason
    assert cluster.reason.endswith("barnabas acl allow User:NAME alter-configs cluster")
    group = with_permission(ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED), "User:bob", *needs)
    assert group.reason.endswith("barnabas acl allow User:bob describe 'group:my group'")


def test_clients_know_their_principals_and_operations() -> None:
    sasl = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN", "sasl_username": "bob", "sasl_password": "x"}
    token = {"security_protocol": "SASL_SSL", "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token": lambda: "token"}
    assert make_config(AdminConfig, None, sasl).principal == "User:bob"
    assert make_config(AdminConfig, None, token).principal is None
    assert make_config(AdminConfig, None, {"security_protocol": "SSL", "ssl_certfile": "bob.pem"}).principal is None
    assert make_config(AdminConfig, None, {}).principal == "User:ANONYMOUS"
    assert [each.topic_operations for each in (ProducerConfig, ConsumerConfig)] == ["write,create", "read"]
