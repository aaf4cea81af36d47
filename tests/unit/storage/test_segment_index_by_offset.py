"""The sparse index by offset, in memory and in a file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from barnabas.storage import OsFileSystem
from barnabas.storage.segment_index import FileOffsetIndex, OffsetIndex, OffsetPosition

ENTRIES = [(9, 0), (19, 500), (25, 700), (2**31 - 1, 2**31)]


@pytest.fixture(params=["memory", "file"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> OffsetIndex | FileOffsetIndex:
    built = OffsetIndex()
    for entry in ENTRIES:
        built.append(*entry)
    if request.param == "memory":
        return built
    path = tmp_path / "index"
    path.write_bytes(built.encode())
    return FileOffsetIndex(OsFileSystem(), OsFileSystem().open(path), path.stat().st_size)


def test_file_format_is_that_of_kafka(index: OffsetIndex | FileOffsetIndex) -> None:
    if isinstance(index, OffsetIndex):
        assert index.encode() == b"".join(struct.pack(">II", *entry) for entry in ENTRIES)
        assert OffsetIndex.decode(index.encode()).encode() == index.encode()


def test_floor_by_offset(index: OffsetIndex | FileOffsetIndex) -> None:
    assert index.floor(8) is None
    assert index.floor(9) == OffsetPosition(9, 0)
    assert index.floor(24) == OffsetPosition(19, 500)
    assert index.floor(2**31 - 1) == OffsetPosition(2**31 - 1, 2**31)


def test_floor_by_position(index: OffsetIndex | FileOffsetIndex) -> None:
    assert index.floor_position(0) == OffsetPosition(9, 0)
    assert index.floor_position(699) == OffsetPosition(19, 500)
    assert index.floor_position(2**40) == OffsetPosition(2**31 - 1, 2**31)


def test_empty_index_knows_nothing(tmp_path: Path) -> None:
    file = OsFileSystem().open(tmp_path / "index", create=True)
    for empty in (OffsetIndex(), FileOffsetIndex(OsFileSystem(), file, 0)):
        assert len(empty) == 0
        assert empty.floor(5) is None
        assert empty.floor_position(5) is None


def test_truncation_drops_the_entries_at_and_above() -> None:
    index = OffsetIndex.decode(b"".join(struct.pack(">II", *entry) for entry in ENTRIES))
    index.truncate(25)
    assert index.last() == OffsetPosition(19, 500)
    index.truncate_positions(500)
    assert index.last() == OffsetPosition(9, 0)
    index.truncate(0)
    assert index.last() is None


@pytest.mark.parametrize("data", [b"1234567", bytes(16), struct.pack(">IIII", 5, 5, 4, 9)])
def test_damaged_files_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="offset index"):
        OffsetIndex.decode(data)
