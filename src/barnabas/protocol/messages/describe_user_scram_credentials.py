"""DescribeUserScramCredentials (key 50): return the SCRAM mechanisms of users (KIP-554). Keys are never returned."""

from __future__ import annotations

from barnabas.protocol.declare import INT8, INT16, INT32, STRING, array, field, message, nullable, struct


@struct
class UserName:
    name: str = field(STRING)


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    users: list[UserName] | None = field(nullable(array(UserName)))


@struct
class CredentialInfo:
    mechanism: int = field(INT8)
    iterations: int = field(INT32)


@struct
class DescribeUserScramCredentialsResult:
    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))
    credential_infos: list[CredentialInfo] = field(array(CredentialInfo), default_factory=list)


@message(api_key=50, versions="0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))
    results: list[DescribeUserScramCredentialsResult] = field(
        array(DescribeUserScramCredentialsResult), default_factory=list
    )
