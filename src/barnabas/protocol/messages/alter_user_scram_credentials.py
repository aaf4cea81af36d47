"""AlterUserScramCredentials (key 51): add, replace and delete SCRAM credentials of users (KIP-554).

The client sends the salted password, and never the password.
"""

from __future__ import annotations

from barnabas.protocol.declare import BYTES, INT8, INT16, INT32, STRING, array, field, message, nullable, struct


@struct
class ScramCredentialDeletion:
    name: str = field(STRING)
    mechanism: int = field(INT8)


@struct
class ScramCredentialUpsertion:
    name: str = field(STRING)
    mechanism: int = field(INT8)
    iterations: int = field(INT32)
    salt: bytes = field(BYTES, secret=True)
    salted_password: bytes = field(BYTES, secret=True)


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsRequest:
    deletions: list[ScramCredentialDeletion] = field(array(ScramCredentialDeletion), default_factory=list)
    upsertions: list[ScramCredentialUpsertion] = field(array(ScramCredentialUpsertion), default_factory=list)


@struct
class AlterUserScramCredentialsResult:
    user: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING))


@message(api_key=51, versions="0", flexible="0+")
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    results: list[AlterUserScramCredentialsResult] = field(array(AlterUserScramCredentialsResult))
