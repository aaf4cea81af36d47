"""OAUTHBEARER: both ends, the form of Kafka's clients, and invalid messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import AuthenticationError, ConfigurationError
from barnabas.security.oauthbearer import (
    INVALID_TOKEN,
    REFUSED,
    AcceptedToken,
    OAuthBearerClient,
    OAuthBearerServer,
    TokenMessage,
    encode_token,
    parse_token,
)


def validate(token: str) -> AcceptedToken:
    if token != "good.token":
        raise AuthenticationError("the token has expired")
    return AcceptedToken("alice", 123)


def test_accepted_token_completes_both_ends() -> None:
    client, server = OAuthBearerClient("good.token", {"tenant": "a b"}), OAuthBearerServer(validate)
    assert client.respond(server.respond(client.first())) == b""
    assert (client.is_complete, server.is_complete, server.principal, server.expires_ms) == (True, True, "alice", 123)


def test_refused_token_ends_after_the_clients_answer() -> None:
    client, server = OAuthBearerClient("bad.token"), OAuthBearerServer(validate)
    error = server.respond(client.first())
    assert error == INVALID_TOKEN
    answer = client.respond(error)
    assert answer == b"\x01"
    with pytest.raises(AuthenticationError, match="has expired"):
        server.respond(answer)
    assert (client.is_complete, server.is_complete, server.expires_ms) == (False, False, None)


def test_refused_client_cannot_try_another_token() -> None:
    server = OAuthBearerServer(validate)
    server.respond(encode_token("bad.token"))
    with pytest.raises(AuthenticationError):
        server.respond(encode_token("good.token"))
    with pytest.raises(AuthenticationError):
        server.respond(encode_token("good.token"))
    with pytest.raises(AuthenticationError):
        _ = server.principal


def test_client_does_not_complete_after_a_refusal() -> None:
    client = OAuthBearerClient("bad.token")
    client.respond(INVALID_TOKEN)
    with pytest.raises(AuthenticationError):
        client.respond(b"")
    assert not client.is_complete


@pytest.mark.parametrize("name", ["a=alice", ""])
def test_client_may_act_as_the_tokens_principal_only(name: str) -> None:
    server = OAuthBearerServer(validate)
    assert server.respond(f"n,{name},\x01auth=Bearer good.token\x01\x01".encode()) == b""
    other = OAuthBearerServer(validate)
    assert other.respond(b"n,a=bob,\x01auth=Bearer good.token\x01\x01") == INVALID_TOKEN
    assert not other.is_complete


@pytest.mark.parametrize("name", ["alice", "a,b", "a=b", "=2C", "Zoë B."])
def test_server_confirms_the_principal_that_a_client_names(name: str) -> None:
    client = OAuthBearerClient("good.token", authorization=name)
    server = OAuthBearerServer(lambda _token: AcceptedToken(name, 123))
    assert client.respond(server.respond(client.first())) == b""
    assert client.is_complete
    other = OAuthBearerServer(lambda _token: AcceptedToken(f"{name}x", 123))
    assert other.respond(client.first()) == INVALID_TOKEN


def test_message_has_the_form_of_kafkas_clients() -> None:
    message = encode_token("a.b-c_d~e+f/g==", {"tenant": "x", "zone": "y z"})
    assert message == b"n,,\x01auth=Bearer a.b-c_d~e+f/g==\x01tenant=x\x01zone=y z\x01\x01"
    assert parse_token(message) == TokenMessage("a.b-c_d~e+f/g==", "", {"tenant": "x", "zone": "y z"})


@pytest.mark.parametrize(
    "message", [b"n,,\x01host=h\x01port=9092\x01auth=bearer  tok\x01\x01", b"y,,\x01auth=BEARER tok\x01\x01"]
)
def test_forms_of_rfc_7628_are_accepted(message: bytes) -> None:
    assert parse_token(message).token == "tok"


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer tok\x01",
        b"n,,\x01auth=Bearer tok\x01\x01x",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Basic tok\x01\x01",
        b"n,,\x01auth=Bearer to\xffk\x01\x01",
        b"n,,\x01auth=Bearer to,k\x01\x01",
        b"n,,\x01auth=Bearer tok\x01auth=Bearer two\x01\x01",
        b"n,,\x01auth=Bearer tok\x01a=1\x01a=2\x01\x01",
        b"n,,\x01auth=Bearer tok\x01a1=1\x01\x01",
        b"n,,\x01auth=Bearer tok\x01a=\x01\x01",
        b"n,,\x01auth=Bearer tok\x01a\x01\x01",
        b"p=x,,\x01auth=Bearer tok\x01\x01",
        b"n,a=,\x01auth=Bearer tok\x01\x01",
        b"n,,\x01auth=Bearer " + b"t" * 16_385 + b"\x01\x01",
        b"n,,\x01auth=Bearer tok\x01" + b"a=1\x01" * 40 + b"\x01",
        b"n,,\x01auth=Bearer tok\x01a=" + b"b" * 30_000 + b"\x01\x01",
    ],
)
def test_invalid_message_is_refused(message: bytes) -> None:
    with pytest.raises(AuthenticationError) as caught:
        OAuthBearerServer(validate).respond(message)
    assert str(caught.value) == REFUSED


@given(st.integers(0, 60), st.integers(0, 3), st.binary(max_size=4))
def test_mutated_messages_raise_only_authentication_errors(position: int, cut: int, added: bytes) -> None:
    message = encode_token("good.token", {"tenant": "x", "zone": "y z"})
    try:
        parsed = parse_token(message[:position] + added + message[position + cut :])
    except AuthenticationError as error:
        assert str(error) == REFUSED  # noqa: PT017
    else:
        assert parsed.token


@pytest.mark.parametrize(
    ("token", "extensions"),
    [("", {}), ("a\x01b", {}), ("t" * 16_385, {}), ("t", {"auth": "x"}), ("t", {"a1": "x"}), ("t", {"a": "\x01"})],
)
def test_client_needs_a_valid_token_and_extensions(token: str, extensions: dict[str, str]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        OAuthBearerClient(token, extensions)
    assert "ttt" not in str(caught.value)


def test_repr_hides_the_token() -> None:
    client = OAuthBearerClient("planted")
    assert "planted" not in f"{client!r} {parse_token(client.first())!r}"
