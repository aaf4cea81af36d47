"""Mutated messages of clients that have not authenticated, through the pipeline of a SASL listener.

The clients know no valid password and no valid token, so the broker admits none of them. Each message gets a response
or one of the broker's own errors. `make fuzz` runs two million messages from a new seed.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.broker import Broker
from barnabas.broker.environment import Environment
from barnabas.broker.pipeline.scheduler import RequestPipeline
from barnabas.broker.settings.loading import load_config
from barnabas.errors import AuthenticationError, BarnabasError
from barnabas.protocol.codec import decode_response, request_frame
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.security.oauthbearer import encode_token
from barnabas.security.plain import encode_plain
from barnabas.security.principal import ANONYMOUS
from barnabas.security.scram import ScramClient, ScramMechanism
from tests.support.fake_link import FakeLink
from tests.support.secured_broker import USER, Tokens, encoded, settings_of_users

MESSAGES = int(os.environ.get("FUZZ_FRAMES", "10000"))
SEED = int(os.environ.get("FUZZ_SEED", "20260328"))
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "PLAIN")
PIECES = (
    b"\0",
    b"\xff" * 4,
    b"\x7f\xff\xff\xff",
    b"\x80\x80\x80\x80\x10",
    b"n,,n=",
    b",m=x",
    b",r=",
    b"i=999999999",
    b"=2C",
    b"\x01",
    b"auth=Bearer ",
    b"y,a=alice,",
    "ü\u202e".encode(),
    b"\xed\xa0\x80",
    b"=" * 50,
)


class Inline(Executor):
    """Runs calls at once, so that no thread is in the way."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any, **named: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(function(*arguments, **named))
        except BaseException as error:  # noqa: BLE001 - as in other executors
            done.set_exception(error)
        return done


class Attacker:
    """Makes up the messages of connections."""

    def __init__(self, tokens: Tokens) -> None:
        self._random = random.Random(SEED)
        other = Tokens(tokens.file.with_name("other.json"))
        header = encoded({"alg": "none", "kid": "first"})
        self._tokens = [
            other.token(),
            tokens.token(exp=1),
            tokens.token(aud="other"),
            f"{header}.{encoded({'sub': USER})}.{encoded(b'x')}",
            "a.b.c",
        ]

    def opening(self) -> list[tuple[Any, int]]:
        """Return the first requests of a connection, with their versions; the last one chooses a mechanism."""
        draw = self._random
        requests: list[tuple[Any, int]] = []
        if draw.random() < 0.3:
            requests.append((ApiVersionsRequest(client_software_name="x"), draw.randint(0, 4)))
        if draw.random() < 0.05:
            requests.append((MetadataRequest(topics=None), 9))
        mechanism = draw.choices((*MECHANISMS, "", "scram-sha-256"), (40, 40, 20, 1, 1, 1))[0]
        requests.append((SaslHandshakeRequest(mechanism=mechanism), draw.randint(0, 1)))
        return requests

    def first(self, mechanism: str) -> tuple[bytes, ScramClient | None]:
        """Return the first message of a mechanism."""
        draw = self._random
        if mechanism == "PLAIN":
            return encode_plain(USER, "wrong"), None
        if mechanism == "OAUTHBEARER":
            return encode_token(draw.choice(self._tokens)), None
        known = ScramMechanism(mechanism) if mechanism in MECHANISMS else ScramMechanism.SHA_256
        client = ScramClient(known, draw.choice((USER, "mallory")), "wrong", "0123456789abcdef")
        return client.first(), client

    def any_version(self) -> int:
        """Return a version of SaslAuthenticate."""
        return self._random.randint(0, 2)

    def is_wild(self) -> bool:
        return self._random.random() < 0.6

    def mutated(self, data: bytes) -> bytes:
        """Return other bytes than the given ones, mostly similar to them."""
        draw, changed = self._random, bytearray(data)
        for _ in range(draw.choice((1, 1, 2, 5))):
            place = draw.randint(0, len(changed))
            match draw.randrange(7):
                case 0 if changed:
                    changed[place - 1] = draw.randrange(256)
                case 1 if changed:
                    changed[place - 1] ^= 1 << draw.randrange(8)
                case 2:
                    del changed[place:]
                case 3:
                    changed[place:place] = draw.choice(PIECES)
                case 4:
                    changed[place:place] = changed[: draw.randint(0, 200)]
                case 5:
                    del changed[place : place + draw.randint(1, 8)]
                case _:
                    changed[place:place] = draw.randbytes(draw.randint(1, 40))
        return bytes(changed[:32_768])


class Conversation:
    """One connection of the attacker."""

    def __init__(self, pipeline: RequestPipeline, attacker: Attacker, outcomes: Counter[str]) -> None:
        self._link = FakeLink()
        self._handler = pipeline.new_handler(self._link)
        self._attacker = attacker
        self._outcomes = outcomes

    async def run(self) -> None:
        """Send messages until the broker ends the connection, or the script ends."""
        attacker, mechanism, version = self._attacker, "", 1
        for request, of_request in attacker.opening():
            if await self._send(frame_of(request, of_request)) is None:
                return
            mechanism, version = getattr(request, "mechanism", ""), of_request
        message, scram = attacker.first(mechanism)
        for _ in range(3):
            of_step = attacker.any_version()
            wrapped = frame_of(SaslAuthenticateRequest(auth_bytes=message), of_step) if version else message
            answer = await self._send(wrapped)
            if answer is None:
                return
            try:
                challenge = bytes(decode_response(SaslAuthenticateResponse, of_step, answer[4:]).auth_bytes)
                message = challenge if scram is None else scram.respond(challenge if version else answer[4:])
            except BarnabasError:
                message = attacker.mutated(message)

    async def _send(self, frame: bytes) -> bytes | None:
        """Return the response; None if the connection has ended."""
        if self._attacker.is_wild():
            frame = self._attacker.mutated(frame)
        self._outcomes["messages"] += 1
        try:
            reply = self._handler.carry_out([bytearray(frame)])
            answer = reply.answer + (await reply.later if reply.later is not None else [])
        except BarnabasError as error:
            self._outcomes[type(error).__name__] += 1
            return None
        assert not self._link.is_admitted
        assert self._handler.state.principal == ANONYMOUS
        if self._link.closing_reason is not None:
            self._outcomes["refused"] += 1
            return None
        self._outcomes["answered"] += 1
        return b"".join(map(bytes, answer))  # type: ignore[arg-type]


def frame_of(request: Any, version: int) -> bytes:
    return b"".join(request_frame(request, version, 1, "attacker"))[4:]  # type: ignore[arg-type]


def new_threads(count: int, name: str) -> Executor:
    return Inline() if name in {"security", "authentication"} else ThreadPoolExecutor(count, name)


def test_no_message_admits_a_client_or_breaks_the_broker(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    tokens, outcomes = Tokens(tmp_path / "jwks.json"), Counter[str]()
    overrides = {
        **settings_of_users(tmp_path, tokens),
        "data": str(tmp_path / "data"),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.plain.without.tls.enable": "true",
        "connection.failed.authentication.delay.ms": "0",
        "log.cleaner.enable": "false",
    }

    async def attack() -> None:
        environment = replace(Environment(), new_threads=new_threads)
        broker = Broker(load_config(overrides=overrides, environment={}), environment)
        await broker.start()
        try:
            attacker = Attacker(tokens)
            while outcomes["messages"] < MESSAGES:
                await Conversation(broker.requests, attacker, outcomes).run()
        finally:
            await broker.stop()

    asyncio.run(attack())
    assert outcomes["answered"] > MESSAGES / 5, outcomes
    assert outcomes["refused"] > MESSAGES / 50, outcomes
    assert outcomes[AuthenticationError.__name__], outcomes
    assert not caplog.records
