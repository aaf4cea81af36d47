"""The `repr` of a message omits passwords, tokens and keys."""

from __future__ import annotations

from barnabas.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def test_repr_of_sasl_messages_omits_their_bytes() -> None:
    request = SaslAuthenticateRequest(auth_bytes=b"\0alice\0planted")
    response = SaslAuthenticateResponse(error_code=0, error_message=None, auth_bytes=b"planted")
    assert "planted" not in f"{request!r} {response!r}"


def test_repr_of_scram_upsertion_omits_salted_password() -> None:
    upsertion = ScramCredentialUpsertion(
        name="alice", mechanism=1, iterations=4096, salt=b"planted", salted_password=b"planted"
    )
    shown = repr(AlterUserScramCredentialsRequest(upsertions=[upsertion]))
    assert "alice" in shown
    assert "planted" not in shown
