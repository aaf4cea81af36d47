"""Java's properties files."""

from __future__ import annotations

import pytest

from barnabas.broker.settings.properties_file import decode_properties, parse_properties
from barnabas.errors import ConfigurationError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", {}),
        ("a=1\nb:2\nc 3\nd\ne=\nf = : 4\n", {"a": "1", "b": "2", "c": "3", "d": "", "e": "", "f": ": 4"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("# a=1\n  ! b=2\n\t# c\n\f#d\n\n", {}),
        ("a=1#2 ! 3", {"a": "1#2 ! 3"}),
        ("a=1,\\\n   2,\\\r\n\t3\nb=4", {"a": "1,2,3", "b": "4"}),
        ("a=1\\\n# 2", {"a": "1# 2"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("# comment \\\na=1", {"a": "1"}),
        ("a=C:\\\\data\\\\\nb=2", {"a": "C:\\data\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a\\=b\\:c\\ d=1", {"a=b:c d": "1"}),
        ("a\\\\=1", {"a\\": "1"}),
        ('a=\\t\\n\\r\\f\\q\\"', {"a": '\t\n\r\fq"'}),
        ("a=\\u0041\\u00e9\\ud83d\\ude00", {"a": "Aé😀"}),
        ("a=1\x0c2\x852\u20283\x1c4", {"a": "1\x0c2\x852\u20283\x1c4"}),
        ("a=1\na=2", {"a": "2"}),
        ("=1\n:2", {}),
        ("  a  =  1  ", {"a": "1"}),
    ],
)
def test_properties_are_read_as_java_reads_them(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", ["\\u", "\\u12", "\\u12G4", "\\u 123"])
def test_malformed_escape_is_refused_with_its_line_and_without_its_value(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^line 3: \\u needs four hexadecimal digits$"):
        parse_properties(f"a=1\n\npassword=planted{text}\nb=2")


def test_single_surrogate_is_no_error() -> None:
    assert parse_properties("a=\\ud83d") == {"a": "\ufffd"}


def test_file_is_utf_8_or_latin_1() -> None:
    assert decode_properties("a=é".encode()) == "a=é"
    assert decode_properties("a=é".encode("latin-1")) == "a=é"
    assert decode_properties(b"\xef\xbb\xbfa=1") == "a=1"


def test_long_lines_are_parsed_in_linear_time() -> None:
    for text in ("\\" * 200_001, "a" * 500_000, " " * 500_000 + "=", "a\\\n" * 50_000, "\\u0041" * 100_000):
        parse_properties(text)
