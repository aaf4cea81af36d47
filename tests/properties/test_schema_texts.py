"""Whatever is sent as a schema: it is one, and reads what it writes itself, or is refused; nothing else is raised."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.registry import records
from barnabas.registry.errors import RegistryError
from barnabas.registry.records import Record, UnknownRecordError
from barnabas.registry.requests import SchemaRequest, parse_config, parse_mode, parse_version
from barnabas.registry.schema_types import parsing
from barnabas.registry.schema_types.schema import SchemaSyntaxError
from barnabas.registry.state import AVRO, JSON, PROTOBUF, Content, RegistryState

AVRO_WORDS = ["type", "name", "namespace", "fields", "items", "values", "symbols", "size", "default", "aliases"]
AVRO_VALUES = ["record", "enum", "fixed", "array", "map", "int", "string", "null", "a.b", "A", "", "date", "decimal"]
JSON_WORDS = ["type", "properties", "items", "required", "anyOf", "not", "$ref", "enum", "additionalProperties"]
JSON_VALUES = ["object", "array", "string", "#", "#/properties/a", "a"]
WORDS = """
    syntax = "proto3" ; package a.b import message M { } enum E oneof o map < string , int32 > repeated optional
    x y 1 2 0 [ ] reserved to max option ( ) // /* */ .a.b.M extensions service -1 json_name default required
"""
PROTO_WORDS = re.findall(r"\S+", WORDS)


def nested(words: list[str], values: list[str]) -> st.SearchStrategy[Any]:
    leaves = st.sampled_from(values) | st.integers(-2, 9) | st.booleans() | st.none()
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(words), inner, max_size=5),
        max_leaves=20,
    )


TEXTS = {
    AVRO: nested(AVRO_WORDS, AVRO_VALUES).map(json.dumps) | st.text(),
    JSON: nested(JSON_WORDS, JSON_VALUES).map(json.dumps) | st.text(),
    PROTOBUF: st.lists(st.sampled_from(PROTO_WORDS), max_size=40).map(" ".join) | st.text(),
}


@pytest.mark.parametrize("kind", TEXTS)
@given(data=st.data())
def test_any_text_is_a_schema_or_refused(kind: str, data: st.DataObject) -> None:
    text = data.draw(TEXTS[kind])
    try:
        schema = parsing.parse(Content(kind, text), ())
    except SchemaSyntaxError:
        return
    again = parsing.parse(Content(kind, schema.text), ())
    assert again.text == schema.text
    assert parsing.parse(Content(kind, schema.normalized), ()).normalized == schema.normalized
    if kind != JSON:  # there a reference may lead nowhere
        assert not schema.read_incompatibilities(again)
    else:
        schema.read_incompatibilities(again)


def refusal(parse: Callable[[Any], object], given: Any) -> int:
    """Return the code with which something is refused, 0 where it is not."""
    try:
        parse(given)
    except RegistryError as error:
        return error.code
    return 0


@given(nested(["schema", "schemaType", "references", "id", "version", "name", "subject", "metadata"], ["AVRO", "int"]))
def test_any_body_is_a_request_or_refused(body: Any) -> None:
    for parse in (SchemaRequest.of, parse_config, parse_mode):
        assert refusal(parse, body) // 100 in (0, 4, 422)


@given(st.text())
def test_any_version_is_a_number_or_refused(text: str) -> None:
    assert refusal(parse_version, text) in (0, 42202)


KINDS = [records.SCHEMA, records.CONFIG, records.MODE, records.DELETE_SUBJECT, records.CLEAR_SUBJECT, records.NOOP]
KEYS = st.fixed_dictionaries(
    {"keytype": st.sampled_from(KINDS)},
    optional={"subject": st.sampled_from(["a", "b", None, 1]), "version": st.sampled_from([1, 2, None, "1"])},
)
VALUES = st.none() | st.fixed_dictionaries(
    {},
    optional={
        "id": st.integers(1, 3) | st.none(),
        "schema": st.sampled_from(["x", "y", 1]),
        "version": st.sampled_from([1, 2, "1"]),
        "deleted": st.booleans(),
        "mode": st.sampled_from(["READONLY", 1]),
        "references": st.sampled_from(
            [
                [{"name": "n", "subject": "a", "version": 1}],
                [{"name": "n", "subject": ["a"], "version": {}}],
                [1],
                "x",
                7,
            ]
        ),
        "compatibilityLevel": st.sampled_from(["FULL", "x", 1]),
    },
)


@given(st.lists(st.tuples(KEYS, VALUES), max_size=30))
def test_any_records_leave_a_state_that_answers(read: list[tuple[dict[str, Any], dict[str, Any] | None]]) -> None:
    state = RegistryState()
    for key, value in read:
        try:
            state.apply(Record.decode(*Record(key, value).encoded()))
        except UnknownRecordError:
            continue
    for subject in state.subjects(":*:", deleted=True):
        for version in state.versions(subject, deleted=True):
            assert version in state.versions_of_id(".", version.id, deleted=True)
            state.referrers(subject, version.version, deleted=True)
        state.mode(subject)
    assert {version.id for version in state.all_versions()} <= set(range(1, state.last_id(".") + 1))
