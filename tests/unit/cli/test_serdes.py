"""The option `-s` of `barnabas consume` and `barnabas produce`."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.cli.serdes import REPORTS_MAX, LineEncoder, LineError, RecordDecoder, Serde, Serdes
from barnabas.errors import SchemaRegistryError, SerializationError
from barnabas.model import TimestampType
from barnabas.records import Record
from tests.support.fake_registry import avro_record, registry_of

CLICK = {"type": "record", "name": "Click", "fields": [{"name": "page", "type": "string"}]}


class Upper:
    """An encoder of JSON strings, which refuses all others."""

    def encode(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise SerializationError("no text")
        return value.upper().encode()


def record(value: bytes | None, offset: int = 0, key: bytes | None = None) -> Record:
    return Record("clicks", 0, offset, 0, TimestampType.CREATE_TIME, key, value, ())


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ([], Serdes()),
        (["avro"], Serdes(Serde("avro"), Serde("avro"))),
        (["key=json", "value=protobuf"], Serdes(Serde("json"), Serde("protobuf"))),
        (["value=protobuf:web.Click"], Serdes(None, Serde("protobuf", "web.Click"))),
    ],
)
def test_formats_are_given_as_in_kcat(texts: list[str], expected: Serdes) -> None:
    assert Serdes.parse(texts) == expected
    assert bool(expected) == bool(texts)


@pytest.mark.parametrize(
    "texts", [[""], ["xml"], ["value="], ["=avro"], ["header=avro"], ["avro:Click"], ["avro", "key=json"]]
)
def test_what_is_no_format_is_refused(texts: list[str]) -> None:
    with pytest.raises(ValueError, match=r"is not a format; use avro|is given twice"):
        Serdes.parse(texts)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["consume", "clicks", "-e", "-s", "avro"], "avro needs a schema registry: --registry URL"),
        (["produce", "clicks", "-s", "avro"], "-s needs a schema registry: --registry URL"),
        (["produce", "clicks", "--value-schema", __file__], "--value-schema needs the format of the schema"),
        (["produce", "clicks", "-s", "avro", "--value-schema", "/none"], "/none: No such file"),
        (["consume", "clicks", "-s", "xml"], "'xml' is not a format; use avro, json or protobuf"),
        (["consume", "clicks", "-s", "avro", "-r", "http://u:p@h"], "other users of this machine can see a password"),
        (["consume", "clicks", "-s", "avro", "-r", "nonsense"], "'nonsense' is not a URL of a schema registry"),
        (
            ["consume", "clicks", "-s", "avro", "-r", "http://h", "-X", "schema.registry.user=a"],
            "'user' is not a setting of a schema registry",
        ),
    ],
)
def test_wrong_options_are_code_2(cluster, run, arguments, error) -> None:
    cluster.create("clicks")
    outcome = run(*arguments)
    assert (outcome.code, error in outcome.err, outcome.err.count("\n")) == (2, True, 1), outcome.err


def test_values_are_decoded_and_null_stays_null() -> None:
    reports: list[str] = []
    decoder = RecordDecoder(Serdes(value=Serde("avro")), registry_of(CLICK), reports.append)
    decoded, objects = decoder.decode(record(avro_record(1, CLICK, {"page": "ż"}), key=b"k"))
    assert (decoded.key, decoded.value, objects) == (b"k", '{"page":"ż"}'.encode(), {"payload": {"page": "ż"}})
    decoded, objects = decoder.decode(record(None))
    assert (decoded.value, objects, decoder.finish(), reports) == (None, {}, 0, [])


def test_values_that_cannot_be_decoded_are_printed_reported_and_counted() -> None:
    reports: list[str] = []
    decoder = RecordDecoder(Serdes(value=Serde("avro")), registry_of(CLICK), reports.append)
    for offset in range(REPORTS_MAX + 5):
        value = b"plain" if offset else avro_record(7, CLICK, {"page": "a"})
        assert decoder.decode(record(value, offset))[0].value == value
    assert decoder.finish() == 1
    assert (
        reports[0] == "clicks-0 offset 0: cannot decode the value: the registry has no schema 7; it is printed as it is"
    )
    assert reports[REPORTS_MAX:] == [f"could not decode {REPORTS_MAX + 5} keys or values"]


def test_registry_that_refuses_ends_the_command() -> None:
    registry = registry_of(CLICK)
    registry._transport = lambda *_: (403, b'{"error_code":40301,"message":"denied"}', {})
    decoder = RecordDecoder(Serdes(value=Serde("avro")), registry, print)
    with pytest.raises(SchemaRegistryError, match="denied"):
        decoder.decode(record(avro_record(1, CLICK, {"page": "a"})))


def test_json_is_read_with_and_without_a_schema_id() -> None:
    decoder = RecordDecoder(Serdes.parse(["json"]), None, print)
    decoded, objects = decoder.decode(record(b'\0\0\0\0\1{"a": 1}', key=b'"k"'))
    assert (decoded.key, decoded.value, objects) == (b'"k"', b'{"a":1}', {"key": "k", "payload": {"a": 1}})


def chunks(*texts: str) -> list[tuple[None, list[bytes | None]]]:
    return [(None, [each.encode() for each in text.split()]) for text in texts]


def test_lines_are_encoded_and_keys_of_all_lines_too() -> None:
    encoder = LineEncoder(Upper(), Upper())
    assert list(encoder.encode([([b'"k"', b'"k"', None], [b'"a"', b'"b"', None])])) == [
        ([b"K", b"K", None], [b"A", b"B", None])
    ]
    assert list(LineEncoder(None, Upper()).encode(chunks('"a"', '"b" "c"'))) == [(None, [b"A"]), (None, [b"B", b"C"])]


@pytest.mark.parametrize(
    ("line", "reason"),
    [("1", "value: no text"), ("{", "the value is not JSON"), ("NaN", "NaN is not JSON"), ("[" * 100_000, "not JSON")],
)
def test_lines_before_a_wrong_one_are_yielded(line: str, reason: str) -> None:
    encoded = LineEncoder(None, Upper()).encode(chunks('"a"', f'"b" {line} "c"'))
    assert [next(encoded), next(encoded)] == [(None, [b"A"]), (None, [b"B"])]
    with pytest.raises(LineError, match="line 3: ") as caught:
        next(encoded)
    assert reason in str(caught.value)
    assert str(caught.value).endswith("; 2 lines before it: sent")


def test_lines_before_a_wrong_one_are_sent(cluster, run, monkeypatch, tmp_path) -> None:
    cluster.create("clicks")
    monkeypatch.setattr("barnabas.cli.produce.line_encoder", lambda *_: LineEncoder(None, Upper()))
    (tmp_path / "lines").write_text('"a"\n"b"\n1\n"c"\n')
    outcome = run("produce", "clicks", str(tmp_path / "lines"), "-s", "value=json", "-r", "http://h")
    assert (outcome.code, outcome.err) == (1, "barnabas: line 3: value: no text; 2 lines before it: sent\n")
    assert cluster.values("clicks") == [b"A", b"B"]
