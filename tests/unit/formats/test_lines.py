"""Lines by pattern: the common logs, patterns of the user's own, and lines that come back as they were."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.errors import ConfigurationError
from barnabas.formats.column_types import settled
from barnabas.formats.decoding import Decoded
from barnabas.formats.line_patterns import NAMED_PATTERNS, PATTERN_LETTERS_MAX, line_pattern
from barnabas.formats.lines import COLUMNS, NO_MATCH, NOT_UTF8, LineDecoder

COMMON = b'127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /a.gif?x=%20 HTTP/1.0" 200 2326'
LINES = {
    "common": [COMMON, COMMON.replace(b"2326", b"-"), b'::1 - - [10/Oct/2000:13:55:36 -0700] "-" 408 0'],
    "combined": [
        COMMON + b' "http://example.com/start.html" "Mozilla/4.08 [en] (Win98; I ;Nav)"',
        COMMON + b' "-" "an \\"odd\\" agent"',
        b'h - - [10/Oct/2000:13:55:36 -0700] "\\x16\\x03\\x01" 400 0 "-" "-"',
        b'h - a user [10/Oct/2000:13:55:36 -0700] "" 400 - "" ""',
    ],
    "syslog": [
        b"<34>Oct 11 22:14:15 mymachine su: 'su root' failed for lonvick on /dev/pts/8",
        b"Oct  1 22:14:15 web1 sshd[4123]: Accepted publickey",
        b"2023-10-11T22:14:15.003+02:00 web1 kernel: [12.5] usb",
    ],
    "syslog5424": [
        b"<34>1 2003-10-11T22:14:15.003Z mymachine.example.com su - ID47 - \xef\xbb\xbf'su root' failed",
        b'<165>1 2003-10-11T22:14:15.003Z host app 12 ID47 [id@32473 iut="3" s="a \\] b"][x@1 y="z"] text',
        b'<165>1 2003-10-11T22:14:15.003Z host app 12 ID47 [id@32473 iut="3"]',
    ],
    "nginx-error": [
        b"2009/01/01 19:45:44 [error] 29874#0: *98 open() failed, client: 1.2.3.4",
        b"2009/01/01 19:45:44 [notice] 29874#0: signal process started",
    ],
    "apache-error": [
        b"[Fri Sep 09 10:42:29.902022 2011] [core:error] [pid 35708:tid 4328636416] [client 72.15.99.187] no such file",
        b"[Wed Oct 11 14:32:52 2000] [error] [client 127.0.0.1] denied",
        b"[Wed Oct 11 14:32:52 2000] [notice] caught SIGTERM",
    ],
}


def decode(pattern: str, values: list[bytes | None]) -> tuple[Decoded, dict[str, pa.Array], list[bytes | None]]:
    """Return what came of values, the columns by name, and the values as they come back."""
    decoder = LineDecoder.of(pattern)
    given_values = pa.array(values, pa.binary())
    fields = {name: settled(kind) for name, kind in decoder.infer(given_values).items()}
    decoded = decoder.decode(given_values, fields)
    columns = dict(zip(fields, decoded.columns, strict=True))
    kept = [None if form == COLUMNS else value for value, form in zip(values, decoded.forms.to_pylist(), strict=True)]
    return decoded, columns, decoder.restore(pa.array(kept, pa.binary()), decoded.forms, columns).to_pylist()


@pytest.mark.parametrize("name", NAMED_PATTERNS)
def test_named_patterns_take_their_lines_and_give_them_back(name: str) -> None:
    values: list[bytes | None] = [*LINES[name]]
    decoded, columns, restored = decode(name, values)
    assert decoded.reasons.null_count == len(values)
    assert decoded.forms.to_pylist() == [COLUMNS] * len(values)
    assert restored == values
    assert "time" in columns


def test_columns_of_an_access_log() -> None:
    _, columns, _ = decode("combined", [*LINES["combined"]])
    assert columns["path"].to_pylist() == ["/a.gif?x=%20", "/a.gif?x=%20", None, None]
    assert columns["status"].to_pylist() == [200, 200, 400, 400]
    assert columns["size"].to_pylist() == [2326, 2326, 0, None]
    assert columns["request"].to_pylist()[2] == "\\x16\\x03\\x01"


def test_lines_that_do_not_match_are_kept_whole_with_a_reason() -> None:
    values: list[bytes | None] = [COMMON, b"nonsense", COMMON + b"\xff", None, b""]
    decoded, _, restored = decode("common", values)
    assert decoded.reasons.to_pylist() == [None, NO_MATCH, NOT_UTF8, None, NO_MATCH]
    assert decoded.forms.to_pylist() == [COLUMNS, "value", "value", "tombstone", "value"]
    assert restored == values


def test_a_pattern_of_ones_own_gives_lines_back_where_text_is_between_its_groups() -> None:
    lines: list[bytes | None] = [b"[WARN] 7: a\nb", b"[E] 07: x"]
    decoded, columns, restored = decode(r"\[(?<level>[A-Z]+)\] (?P<code>\d+): (?P<text>.*)", lines)
    assert (columns["level"].to_pylist(), columns["code"].to_pylist()) == (["WARN", "E"], ["7", "07"])
    assert decoded.forms.to_pylist() == [COLUMNS, COLUMNS]
    assert restored == lines
    decoded, columns, restored = decode(r"(?P<a>\d+)\s+(?P<b>\d+)", [b"1  2", b"3 4"])
    assert (columns["a"].to_pylist(), decoded.forms.to_pylist()) == ([1, 3], ["value", "value"])
    assert restored == [b"1  2", b"3 4"]


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("apache", "use common, combined"),
        ("(a)(?P<x>b)", "needs a name"),
        (r"(?P<x>b)(?=a)", "no look-around"),
        (r"(?P<x>b)\1", "no back references"),
        ("(?P<x>a)(?P<x>b)", "two groups with the name 'x'"),
        ("(?P<x>a", "missing )"),
        ("(?P<x>a)" + "a" * PATTERN_LETTERS_MAX, "characters"),
    ],
)
def test_what_is_no_pattern_is_told(pattern: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        line_pattern(pattern)
    assert told in str(raised.value)


def test_no_pattern_hangs() -> None:
    decoded, _, _ = decode(r"(?P<x>(?:a*)*)b", [b"a" * 100_000])
    assert decoded.reasons.to_pylist() == [NO_MATCH]


WORDS = [b"a", b" ", b"-", b'"', b"[", b"]", b"7", b"07", b"\\", b":", b"<", b">", b"\n", b"\xff", b"GET", b"HTTP/1.1"]
VALUES = st.none() | st.sampled_from([line for lines in LINES.values() for line in lines]) | st.binary(max_size=9)
TORN = st.builds(
    lambda line, at, word: line[:at] + word + line[at:],
    VALUES.filter(bool),
    st.integers(0, 99),
    st.sampled_from(WORDS),
)
OWN = [
    r"(?P<a>\w+) (?P<b>.*)",
    r"(?P<a>\d*)-(?P<b>[^-]*)-(?P<c>.*)",
    r"\<(?P<a>(?:a|7)+)\>(?P<b>.*)$",
    r"(?P<a>.)?(?P<b>.*)",
]


@given(st.sampled_from([*NAMED_PATTERNS, *OWN]), st.lists(VALUES | TORN, max_size=5))
@example("common", [COMMON, COMMON + b"\n", b"\n" + COMMON])
def test_any_bytes_are_given_back(pattern: str, values: list[bytes | None]) -> None:
    _, _, restored = decode(pattern, values)
    assert restored == values


@pytest.mark.parametrize("name", ["syslog", "(?P<head>[a-zA-Z]+) (?P<message>.*)"])
def test_carriage_return_of_a_line_end_is_in_no_column_and_is_given_back(name: str) -> None:
    line = b"May 17 10:05:03 host su: failed"
    decoded, columns, given_back = decode(name, [line + b"\r", line])
    assert columns["message"].to_pylist() in (["failed"] * 2, ["17 10:05:03 host su: failed"] * 2)
    assert decoded.reasons.null_count == 2
    assert decoded.forms.to_pylist() == ["columns+cr", "columns"]
    assert given_back == [line + b"\r", line]


def test_pattern_that_asks_for_a_carriage_return_gets_it() -> None:
    _, columns, _ = decode(r"(?P<message>[^\r]*)(?P<end>\r)", [b"text\r"])
    assert columns["end"].to_pylist() == ["\r"]
