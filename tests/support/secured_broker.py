"""A broker in this process with one listener for each security protocol, on sockets; and its users, tokens and logs.

It runs on an event loop in a thread of its own, so clients on other threads connect to it as to any broker.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from joserfc import jwk, jws

from barnabas.broker.broker import Broker
from barnabas.broker.main import _new_event_loop
from barnabas.broker.settings.loading import load_config
from barnabas.security.scram import ScramMechanism, credential_from_password
from tests.support.certificates import Certificates

T = TypeVar("T")

USER, PASSWORD = "alice", "correct horse battery staple"
ISSUER, AUDIENCE = "https://issuer.example", "kafka"
LISTENERS = ("PLAINTEXT", "SASL_SSL", "SASL_PLAINTEXT", "SSL")
TIMEOUT_S = 60.0


class Tokens:
    """The issuer of tokens: a key, and the file with its key set."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.key = jwk.ECKey.generate_key("P-256", {"kid": "first"})
        self.publish(self.key)

    @property
    def url(self) -> str:
        return self.file.as_uri()

    def publish(self, *keys: Any) -> None:
        """Replace the key set."""
        written = self.file.with_suffix(".new")
        written.write_text(json.dumps({"keys": [each.as_dict(private=False) for each in keys]}))
        written.replace(self.file)

    def token(self, key: Any = None, *, algorithm: str = "ES256", **claims: Any) -> str:
        """Return a signed token that is valid for a minute, unless the claims change that."""
        key = key or self.key
        now_s = int(time.time())
        given = {"iss": ISSUER, "aud": AUDIENCE, "sub": USER, "iat": now_s, "exp": now_s + 60, **claims}
        signed = f"{encoded({'alg': algorithm, 'kid': key.kid})}.{encoded(given)}"
        signature = jws.JWSRegistry.algorithms[algorithm].sign(signed.encode(), key)
        return f"{signed}.{encoded(signature)}"


def encoded(value: Any) -> str:
    """Return Base64 without padding, of bytes or of a value in JSON."""
    data = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def settings_of_users(folder: Path, tokens: Tokens) -> dict[str, str]:
    """Return the settings of a broker with a super user, and with the issuer of tokens."""
    users = folder / "users.json"
    credentials = {
        each.value: credential_from_password(each, PASSWORD, os.urandom(16)).text() for each in ScramMechanism
    }
    users.write_text(json.dumps({"users": {USER: credentials}}))
    return {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": tokens.url,
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": AUDIENCE,
        "bootstrap.users.file": str(users),
        "super.users": f"User:{USER}",
    }


class CaughtLogs(logging.Handler):
    """All log lines of a broker, with their tracebacks."""

    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    def events(self) -> list[str]:
        """Return the events of all lines that have one."""
        return [each.event for each in self.records if getattr(each, "event", "")]  # type: ignore[attr-defined]

    def lines(self, level: int = logging.DEBUG) -> list[str]:
        return [each.getMessage() for each in self.records if each.levelno >= level]

    def text(self) -> str:
        """Return all lines with their tracebacks."""
        formatter = logging.Formatter("%(name)s %(message)s")
        return "\n".join(map(formatter.format, self.records))


class SecuredBroker:
    """A broker with a user of all SCRAM mechanisms, certificates, and an issuer of tokens.

    :param settings: further settings of the broker, by their dotted names.
    """

    def __init__(self, folder: Path, **settings: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.certificates = Certificates(folder / "pki")
        self.key_store = self.certificates.server("broker")
        self.tokens = Tokens(folder / "jwks.json")
        self.settings = {
            "data": str(folder / "data"),
            "listeners": ",".join(f"{each}://127.0.0.1:0" for each in LISTENERS),
            "ssl.keystore.location": str(self.key_store),
            "ssl.truststore.location": str(self.certificates.ca),
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([a-z]+)$/$1/,DEFAULT",
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-256,SCRAM-SHA-512",
            **settings_of_users(folder, self.tokens),
            "log.cleaner.enable": "false",
            **settings,
        }
        self.logs = CaughtLogs()
        self._loop = _new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="secured broker", daemon=True)
        self._thread.start()
        self.broker = Broker(load_config(overrides=self.settings, environment={}), with_status=True)

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the broker's thread."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)

    def call(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function on the broker's thread."""

        async def called() -> T:
            return function(*arguments)

        return self.run(called())

    def start(self) -> None:
        self.run(self.broker.start())

    def port(self, listener: str) -> int:
        return next(each.port for each in self.broker._listeners.open if each.name.name == listener)

    def address(self, listener: str) -> str:
        return f"127.0.0.1:{self.port(listener)}"

    def listener(self, name: str) -> Any:
        return next(each.listener for each in self.broker._listeners.open if each.name.name == name)

    def reload(self) -> None:
        """Look for changed certificates now, as the broker does every few seconds."""
        self.run(self.broker._listeners.reload())

    def client(self, listener: str = "SASL_SSL", **settings: Any) -> dict[str, Any]:
        """Return the settings of a client of a listener, with the right credentials unless `settings` change them."""
        found: dict[str, Any] = {"bootstrap": self.address(listener), "security_protocol": listener}
        if listener.endswith("SSL"):
            found["ssl_cafile"] = str(self.certificates.ca)
        if listener.startswith("SASL") and settings.get("sasl_mechanism") != "OAUTHBEARER":
            found |= {"sasl_mechanism": "SCRAM-SHA-256", "sasl_username": USER, "sasl_password": PASSWORD}
        return found | settings

    def close(self) -> None:
        self.run(self.broker.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


@contextmanager
def secured_broker(folder: Path, **settings: str) -> Iterator[SecuredBroker]:
    """Yield a running broker whose log lines are caught."""
    broker = SecuredBroker(folder, **settings)
    logger = logging.getLogger("barnabas")
    before = logger.level
    logger.addHandler(broker.logs)
    logger.setLevel(logging.DEBUG)
    try:
        broker.start()
        yield broker
    finally:
        broker.close()
        logger.removeHandler(broker.logs)
        logger.setLevel(before)
