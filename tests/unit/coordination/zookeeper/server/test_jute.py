"""Jute's reader takes what the writer wrote, and refuses what is cut short or counts too much."""

from __future__ import annotations

import pytest

from barnabas.coordination.zookeeper.server.jute import JuteReader, boolean, buffer, int_, long, string, vector
from barnabas.errors import MalformedMessageError


def test_what_was_written_is_read() -> None:
    reader = JuteReader(int_(-1) + long(1 << 40) + boolean(True) + buffer(b"\0x") + string("ü") + vector([int_(5)]))
    assert (reader.integer(), reader.long(), reader.boolean()) == (-1, 1 << 40, True)
    assert (reader.buffer(), reader.string(), reader.vector(reader.integer), reader.left) == (b"\0x", "ü", [5], 0)


def test_null_is_empty() -> None:
    reader = JuteReader(int_(-1) * 3)
    assert (reader.buffer(), reader.string(), reader.vector(reader.integer)) == (b"", "", [])


@pytest.mark.parametrize(
    "data",
    [b"", b"\0\0\0", int_(5) + b"1234", int_(2**31 - 1)],
    ids=["nothing", "half a number", "a byte is missing", "two gigabytes announced"],
)
def test_bytes_that_are_cut_short_are_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessageError, match="too early"):
        JuteReader(data).buffer()


def test_more_elements_than_bytes_are_refused_before_any_is_read() -> None:
    reader = JuteReader(int_(1_000_000) + b"12")
    with pytest.raises(MalformedMessageError, match="a vector of 1000000 elements has only 2 bytes"):
        reader.vector(reader.integer)


def test_text_that_is_no_utf8_is_refused() -> None:
    with pytest.raises(MalformedMessageError, match="UTF-8"):
        JuteReader(buffer(b"\xff")).string()
