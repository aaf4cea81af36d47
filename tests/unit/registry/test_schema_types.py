"""Schemas of the three kinds: parsed, written in one form, compared."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest

from barnabas.registry import compatibility
from barnabas.registry.schema_types import parsing
from barnabas.registry.schema_types.schema import Schema, SchemaSyntaxError
from barnabas.registry.state import AVRO, JSON, PROTOBUF, Content, Version
from barnabas.registry.subject_config import Level


def parse(kind: str, schema: Any, *dependencies: tuple[str, str]) -> Schema:
    return parsing.parse(Content(kind, schema if isinstance(schema, str) else json.dumps(schema)), dependencies)


def reads(kind: str, reader: Any, writer: Any) -> bool:
    return not parse(kind, reader).read_incompatibilities(parse(kind, writer))


# --- Avro -----------------------------------------------------------------------------------------------


def record(*fields: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": "Click", "fields": list(fields), **more}


PAGE = {"name": "page", "type": "string"}
NUMBER = {"name": "number", "type": "int"}


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ('"int"', '"int"'),
        ("int", '"int"'),
        ('{"type": "int"}', '"int"'),
        ('{"type": "int", "name": "x"}', '"int"'),
        ('{"type": "int", "logicalType": "date"}', '{"type":"int","logicalType":"date"}'),
        ('{"items": "int", "type": "array"}', '{"type":"array","items":"int"}'),
        (
            '{"name": "a.b.C", "fields": [{"type": "a.b.C", "name": "x", "doc": "d"}], "type": "record"}',
            '{"type":"record","name":"C","namespace":"a.b","fields":[{"name":"x","type":"C","doc":"d"}]}',
        ),
        (
            '{"type": "enum", "name": "E", "symbols": ["A"], "default": "A", "owner": "us", "aliases": ["F"]}',
            '{"type":"enum","name":"E","symbols":["A"],"default":"A","owner":"us","aliases":["F"]}',
        ),
    ],
)
def test_avro_is_written_as_java_writes_it(given: str, written: str) -> None:
    assert parse(AVRO, given).text == written
    assert parse(AVRO, written).text == written


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '"nothing"',
        "7",
        "[]x",
        '{"type": "record", "name": "R"}',
        '{"type": "record", "name": "R", "fields": [{"name": "x"}]}',
        '{"type": "enum", "name": "E", "symbols": ["A", "A"]}',
        '{"type":' * 5_000 + '"int"' + "}" * 5_000,
    ],
)
def test_what_is_no_avro_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaSyntaxError):
        parse(AVRO, text)


def test_avro_fields_may_come_with_a_default_and_go() -> None:
    with_default = {**NUMBER, "default": 0}
    assert reads(AVRO, record(PAGE, with_default), record(PAGE))
    assert not reads(AVRO, record(PAGE, NUMBER), record(PAGE))
    assert reads(AVRO, record(PAGE), record(PAGE, NUMBER))
    assert reads(AVRO, record({**NUMBER, "type": "long"}), record(NUMBER))
    assert not reads(AVRO, record(NUMBER), record({**NUMBER, "type": "long"}))


def test_avro_types_may_stand_in_other_schemas() -> None:
    dependency = ("page.avsc", json.dumps({"type": "record", "name": "Page", "namespace": "a", "fields": [PAGE]}))
    schema = parse(AVRO, record({"name": "page", "type": "a.Page"}), dependency)
    assert not schema.read_incompatibilities(schema)
    with pytest.raises(SchemaSyntaxError):
        parse(AVRO, record({"name": "page", "type": "a.Page"}))


# --- JSON Schema ----------------------------------------------------------------------------------------


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


def opened(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


INT, STRING = {"type": "integer"}, {"type": "string"}


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (True, {"type": "string"}),
        ({}, {"not": {"type": "string"}}),
        (INT, False),
        (INT, {"not": {}}),
        ({"type": "object"}, {"type": "object", "patternProperties": {"^a": INT}, "propertyNames": {"maxLength": 3}}),
        ({"type": "number"}, INT),
        ({"type": ["integer", "string"]}, INT),
        (closed(a=INT, b=STRING), closed(a=INT)),
        (opened(a=INT), closed(a=INT)),
        (opened(a=INT), opened(a=INT, b=STRING)),
        ({**opened(a=INT)}, {**opened(a=INT), "required": ["a"]}),
        ({**closed(a={**INT, "default": 1}), "required": ["a"]}, closed(a=INT)),
        ({"enum": [1, 2, 3]}, {"enum": [1, 2]}),
        ({"enum": [1, 2]}, {"const": 1}),
        (INT, {"enum": [1, 2]}),
        ({"type": "string", "maxLength": 9}, {"type": "string", "maxLength": 8}),
        ({"type": "string"}, {"type": "string", "pattern": "^a"}),
        ({"anyOf": [INT, STRING]}, INT),
        ({"oneOf": [INT, STRING]}, {"oneOf": [STRING, INT]}),
        (INT, {"allOf": [INT, {"minimum": 3}]}),
        ({"type": "array", "items": {"type": "number"}}, {"type": "array", "items": INT}),
        ({"multipleOf": 5, "type": "integer"}, {"multipleOf": 10, "type": "integer"}),
        (
            {
                "$ref": "#/definitions/n",
                "definitions": {"n": {"type": "object", "properties": {"next": {"$ref": "#"}}}},
            },
            {"type": "object", "properties": {"next": {"$ref": "#"}}},
        ),
    ],
)
def test_a_json_schema_accepts_what_the_other_accepts(reader: Any, writer: Any) -> None:
    assert parse(JSON, reader).read_incompatibilities(parse(JSON, writer)) == []


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (False, {"type": "string"}),
        (INT, {"type": "number"}),
        (INT, {}),
        (INT, STRING),
        (opened(a=INT, b=STRING), opened(a=INT)),
        (closed(a=INT), closed(a=INT, b=STRING)),
        (closed(a=INT), opened(a=INT)),
        ({**opened(a=INT), "required": ["a"]}, opened(a=INT)),
        ({"enum": [1, 2]}, {"enum": [1, 2, 3]}),
        ({"enum": [1, 2]}, INT),
        ({"type": "string", "maxLength": 7}, {"type": "string", "maxLength": 8}),
        ({"type": "string", "minLength": 1}, {"type": "string"}),
        ({"type": "string", "pattern": "^a"}, {"type": "string"}),
        ({"anyOf": [INT, STRING]}, {"type": "boolean"}),
        ({"allOf": [INT, {"minimum": 3}]}, INT),
        ({"oneOf": [STRING]}, {"oneOf": [STRING, INT]}),
        ({"type": "array", "items": INT}, {"type": "array"}),
        ({"type": "array", "uniqueItems": True}, {"type": "array"}),
        ({"not": INT}, {"type": "string"}),
        (closed(a=INT), {**closed(a=INT), "patternProperties": {"^b": INT}}),
        ({**opened(), "patternProperties": {"^b": INT}}, opened()),
        (opened(a={"$ref": "#/definitions/gone"}), opened(a=INT)),
        (
            {"type": "object", "properties": {"a": opened(b=INT)}},
            {"type": "object", "properties": {"a": opened(b=STRING)}},
        ),
    ],
)
def test_a_json_schema_does_not_accept_what_the_other_accepts(reader: Any, writer: Any) -> None:
    assert parse(JSON, reader).read_incompatibilities(parse(JSON, writer))


def test_json_schemas_refer_to_others_by_name() -> None:
    reader = parse(JSON, opened(page={"$ref": "page.json"}), ("page.json", json.dumps(STRING)))
    writer = parse(JSON, opened(page={"$ref": "page.json"}), ("page.json", json.dumps({"enum": ["/a", "/b"]})))
    assert not reader.read_incompatibilities(writer)
    assert writer.read_incompatibilities(reader)


D7, D3, HERE = (
    "http://json-schema.org/draft-07/schema#",
    "http://json-schema.org/draft-03/schema#",
    "http://shop.test/task.json",
)
TEXT = {"A": {"type": "string"}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$id": "task.json", **opened(p={"$ref": "task.json"})},
        {"$id": HERE, **opened(p={"$ref": HERE})},
        {"$id": HERE, **opened(p={"$ref": "task.json"})},
        {"$id": f"{HERE}#", **opened(p={"$ref": "/task.json#"})},
        {"id": HERE, "$schema": "http://json-schema.org/draft-04/schema#", **opened(p={"$ref": HERE})},
        {"$id": "urn:task", **opened(p={"$ref": "urn:task#/definitions/A"}), "definitions": TEXT},
        {"$id": HERE, **opened(p={"$ref": f"{HERE}#/definitions/A"}), "definitions": TEXT},
        {"$id": HERE, **opened(p={"$ref": "task.json#/definitions/A"}), "definitions": TEXT},
        {"$id": HERE, **opened(p={"$ref": "#/definitions/A%20B"}), "definitions": {"A B": STRING}},
        {"$id": HERE, **opened(p={"$ref": "#a"}), "definitions": {"A": {"$id": "#a", **STRING}}},
        {"$id": HERE, **opened(p={"$ref": "#a"}), "$defs": {"A": {"$anchor": "a", **STRING}}},
        {"$id": HERE, **opened(p={"$ref": "a.json"}), "definitions": {"A": {"$id": "a.json", **STRING}}},
        {"$id": HERE, **opened(p={"$ref": "a/b.json#/$defs/B"}), "$defs": {"A": {"$id": "a/", "$defs": {
            "C": {"$id": "b.json", "$defs": {"B": {"$ref": "#/$defs/D"}, "D": STRING}}}}}},
        {"$id": "http://shop.test/a/", "allOf": [opened(p={"$ref": "#/definitions/A"})], "definitions": TEXT},
        {"$id": "a/", "anyOf": [opened(p={"$ref": "#/definitions/A"}), INT], "definitions": TEXT},
        opened(p={"$ref": D7}),
        opened(p={"$ref": "http://[nowhere"}),
        {"$ref": "#"},
    ],
)  # fmt: skip
def test_json_schema_with_any_reference_is_compatible_with_itself(schema: dict[str, Any]) -> None:
    titled = {**schema, "title": "a title"}
    assert parse(JSON, schema).read_incompatibilities(parse(JSON, titled)) == []
    assert parse(JSON, titled).read_incompatibilities(parse(JSON, schema)) == []


@pytest.mark.parametrize("reference", ["task.json#/definitions/A", HERE + "#/definitions/A", "#/definitions/A"])
def test_reference_to_its_own_id_is_followed(reference: str) -> None:
    def task(kind: dict[str, Any]) -> Schema:
        return parse(JSON, {"$id": HERE, **opened(p={"$ref": reference}), "definitions": {"A": kind}})

    assert task({"type": "number"}).read_incompatibilities(task(INT)) == []
    assert task(INT).read_incompatibilities(task(STRING))


def test_other_schemas_are_known_by_their_name_and_by_their_own_id() -> None:
    page = (
        "page.json",
        json.dumps({"$id": "http://shop.test/pages/one.json", "$ref": "#/$defs/P", "$defs": {"P": STRING}}),
    )
    for reference in ("page.json", "http://shop.test/pages/one.json", "pages/one.json"):
        schema = {"$id": HERE, **opened(p={"$ref": reference})}
        reader, writer = parse(JSON, schema, page), parse(JSON, {"$id": HERE, **opened(p=STRING)})
        assert reader.read_incompatibilities(writer) == []


def test_one_and_true_are_not_the_same() -> None:
    assert parse(JSON, {"const": True}).read_incompatibilities(parse(JSON, {"const": 1}))


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        ({"$schema": D3, "type": ["string", {"type": "object"}]}, {"$schema": D3, "type": "string"}),
        ({"$schema": D3, **opened(a={"type": "string", "required": True})}, {"$schema": D3, **opened(a=STRING)}),
        ({"$schema": D3, "type": "string", "allOf": 5}, {"$schema": D3, "type": "string"}),
        ({"type": "array", "prefixItems": 5}, {"type": "array"}),
        ({"type": "array", "minContains": "x"}, {"type": "array", "minContains": 1}),
        ({"$ref": "#/x", "x": {"type": {"a": 1}}}, STRING),
        ({"$ref": "#/x", "x": {"type": 5}}, STRING),
        ({"$ref": "#/x", "x": {"type": "object", "required": 5}}, opened()),
        ({"$ref": "#/x", "x": {"type": "number", "multipleOf": 0}}, {"type": "number", "multipleOf": 2}),
        ({"$ref": "#/x", "x": {"enum": 5}}, STRING),
        ({"$ref": "#/x", "x": {"properties": 5}}, opened(a=INT)),
    ],
)
def test_keyword_that_is_not_compared_gives_a_list_of_obstacles(reader: Any, writer: Any) -> None:
    for one, other in ((reader, writer), (writer, reader)):
        new, old = Content(JSON, json.dumps(one)), Content(JSON, json.dumps(other))
        schema = parsing.parse(new, ())
        version = Version("s", 1, 1, old)
        reasons = compatibility.incompatibilities_with(
            Level.FULL, schema, JSON, version, functools.partial(parsing.parse, old, ())
        )
        assert all(isinstance(each, str) for each in reasons)


def test_earlier_version_that_is_no_schema_is_an_obstacle() -> None:
    forged = Version("s", 1, 1, Content(JSON, "no json"))
    (reason,) = compatibility.incompatibilities_with(
        Level.BACKWARD, parse(JSON, True), JSON, forged, lambda: parsing.parse(forged.content, ())
    )
    assert "version 1" in reason


@pytest.mark.parametrize("kind", [AVRO, JSON, PROTOBUF])
@pytest.mark.parametrize(
    "text", ['{"type": "string", "doc": "\\ud800"}', '{"type": "string", "title": "\\ud800"}', "\x00", "null", "NaN"]
)
def test_text_that_no_answer_can_repeat_is_refused(kind: str, text: str) -> None:
    with pytest.raises(SchemaSyntaxError):
        parse(kind, text)


@pytest.mark.parametrize("text", ["", "7", '"string"', '{"type": "nothing"}', '{"properties": []}', "[" * 100_000])
def test_what_is_no_json_schema_is_refused(text: str) -> None:
    with pytest.raises(SchemaSyntaxError):
        parse(JSON, text)


# --- Protobuf -------------------------------------------------------------------------------------------

CLICK = """
syntax = "proto3";
package web;
import "google/protobuf/timestamp.proto";
option java_package = "org.web";

message Click {   // a click
  string page = 1;
  optional int32 number = 2;
  repeated Kind kinds = 3 [packed = true];
  map<string, Place> places = 4;
  oneof contact { string mail = 5; Place home = 6; }
  google.protobuf.Timestamp time = 7;
  message Place { reserved 4, 6 to max; reserved "x"; string street = 1 [json_name = "road"]; }
  enum Kind { option allow_alias = true; A = 0; B = 1; C = 1; }
}
"""


def proto(*fields: str, head: str = 'syntax = "proto3";') -> str:
    return f"{head} message Click {{ {' '.join(fields)} }}"


def test_a_proto_file_and_its_descriptor_are_written_alike() -> None:
    schema = parse(PROTOBUF, CLICK)
    assert parse(PROTOBUF, schema.text).text == schema.text
    serialized = getattr(schema, "serialized")  # noqa: B009 - of this kind alone
    assert parse(PROTOBUF, serialized).text == schema.text
    for line in (
        "optional int32 number = 2;",
        "repeated Click.Kind kinds = 3 [packed = true];",
        "map<string, Click.Place> places = 4;",
        "google.protobuf.Timestamp time = 7;",
        'string street = 1 [json_name = "road"];',
        "reserved 6 to max;",
        'option java_package = "org.web";',
    ):
        assert line in schema.text, schema.text


def test_a_proto_file_with_options_of_its_own_stays_as_it_is() -> None:
    text = 'syntax = "proto3"; message Click { string page = 1 [(secret) = true]; }'
    assert parse(PROTOBUF, text).text == text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            'import "google/protobuf/timestamp.proto"; import public "google/protobuf/any.proto";'
            'import "google/protobuf/duration.proto"; message M {}',
            'import public "google/protobuf/any.proto"; import "google/protobuf/duration.proto";'
            'import "google/protobuf/timestamp.proto"; message M {}',
        ),
        ("message M { string b = 2; string a = 1; }", "message M { string a = 1; string b = 2; }"),
        ("enum E { A = 0; C = 2; B = 1; D = -1; }", "enum E { A = 0; D = -1; B = 1; C = 2; }"),
        (
            "message M { oneof w { string b = 3; string a = 2; } string c = 1; oneof v { string d = 5; } }",
            "message M { oneof v { string d = 5; } string c = 1; oneof w { string a = 2; string b = 3; } }",
        ),
        (
            "message M { reserved 7, 3 to 5; reserved 'x', 'b'; }",
            "message M { reserved 'b', 'x'; reserved 3 to 5, 7; }",
        ),
        ("message M { enum E { A = 0; C = 2; B = 1; } }", "message M { enum E { A = 0; B = 1; C = 2; } }"),
        (
            "message M { map<string, N> b = 2; optional int32 a = 1; } message N { int32 d = 2; int32 c = 1; }",
            "message M { optional int32 a = 1; map<string, N> b = 2; } message N { int32 c = 1; int32 d = 2; }",
        ),
    ],
)
def test_normal_form_of_a_proto_file_has_one_order(one: str, other: str) -> None:
    first, second = (parse(PROTOBUF, f'syntax = "proto3"; {text}') for text in (one, other))
    assert first.text != second.text
    assert first.normalized == second.normalized
    assert parse(PROTOBUF, first.normalized).normalized == first.normalized


def test_normal_form_keeps_the_order_of_messages_and_the_default_of_an_enum() -> None:
    two, one = (parse(PROTOBUF, f'syntax = "proto3"; message {a} {{}} message {b} {{}}') for a, b in ("AB", "BA"))
    assert two.normalized != one.normalized, "records name their type by its position"
    enum = parse(PROTOBUF, 'syntax = "proto2"; enum E { B = 1; C = 2; A = 0; }')
    assert enum.normalized.index("B = 1") < enum.normalized.index("A = 0") < enum.normalized.index("C = 2")


def test_a_proto_file_imports_what_it_refers_to() -> None:
    dependency = ("place.proto", 'syntax = "proto3"; package web; message Place { string street = 1; }')
    text = 'syntax = "proto3"; package web; import "place.proto"; message Click { Place place = 1; }'
    assert "Place place = 1;" in parse(PROTOBUF, text, dependency).text
    with pytest.raises(SchemaSyntaxError, match=r"place\.proto"):
        parse(PROTOBUF, text)


def test_types_of_imported_files_count_with_what_is_in_them() -> None:
    def click(kind: str) -> Schema:
        place = f'syntax = "proto3"; package web; message Place {{ {kind} street = 1; Place next = 2; }}'
        text = 'syntax = "proto3"; import "place.proto"; message Click { web.Place place = 1; }'
        return parse(PROTOBUF, text, ("place.proto", place))

    assert not click("bytes").read_incompatibilities(click("string"))
    (obstacle,) = click("int32").read_incompatibilities(click("string"))
    assert "street" in obstacle


@pytest.mark.parametrize(
    "text",
    [
        "x",
        "message",
        "message Click {",
        proto("Nothing page = 1;"),
        proto("string page = 1;", "string other = 1;"),
        proto("string page = 0;"),
        proto("string page;"),
        proto("string page = 1;", head='syntax = "proto2";'),
        proto("map<string, > x = 1;"),
        proto("string page = 1 [deprecated = maybe];"),
        'syntax = "proto9";',
        'syntax = "proto3"; message A { ' * 200,
        'import "nowhere.proto";',
        "\x00\xff",
        "/* never closed",
    ],
)
def test_what_is_no_proto_file_is_refused(text: str) -> None:
    with pytest.raises(SchemaSyntaxError):
        parse(PROTOBUF, text)


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (proto("string page = 1;", "int32 number = 2;"), proto("string page = 1;")),
        (proto("string page = 1;"), proto("string page = 1;", "int32 number = 2;")),
        (proto("string url = 1;"), proto("string page = 1;")),
        (proto("int64 number = 1;"), proto("bool number = 1;")),
        (proto("bytes page = 1;"), proto("string page = 1;")),
        (proto("repeated string page = 1;"), proto("string page = 1;")),
        (proto("oneof o { string page = 1; }"), proto("string page = 1;")),
        (proto("map<string, int64> m = 1;"), proto("map<string, int32> m = 1;")),
        (proto("Kind k = 1; enum Kind { A = 0; }"), proto("int32 k = 1;")),
    ],
)
def test_a_protobuf_schema_reads_what_the_other_wrote(reader: str, writer: str) -> None:
    assert parse(PROTOBUF, reader).read_incompatibilities(parse(PROTOBUF, writer)) == []


@pytest.mark.parametrize(
    ("reader", "writer"),
    [
        (proto("int32 page = 1;"), proto("string page = 1;")),
        (proto("sint32 number = 1;"), proto("int32 number = 1;")),
        (proto("repeated int32 number = 1;"), proto("int32 number = 1;")),
        ('syntax = "proto3"; message View { }', proto("string page = 1;")),
        (proto("oneof o { string a = 1; string b = 2; }"), proto("string a = 1;", "string b = 2;")),
        (proto("oneof o { string a = 1; }"), proto("oneof o { string a = 1; string b = 2; }")),
        (proto("map<string, string> m = 1;"), proto("map<string, int32> m = 1;")),
        (proto("P p = 1; message P {} message Q {}"), proto("Q p = 1; message P {} message Q {}")),
        (proto("required string page = 1;", head='syntax = "proto2";'), proto(head='syntax = "proto2";')),
        (proto(head='syntax = "proto2";'), proto("required string page = 1;", head='syntax = "proto2";')),
    ],
)
def test_a_protobuf_schema_misreads_what_the_other_wrote(reader: str, writer: str) -> None:
    assert parse(PROTOBUF, reader).read_incompatibilities(parse(PROTOBUF, writer))


@pytest.mark.parametrize("text", ["AAAA\xa0", "\u2003AAAA", "AAAA", "="])
def test_what_looks_like_base64_and_is_no_descriptor_is_refused_as_text(text: str) -> None:
    with pytest.raises(SchemaSyntaxError):
        parse(PROTOBUF, text)
