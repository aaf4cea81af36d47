"""The users of a cluster, over a cluster that is a list of answers."""

from __future__ import annotations

import pytest

from barnabas.client.admin.users import (
    ScramCredentialInfo,
    UserDescription,
    delete_user,
    describe_users,
    set_user_password,
)
from barnabas.errors import ApiError, ConfigurationError, ErrorCode
from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)
from barnabas.protocol.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)
from barnabas.security.scram import ScramMechanism, credential_from_salted_password, password_matches
from tests.unit.client.test_admin_requests import ask, requests_of

BOTH = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def altered(user: str, code: ErrorCode = ErrorCode.NONE, message: str | None = None):
    result = AlterUserScramCredentialsResult(user=user, error_code=code, error_message=message)
    return {AlterUserScramCredentialsRequest: [AlterUserScramCredentialsResponse(results=[result])]}


def described(*results: DescribeUserScramCredentialsResult, code: ErrorCode = ErrorCode.NONE):
    answer = DescribeUserScramCredentialsResponse(error_code=code, error_message=None, results=list(results))
    return {DescribeUserScramCredentialsRequest: [answer]}


def user_with(name: str, *mechanisms: int) -> DescribeUserScramCredentialsResult:
    infos = [CredentialInfo(mechanism=each, iterations=4096) for each in mechanisms]
    return DescribeUserScramCredentialsResult(user=name, error_code=0, error_message=None, credential_infos=infos)


def test_request_contains_a_salted_hash_of_the_password_for_each_mechanism() -> None:
    sent = []
    ask(
        lambda cluster: set_user_password(cluster, "alice", "pa55", mechanisms=BOTH, iterations=4096),
        altered("alice"),
        sent,
    )
    [(_, request)] = requests_of(sent, AlterUserScramCredentialsRequest)
    assert [each.mechanism for each in request.upsertions] == [1, 2]
    for each in request.upsertions:
        mechanism = ScramMechanism.of_wire_type(each.mechanism)
        credential = credential_from_salted_password(mechanism, each.salted_password, each.salt, each.iterations)
        assert password_matches(credential, mechanism, "pa55")
        assert b"pa55" not in each.salted_password + each.salt
    assert len({each.salt for each in request.upsertions}) == 2


@pytest.mark.parametrize(
    ("password", "mechanisms", "iterations", "reason"),
    [
        ("", BOTH, 4096, "password"),
        ("x", ["PLAIN"], 4096, "SCRAM-SHA-256 or SCRAM-SHA-512"),
        ("x", [], 4096, "at least one"),
        ("x", BOTH, 100, "between 4096 and 16384"),
        ("x", BOTH, 20_000, "between 4096 and 16384"),
    ],
)
def test_invalid_credentials_are_not_sent(password, mechanisms, iterations, reason) -> None:
    sent = []
    with pytest.raises(ConfigurationError, match=reason):
        ask(
            lambda cluster: set_user_password(cluster, "alice", password, mechanisms=mechanisms, iterations=iterations),
            altered("alice"),
            sent,
        )
    assert requests_of(sent, AlterUserScramCredentialsRequest) == []


def test_users_are_described_by_name_with_their_mechanisms() -> None:
    found = ask(lambda cluster: describe_users(cluster, None), described(user_with("bob", 2, 1), user_with("alice", 2)))
    sha_512 = ScramCredentialInfo("SCRAM-SHA-512", 4096)
    assert found == [
        UserDescription("alice", (sha_512,)),
        UserDescription("bob", (ScramCredentialInfo("SCRAM-SHA-256", 4096), sha_512)),
    ]


def test_deletion_of_a_user_deletes_the_credentials_that_it_has() -> None:
    sent = []
    ask(
        lambda cluster: delete_user(cluster, "bob", mechanisms=None),
        described(user_with("bob", 2)) | altered("bob"),
        sent,
    )
    [(_, request)] = requests_of(sent, AlterUserScramCredentialsRequest)
    assert [(each.name, each.mechanism) for each in request.deletions] == [("bob", 2)]


def test_refusals_name_the_user() -> None:
    missing = DescribeUserScramCredentialsResult(
        user="carol", error_code=ErrorCode.RESOURCE_NOT_FOUND, error_message="the user has no SCRAM credentials"
    )
    with pytest.raises(ApiError, match="user 'carol': the user has no SCRAM credentials"):
        ask(lambda cluster: describe_users(cluster, ["carol"]), described(missing))
    with pytest.raises(ApiError, match=r"only super\.users manage users"):
        ask(
            lambda cluster: delete_user(cluster, "bob", mechanisms=BOTH),
            altered("bob", ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only super.users manage users"),
        )
    with pytest.raises(ApiError) as refused:
        ask(lambda cluster: describe_users(cluster, None), described(code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    assert refused.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
