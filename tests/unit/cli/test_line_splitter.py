"""Lines out of chunks."""

from __future__ import annotations

import io

import pytest

from barnabas.cli.line_splitter import LineSplitter, read_lines

TEXT = b"one\n\nthree\r\nfour without end"
LINES = [b"one", b"", b"three\r", b"four without end"]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_do_not_depend_on_how_the_bytes_come(size: int) -> None:
    stream = io.BytesIO(TEXT)
    assert [line for lines in read_lines(lambda _max: stream.read(size)) for line in lines] == LINES


def test_lines_are_handed_out_as_soon_as_they_are_whole() -> None:
    splitter = LineSplitter()
    assert splitter.feed(b"a\nb") == [b"a"]
    assert splitter.pending_bytes == 1
    assert splitter.feed(b"c\n") == [b"bc"]
    assert splitter.pending_bytes == 0


def test_an_empty_stream_has_no_line() -> None:
    assert list(read_lines(io.BytesIO(b"").read)) == []


def test_a_last_line_feed_does_not_make_one_more_line() -> None:
    assert list(read_lines(io.BytesIO(b"a\n").read)) == [[b"a"]]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
@pytest.mark.parametrize("delimiter", [b"\0", b"--", b"\r\n"])
def test_lines_may_end_with_something_else(size: int, delimiter: bytes) -> None:
    stream = io.BytesIO(delimiter.join([b"one", b"", b"two-\n", b"rest"]))
    lines = [line for lines in read_lines(lambda _max: stream.read(size), delimiter) for line in lines]
    assert lines == [b"one", b"", b"two-\n", b"rest"]
