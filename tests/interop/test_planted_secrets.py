"""Passwords, tokens and private keys are in no log line, error, `repr`, response, metric or file of a broker and its
clients.
"""

from __future__ import annotations

import base64
import dataclasses
import logging
import tempfile
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import serialization

import barnabas as client
from barnabas.broker.settings.loading import load_config
from barnabas.client.config import ConsumerConfig, ProducerConfig
from barnabas.client.security import tls_settings
from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.metrics.exposition import exposition
from barnabas.net.tls import TlsContext, client_context, server_context
from barnabas.security.secrets import Secret
from barnabas.security.tls_settings import TlsSettings
from tests.interop.test_security import use
from tests.support.certificates import now
from tests.support.secured_broker import PASSWORD, USER, SecuredBroker

KEY_PASSWORD = "planted key password"
BROKER_PASSWORD = "planted password of brokers"
WRONG_PASSWORD = "planted wrong password"
NEW_PASSWORD = "planted new password"
OWN_FILES = {"users.json", "password.txt", "encrypted.pem", "client.pem", "broker.pem"}
"""The files with secrets that the test writes, as an operator does."""


def encrypted(key: str) -> str:
    """Return a private key that needs `KEY_PASSWORD`."""
    loaded = serialization.load_pem_private_key(key.encode(), None)
    return loaded.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(KEY_PASSWORD.encode()),
    ).decode()


class Planted:
    """The secrets, and the places where they must not be."""

    def __init__(self) -> None:
        self.secrets = {PASSWORD, KEY_PASSWORD, BROKER_PASSWORD, WRONG_PASSWORD, NEW_PASSWORD}
        self.seen: dict[str, str] = {}

    def add(self, secret: str) -> str:
        self.secrets.add(secret)
        return secret

    def see(self, place: str, text: object) -> None:
        self.seen[place] = self.seen.get(place, "") + str(text)

    def leaks(self, folder: Path) -> list[str]:
        """Return the places with a secret, in plain text or Base64."""
        found = []
        for secret in self.secrets:
            forms = {secret, secret[:40], *(each[4:-4] for each in encodings(secret))}
            found += [f"{place}: {secret[:20]}" for place, text in self.seen.items() if any(f in text for f in forms)]
            for file in folder.rglob("*"):
                if file.is_file() and file.name not in OWN_FILES:
                    data = file.read_bytes()
                    found += [f"{file}: {secret[:20]}" for form in forms if form.encode() in data]
        return found


def encodings(secret: str) -> Iterator[str]:
    """Yield the Base64 of a secret at each alignment."""
    for offset in range(3):
        yield base64.b64encode(b"x" * offset + secret.encode()).decode()


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Planted:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    return Planted()


def error_of(settings: dict[str, Any]) -> str:
    """Return the error of a client, with its traceback and the errors that caused it."""
    try:
        with client.Admin(**settings, default_api_timeout_ms=2_000) as admin:
            admin.list_topics()
    except BarnabasError as error:
        return "".join(traceback.format_exception(error))
    raise AssertionError("the client got in")


class Stage:
    """A broker with planted secrets, and the settings of clients that get in."""

    def __init__(self, folder: Path, planted: Planted) -> None:
        self.planted = planted
        self.broker = broker = SecuredBroker(
            folder,
            **{
                "ssl.keystore.location": str(folder / "encrypted.pem"),
                "ssl.key.password": KEY_PASSWORD,
                "listener.name.ssl.ssl.key.password": KEY_PASSWORD,
                "sasl.inter.broker.username": "broker",
                "sasl.inter.broker.password": BROKER_PASSWORD,
            },
        )
        authority = broker.certificates.authority
        self.issued = authority.issue_server(["127.0.0.1"], now(), name="broker")
        self.key_store = folder / "encrypted.pem"
        self.key_store.write_text(encrypted(self.issued.key) + self.issued.certificate)
        for key in (self.issued.key, authority.issued.key):
            planted.add(key.splitlines()[1])
        self.token = planted.add(broker.tokens.token())
        self.wrong_token = planted.add(broker.tokens.token(aud="elsewhere"))
        for each in (self.token, self.wrong_token):
            planted.add(each.split(".")[2])
        self.password = folder / "password.txt"
        self.password.write_text(PASSWORD)
        self.certificate = folder / "client.pem"
        own = authority.issue_client(USER, now())
        self.certificate.write_text(encrypted(own.key) + own.certificate)

    def clients(self) -> list[dict[str, Any]]:
        """Return the settings of clients that get in."""
        return [
            self.broker.client(sasl_mechanism="PLAIN"),
            self.broker.client(sasl_password=f"${{file:{self.password}}}"),
            self.broker.client(sasl_mechanism="OAUTHBEARER", sasl_oauth_token=lambda: self.token),
            self.broker.client("SSL", ssl_certfile=str(self.certificate), ssl_password=KEY_PASSWORD),
        ]

    def work(self) -> None:
        """Let clients work, and look at their settings."""
        for number, settings in enumerate(self.clients()):
            use(f"planted-{number}", settings)
            configs = {name: value for name, value in settings.items() if name != "bootstrap"}
            for config in (ProducerConfig(**configs), ConsumerConfig(**configs)):
                self.planted.see("repr of a client's settings", repr(config) + repr(dataclasses.asdict(config)))
                self.planted.see("repr of TLS settings", repr(tls_settings(config)))

    def fail(self) -> None:
        """Let clients fail, and look at their errors."""
        wrong = {
            "password": self.broker.client(sasl_password=WRONG_PASSWORD),
            "password with PLAIN": self.broker.client(sasl_mechanism="PLAIN", sasl_password=WRONG_PASSWORD),
            "token": self.broker.client(sasl_mechanism="OAUTHBEARER", sasl_oauth_token=lambda: self.wrong_token),
            "form": self.broker.client(sasl_mechanism="OAUTHBEARER", sasl_oauth_token=lambda: f"{self.token}\n"),
        }
        for kind, settings in wrong.items():
            self.planted.see(f"error of a wrong {kind}", error_of(settings))

    def ask(self) -> None:
        """Search all answers of the broker about itself for planted secrets."""
        broker = self.broker.broker
        with client.Admin(**self.clients()[0]) as admin:
            admin.set_user_password("bob", NEW_PASSWORD)
            self.planted.see("description of users", admin.describe_users())
            self.planted.see(
                "description of the broker", admin.describe_config(broker=self.broker.broker.config.broker_id)
            )
        broker = self.broker.broker
        self.planted.see("metrics", exposition(broker.collect()))
        self.planted.see("repr of the broker's settings", repr(broker.config))
        self.planted.see("repr of the broker", repr(vars(broker)))

    def misconfigure(self) -> None:
        """Look at the errors of wrong settings."""
        for name, value in (("num.partitions", "x"), ("listener.name.elsewhere.ssl.key.password", KEY_PASSWORD)):
            with pytest.raises(ConfigurationError) as caught:
                load_config(overrides={**self.broker.settings, name: value}, environment={})
            self.planted.see("error of a broker's settings", caught.value)
        tls = TlsSettings(key_store=str(self.certificate), key_password=Secret(WRONG_PASSWORD))
        for make in (server_context, client_context):
            for changed in (tls, replace(tls, key_password=None), replace(tls, key_file=str(self.password))):
                with pytest.raises(ConfigurationError) as caught:
                    TlsContext(changed, make)
                self.planted.see("error of a private key", caught.value)


def test_planted_secrets_stay_where_the_operator_put_them(
    tmp_path: Path, planted: Planted, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, logger="barnabas")
    stage = Stage(tmp_path, planted)
    try:
        stage.broker.start()
        stage.work()
        stage.fail()
        stage.ask()
        stage.key_store.write_text(encrypted(stage.issued.key)[:-40] + stage.issued.certificate)
        stage.broker.reload()
    finally:
        stage.broker.close()
    stage.misconfigure()
    planted.see("log", caplog.text)
    assert "failed to authenticate" in planted.seen["log"]
    assert "cannot load the changed certificates" in planted.seen["log"]
    assert planted.leaks(tmp_path) == []


def test_jaas_text_is_hidden(tmp_path: Path, planted: Planted) -> None:
    text = f'org.apache.kafka.common.security.plain.PlainLoginModule required username="a" password="{PASSWORD}";'
    settings: dict[str, Any] = {"security_protocol": "SASL_SSL", "sasl_mechanism": "PLAIN"}
    planted.see("repr", ProducerConfig(**settings, sasl_jaas_config=text))
    with pytest.raises(ConfigurationError) as caught:
        ProducerConfig(**settings, sasl_jaas_config=text[:-1])
    planted.see("error", "".join(traceback.format_exception(caught.value)))
    assert planted.leaks(tmp_path) == []


def test_search_finds_a_secret_in_each_form(tmp_path: Path, planted: Planted) -> None:
    for offset in range(3):
        planted.see(f"Base64 at {offset}", base64.b64encode(b"y" * offset + PASSWORD.encode() + b"zz").decode())
    planted.see("text", f"password={PASSWORD}")
    (tmp_path / "file").write_text(PASSWORD)
    assert len({leak.partition(":")[0] for leak in planted.leaks(tmp_path)}) == 5
