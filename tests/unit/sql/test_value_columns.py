"""Values as columns: what some of them tell of all, and what becomes of those that are otherwise."""

from __future__ import annotations

import base64
import json
import pickle

import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2

from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition
from barnabas.records.arrow import arrow_schema
from barnabas.serialization import value_decoders
from barnabas.serialization.registry_client import SchemaRegistry
from barnabas.sql import sampling
from barnabas.sql.record_columns import RecordRows
from barnabas.sql.sampling import ValueOptions, columns_of_values, json_rules, sampled_ranges


def binary(*values: bytes | None) -> pa.Array:
    return pa.array(values, pa.binary())


def test_objects_of_json_are_recognised_and_their_fields_become_columns() -> None:
    columns = columns_of_values(binary(b'{"page": "/", "ms": 5}', b'{"ms": 7, "timestamp": "x"}', None), ValueOptions())
    assert columns.format == "json"
    assert columns.schema.names == ["page", "ms", "value_timestamp"]
    values = binary(b'{"ms": 1, "page": "/a", "new": []}', None, b"nonsense", b'{"ms": "late"}')
    assert [each.to_pylist() for each in columns.decode(values, ["ms", "page"])] == [
        [1, None, None, None],
        ["/a", None, None, None],
    ]
    assert columns.decode(values, []) == []


def test_columns_can_be_sent_to_executors() -> None:
    columns = columns_of_values(binary(b'{"ms": 5}'), ValueOptions())
    copy = pickle.loads(pickle.dumps(columns))
    assert copy.decode(binary(b'{"ms": 6}'), ["ms"])[0].to_pylist() == [6]


def test_nested_objects_are_text_or_structs() -> None:
    values = binary(b'{"user": {"id": 5}}')
    assert columns_of_values(values, ValueOptions()).schema.field("user").type == pa.string()
    nested = columns_of_values(values, ValueOptions(rules=json_rules(nested=True)))
    assert nested.decode(values, ["user"])[0].to_pylist() == [{"id": 5}]


@pytest.mark.parametrize("name", ["common", "combined"])
def test_lines_of_usual_logs_are_recognised_when_most_are_such(name: str) -> None:
    line = b'10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /blog HTTP/1.1" 200 512'
    line += b' "-" "curl"' if name == "combined" else b""
    columns = columns_of_values(binary(line, None, line, b"\xff"), ValueOptions())
    assert columns.format == f"lines:{name}"
    assert columns.decode(binary(line), ["status"])[0].to_pylist() == [200]
    assert columns_of_values(binary(line, b"?"), ValueOptions()).format == "raw"
    assert columns_of_values(binary(line), ValueOptions("raw")).format == "raw"


def test_other_values_have_no_columns_unless_a_pattern_says_so() -> None:
    line = b'10.0.0.1 - - [17/May/2015:10:05:03 +0000] "GET /blog HTTP/1.1" 200 512'
    assert columns_of_values(binary(b"GET /blog"), ValueOptions()).schema.names == []
    columns = columns_of_values(binary(line), ValueOptions("lines:common"))
    assert columns.format == "lines:common"
    path, status = columns.decode(binary(line, b"?"), ["path", "status"])
    assert (path.to_pylist(), status.to_pylist()) == (["/blog", None], [200, None])


def test_a_pattern_has_its_columns_also_where_no_line_matches() -> None:
    assert "status" in columns_of_values(binary(), ValueOptions("lines:common")).schema.names
    assert "status" in columns_of_values(binary(b"?"), ValueOptions("lines:common")).schema.names


@pytest.mark.parametrize(
    ("value_format", "told"),
    [
        ("yaml", "use raw, json, avro, protobuf, auto, or lines:PATTERN"),
        ("avro", "--registry URL"),
        ("protobuf", "--registry URL"),
        ("lines:", "needs a pattern"),
    ],
)
def test_a_format_that_cannot_be_is_refused(value_format: str, told: str) -> None:
    with pytest.raises(ConfigurationError, match=told):
        ValueOptions(value_format)


def test_both_ends_of_a_few_partitions_are_looked_at() -> None:
    ranges = {TopicPartition("t", number): (0, 10_000) for number in range(200)}
    looked_at = sampled_ranges(ranges)
    assert len({tp for tp, _, _ in looked_at}) == 4
    assert {(start, end) for _, start, end in looked_at} == {(0, 250), (9_750, 10_000)}
    assert sampled_ranges({TopicPartition("t", 0): (7, 7)}) == []


def test_rows_have_text_and_times_whatever_the_bytes() -> None:
    records = pa.RecordBatch.from_pylist(
        [
            {"topic": "t", "partition": 0, "offset": 0, "timestamp": 1500, "timestamp_type": 0, "key": b"\xff!"},
            {"topic": "t", "partition": 0, "offset": 1, "timestamp": 2**62, "timestamp_type": 0, "value": b'{"a":1}'},
        ],
        schema=arrow_schema(include_headers=False),
    )
    rows = RecordRows(columns_of_values(binary(b'{"a": 1}'), ValueOptions()))
    assert "value_headers" in RecordRows(columns_of_values(binary(b'{"headers": 1}'), ValueOptions())).schema.names
    made = rows.make(records, ["a", "key", "timestamp"])
    assert made.column("a").to_pylist() == [None, 1]
    assert made.column("key").to_pylist() == ["\\xff!", None]
    first, second = made.column("timestamp").to_pylist()
    assert (first.isoformat(), second) == ("1970-01-01T00:00:01.500000+00:00", None)


def test_of_headers_with_one_name_the_last_counts_and_no_headers_are_null() -> None:
    headers = [{"name": "trace", "value": b"1"}, {"name": "bin", "value": b"\xff"}, {"name": "trace", "value": None}]
    records = pa.RecordBatch.from_pylist(
        [
            {"topic": "t", "partition": 0, "offset": 0, "timestamp": 0, "timestamp_type": 0, "headers": headers},
            {"topic": "t", "partition": 0, "offset": 1, "timestamp": 0, "timestamp_type": 0, "headers": []},
        ],
        schema=arrow_schema(),
    )
    made = RecordRows(columns_of_values(binary(), ValueOptions())).make(records, ["headers"]).column("headers")
    assert made.to_pylist() == [[("trace", None), ("bin", "\\xff")], None]


def test_protobuf_has_the_columns_of_all_its_message_types(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {7: click_file("page"), 8: click_file("page", "referrer")}

    def answer(url: str, *_request: object) -> tuple[int, bytes, dict[str, str]]:
        number = int(url.partition("/schemas/ids/")[2].partition("?")[0])
        content = base64.b64encode(files[number].SerializeToString()).decode()
        return 200, json.dumps({"schema": content, "schemaType": "PROTOBUF"}).encode(), {}

    registry = SchemaRegistry("http://localhost:1", transport=answer)
    monkeypatch.setattr(value_decoders, "registry_at", lambda _url: registry)
    monkeypatch.setattr(sampling, "registry_at", lambda _url: registry)
    old = b"\0\0\0\0\x07\0" + b"\x0a\x02/a"
    new = b"\0\0\0\0\x08\0" + b"\x0a\x02/b\x12\x02/a"
    options = ValueOptions(registry="http://localhost:1/protobuf")
    columns = columns_of_values(binary(old, new, None), options)
    assert (columns.format, columns.schema.names) == ("protobuf", ["page", "referrer"])
    values = binary(new, None, b"nonsense", old + b"\xff", old)
    assert [each.to_pylist() for each in pickle.loads(pickle.dumps(columns)).decode(values, ["referrer", "page"])] == [
        ["/a", None, None, None, None],  # as its own type has no such field
        ["/b", None, None, None, "/a"],
    ]
    assert columns.decode(values, []) == []


def click_file(*fields: str) -> descriptor_pb2.FileDescriptorProto:
    """Return a file with a message of texts."""
    file = descriptor_pb2.FileDescriptorProto(name="click.proto", package="web", syntax="proto3")
    message = file.message_type.add(name="Click")
    kinds = descriptor_pb2.FieldDescriptorProto
    for number, name in enumerate(fields, start=1):
        message.field.add(name=name, number=number, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    return file


def test_an_id_that_the_registry_does_not_know_does_not_hide_the_schema_of_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    schema = json.dumps({"type": "record", "name": "Click", "fields": [{"name": "n", "type": "long"}]})

    def answer(url: str, *_request: object) -> tuple[int, bytes, dict[str, str]]:
        if url.endswith("/schemas/ids/7"):
            return 200, json.dumps({"schema": schema}).encode(), {}
        return 404, json.dumps({"error_code": 40403, "message": "Schema not found"}).encode(), {}

    monkeypatch.setattr(sampling, "registry_at", lambda url: SchemaRegistry(url, transport=answer))
    monkeypatch.setattr(value_decoders, "registry_at", lambda url: SchemaRegistry(url, transport=answer))
    good = b"\0" + (7).to_bytes(4, "big") + b"\x02"
    strange = [b"\0" + (1_000 + number).to_bytes(4, "big") for number in range(20)]
    options = sampling.ValueOptions("avro", "http://localhost:1/unknown")
    found = sampling.columns_of_values(pa.array([good, good, *strange]), options)
    assert found.schema.names == ["n"]
    assert sampling.columns_of_values(pa.array(strange), options).schema.names == []
