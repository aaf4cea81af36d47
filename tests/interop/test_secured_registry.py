"""A registry with HTTPS, whose clients are users of a secured broker; and the client of that registry."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError as TheirError

pytest.importorskip("uvicorn")

import barnabas
from barnabas.errors import ConfigurationError, SchemaRegistryError
from barnabas.registry.main import Registry, RegistryConfig
from barnabas.security.http_settings import HttpSecurity
from barnabas.serialization.registry_settings import RegistrySettings
from barnabas.serialization.value_decoders import registry_at
from barnabas.spark import load
from tests.support.broker_process import BrokerProcess
from tests.support.secured_broker import PASSWORD, USER, SecuredBroker, secured_broker

TIMEOUT_S = 60.0
SCHEMA = {"schema": '"string"'}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as running:
        yield running


class RunningRegistry:
    """A registry on an event loop of its own thread."""

    def __init__(self, config: RegistryConfig) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="registry", daemon=True)
        self._thread.start()
        self.registry = self._run(self._started(config))

    async def _started(self, config: RegistryConfig) -> Registry:
        registry = Registry(config)
        await registry.start()
        return registry

    def _run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(TIMEOUT_S)

    @property
    def port(self) -> int:
        return int(self.registry.url.rpartition(":")[2])

    def close(self) -> None:
        self._run(self.registry.stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(TIMEOUT_S)
        self._loop.close()


def config_of(broker: SecuredBroker, listener: str = "SASL_SSL", **changes: Any) -> RegistryConfig:
    settings = {
        "security.protocol": listener,
        "ssl.truststore.location": str(broker.certificates.ca),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
    }
    if listener == "SSL":
        settings = {name: settings[name] for name in ("security.protocol", "ssl.truststore.location")}
        settings["ssl.keystore.location"] = str(broker.certificates.client("registry"))
    security = HttpSecurity(certfile=str(broker.key_store), cafile=str(broker.certificates.ca))
    return RegistryConfig(broker.address(listener), port=0, settings=settings, **{"security": security, **changes})


@pytest.fixture(scope="module")
def registry(broker: SecuredBroker) -> Iterator[RunningRegistry]:
    running = RunningRegistry(config_of(broker))
    yield running
    running.close()


def ask(
    broker: SecuredBroker,
    registry: RunningRegistry,
    method: str,
    path: str,
    body: object = None,
    *,
    authorization: str = "",
    certificate: Path | None = None,
) -> tuple[int, Any]:
    context = ssl.create_default_context(cafile=str(broker.certificates.ca))
    if certificate is not None:
        context.load_cert_chain(certificate)
    with closing(HTTPSConnection("127.0.0.1", registry.port, timeout=TIMEOUT_S, context=context)) as connection:
        headers = {"Authorization": authorization} if authorization else {}
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def basic(user: str = USER, password: str = PASSWORD) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_users_of_the_broker_authenticate_at_the_registry(broker: SecuredBroker, registry: RunningRegistry) -> None:
    path = "/subjects/clicks-value/versions"
    assert ask(broker, registry, "POST", path, SCHEMA, authorization=basic()) == (200, {"id": 1})
    token = f"Bearer {broker.tokens.token()}"
    assert ask(broker, registry, "GET", path, authorization=token) == (200, [1])
    certificate = broker.certificates.client("reports")
    assert ask(broker, registry, "GET", path, certificate=certificate) == (200, [1])


def test_strangers_get_401_and_learn_nothing(broker: SecuredBroker, registry: RunningRegistry) -> None:
    expired = broker.tokens.token(exp=1)
    forged = broker.tokens.token().rpartition(".")[0] + ".c2lnbmF0dXJl"
    other_name = broker.tokens.token(sub="mallory", iss="https://other.example")
    strangers = ["", basic(password="planted-wrong"), basic("nobody"), "Basic !", "Digest x"]
    strangers += [f"Bearer {each}" for each in (expired, forged, other_name)]
    refused = 401, {"error_code": 401, "message": "Unauthorized"}
    for path in ("/subjects", "/subjects/clicks-value/versions", "/no/such/path", "/"):
        for stranger in strangers:
            assert ask(broker, registry, "GET", path, authorization=stranger) == refused, (path, stranger)
    assert "planted-wrong" not in broker.logs.text()


def test_stranger_is_refused_before_the_body_is_read(broker: SecuredBroker, registry: RunningRegistry) -> None:
    context = ssl.create_default_context(cafile=str(broker.certificates.ca))

    async def send(head: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", registry.port, ssl=context)
        writer.write(b"POST /subjects/clicks-value/versions HTTP/1.1\r\nhost: x\r\n" + head + b"\r\n")
        async with asyncio.timeout(TIMEOUT_S):
            answer = await reader.read()
        writer.close()
        return answer

    for head in (b"content-length: 2000000\r\n", b"transfer-encoding: chunked\r\n"):
        answer = asyncio.run(send(head))
        assert answer.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
        assert b"\r\nWWW-Authenticate: Basic" in answer


def test_plain_http_at_the_https_port_is_refused(registry: RunningRegistry) -> None:
    async def send() -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", registry.port)
        writer.write(b"GET /subjects HTTP/1.1\r\nhost: x\r\n\r\n")
        async with asyncio.timeout(TIMEOUT_S):
            answer = await reader.read()
        writer.close()
        return answer

    assert b"HTTP" not in asyncio.run(send())


def test_large_request_arrives_with_the_end_of_the_handshake(broker: SecuredBroker, registry: RunningRegistry) -> None:
    body = {"schema": json.dumps({"type": "enum", "name": "Large", "symbols": [f"S{n}" for n in range(20_000)]})}
    status, answer = ask(broker, registry, "POST", "/subjects/large/versions", body, authorization=basic())
    assert status == 200, answer


def test_registry_with_a_certificate_for_the_broker_authenticates_by_certificates(broker: SecuredBroker) -> None:
    running = RunningRegistry(config_of(broker, "SSL", topic="_schemas-certificates"))
    certificate = broker.certificates.client("reports")
    assert ask(broker, running, "GET", "/subjects", certificate=certificate)[0] == 200
    assert ask(broker, running, "GET", "/subjects", authorization=basic())[0] == 401
    running.close()


def test_registry_whose_users_cannot_log_in_does_not_start(broker: SecuredBroker) -> None:
    security = HttpSecurity(certfile=str(broker.key_store))
    with pytest.raises(ConfigurationError, match="users cannot log in"):
        Registry(config_of(broker, "SSL", security=security))


def test_registry_for_other_machines_needs_authentication() -> None:
    with pytest.raises(ConfigurationError, match="without authentication"):
        RegistryConfig("localhost:9092", "0.0.0.0")
    with pytest.raises(ConfigurationError, match="without authentication"):
        RegistryConfig("localhost:9092", "")
    RegistryConfig("localhost:9092", "0.0.0.0", security=HttpSecurity(allow_anonymous=True))
    RegistryConfig("localhost:9092", "127.0.0.1")


def test_registry_uses_a_changed_certificate(broker: SecuredBroker, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    file = broker.certificates.server("registry")
    security = HttpSecurity(certfile=str(file), users=False)
    running = RunningRegistry(config_of(broker, security=security, topic="_schemas-renewed"))
    assert ask(broker, running, "GET", "/")[0] == 200
    broker.certificates.server("registry")
    assert ask(broker, running, "GET", "/")[0] == 200
    file.write_text("damaged")
    assert ask(broker, running, "GET", "/")[0] == 200
    running.close()
    assert "the registry uses the changed certificate for new connections" in caplog.text
    assert "cannot load the changed certificate of the registry" in caplog.text


def test_clients_of_the_registry_use_passwords_tokens_and_certificates(
    broker: SecuredBroker, registry: RunningRegistry, tmp_path: Path
) -> None:
    url, ca = f"https://localhost:{registry.port}", str(broker.certificates.ca)
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    certificate = str(broker.certificates.client("loads"))
    schema = barnabas.Schema('"long"')
    for settings in (
        {"username": USER, "password": f"${{file:{password}}}"},
        {"token": broker.tokens.token},
        {"ssl_certfile": certificate},
    ):
        given: Any = settings
        client = barnabas.SchemaRegistry(url, ssl_cafile=ca, timeout_s=TIMEOUT_S, **given)
        assert client.register("longs-value", schema) == client.id_of("longs-value", schema)
    loads = RegistrySettings(url, USER, PASSWORD, ssl_cafile=ca)
    assert registry_at(loads).latest("longs-value")[1] == schema


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"username": USER, "password": "planted-wrong"}, "Unauthorized"),
        ({"token": "planted.wrong.token"}, "Unauthorized"),
        ({}, "Unauthorized"),
        ({"username": USER, "password": PASSWORD, "ssl_cafile": None}, "the certificate is not accepted"),
    ],
)
def test_refused_client_of_the_registry_gets_the_reason_at_once(
    broker: SecuredBroker, registry: RunningRegistry, settings: dict[str, Any], reason: str
) -> None:
    given = {"ssl_cafile": str(broker.certificates.ca), **settings}
    client = barnabas.SchemaRegistry(f"https://localhost:{registry.port}", timeout_s=TIMEOUT_S, **given)
    with pytest.raises(SchemaRegistryError, match=reason) as refused:
        client.latest("clicks-value")
    assert "planted" not in str(refused.value)
    assert PASSWORD not in str(refused.value)


def test_broker_validates_values_with_a_secured_registry(
    broker: SecuredBroker, registry: RunningRegistry, make_broker: Callable[..., BrokerProcess], tmp_path: Path
) -> None:
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    validating = make_broker(
        schema_registry_url=f"https://localhost:{registry.port}",
        schema_registry_username=USER,
        schema_registry_password=f"${{file:{password}}}",
        schema_registry_ssl_truststore_location=str(broker.certificates.ca),
    )
    given: Any = {"username": USER, "password": PASSWORD, "ssl_cafile": str(broker.certificates.ca)}
    client = barnabas.SchemaRegistry(f"https://localhost:{registry.port}", **given)
    serializer = barnabas.AvroSerializer(client, '"string"')
    with barnabas.Admin(validating.bootstrap) as admin, barnabas.Producer(validating.bootstrap) as producer:
        admin.create_topic("views", config={"barnabas.value.schema.validation": "true"})
        assert producer.send("views", serializer.serialize("/a", "views")).result().offset == 0
        with pytest.raises(barnabas.ApiError, match="without a schema"):
            producer.send("views", b"no schema").result()
        shown = str(admin.describe_config(broker=0))
    assert PASSWORD not in shown


def test_load_reads_schemas_of_a_secured_registry(
    broker: SecuredBroker, registry: RunningRegistry, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    url, options = f"https://localhost:{registry.port}", {"username": USER, "ssl_cafile": str(broker.certificates.ca)}
    password = tmp_path / "password"
    password.write_text(PASSWORD)
    options["password"] = f"${{file:{password}}}"
    schema = {"type": "record", "name": "Click", "fields": [{"name": "page", "type": "string"}]}
    given: Any = options
    serializer = barnabas.AvroSerializer(barnabas.SchemaRegistry(url, **given), json.dumps(schema))
    with barnabas.Producer(bootstrap, value_serializer=serializer) as producer:
        producer.send(topic, {"page": "/jobs"}).result()
    done = load(
        topic,
        bootstrap=bootstrap,
        warehouse=tmp_path / "warehouse",
        format="avro",
        registry=url,
        registry_options=options,
    )
    assert done.records == 1
    stored = b"".join(each.read_bytes() for each in (tmp_path / "warehouse").rglob("*") if each.is_file())
    assert PASSWORD.encode() not in stored
    with pytest.raises(ConfigurationError, match="not a setting of a schema registry"):
        load(
            topic, bootstrap=bootstrap, warehouse=tmp_path, format="avro", registry=url, registry_options={"user": "x"}
        )


def test_client_of_confluent_uses_a_password_or_a_certificate(broker: SecuredBroker, registry: RunningRegistry) -> None:
    given = {"url": f"https://localhost:{registry.port}", "ssl.ca.location": str(broker.certificates.ca)}
    certificate = str(broker.certificates.client("theirs"))
    by_password = SchemaRegistryClient({**given, "basic.auth.user.info": f"{USER}:{PASSWORD}"})
    by_certificate = SchemaRegistryClient(
        {**given, "ssl.certificate.location": certificate, "ssl.key.location": certificate}
    )
    schema = Schema('"bytes"', "AVRO")
    assert by_password.register_schema("theirs", schema) == by_certificate.register_schema("theirs", schema)
    stranger = SchemaRegistryClient({**given, "basic.auth.user.info": f"{USER}:wrong"})
    with pytest.raises(TheirError, match="Unauthorized") as refused:
        stranger.get_subjects()
    assert refused.value.http_status_code == 401
