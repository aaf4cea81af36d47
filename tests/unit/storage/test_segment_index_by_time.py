"""The sparse index by time, in memory and in a file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from barnabas.storage import OsFileSystem
from barnabas.storage.segment_index import FileTimeIndex, TimeIndex, TimeOffset

ENTRIES = [(-1, 3), (1_000, 9), (2_000, 19)]


@pytest.fixture(params=["memory", "file"])
def index(request: pytest.FixtureRequest, tmp_path: Path) -> TimeIndex | FileTimeIndex:
    built = TimeIndex()
    for entry in ENTRIES:
        built.maybe_append(*entry)
    if request.param == "memory":
        return built
    path = tmp_path / "index"
    path.write_bytes(built.encode())
    return FileTimeIndex(OsFileSystem(), OsFileSystem().open(path), path.stat().st_size)


def test_floor_and_last(index: TimeIndex | FileTimeIndex) -> None:
    assert index.floor(-2) is None
    assert index.floor(999) == TimeOffset(-1, 3)
    assert index.floor(1_000) == TimeOffset(1_000, 9)
    assert index.last() == TimeOffset(2_000, 19)
    assert len(index) == 3


def test_file_format_is_that_of_kafka() -> None:
    data = b"".join(struct.pack(">qI", *entry) for entry in ENTRIES)
    assert TimeIndex.decode(data).encode() == data


def test_time_that_has_not_gone_on_gets_no_entry() -> None:
    index = TimeIndex()
    index.maybe_append(5, 1)
    index.maybe_append(5, 2)
    index.maybe_append(4, 3)
    assert index.encode() == struct.pack(">qI", 5, 1)
    index.truncate(1)
    assert index.last() is None


@pytest.mark.parametrize("data", [b"12345678901", bytes(24), struct.pack(">qIqI", 5, 5, 6, 4)])
def test_damaged_files_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="time index"):
        TimeIndex.decode(data)
