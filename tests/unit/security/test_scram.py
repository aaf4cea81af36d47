"""SCRAM: the test vector of RFC 7677, both ends wired to each other, and attacks on either end."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kafka.net.sasl.scram import ScramClient as KafkaPythonClient

from barnabas.errors import AuthenticationError, BarnabasError, ConfigurationError
from barnabas.security.scram import (
    ITERATIONS_MAX,
    REFUSED,
    ScramClient,
    ScramCredential,
    ScramDecoys,
    ScramMechanism,
    ScramServer,
    credential_from_password,
    credential_from_salted_password,
    password_matches,
)
from tests.support.searches import examples

SHA_256, SHA_512 = ScramMechanism.SHA_256, ScramMechanism.SHA_512
CLIENT_NONCE, SERVER_NONCE = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
DECOYS = ScramDecoys(b"a secret of the cluster")
CREDENTIALS = {
    (mechanism, user): credential_from_password(mechanism, password, SALT)
    for mechanism in ScramMechanism
    for user, password in (("user", "pencil"), ("Zoë,=B", "pass wörd"))
}


def find(mechanism: ScramMechanism, user: str) -> ScramCredential | None:
    return CREDENTIALS.get((mechanism, user))


def server(mechanism: ScramMechanism = SHA_256, nonce: str = SERVER_NONCE) -> ScramServer:
    return ScramServer(mechanism, find, DECOYS, nonce)


def client(user: str = "user", password: str = "pencil", mechanism: ScramMechanism = SHA_256) -> ScramClient:
    return ScramClient(mechanism, user, password, CLIENT_NONCE)


def authenticate(client: ScramClient, server: ScramServer) -> list[bytes]:
    """Wire both ends to each other; return all messages."""
    messages = [client.first()]
    while not client.is_complete:
        messages.append(server.respond(messages[-1]))
        messages.append(client.respond(messages[-1]))
    return messages


def test_rfc_7677_vector() -> None:
    assert authenticate(client(), server()) == [
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
        b"",
    ]


@pytest.mark.parametrize("mechanism", ScramMechanism)
@pytest.mark.parametrize(("user", "password"), [("user", "pencil"), ("Zoë,=B", "pass wörd")])
def test_right_password_completes_both_ends(mechanism: ScramMechanism, user: str, password: str) -> None:
    of_client, of_server = client(user, password, mechanism), server(mechanism)
    authenticate(of_client, of_server)
    assert (of_client.is_complete, of_server.is_complete, of_server.principal) == (True, True, user)


@pytest.mark.parametrize("mechanism", ScramMechanism)
def test_client_of_kafka_python_completes(mechanism: ScramMechanism) -> None:
    of_client, of_server = KafkaPythonClient("user", "pencil", mechanism.value), server(mechanism)
    of_client.process_server_first_message(of_server.respond(of_client.first_message()))
    of_client.process_server_final_message(of_server.respond(of_client.final_message()))
    assert of_server.principal == "user"


def refused(respond: Callable[[bytes], bytes], message: bytes) -> None:
    with pytest.raises(AuthenticationError) as caught:
        respond(message)
    assert str(caught.value) == REFUSED


@pytest.mark.parametrize("user", ["user", "nobody"])
def test_wrong_password_and_unknown_user_look_the_same(user: str) -> None:
    of_client, of_server = client(user, "wrong"), server()
    server_first = of_server.respond(of_client.first())
    nonce, salt, iterations = server_first.decode().split(",")
    assert (nonce, len(salt), iterations) == (f"r={CLIENT_NONCE}{SERVER_NONCE}", len("s=") + 24, "i=4096")
    refused(of_server.respond, of_client.respond(server_first))
    assert not of_server.is_complete
    with pytest.raises(AuthenticationError):
        _ = of_server.principal


def test_unknown_user_costs_the_server_the_same_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The numbers of hashes show what the times would show, on a machine of any speed."""
    counts: dict[str, list[int]] = {}
    for user in ("user", "nobody"):
        of_client, of_server = client(user, "wrong"), server()
        calls: list[int] = []
        with monkeypatch.context() as patched:
            for name in ("digest", "compare_digest"):
                patched.setattr(hmac, name, counted(getattr(hmac, name), calls))
            patched.setattr(hashlib, "new", counted(hashlib.new, calls))
            patched.setattr(hashlib, "pbkdf2_hmac", counted(hashlib.pbkdf2_hmac, calls))
            server_first = of_server.respond(of_client.first())
            before_final = len(calls)
        final = of_client.respond(server_first)
        with monkeypatch.context() as patched:
            for name in ("digest", "compare_digest"):
                patched.setattr(hmac, name, counted(getattr(hmac, name), calls))
            patched.setattr(hashlib, "new", counted(hashlib.new, calls))
            refused(of_server.respond, final)
        counts[user] = [before_final, len(calls)]
    assert counts["user"] == counts["nobody"]
    assert counts["user"][1] > counts["user"][0] > 0


def counted(function: Callable[..., Any], calls: list[int]) -> Callable[..., Any]:
    """Return a function that records each call."""

    def call(*arguments: Any, **named: Any) -> Any:
        calls.append(1)
        return function(*arguments, **named)

    return call


def test_unknown_user_has_the_same_salt_each_time_and_on_each_broker() -> None:
    first = {server(nonce=nonce).respond(client("nobody").first()).split(b",")[1] for nonce in (SERVER_NONCE, "x" * 16)}
    other = server().respond(client("nobody2").first()).split(b",")[1]
    assert len(first) == 1
    assert other not in first


def test_decoy_of_a_user_matches_no_password_that_proves_it() -> None:
    decoy = DECOYS.credential(SHA_256, "nobody")
    assert ScramServer(SHA_256, lambda *_: decoy, DECOYS, SERVER_NONCE).respond(client("nobody").first())
    assert not password_matches(decoy, SHA_256, "pencil")


def test_unknown_user_is_refused_also_if_the_proof_fits_the_decoy(monkeypatch: pytest.MonkeyPatch) -> None:
    known = CREDENTIALS[SHA_256, "user"]
    monkeypatch.setattr(ScramDecoys, "credential", lambda *_: known)
    of_client, of_server = client("nobody"), server()
    refused(of_server.respond, of_client.respond(of_server.respond(of_client.first())))


def test_credential_of_another_mechanism_is_refused() -> None:
    of_client = client(mechanism=SHA_512)
    of_server = ScramServer(SHA_512, lambda _, user: find(SHA_256, user), DECOYS, SERVER_NONCE)
    refused(of_server.respond, of_client.respond(of_server.respond(of_client.first())))


def test_replayed_messages_are_refused() -> None:
    of_client, of_server = client(), server()
    messages = authenticate(of_client, of_server)
    refused(of_server.respond, messages[0])
    assert not of_server.is_complete
    fresh = server(nonce="another-nonce-of-the-server")
    fresh.respond(messages[0])
    refused(fresh.respond, messages[2])


def test_server_refuses_all_messages_after_a_refusal() -> None:
    of_server = server()
    refused(of_server.respond, b"nonsense")
    refused(of_server.respond, client().first())


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"p=tls-unique,,n=user,r=abc",  # channel binding
        b"n,a=admin,n=user,r=abc",
        b"n,,m=1,n=user,r=abc",
        b"n,,n=user,r=abc,tokenauth=true",
        b"n,,n=user,r=abc,m=1",
        b"n,,n=us=er,r=abc",
        b"n,,n=us\0er,r=abc",
        b"n,,n=us\ner,r=abc",
        b"n,,n=,r=abc",
        b"n,,n=user,r=",
        b"n,,n=us\xff,r=abc",
        b"n,,n=user,r=" + b"a" * 5000,
        b"n,,n=" + b"u" * 2000 + b",r=abc",
    ],
)
def test_invalid_first_message_is_refused(message: bytes) -> None:
    refused(server().respond, message)


@pytest.mark.parametrize("first", [b"n,a=user,n=user,r=abc", b"y,,n=user,r=abc", b"n,,n=user,r=abc,ext=1"])
def test_optional_parts_of_the_first_message_are_accepted(first: bytes) -> None:
    assert server().respond(first).startswith(b"r=abc")


def test_final_message_is_bound_to_header_and_nonce() -> None:
    right = authenticate(client(), server())[2]
    without_extension = right.replace(SERVER_NONCE.encode(), SERVER_NONCE[:-1].encode())
    suffix_only = right.replace(f"{CLIENT_NONCE}{SERVER_NONCE}".encode(), f"x{CLIENT_NONCE}{SERVER_NONCE}".encode())
    other_header = right.replace(b"c=biws", b"c=eSws")  # y,,
    short_proof = right[: right.index(b"p=")] + b"p=AAAA"
    for changed in (without_extension, suffix_only, other_header, short_proof):
        of_server = server()
        of_server.respond(client().first())
        refused(of_server.respond, changed)


@pytest.mark.parametrize(
    ("server_first", "error"),
    [
        (b"r=other-nonce,s=AAAA,i=4096", "does not extend"),
        (f"r={CLIENT_NONCE},s=AAAA,i=4096".encode(), "does not extend"),
        (f"r={CLIENT_NONCE}x,s=AAAA,i=4095".encode(), "between 4096 and 1000000"),
        (f"r={CLIENT_NONCE}x,s=AAAA,i={ITERATIONS_MAX + 1}".encode(), "between 4096 and 1000000"),
        (f"r={CLIENT_NONCE}x,s=AAAA,i={'9' * 3000}".encode(), "between 4096 and 1000000"),
        (f"r={CLIENT_NONCE}x,s=A,i=4096".encode(), "not Base64"),
        (f"r={CLIENT_NONCE}x,s={'AAAA' * 100},i=4096".encode(), "more than 256 bytes"),
        (f"m=1,r={CLIENT_NONCE}x,s=AAAA,i=4096".encode(), "invalid"),
        (b"e=invalid-proof", "invalid"),
        (b"r=" + b"x" * 5000, "too long"),
    ],
)
def test_client_refuses_demands_of_a_hostile_server(server_first: bytes, error: str) -> None:
    with pytest.raises(AuthenticationError, match=error):
        client().respond(server_first)


@pytest.mark.parametrize("final", [b"v=AAAA", b"v=" + base64.b64encode(bytes(32)), b"e=other-error", b""])
def test_client_refuses_a_server_that_does_not_know_the_password(final: bytes) -> None:
    of_client = client()
    of_client.respond(server().respond(of_client.first()))
    with pytest.raises(AuthenticationError):
        of_client.respond(final)
    assert not of_client.is_complete


def test_client_refuses_messages_after_the_last_one() -> None:
    of_client = client()
    authenticate(of_client, server())
    with pytest.raises(AuthenticationError):
        of_client.respond(b"v=AAAA")
    assert not of_client.is_complete


@settings(max_examples=examples(100))
@given(st.integers(0, 2), st.integers(0, 200), st.integers(0, 3), st.binary(max_size=4))
def test_mutated_messages_raise_only_authentication_errors(step: int, position: int, cut: int, added: bytes) -> None:
    """A changed message ends in a refusal, or the exchange completes because the change has no meaning."""
    of_client, of_server = client(), server()

    def mutated(message: bytes, number: int) -> bytes:
        at = position % (len(message) + 1)
        return message[:at] + added + message[at + cut :] if number == step else message

    final = b""
    try:
        server_first = of_server.respond(mutated(of_client.first(), 0))
        final = of_client.respond(mutated(server_first, 1))
        of_server.respond(mutated(final, 2))
    except AuthenticationError:
        assert not of_server.is_complete
    else:
        assert of_server.principal == "user"


def test_credential_has_kafkas_text() -> None:
    for mechanism in ScramMechanism:
        credential = credential_from_password(mechanism, "pencil", SALT)
        text = credential.text()
        assert text.startswith("salt=W22ZaJ0SNY7soEsUEjb6gQ==,stored_key=")
        assert text.endswith(",iterations=4096")
        assert ScramCredential.parse(text, mechanism) == credential


@pytest.mark.parametrize(
    "change",
    [
        ("iterations=4096", "iterations=4095"),
        ("iterations=4096", "iterations=1000001"),
        ("iterations=4096", "iterations=99999999999"),
        ("iterations=4096", "iterations=٤٠٩٦"),
        ("iterations=4096", "iterations=-1"),
        (",iterations=4096", ""),
        (",iterations=4096", ",iterations=4096,salt=AAAA"),
        ("salt=W22ZaJ0SNY7soEsUEjb6gQ==", "salt="),
        ("salt=W22ZaJ0SNY7soEsUEjb6gQ==", "salt=!!!!"),
        ("salt=W22ZaJ0SNY7soEsUEjb6gQ==", "salt=é"),
        ("salt=W22ZaJ0SNY7soEsUEjb6gQ==", "salt=" + "AAAA" * 2000),
        ("stored_key=", "stored_key=AAAA"),
        ("server_key=", "server_kez="),
    ],
)
def test_damaged_text_of_a_credential_is_refused_without_its_content(change: tuple[str, str]) -> None:
    text = CREDENTIALS[SHA_256, "user"].text()
    with pytest.raises(ConfigurationError) as caught:
        ScramCredential.parse(text.replace(*change), SHA_256)
    assert "W22Z" not in str(caught.value)


def test_credential_of_another_mechanism_cannot_be_parsed() -> None:
    with pytest.raises(ConfigurationError, match="have 64 bytes"):
        ScramCredential.parse(CREDENTIALS[SHA_256, "user"].text(), SHA_512)


def test_salted_password_gives_the_same_credential_as_the_password() -> None:
    salted = hashlib.pbkdf2_hmac("sha512", b"pencil", SALT, 4096)
    assert credential_from_salted_password(SHA_512, salted, SALT, 4096) == CREDENTIALS[SHA_512, "user"]
    with pytest.raises(ConfigurationError, match="has 64 bytes"):
        credential_from_salted_password(SHA_512, salted[:32], SALT, 4096)


def test_new_credentials_have_bounds() -> None:
    for iterations in (4095, 16_385):
        with pytest.raises(ConfigurationError, match="between 4096 and 16384"):
            credential_from_salted_password(SHA_256, bytes(32), SALT, iterations)
    for salt in (b"", bytes(257)):
        with pytest.raises(ConfigurationError, match="1 to 256 bytes"):
            credential_from_salted_password(SHA_256, bytes(32), salt, 4096)


def test_password_matches_only_its_credential() -> None:
    credential = CREDENTIALS[SHA_512, "user"]
    assert password_matches(credential, SHA_512, "pencil")
    for wrong in ("Pencil", "", "p" * 2000, "\ud800", "pencil\0"):
        assert not password_matches(credential, SHA_512, wrong)


@pytest.mark.parametrize(("user", "password"), [("", "p"), ("a\nb", "p"), ("\ud800", "p"), ("a", ""), ("a", "p\0")])
def test_client_needs_a_valid_user_and_password(user: str, password: str) -> None:
    with pytest.raises(ConfigurationError):
        client(user, password)


@pytest.mark.parametrize("nonce", ["", "short", "with,comma-and-more", "with space and more"])
def test_weak_nonce_is_refused(nonce: str) -> None:
    with pytest.raises(ValueError, match="nonce"):
        server(nonce=nonce)


def test_decoys_need_a_secret() -> None:
    with pytest.raises(BarnabasError, match="secret"):
        ScramDecoys(b"short")


def test_repr_hides_secrets() -> None:
    shown = f"{CREDENTIALS[SHA_256, 'user']!r} {DECOYS!r} {client(password='planted')!r} {server()!r}"
    assert shown.startswith("ScramCredential(iterations=4096) ScramDecoys() ")
    assert "planted" not in shown
    assert "cluster" not in shown


def test_mechanisms_have_kafkas_numbers() -> None:
    assert [ScramMechanism.of_wire_type(number) for number in (0, 1, 2, 3)] == [None, SHA_256, SHA_512, None]
