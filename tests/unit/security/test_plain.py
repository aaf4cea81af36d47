"""PLAIN: both ends, invalid messages, and equal work for each user."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.errors import AuthenticationError, ConfigurationError
from barnabas.security import plain
from barnabas.security.plain import REFUSED, PlainClient, PlainServer, encode_plain, parse_plain
from barnabas.security.scram import ScramCredential, ScramDecoys, ScramMechanism, credential_from_password

DECOYS = ScramDecoys(b"a secret of the cluster")
CREDENTIALS = {
    (ScramMechanism.SHA_512, "alice"): credential_from_password(ScramMechanism.SHA_512, "wonderland", b"salt"),
    (ScramMechanism.SHA_256, "bob"): credential_from_password(ScramMechanism.SHA_256, "builder", b"salt"),
}


def find(mechanism: ScramMechanism, user: str) -> ScramCredential | None:
    return CREDENTIALS.get((mechanism, user))


def refused(message: bytes) -> PlainServer:
    server = PlainServer(find, DECOYS)
    with pytest.raises(AuthenticationError) as caught:
        server.respond(message)
    assert str(caught.value) == REFUSED
    assert not server.is_complete
    return server


@pytest.mark.parametrize(("user", "password"), [("alice", "wonderland"), ("bob", "builder")])
def test_right_password_of_either_mechanism_completes_both_ends(user: str, password: str) -> None:
    client, server = PlainClient(user, password), PlainServer(find, DECOYS)
    assert client.respond(server.respond(client.first())) == b""
    assert (client.is_complete, server.is_complete, server.principal, server.expires_ms) == (True, True, user, None)


def test_server_is_used_once() -> None:
    message, server = encode_plain("alice", "wonderland"), PlainServer(find, DECOYS)
    server.respond(message)
    with pytest.raises(AuthenticationError):
        server.respond(message)
    assert not server.is_complete


@pytest.mark.parametrize("user", ["alice", "bob", "nobody"])
def test_each_user_costs_the_same_hashes(user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[tuple[ScramMechanism, int]] = []
    matches = plain.password_matches

    def counting(credential: ScramCredential, mechanism: ScramMechanism, password: str) -> bool:
        hashed.append((mechanism, credential.iterations))
        return matches(credential, mechanism, password)

    monkeypatch.setattr(plain, "password_matches", counting)
    with pytest.raises(AuthenticationError):
        refused(encode_plain(user, "wrong")).principal  # noqa: B018
    assert hashed == [(ScramMechanism.SHA_256, 4096), (ScramMechanism.SHA_512, 4096)]


def test_unknown_user_is_refused_also_if_the_password_fits_the_decoy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "password_matches", lambda *_: True)
    refused(encode_plain("nobody", "guess"))


def test_user_may_name_itself_as_authorization() -> None:
    assert parse_plain(b"alice\0alice\0wonderland") == ("alice", "wonderland")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"alice",
        b"\0alice",
        b"\0alice\0",
        b"\0\0wonderland",
        b"\0alice\0wonderland\0",
        b"bob\0alice\0wonderland",
        b"\0ali\xffce\0wonderland",
        b"\0ali\nce\0wonderland",
        b"\0alice\0" + b"w" * 1025,
        b"\0alice\0" + b"w" * 5000,
        b"\0" + b"a" * 1025 + b"\0w",
    ],
)
def test_invalid_message_is_refused(message: bytes) -> None:
    refused(message)


@given(st.binary(max_size=64))
def test_random_messages_raise_only_authentication_errors(message: bytes) -> None:
    for data in (message, message.replace(b"a", b"\0")):
        try:
            parse_plain(data)
        except AuthenticationError as error:
            assert str(error) == REFUSED  # noqa: PT017


@pytest.mark.parametrize(("user", "password"), [("", "p"), ("a\0b", "p"), ("a", ""), ("a", "b\0c"), ("a", "\ud800")])
def test_client_needs_a_valid_user_and_password(user: str, password: str) -> None:
    with pytest.raises(ConfigurationError):
        encode_plain(user, password)


def test_client_refuses_further_messages() -> None:
    client = PlainClient("alice", "wonderland")
    with pytest.raises(AuthenticationError, match="only one message"):
        client.respond(b"continue")


def test_repr_hides_the_password() -> None:
    assert repr(parse_plain(b"\0alice\0planted")) == "PlainMessage(user='alice')"
    assert "planted" not in repr(PlainClient("alice", "planted"))
