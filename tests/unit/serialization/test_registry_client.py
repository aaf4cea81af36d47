"""The client of a registry: what it asks, remembers and tries again; and what stands before records."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import ConfigurationError, SchemaRegistryError, SerializationError, TimedOutError
from barnabas.serialization import wire_format
from barnabas.serialization.registry_client import Schema, SchemaReference, SchemaRegistry, registry_of
from barnabas.serialization.registry_settings import RegistrySettings


class Servers:
    """Registries by their answers: what is raised or given for each request in turn."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str, Mapping[str, str]]] = []

    def __call__(
        self, url: str, method: str, _body: bytes | None, headers: Mapping[str, str], _timeout_s: float
    ) -> tuple[int, bytes, Mapping[str, str]]:
        self.asked.append((method, url, headers))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        status, content = answer
        return status, content if isinstance(content, bytes) else json.dumps(content).encode(), {}


def client(servers: Servers, url: str = "http://registry:8081", timeout_s: float = 30.0) -> SchemaRegistry:
    return SchemaRegistry(url, transport=servers, clock=ManualClock(), timeout_s=timeout_s)


def test_what_an_id_stands_for_is_asked_once() -> None:
    servers = Servers((200, {"schema": '"int"'}), (200, {"schema": "true", "schemaType": "JSON"}))
    registry = client(servers)
    assert [registry.schema(1), registry.schema(1)] == [Schema('"int"')] * 2
    assert registry.schema(2) == Schema("true", "JSON")
    assert [url for _, url, _ in servers.asked] == [f"http://registry:8081/schemas/ids/{n}" for n in (1, 2)]


def test_a_subject_is_one_part_of_the_path() -> None:
    servers = Servers((200, {"id": 7}))
    assert client(servers).register("a/b value", Schema('"int"')) == 7
    assert servers.asked[0][:2] == ("POST", "http://registry:8081/subjects/a%2Fb%20value/versions")


def test_the_next_server_is_asked_where_one_fails() -> None:
    servers = Servers(ConnectionRefusedError("refused"), (503, b"starting"), (200, {"schema": '"int"'}))
    registry = client(servers, "http://me:secret@one:1, https://two:2/path/")
    assert registry.schema(1) == Schema('"int"')
    assert [url.removesuffix("/schemas/ids/1") for _, url, _ in servers.asked] == [
        "http://one:1",
        "https://two:2/path",
        "http://one:1",
    ]
    assert servers.asked[0][2]["Authorization"] == "Basic bWU6c2VjcmV0"
    assert "Authorization" not in servers.asked[1][2]


def test_a_refusal_is_told_and_not_remembered() -> None:
    refusal = (404, {"error_code": 40403, "message": "Schema 1 not found"})
    registry = client(Servers(refusal, (200, {"schema": '"int"'})))
    with pytest.raises(SchemaRegistryError, match="Schema 1 not found") as refused:
        registry.schema(1)
    assert refused.value.code == 40403
    assert registry.schema(1) == Schema('"int"')


def test_no_answer_in_time_names_the_server() -> None:
    registry = client(Servers(ConnectionRefusedError("refused")), timeout_s=0.05)
    with pytest.raises(TimedOutError, match=r"http://registry:8081 .*refused"):
        registry.schema(1)


def test_an_answer_of_something_else_is_no_registrys() -> None:
    with pytest.raises(SchemaRegistryError, match="is not one of a schema registry"):
        client(Servers((200, b"<html>"))).schema(1)


def test_the_latest_version_is_asked_again_after_a_minute() -> None:
    servers = Servers((200, {"id": 1, "schema": '"int"'}), (200, {"id": 2, "schema": '"long"'}))
    clock = ManualClock()
    registry = SchemaRegistry("http://registry", transport=servers, clock=clock)
    assert registry.latest("s") == registry.latest("s") == (1, Schema('"int"'))
    clock.advance(61)
    assert registry.latest("s") == (2, Schema('"long"'))


def test_dependencies_come_before_what_needs_them() -> None:
    inner, outer = SchemaReference("inner", "i", 1), SchemaReference("outer", "o", 2)
    servers = Servers((200, {"schema": "O", "references": [inner.as_json()]}), (200, {"schema": "I"}))
    schema = Schema("S", references=(outer, inner))
    assert client(servers).dependencies(schema) == [("inner", "I"), ("outer", "O")]


@pytest.mark.parametrize("url", ["", " , ", "localhost:8081", "ftp://host", "http://"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError):
        SchemaRegistry(url)


@pytest.mark.parametrize("data", [b"", b"\0\0\0\0", b'{"a":1}', b"\1\0\0\0\1x"])
def test_bytes_without_an_id_are_refused(data: bytes) -> None:
    with pytest.raises(SerializationError):
        wire_format.schema_id(data)


@pytest.mark.parametrize("indexes", [[0], [1], [0, 0], [3, 0, 70], [2**20]])
def test_message_indexes_there_and_back(indexes: list[int]) -> None:
    encoded = wire_format.encode_indexes(indexes)
    assert wire_format.decode_indexes(encoded + b"rest", 0) == (indexes, len(encoded))


@pytest.mark.parametrize("data", [b"", b"\x04\x02", b"\xff\xff\xff\xff\xff\xff", b"\x01", b"\xd0\x0f"])
def test_message_indexes_that_are_none_are_refused(data: bytes) -> None:
    with pytest.raises(SerializationError):
        wire_format.decode_indexes(data, 0)


@pytest.mark.parametrize("answer", [{}, {"id": "seven"}, [], None, "7", {"id": None}])
def test_an_answer_that_no_registry_gives_is_a_typed_error(answer: Any) -> None:
    registry = client(Servers(*[(200, answer)] * 6))
    for ask in (
        lambda: registry.register("clicks-value", Schema('"int"')),
        lambda: registry.id_of("clicks-value", Schema('"int"')),
        lambda: registry.version_of("clicks-value", Schema('"int"')),
        lambda: registry.latest("clicks-value"),
        lambda: registry.schema(1),
        lambda: registry.version("clicks-value", 1),
    ):
        with pytest.raises(SchemaRegistryError, match="is not one of a schema registry"):
            ask()


# --- credentials and certificates ---

SECRET = "planted-secret"
ANSWER = (200, {"schema": '"int"'})


def authorization(servers: Servers, **settings: Any) -> str:
    """Return the header of a request of a client with these settings."""
    SchemaRegistry("https://registry", transport=servers, clock=ManualClock(), **settings).schema(1)
    return servers.asked[-1][2]["Authorization"]


def test_credentials_come_from_settings_and_their_sources(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n")
    monkeypatch.setenv("REGISTRY_TOKEN", "abc.def")
    basic = "Basic YWxpY2U6cGxhbnRlZC1zZWNyZXQ="
    assert authorization(Servers(ANSWER), username="alice", password=SECRET) == basic
    assert authorization(Servers(ANSWER), username="alice", password=f"${{file:{file}}}") == basic
    assert authorization(Servers(ANSWER), token="${env:REGISTRY_TOKEN}") == "Bearer abc.def"
    tokens = iter(["first", "second"])
    servers = Servers(ANSWER, ANSWER)
    registry = SchemaRegistry("https://registry", transport=servers, token=lambda: next(tokens))
    registry.schema(1)
    registry.schema(2)
    assert [headers["Authorization"] for _, _, headers in servers.asked] == ["Bearer first", "Bearer second"]


def test_user_in_a_url_is_decoded() -> None:
    servers = Servers(ANSWER)
    SchemaRegistry("https://al%40ice:p%3Aw@registry", transport=servers).schema(1)
    assert servers.asked[0][2]["Authorization"] == "Basic YWxAaWNlOnA6dw=="


@pytest.mark.parametrize(
    ("url", "settings", "reason"),
    [
        ("https://registry", {"username": "alice"}, "both a username and a password"),
        ("https://registry", {"password": SECRET}, "both a username and a password"),
        ("https://registry", {"username": "alice", "password": SECRET, "token": "abc"}, "not both"),
        ("https://registry", {"username": "alice", "password": SECRET, "token": lambda: "abc"}, "not both"),
        (f"https://bob:{SECRET}@registry", {"token": "abc"}, "not both"),
        ("http://registry", {"ssl_cafile": "ca.pem"}, "need an https:// URL"),
        ("https://registry", {"ssl_cafile": "missing.pem"}, "cannot read missing.pem"),
        (f"registry://bob:{SECRET}@host", {}, "is not a URL of a schema registry"),
        (f"bob:{SECRET}@host:8081", {}, "is not a URL of a schema registry"),
        (f"https://bob:{SECRET}@host:port", {}, "is not a URL of a schema registry"),
        (f"https://bob:{SECRET}@[host", {}, "is not a URL of a schema registry"),
    ],
)
def test_contradictory_settings_are_refused_without_secrets(url: str, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as refused:
        SchemaRegistry(url, **settings)
    assert SECRET not in str(refused.value)


def test_token_that_is_none_is_refused_without_the_token() -> None:
    registry = SchemaRegistry("https://registry", transport=Servers(), token=f"{SECRET} with spaces")
    with pytest.raises(ConfigurationError) as refused:
        registry.schema(1)
    assert SECRET not in str(refused.value)


def test_settings_have_confluents_names_too_and_reach_executors() -> None:
    options = {"basic.auth.user.info": f"alice:{SECRET}", "ssl.ca.location": "ca.pem", "ssl.key.password": SECRET}
    settings = RegistrySettings.of(f"https://bob:{SECRET}@host", options)
    assert (settings.username, settings.password, settings.ssl_cafile) == ("alice", SECRET, "ca.pem")
    assert SECRET not in repr(settings) + str(settings)
    assert pickle.loads(pickle.dumps(settings)) == settings
    assert RegistrySettings.of("u", {"bearer.auth.token": "abc"}) == RegistrySettings.of("u", {"token": "abc"})
    with pytest.raises(ConfigurationError, match="'passwort' is not a setting of a schema registry"):
        RegistrySettings.of("u", {"passwort": SECRET})
    with pytest.raises(ConfigurationError, match="set username and password"):
        RegistrySettings.of("u", {"basic.auth.user.info": "${file:user-info}"})


def test_errors_and_reprs_of_a_client_contain_no_secret() -> None:
    registry = registry_of(RegistrySettings("http://localhost:1", "alice", SECRET), timeout_s=0.01)
    with pytest.raises(TimedOutError) as failed:
        registry.schema(1)
    assert SECRET not in str(failed.value) + repr(registry) + repr(vars(registry))
