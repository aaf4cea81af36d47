"""Attacks on listeners with TLS and SASL: slow, greedy, malformed and persistent clients beside an honest one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import barnabas as client
from barnabas.broker import token_keys
from barnabas.errors import AuthenticationError, ErrorCode
from barnabas.net.server_connection import UNAUTHENTICATED_BYTES_MAX, UNAUTHENTICATED_REQUESTS_MAX
from barnabas.protocol.codec import decode_response, request_frame
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.security.oauthbearer import TOKEN_BYTES_MAX
from barnabas.security.plain import encode_plain
from tests.interop.test_raw_frames import RawConnection
from tests.interop.test_security import IN_USE, authenticate, begin, raw, scram, step
from tests.support.reading import wait_until
from tests.support.secured_broker import USER, SecuredBroker, encoded, secured_broker

FAILED_LOGINS = int(os.environ.get("FAILED_LOGINS", "300"))
MALFORMED_CONNECTIONS = int(os.environ.get("MALFORMED_CONNECTIONS", "150"))
"""`make fuzz` has many more of both."""
AT_ONCE = 40
ATTACKER = "127.0.0.2"
LISTENERS = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")


def client_hello() -> bytes:
    """Return the first message of a TLS handshake."""
    sent = ssl.MemoryBIO()
    handshake = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost")
    with contextlib.suppress(ssl.SSLWantReadError):
        handshake.do_handshake()
    return sent.read()


CLIENT_HELLO = client_hello()


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    """A broker that waits a second for an authentication."""
    settings = {"authentication.timeout.ms": "1000", "connection.failed.authentication.delay.ms": "20"}
    with secured_broker(tmp_path_factory.mktemp("attacked"), **settings) as broker:
        yield broker


class Honest:
    """A client that writes all the time, with another connection for each tenth record, until the block ends."""

    def __init__(self, broker: SecuredBroker) -> None:
        self._settings = broker.client()
        self._must_end = threading.Event()
        self._thread = threading.Thread(target=self._work)
        self.errors: list[BaseException] = []
        self.count = 0

    def _work(self) -> None:
        try:
            with client.Producer(**self._settings) as producer:
                while not self._must_end.is_set():
                    producer.send("honest", b"v").result(IN_USE)
                    if self.count % 10 == 0:
                        with client.Admin(**self._settings) as admin:
                            admin.list_topics()
                    self.count += 1
        except BaseException as error:  # noqa: BLE001 - shown by the test
            self.errors.append(error)

    def __enter__(self) -> Honest:
        self._thread.start()
        wait_until(lambda: self.count or self.errors, "the honest client works")
        return self

    def __exit__(self, *_: object) -> None:
        before = self.count
        wait_until(lambda: self.count > before or self.errors, "the honest client still works")
        self._must_end.set()
        self._thread.join(IN_USE)
        assert not self.errors


def is_unharmed(broker: SecuredBroker) -> bool:
    """Check that the broker has logged no defect, and has forgotten all connections of attackers."""
    wait_until(lambda: all(broker.listener(name).connection_count == 0 for name in LISTENERS), "connections end")
    assert all(broker.listener(name).memory.used_bytes == 0 for name in LISTENERS)
    assert "broker.unexpected-error" not in broker.logs.events()
    assert "Traceback" not in broker.logs.text()
    return True


def secure(broker: SecuredBroker, connection: RawConnection) -> ssl.SSLSocket:
    context = ssl.create_default_context(cafile=str(broker.certificates.ca))
    sock = context.wrap_socket(connection.sock, server_hostname="127.0.0.1")
    connection.sock = sock
    return sock


# --- slow and greedy clients ------------------------------------------------------------------------------------


def test_slow_clients_are_disconnected_at_the_deadline(attacked: SecuredBroker) -> None:
    frame = b"".join(request_frame(ApiVersionsRequest(), 3, 1, "slow"))  # type: ignore[arg-type]
    with contextlib.ExitStack() as stack, Honest(attacked):
        opened = {name: [stack.enter_context(raw(attacked, name)) for _ in range(4)] for name in LISTENERS}
        for name in ("SASL_SSL", "SSL"):
            silent, half, torn, _ = opened[name]
            assert silent
            half.send(CLIENT_HELLO[:100])
            torn.send(CLIENT_HELLO[:3])
        secured = opened["SASL_SSL"][3]
        secure(attacked, secured)
        secured.send(frame[:10])
        _, half, torn, waiting = opened["SASL_PLAINTEXT"]
        half.send(frame[:10])
        torn.send(frame[:2])
        begin(waiting)
        step(waiting, scram().first())
        for each in (each for connections in opened.values() for each in connections):
            assert each.is_closed_by_peer()
    assert is_unharmed(attacked)


def test_client_that_sends_small_requests_is_disconnected_at_the_deadline(attacked: SecuredBroker) -> None:
    with raw(attacked) as connection:
        frame, sent = connection.frame(ApiVersionsRequest(), 3), 0
        with contextlib.suppress(OSError, AssertionError):
            while True:
                connection.send(frame[sent % len(frame) :][:1])
                sent += 1
                if sent % len(frame) == 0:
                    connection.receive()
        assert sent <= (UNAUTHENTICATED_REQUESTS_MAX + 1) * len(frame) + 1
        assert connection.is_closed_by_peer() or sent
    assert is_unharmed(attacked)


def test_frame_of_a_client_without_session_has_a_small_limit(attacked: SecuredBroker) -> None:
    for size in (UNAUTHENTICATED_BYTES_MAX, 100 * 1024 * 1024, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        with raw(attacked) as connection:
            connection.send(size.to_bytes(4, "big"))
            assert connection.is_closed_by_peer()
    assert is_unharmed(attacked)


@pytest.mark.parametrize(
    "flood",
    [
        bytes(4) * 1_000,
        (8).to_bytes(4, "big") * 10_000,
        ((30_000).to_bytes(4, "big") + bytes(30_000)) * 10,
        b"".join(request_frame(ApiVersionsRequest(), 3, 1, "flood")) * 1_000,  # type: ignore[arg-type]
    ],
    ids=["empty", "tiny", "large", "api-versions"],
)
def test_requests_ahead_of_an_authentication_are_bounded(attacked: SecuredBroker, flood: bytes) -> None:
    """The first request waits for the thread that checks it, while the others arrive."""
    with contextlib.ExitStack() as stack:
        connections = [stack.enter_context(raw(attacked)) for _ in range(10)]
        for each in connections:
            begin(each)
            wrong = each.frame(SaslAuthenticateRequest(auth_bytes=b"wrong"), 2)
            with contextlib.suppress(OSError):
                each.send(wrong + flood)
        held = attacked.call(lambda: attacked.listener("SASL_PLAINTEXT").memory.used_bytes)
        assert held <= len(connections) * UNAUTHENTICATED_BYTES_MAX
        for each in connections:
            with contextlib.suppress(AssertionError, OSError):
                while True:
                    each.receive()
    assert is_unharmed(attacked)


def test_responses_that_a_client_does_not_read_are_bounded(attacked: SecuredBroker) -> None:
    with raw(attacked) as connection:
        flood = connection.frame(ApiVersionsRequest(), 3) * UNAUTHENTICATED_REQUESTS_MAX
        connection.send(flood)
        wait_until(lambda: attacked.listener("SASL_PLAINTEXT").connection_count, "the broker accepts the connection")
        opened = next(iter(attacked.listener("SASL_PLAINTEXT")._connections), None)
        if opened is not None:
            assert opened._stream.unsent_bytes <= UNAUTHENTICATED_BYTES_MAX
        for _ in range(UNAUTHENTICATED_REQUESTS_MAX):
            connection.receive()
        connection.send(connection.frame(ApiVersionsRequest(), 3))
        assert connection.is_closed_by_peer()
    assert is_unharmed(attacked)


# --- malformed bytes --------------------------------------------------------------------------------------------


def malformed(draw: random.Random, listener: str) -> bytes:
    """Return the bytes of one connection."""
    if listener != "SASL_PLAINTEXT" and draw.random() < 0.8:
        data = bytearray(CLIENT_HELLO)
    else:
        requests = [
            (ApiVersionsRequest(), 3),
            (SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), draw.randint(0, 1)),
            (SaslAuthenticateRequest(auth_bytes=scram("wrong").first()), 2),
            (SaslAuthenticateRequest(auth_bytes=b"c=biws,r=x,p=eHg="), 2),
        ]
        frames = [b"".join(request_frame(each, version, 1, "x")) for each, version in requests]  # type: ignore[arg-type]
        data = bytearray(b"".join(frames))
    for _ in range(draw.randint(1, 4)):
        place = draw.randrange(len(data))
        match draw.randrange(4):
            case 0:
                data[place] = draw.randrange(256)
            case 1:
                del data[place + 1 :]
            case 2:
                data[place:place] = draw.randbytes(draw.randint(1, 50))
            case _:
                data[place:place] = data[: draw.randint(1, 400)]
    return bytes(data)


def test_malformed_bytes_end_their_connection_only(attacked: SecuredBroker) -> None:
    seed = int(os.environ.get("FUZZ_SEED", "20260328"))
    draw = random.Random(seed)
    with Honest(attacked):
        for number in range(MALFORMED_CONNECTIONS):
            listener = LISTENERS[number % len(LISTENERS)]
            with raw(attacked, listener) as connection, contextlib.suppress(OSError):
                connection.send(malformed(draw, listener))
                if draw.random() < 0.5:
                    connection.sock.shutdown(socket.SHUT_WR)
                    connection.sock.settimeout(IN_USE)
                    while connection.sock.recv(65_536):
                        pass
    assert is_unharmed(attacked)


def test_malformed_bytes_within_tls_end_their_connection_only(attacked: SecuredBroker) -> None:
    draw = random.Random(1)
    for _ in range(MALFORMED_CONNECTIONS // 15):
        with raw(attacked, "SASL_SSL") as connection, contextlib.suppress(OSError):
            secure(attacked, connection)
            connection.send(malformed(draw, "SASL_PLAINTEXT"))
            socket.socket.send(connection.sock, draw.randbytes(40))  # below TLS
            while connection.sock.recv(65_536):
                pass
    assert is_unharmed(attacked)


# --- replays ----------------------------------------------------------------------------------------------------


def test_replayed_messages_are_refused(attacked: SecuredBroker) -> None:
    with raw(attacked) as connection:
        recorded = scram()
        assert authenticate(connection, recorded).error_code == 0
    exchange = scram()
    with raw(attacked) as connection:
        begin(connection)
        final = exchange.respond(bytes(step(connection, exchange.first()).auth_bytes))
        assert step(connection, final).error_code == 0
    with raw(attacked) as connection:
        begin(connection)
        assert step(connection, exchange.first()).error_code == 0
        assert step(connection, final).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert connection.is_closed_by_peer()
    with raw(attacked) as connection:  # without the first message
        begin(connection)
        assert step(connection, final).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    with raw(attacked) as connection:  # a second proof on the same connection
        authenticate(connection)
        assert step(connection, final).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert connection.is_closed_by_peer()
    assert is_unharmed(attacked)


# --- tokens -----------------------------------------------------------------------------------------------------


def uses_token(broker: SecuredBroker, token: str) -> bool:
    """Return whether a client gets in with a token."""
    settings = broker.client(sasl_mechanism="OAUTHBEARER", sasl_oauth_token=lambda: token)
    with client.Admin(**settings) as admin:
        try:
            admin.list_topics()
        except AuthenticationError as error:
            refusal = str(error)
        else:
            return True
    assert "the credentials are not valid" in refusal
    assert token[:20] not in refusal
    return False


def forged(broker: SecuredBroker) -> dict[str, str]:
    tokens, other = broker.tokens, type(broker.tokens)(broker.folder / "other.json")
    valid = tokens.token()
    header, claims, signature = valid.split(".")
    nothing = encoded({"alg": "none", "kid": "first"})
    return {
        "none": f"{nothing}.{claims}.{signature}",
        "wrong key": other.token(),
        "wrong audience": tokens.token(aud="elsewhere"),
        "wrong issuer": tokens.token(iss="https://elsewhere.example"),
        "expired": tokens.token(exp=int(time.time()) - 60),
        "not valid yet": tokens.token(nbf=int(time.time()) + 600),
        "without expiry": tokens.token(exp=None),
        "other claims": f"{header}.{encoded({'sub': 'admin'})}.{signature}",
        "oversized": tokens.token(more="x" * (TOKEN_BYTES_MAX * 3 // 4 - 600)),
    }


def test_forged_tokens_are_refused(attacked: SecuredBroker) -> None:
    assert uses_token(attacked, attacked.tokens.token())
    accepted = [kind for kind, token in forged(attacked).items() if uses_token(attacked, token)]
    assert accepted == ["oversized"], "a token of nearly 16 KB is valid"
    with raw(attacked, "SASL_SSL") as connection:
        secure(attacked, connection)
        begin(connection, "OAUTHBEARER")
        huge = attacked.tokens.token(more="x" * TOKEN_BYTES_MAX)
        answer = step(connection, b"n,,\x01auth=Bearer " + huge.encode() + b"\x01\x01")
        assert answer.error_code or answer.auth_bytes
    assert not any(token[:60] in attacked.logs.text() for token in forged(attacked).values())
    assert is_unharmed(attacked)


def test_keys_change_and_stay_in_use_while_they_are_unreachable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(token_keys, "UNKNOWN_KEY_PAUSE_S", 0.05)
    with secured_broker(tmp_path) as broker:
        tokens, before = broker.tokens, broker.tokens.token()
        assert uses_token(broker, before)
        renewed = type(tokens.key).generate_key("P-256", {"kid": "second"})
        assert not uses_token(broker, tokens.token(renewed))
        tokens.publish(renewed)
        wait_until(lambda: uses_token(broker, tokens.token(renewed)), "the broker reads the changed keys")
        assert not uses_token(broker, before), "the first key is withdrawn"
        tokens.file.write_text("{")
        assert not uses_token(broker, before)
        wait_until(lambda: "tokens.keys-not-read" in broker.logs.events(), "the broker tries to read the keys")
        tokens.file.unlink()
        assert uses_token(broker, tokens.token(renewed)), "the last keys remain in use"


def test_broker_without_keys_refuses_tokens_until_it_has_some(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(token_keys, "UNKNOWN_KEY_PAUSE_S", 0.05)
    broker = SecuredBroker(tmp_path)
    valid = broker.tokens.file.read_bytes()
    broker.tokens.file.unlink()
    try:
        broker.start()
        assert not uses_token(broker, broker.tokens.token())
        with client.Admin(**broker.client()) as admin:
            admin.list_topics()
        broker.tokens.file.write_bytes(valid)
        wait_until(lambda: uses_token(broker, broker.tokens.token()), "the broker reads the keys")
    finally:
        broker.close()


# --- failed logins ----------------------------------------------------------------------------------------------


async def fail_to_log_in(port: int, number: int) -> int:
    """Try a password from the attacker's address; return the error code."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(ATTACKER, 0))

    async def ask(request: Any, version: int) -> bytes:
        writer.write(b"".join(request_frame(request, version, 1, "attacker")))  # type: ignore[arg-type]
        return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))

    try:
        await ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        message = encode_plain(USER if number % 2 else f"user {number}", f"password {number}")
        answer = await ask(SaslAuthenticateRequest(auth_bytes=message), 2)
        return int(decode_response(SaslAuthenticateResponse, 2, answer).error_code)
    finally:
        writer.close()


def test_failed_logins_do_not_harm_an_honest_client(tmp_path: Path) -> None:
    async def attack(port: int) -> None:
        numbers = iter(range(FAILED_LOGINS))

        async def attacker() -> None:
            for number in numbers:
                assert await fail_to_log_in(port, number) == ErrorCode.SASL_AUTHENTICATION_FAILED

        await asyncio.gather(*(attacker() for _ in range(AT_ONCE)))

    settings = {
        "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "PLAIN",
        "sasl.plain.without.tls.enable": "true",
        "authentication.timeout.ms": "60000",
    }
    with secured_broker(tmp_path, **settings) as broker:
        began_s = time.monotonic()
        with Honest(broker) as honest:
            asyncio.run(attack(broker.port("SASL_PLAINTEXT")))
        periods = 2 + (time.monotonic() - began_s) // 10
        assert honest.count > 1
        assert 1 <= broker.logs.events().count("connection.authentication-failed") <= 10 * periods
        assert len(broker.logs.lines(level=30)) <= 30 * periods
        assert is_unharmed(broker)
