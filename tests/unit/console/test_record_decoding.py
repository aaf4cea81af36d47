"""Keys and values with schema ids: what is decoded, and the reasons why something is not."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
from collections.abc import Mapping
from typing import Any

import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from barnabas.clock import SYSTEM_CLOCK
from barnabas.console import record_decoding as module
from barnabas.console.record_decoding import (
    BYTES_MAX,
    FAILED_S,
    LOOKUPS_MAX,
    SCHEMA_CHARACTERS_MAX,
    SCHEMAS_MAX,
    Decoded,
    KnownSchema,
    RecordDecoding,
)
from barnabas.errors import ConfigurationError
from barnabas.serialization.registry_client import JSON, PROTOBUF, Schema, SchemaRegistry
from barnabas.serialization.wire_format import header
from tests.support.fake_registry import avro_record, registry_of

CLICK = {"type": "record", "name": "Click", "fields": [{"name": "page", "type": "string"}]}
NODE = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def __getattr__(self, name: str) -> object:
        return getattr(SYSTEM_CLOCK, name)


def click_file() -> Schema:
    file = FileDescriptorProto(name="click.proto", package="site", syntax="proto3")
    for name in ("Click", "View"):
        field = file.message_type.add(name=name).field.add()
        field.name, field.number, field.type, field.label = "page_name", 1, field.TYPE_STRING, field.LABEL_OPTIONAL
    return Schema(base64.b64encode(file.SerializeToString()).decode(), PROTOBUF)


class Calls:
    """A registry whose calls a test counts, and may hold up."""

    def __init__(self, *schemas: Schema | dict[str, Any]) -> None:
        self.paths: list[str] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        self.answers = registry_of(*schemas)._transport
        self.error: Exception | None = None

    def __call__(
        self, url: str, method: str, body: bytes | None, headers: Mapping[str, str], timeout_s: float
    ) -> tuple[int, bytes, Mapping[str, str]]:
        self.paths.append(url.removeprefix("http://registry"))
        self.may_answer.wait(60)
        if self.error is not None:
            raise self.error
        return self.answers(url, method, body, headers, timeout_s)

    def decoding(self, clock: Any = SYSTEM_CLOCK) -> RecordDecoding:
        return RecordDecoding(lambda: SchemaRegistry("http://registry", transport=self, timeout_s=0.1), clock)


def decode(decoding: RecordDecoding, *values: bytes | None) -> list[Decoded | None]:
    async def timed() -> list[Decoded | None]:
        async with asyncio.timeout(60):
            return await decoding.decode(values)

    return asyncio.run(timed())


def problem_of(decoding: RecordDecoding, value: bytes) -> str:
    (found,) = decode(decoding, value)
    assert found is not None
    assert found.value is None
    return found.problem


def test_values_of_all_formats_are_decoded_with_their_subjects() -> None:
    decoding = Calls(CLICK, Schema('{"type": "object"}', JSON), click_file()).decoding()
    avro = avro_record(1, CLICK, {"page": "/"})
    as_json = header(2) + b'{"page": [1]}'
    protobuf = header(3) + b"\x02\x02" + b"\x0a\x03/de"
    found = decode(decoding, avro, as_json, protobuf, None, b"", b"\0\0", b"plain text", bytes(8))
    assert found[3:] == [None] * 5
    assert [each.value for each in found[:3] if each] == [{"page": "/"}, {"page": [1]}, {"page_name": "/de"}]
    kinds = [each.schema for each in found[:3] if each]
    expected = [("AVRO", 1), ("JSON", 2), ("PROTOBUF", 3)]
    assert kinds == [KnownSchema(number, kind, ((f"subject-{number}", 1),)) for kind, number in expected]


def test_schema_is_requested_once() -> None:
    calls = Calls(CLICK)
    decoding = calls.decoding()
    value = avro_record(1, CLICK, {"page": "/"})
    for _ in range(3):
        decode(decoding, value, value)
    assert calls.paths == ["/schemas/ids/1", "/schemas/ids/1/versions"]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (header(9) + b"x", "the registry has no schema 9"),
        (header(1) + b"\x7f", "invalid record"),
        (header(1), "invalid record"),
        (header(1) + b"\0" * BYTES_MAX, "bytes are not decoded"),
        (header(2) + b"[" * 50_000, "invalid JSON"),
        (header(2) + b"\xff", "invalid JSON"),
        (header(3) + b"\x7f" * 9, "message index"),
        (header(3) + b"\x02\x10", "no message at [8]"),
        (header(3) + b"\0\xff", "DecodeError"),
        (header(4) + b"\x02" * 200_000 + b"\0", "levels of nested values"),
        (header(5) + b"\0", "would contain another one"),
        (header(6) + b"\0", "of the unknown type THRIFT"),
        (header(7) + b"\0", "invalid Avro schema"),
        (header(8) + b"\0", f"more than {SCHEMA_CHARACTERS_MAX} characters"),
    ],
    ids=range(14),
)
def test_reasons_are_named_for_what_is_not_decoded(data: bytes, text: str) -> None:
    endless = {"type": "record", "name": "E", "fields": [{"name": "e", "type": "E"}]}
    schemas = (
        CLICK, Schema("{}", JSON), click_file(), NODE, endless, Schema("", "THRIFT"), Schema("[" * 100_000),
        Schema(json.dumps({**CLICK, "doc": "x" * SCHEMA_CHARACTERS_MAX})),
    )  # fmt: skip
    assert text in problem_of(Calls(*schemas).decoding(), data)


def test_silent_registry_holds_up_a_page_only_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WAIT_S", 0.01)
    calls = Calls(CLICK)
    calls.may_answer.clear()
    decoding = calls.decoding()
    value = avro_record(1, CLICK, {"page": "/"})

    async def main() -> None:
        async with asyncio.timeout(60):
            (found,) = await decoding.decode([value])
            assert found is not None
            assert "has not answered yet" in found.problem
            calls.may_answer.set()
            while not isinstance(found, Decoded) or found.problem:
                (found,) = await decoding.decode([value])
            assert found.value == {"page": "/"}

    asyncio.run(main())
    assert calls.paths.count("/schemas/ids/1") == 1


def test_registry_that_is_down_is_asked_again_after_a_pause() -> None:
    calls, clock = Calls(CLICK), Clock()
    calls.error = ConnectionRefusedError("refused")
    decoding = calls.decoding(clock)
    assert "no schema registry responds" in problem_of(decoding, header(1))
    asked = len(calls.paths)
    assert "no schema registry responds" in problem_of(decoding, header(2))
    assert len(calls.paths) == asked
    calls.error = None
    clock.now_s += FAILED_S
    (found,) = decode(decoding, avro_record(1, CLICK, {"page": "/"}))
    assert found is not None
    assert found.value == {"page": "/"}


def test_bytes_with_many_ids_cause_few_requests() -> None:
    calls = Calls(CLICK)
    found = decode(calls.decoding(Clock()), *(header(1_000 + number) for number in range(500)))
    assert len(calls.paths) == LOOKUPS_MAX
    problems = [each.problem for each in found if each is not None]
    assert sum("the registry has no schema" in each for each in problems) == LOOKUPS_MAX
    assert sum("new schema ids" in each for each in problems) == 500 - LOOKUPS_MAX


def test_cache_of_schemas_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LOOKUPS_MAX", 1_000)
    calls = Calls(*[CLICK] * (SCHEMAS_MAX + 5))
    decoding = calls.decoding()
    found = decode(decoding, *(header(number + 1) + b"\x02a" for number in range(SCHEMAS_MAX + 5)))
    assert sum(each is not None and not each.problem for each in found) == SCHEMAS_MAX
    assert len(decoding._entries) == SCHEMAS_MAX
    monkeypatch.setattr(module, "CHARACTERS_MAX", 3 * len(json.dumps(CLICK)))
    decode(decoding, header(1) + b"\x02a", header(2) + b"\x02a", header(3) + b"\x02a", header(4) + b"\x02a")
    decode(decoding, *(header(number + 1) + b"\x02a" for number in range(SCHEMAS_MAX + 5)))
    assert len(decoding._entries) <= 3


def test_decoding_ends_at_its_deadline() -> None:
    clock = Clock()
    decoding = Calls(CLICK).decoding(clock)
    value = avro_record(1, CLICK, {"page": "/"})
    decode(decoding, value)
    decoding._entries[1] = module._Entry(
        decoding._entries[1].schema, lambda _data: setattr(clock, "now_s", clock.now_s + 1.0), 1
    )
    found = decode(decoding, *[value] * 5)
    assert [each is not None and "time for decoding" in each.problem for each in found] == [
        False,
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize(("schema", "package"), [(CLICK, "fastavro"), (click_file(), "protobuf")])
def test_missing_package_is_named_with_its_extra(schema: Any, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import_module = module.avro.require_schema_package

    def without_packages(name: str) -> Any:
        if name.startswith(("fastavro", "google")):
            raise ConfigurationError(f"the package {package} is missing; run: pip install 'barnabas[schemas]'")
        return import_module(name)

    for each in (module, module.avro, module.protobuf):
        monkeypatch.setattr(each, "require_schema_package", without_packages)
    assert "pip install 'barnabas[schemas]'" in problem_of(Calls(schema).decoding(), header(1) + b"\0")


@pytest.mark.parametrize(
    ("subjects", "home"),
    [
        ((), None),
        ((("other", 3),), ("other", 3)),
        ((("a", 1), ("clicks-value", 1), ("clicks-value", 2), ("z", 9)), ("clicks-value", 2)),
    ],
    ids=["none", "other", "own"],
)
def test_subject_of_the_topic_comes_first(subjects: Any, home: Any) -> None:
    assert KnownSchema(1, "AVRO", subjects).home("clicks", "value") == home
