"""The client's side of each mechanism, by name."""

from __future__ import annotations

import pytest

from barnabas.errors import ConfigurationError
from barnabas.security.protocols import SASL_MECHANISMS
from barnabas.security.sasl import SaslCredentials, new_sasl_client

CREDENTIALS = SaslCredentials(username="alice", password="planted", token="planted.token")


def nonce() -> str:
    return "n" * 16


def test_each_mechanism_has_a_client() -> None:
    firsts = {name: new_sasl_client(name, CREDENTIALS, nonce).first() for name in SASL_MECHANISMS}
    scram = b"n,,n=alice,r=nnnnnnnnnnnnnnnn"
    assert firsts == {
        "PLAIN": b"\0alice\0planted",
        "SCRAM-SHA-256": scram,
        "SCRAM-SHA-512": scram,
        "OAUTHBEARER": b"n,,\x01auth=Bearer planted.token\x01\x01",
    }
    assert [new_sasl_client(name, CREDENTIALS, nonce).mechanism for name in SASL_MECHANISMS] == list(SASL_MECHANISMS)


@pytest.mark.parametrize("mechanism", ["GSSAPI", "SCRAM-SHA-1", "plain", ""])
def test_unknown_mechanism_is_refused(mechanism: str) -> None:
    with pytest.raises(ConfigurationError, match="not supported"):
        new_sasl_client(mechanism, CREDENTIALS, nonce)


def test_each_mechanism_needs_its_credentials() -> None:
    for mechanism in SASL_MECHANISMS:
        with pytest.raises(ConfigurationError, match=f"{mechanism} needs a"):
            new_sasl_client(mechanism, SaslCredentials(username="alice"), nonce)


def test_repr_hides_password_and_token() -> None:
    assert "planted" not in repr(CREDENTIALS)
