"""What `consume -f` and `consume -J` print."""

from __future__ import annotations

import json
from base64 import b64decode

import pytest

from barnabas.cli.message_format import DEFAULT_FORMAT, compile_format, json_line
from barnabas.model import TimestampType
from barnabas.records import Record


def record(key: bytes | None, value: bytes | None, *headers: tuple[str, bytes | None]) -> Record:
    return Record("clicks", 2, 41, 1700, TimestampType.CREATE_TIME, key, value, headers)


RECORD = record(b"k1", b"v\xff", ("a", b"1"), ("b", None))
EMPTY = Record("clicks", 0, 0, -1, TimestampType.LOG_APPEND_TIME, None, None, ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("%t %p %o", b"clicks 2 41"),
        (r"%T\t%k\n", b"1700\tk1\n"),
        ("%s", b"v\xff"),
        ("%K:%S", b"2:2"),
        ("%h", b"a=1,b=NULL"),
        ("%R", b"\0\0\0\2"),
        (r"100%%\x41\\", b"100%A\\"),
        ("żółw", "żółw".encode()),
        ("", b""),
    ],
)
def test_format_renders_field(text: str, expected: bytes) -> None:
    assert compile_format(text)(RECORD) == expected


def test_default_format_prints_the_value_on_a_line() -> None:
    assert compile_format(DEFAULT_FORMAT)(RECORD) == b"v\xff\n"


def test_null_key_and_value_are_empty_with_length_minus_one() -> None:
    assert compile_format("[%k|%s] %K %S")(EMPTY) == b"[|] -1 -1"


@pytest.mark.parametrize("text", ["%q", "%", r"\q", "\\"])
def test_unknown_field_or_escape_is_refused_with_what_there_is(text: str) -> None:
    with pytest.raises(ValueError, match="%t topic"):
        compile_format(text)


def test_json_line_has_kcats_names() -> None:
    assert json.loads(json_line(record(b"k1", b"v", ("a", b"1"), ("b", None)))) == {
        "topic": "clicks",
        "partition": 2,
        "offset": 41,
        "tstype": "create",
        "ts": 1700,
        "headers": ["a", "1", "b", None],
        "key": "k1",
        "payload": "v",
    }


@pytest.mark.parametrize("data", [b"v\xff", b"\xed\xa0\x80", bytes(range(256))])
def test_json_line_has_what_is_not_utf8_as_base64_under_other_names(data: bytes) -> None:
    line = json_line(record(data, data, ("a", data), ("b", b"1")))
    fields = json.loads(line.decode("utf-8"))
    assert not fields.keys() & {"key", "payload"}
    name, header, *text = fields["headers"]
    assert (name, text) == ("a", ["b", "1"])
    encoded = [fields["key_base64"], fields["payload_base64"], header["base64"]]
    assert [b64decode(each) for each in encoded] == [data] * 3


def test_json_line_keeps_null_and_is_one_line_of_readable_text() -> None:
    line = json_line(record("żółw".encode(), b"two\nlines"))
    assert line.count(b"\n") == 1
    assert "żółw".encode() in line
    assert json.loads(json_line(EMPTY))["payload"] is None


HOSTILE = b"a\x1b[2J\xc2\x9b1m\xff\nb"


def test_control_characters_do_not_reach_a_terminal() -> None:
    hostile = record(HOSTILE, HOSTILE, ("h\x1b]0;x\x07", HOSTILE))
    shown = compile_format(r"%k|%s|%h\n", for_terminal=True)(hostile)
    text = rb"a\x1b[2J\x9b1m\xff" + b"\nb"
    assert shown == text + b"|" + text + rb"|h\x1b]0;x\x07=" + text + b"\n"
    assert compile_format("%k%s")(hostile) == HOSTILE * 2, "another program gets the bytes"


def test_json_line_has_no_control_characters_and_means_the_same() -> None:
    text = "a\x1b[2J\x9b1m\u202e\nb"
    line = json_line(record(text.encode(), None))
    assert line[:-1].decode().isprintable()
    assert json.loads(line)["key"] == text
