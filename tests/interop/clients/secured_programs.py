"""Clients in Go, JavaScript and Java that authenticate, each exchange in a process of its own.

The programs are built, or their libraries installed, when a test first needs them, in the cache of the tests. If the
toolchain is missing, the test is skipped with the reason.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.interop.clients import kafkajs
from tests.interop.clients.secured import TIMEOUT_S, RefusedError, SecuredClient
from tests.interop.java.maven import classes, jars, java
from tests.interop.java.program import OPTIONS
from tests.support.authenticating_broker import Access
from tests.support.cache import CACHE, cached

FRANZ_GO, SARAMA, SCRAM, JAVA = "1.21.5", "1.61.1", "1.2.0", "4.3.0"
LOGGING = "org.slf4j:slf4j-simple:1.7.36"
BUILD_TIMEOUT_S = 600
GO_SOURCE = Path(__file__).with_name("secured_client.go")
JS_SOURCE = Path(__file__).with_name("secured_client.js")
JAVA_SOURCE = Path(__file__).parents[1] / "java" / "SecuredClient.java"
MODULES = [
    f"github.com/twmb/franz-go@v{FRANZ_GO}",
    f"github.com/IBM/sarama@v{SARAMA}",
    f"github.com/xdg-go/scram@v{SCRAM}",
]


class GoClient:
    """franz-go or sarama. franz-go calls the broker's reason for a refused token (RFC 7628) unexpected data.

    :param refusal: a pattern for the errors of this client that report a refusal.
    """

    def __init__(self, name: str, version: str, refusal: str) -> None:
        self.name = name
        self._version = version
        self._refusal = re.compile(refusal)

    def version(self) -> str:
        return self._version

    def exchange(self, access: Access, topic: str, value: str) -> str:
        given = access.as_json(client=self.name, topic=topic, value=value)
        answer = json.loads(_run([str(_go_program())], given))
        return _value(answer.get("value"), answer.get("error", ""), self._refusal)


class KafkaJs:
    """kafkajs takes the broker's reason for a refused token (RFC 7628) for a success, so the broker disconnects it."""

    name = "kafkajs"
    _refusal = re.compile("KafkaJSSASLAuthenticationError|SSL alert number|Closed connection")

    def version(self) -> str:
        return kafkajs.PACKAGES[0].partition("@")[2]

    def exchange(self, access: Access, topic: str, value: str) -> str:
        if reason := kafkajs.install():
            pytest.skip(reason)
        environment = {"NODE_PATH": str(kafkajs.FOLDER / "node_modules"), "KAFKAJS_NO_PARTITIONER_WARNING": "1"}
        answer = json.loads(_run(["node", str(JS_SOURCE)], access.as_json(topic=topic, value=value), environment))
        return _value(answer.get("value"), answer.get("error", ""), self._refusal)


class Java:
    """Kafka's Java client."""

    name = "java"
    _refusal = re.compile("SaslAuthenticationException|SslAuthenticationException")
    _modules: Mapping[str, str] = {
        "PLAIN": "plain.PlainLoginModule",
        "SCRAM-SHA-256": "scram.ScramLoginModule",
        "SCRAM-SHA-512": "scram.ScramLoginModule",
        "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule",
    }

    def version(self) -> str:
        return JAVA

    def exchange(self, access: Access, topic: str, value: str) -> str:
        libraries = jars(
            f"kafka-streams-{JAVA}", f"org.apache.kafka:kafka-streams:{JAVA}", "org.slf4j:slf4j-simple:1.7.36"
        )
        compiled = classes(JAVA_SOURCE, libraries)
        settings = self._settings(access) | {"topic": topic, "value": value}
        given = "".join(f"{name}={each}\n" for name, each in settings.items())
        quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"
        printed = _run([java(), *OPTIONS, quiet, "-cp", f"{compiled}:{libraries}/*", "SecuredClient"], given)
        kind, _, text = printed.strip().partition(" ")
        return _value(text if kind == "value" else None, text, self._refusal)

    def _settings(self, access: Access) -> dict[str, str]:
        found = {
            "bootstrap.servers": access.bootstrap,
            "security.protocol": access.protocol,
            "delivery.timeout.ms": str(TIMEOUT_S * 1000),
            "request.timeout.ms": str(TIMEOUT_S * 500),
            "max.block.ms": str(TIMEOUT_S * 1000),
        }
        if access.protocol.endswith("SSL"):
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": access.ca}
        if access.certificate:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": access.certificate}
        if access.mechanism:
            module = f"org.apache.kafka.common.security.{self._modules[access.mechanism]} required"
            login = "" if access.token else f' username="{access.username}" password="{access.password}"'
            found |= {"sasl.mechanism": access.mechanism, "sasl.jaas.config": f"{module}{login};"}
        if access.token:
            found |= {"token": access.token, "sasl.login.callback.handler.class": "SecuredClient$Tokens"}
        return found


def _value(value: str | None, error: str, refusal: re.Pattern[str]) -> str:
    if value is not None:
        return value
    assert refusal.search(error), f"no authentication error: {error}"
    raise RefusedError(error)


def _run(command: Sequence[str], given: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a program with its standard input; return its output."""
    done = subprocess.run(
        command,
        input=given,
        capture_output=True,
        text=True,
        timeout=3 * TIMEOUT_S,
        env=os.environ | (environment or {}),
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return done.stdout


def _go_program() -> Path:
    """Return the program for Go's clients, built once."""
    go = shutil.which("go") or pytest.skip("Go is not installed")
    digest = hashlib.sha256(GO_SOURCE.read_bytes() + " ".join(MODULES).encode()).hexdigest()[:16]
    environment = os.environ | {"GOPATH": str(CACHE / "go"), "GOFLAGS": "-modcacherw -mod=mod"}

    def build(folder: Path) -> None:
        folder.mkdir(parents=True)
        shutil.copy(GO_SOURCE, folder / "main.go")
        (folder / "go.mod").write_text("module secured\n")
        for arguments in (["get", *MODULES], ["build", "-o", "secured", "."]):
            done = subprocess.run(
                [go, *arguments],
                cwd=folder,
                env=environment,
                timeout=BUILD_TIMEOUT_S,
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode and arguments[0] == "get":
                pytest.skip(f"Go cannot download the modules: {done.stderr[-300:]}")
            assert done.returncode == 0, done.stderr[-2_000:]

    return cached(f"secured-go-{digest}", build) / "secured"


PROGRAMS: list[SecuredClient] = [
    GoClient("franz-go", FRANZ_GO, "SASL_AUTHENTICATION_FAILED|unexpected data in oauth response|remote error: tls"),
    GoClient("sarama", SARAMA, "SASL Authentication failed|remote error: tls"),
    KafkaJs(),
    Java(),
]
