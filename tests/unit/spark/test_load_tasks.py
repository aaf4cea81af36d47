"""A task of a load: what it answers when all goes well, when the disk is full, when the log is shorter."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas.errors import ApiError, AuthenticationError, ErrorCode, TimedOutError
from barnabas.formats.field_aliases import NO_ALIASES
from barnabas.records import BatchBuilder
from barnabas.records.arrow import ArrowReader
from barnabas.spark import load_tasks
from barnabas.spark.errors import DataLossError
from barnabas.spark.load_tasks import (
    ReadSettings,
    TaskFailed,
    TaskInferred,
    TaskWritten,
    WriteSettings,
    infer_ranges,
    write_ranges,
)
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.table_shape import TableShape

RANGE = OffsetRange("t", 2, 0, 4)
READING = ReadSettings("nowhere:1", {})
RAW = TableShape()
JSON = TableShape("json", {"a": "long"}, {"a": "value_a"}, takes_new_fields=False)


def fake_log(*values: bytes | None) -> Iterator[pa.RecordBatch]:
    builder = BatchBuilder()
    for value in values:
        builder.append(0, None, value)
    reader = ArrowReader()
    reader.read(builder.build(), "t", 2)
    yield reader.finish()


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log of four values in place of the brokers."""
    values = [b'{"a": 1}', b'{"a": 2, "b": 3}', b"?", None]
    monkeypatch.setattr(load_tasks, "read_range", lambda *args, **options: fake_log(*values))


@pytest.mark.usefixtures("log")
def test_a_task_writes_its_range_and_counts(tmp_path: Path) -> None:
    done = write_ranges([RANGE], READING, WriteSettings(f"file://{tmp_path}", {}, JSON), attempt_id=5)
    assert isinstance(done, TaskWritten)
    assert (done.records, done.kept_values, len(done.files)) == (4, 2, 1)
    path = done.files[0].path.removeprefix("file://")
    assert Path(path).name == "t-2-0-5-1970-01-01-00000.parquet"
    assert pq.read_table(path).select(["value_a", "value_form", "value"]).to_pydict() == {
        "value_a": [1, 2, None, None],
        "value_form": ["columns", "value", "value", "tombstone"],
        "value": [None, b'{"a": 2, "b": 3}', b"?", None],
    }


@pytest.mark.usefixtures("log")
def test_a_full_disk_is_an_answer_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_properties: Mapping[str, str], path: str) -> AbstractContextManager[IO[bytes]]:
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(load_tasks, "create_file", full)
    failed = write_ranges([RANGE], READING, WriteSettings(str(tmp_path), {}, RAW), attempt_id=0)
    assert isinstance(failed, TaskFailed)
    assert failed.kind == "storage"
    assert "No space left on device" in failed.message


@pytest.mark.usefixtures("log")
def test_a_disk_that_fills_while_a_file_is_written_is_an_answer_too() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("needs /dev/full, a device that is always full (Linux)")

    def always_full(_properties: Mapping[str, str], _path: str) -> AbstractContextManager[IO[bytes]]:
        return Path("/dev/full").open("wb")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(load_tasks, "create_file", always_full)
        failed = write_ranges([RANGE], READING, WriteSettings("", {}, RAW), attempt_id=0)
    assert isinstance(failed, TaskFailed)
    assert failed.kind == "storage"


@pytest.mark.usefixtures("log")
def test_a_file_of_an_earlier_attempt_is_never_overwritten(tmp_path: Path) -> None:
    writing = WriteSettings(str(tmp_path), {}, RAW)
    assert isinstance(write_ranges([RANGE], READING, writing, attempt_id=1), TaskWritten)
    assert isinstance(write_ranges([RANGE], READING, writing, attempt_id=2), TaskWritten)
    assert isinstance(write_ranges([RANGE], READING, writing, attempt_id=1), TaskFailed)


@pytest.mark.usefixtures("log")
def test_the_fields_of_a_range_are_found() -> None:
    assert infer_ranges([RANGE], READING, JSON) == TaskInferred({"a": "long", "b": "long"}, NO_ALIASES)


def test_offsets_deleted_while_they_are_read_are_data_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_args: object, **_options: object) -> Iterator[pa.RecordBatch]:
        raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE, "t-2 at offset 0")
        yield ArrowReader().finish()

    monkeypatch.setattr(load_tasks, "read_range", gone)
    failed = write_ranges([RANGE], READING, WriteSettings(str(tmp_path), {}, RAW), attempt_id=0)
    assert isinstance(failed, TaskFailed)
    assert failed.kind == "data loss"
    assert "t-2 [0, 4)" in failed.message


def test_a_log_that_was_cut_off_while_it_was_read_is_data_loss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cut_off(*_args: object, **_options: object) -> Iterator[pa.RecordBatch]:
        raise DataLossError("t-2 [0, 4): the log end offset is 0, and the read reached 0")
        yield ArrowReader().finish()

    monkeypatch.setattr(load_tasks, "read_range", cut_off)
    told = "t-2 [0, 4): the log end offset is 0, and the read reached 0"
    writing = WriteSettings(str(tmp_path), {}, RAW)
    assert write_ranges([RANGE], READING, writing, attempt_id=0) == TaskFailed("data loss", told)


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimedOutError("no answer"), "source unavailable"),
        (ApiError(ErrorCode.LEADER_NOT_AVAILABLE), "source unavailable"),
        (ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), "other"),
        (AuthenticationError("wrong password"), "other"),
        (ConnectionResetError(errno.ECONNRESET, "reset"), "storage unavailable"),
    ],
)
def test_failed_task_tells_whether_a_server_did_not_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception, kind: str
) -> None:
    def read(*_arguments: object, **_options: object) -> Iterator[pa.RecordBatch]:
        raise error
        yield

    monkeypatch.setattr(load_tasks, "read_range", read)
    writing = WriteSettings(f"file://{tmp_path}", {}, RAW)
    for failed in (write_ranges([RANGE], READING, writing, attempt_id=1), infer_ranges([RANGE], READING, RAW)):
        assert isinstance(failed, TaskFailed)
        assert failed.kind == kind
