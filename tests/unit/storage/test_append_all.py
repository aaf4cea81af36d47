"""Requests that are appended together: each is judged as if it had come alone, and all are written at once."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from barnabas.clock import ManualClock
from barnabas.errors import ApiError, BarnabasError, ClosedError, CorruptBatchError, ErrorCode, StorageError
from barnabas.model import TimestampType, TopicPartition
from barnabas.records import read_header
from barnabas.records.scan import stamp_plain_batches
from barnabas.storage import AppendInfo, Log, LogConfig, OsFileSystem, log_appender
from barnabas.storage.filesystem import Chunk, DataFile
from tests.support.searches import examples

PARTITION = TopicPartition("clicks", 0)
PRODUCER = {"producer_id": 7, "producer_epoch": 0}

MakeBatch = Callable[..., bytearray]


class CountingFiles(OsFileSystem):
    """Counts the writes to log files; refuses them from a number on."""

    def __init__(self) -> None:
        self.writes = 0
        self.refused_from = 10**9
        self.in_write: Callable[[], None] = lambda: None

    def writev(self, file: DataFile, chunks: Sequence[Chunk]) -> int:
        if file.path.suffix == ".log":
            self.in_write()
            self.writes += 1
            if self.writes > self.refused_from:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().writev(file, chunks)


@pytest.fixture
def disk() -> CountingFiles:
    return CountingFiles()


@pytest.fixture
def log(tmp_path: Path, disk: CountingFiles) -> Log:
    return open_log(tmp_path, disk)


def open_log(folder: Path, disk: OsFileSystem, **config: Any) -> Log:
    return Log.open(folder / str(PARTITION), PARTITION, LogConfig(**config), ManualClock(), disk)


def offsets(outcomes: Sequence[AppendInfo | BarnabasError]) -> list[int | None]:
    return [outcome.base_offset if isinstance(outcome, AppendInfo) else None for outcome in outcomes]


def test_what_one_producer_sends_in_a_row_is_looked_at_once(
    log: Log, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.append_all([make_batch()], 0)
    looks: list[int] = []

    def look(requests: Sequence[Any], start: int, *arguments: Any, **limits: Any) -> Any:
        looks.append(start)
        return stamp_plain_batches(requests, start, *arguments, **limits)

    monkeypatch.setattr(log_appender, "stamp_plain_batches", look)
    idempotent = [make_batch(**PRODUCER, base_sequence=sequence) for sequence in range(4)]
    plain = [make_batch() for _ in range(3)]
    outcomes = log.append_all([*idempotent[:2], *plain, *idempotent[2:]], 0)
    assert offsets(outcomes) == [1, 2, 3, 4, 5, 6, 7]
    assert looks == [0, 2, 5], "what follows on one another together"


def test_requests_follow_each_other_in_one_write(
    log: Log, disk: CountingFiles, make_batch: MakeBatch, read_all: Any
) -> None:
    outcomes = log.append_all([make_batch(n + 1, value=b"%d" % n) for n in range(5)], 0)
    assert offsets(outcomes) == [0, 1, 3, 6, 10]
    assert disk.writes == 1
    assert [record.value for record in read_all(log)] == [b"%d" % n for n in range(5) for _ in range(n + 1)]
    assert log.high_watermark == log.log_end_offset == 15


def test_thousands_of_small_requests_are_one_write(
    log: Log, disk: CountingFiles, make_batch: MakeBatch, read_all: Any
) -> None:
    batch = bytes(make_batch(value=b"v"))
    outcomes = log.append_all([batch] * 3_000, 0)
    assert offsets(outcomes) == list(range(3_000))
    assert disk.writes == 1
    assert len(read_all(log)) == 3_000


def test_a_bad_request_fails_alone(log: Log, make_batch: MakeBatch, read_all: Any) -> None:
    damaged = make_batch()
    damaged[-1] ^= 1
    no_batch = b""
    outcomes = log.append_all([make_batch(), damaged, make_batch(), no_batch, damaged[:70], make_batch(2)], 0)
    assert offsets(outcomes) == [0, None, 1, None, None, 2]
    assert [type(outcome) for outcome in outcomes if not isinstance(outcome, AppendInfo)] == [
        CorruptBatchError,
        ApiError,
        CorruptBatchError,
    ]
    assert [record.offset for record in read_all(log)] == [0, 1, 2, 3]


def test_a_request_of_several_batches_is_refused_as_by_kafka(log: Log, make_batch: MakeBatch, read_all: Any) -> None:
    damaged = make_batch()
    damaged[-1] ^= 1
    outcomes = log.append_all([make_batch() + damaged, make_batch() + make_batch(), make_batch() + b"\0"], 0)
    assert [type(outcome) for outcome in outcomes] == [ApiError] * 3
    assert log.log_end_offset == 0
    assert read_all(log) == []


def test_nothing_is_written_where_nothing_is_sound(log: Log, disk: CountingFiles) -> None:
    assert offsets(log.append_all([b"", b"junk"], 0)) == [None, None]
    assert log.append_all([], 0) == []
    assert disk.writes == 0


def test_sequences_are_judged_by_the_requests_before(log: Log, make_batch: MakeBatch, read_all: Any) -> None:
    def batch(sequence: int, count: int = 1) -> bytearray:
        return make_batch(count, **PRODUCER, base_sequence=sequence)

    outcomes = log.append_all([batch(0), batch(1, 2), batch(1, 2), batch(9), batch(3), batch(0)], 0)
    assert offsets(outcomes) == [0, 1, 1, None, 3, 0]
    assert [o.duplicate for o in outcomes if isinstance(o, AppendInfo)] == [False, False, True, False, True]
    assert isinstance(outcomes[3], ApiError)
    assert outcomes[3].code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert len(read_all(log)) == 4
    assert log.append(batch(3), 0).duplicate
    assert log.append(batch(4), 0).base_offset == 4


@pytest.mark.parametrize("first", [0, 2**31 - 9, 2**31 - 3])
def test_retries_of_what_came_in_a_row_are_known_by_their_last_five(
    log: Log, make_batch: MakeBatch, first: int
) -> None:
    def batch(number: int) -> bytearray:
        return make_batch(2, **PRODUCER, base_sequence=(first + 2 * number) % 2**31)

    if first:
        assert offsets(log.append_all([batch(0)], 0)) == [None]  # once, since the producer is not known
    assert offsets(log.append_all([make_batch(), *map(batch, range(7))], 0)) == [0, *range(1, 15, 2)]
    outcomes = log.append_all([batch(number) for number in range(7)], 0)
    assert offsets(outcomes) == [None, None, *range(5, 15, 2)]
    assert all(each.duplicate for each in outcomes if isinstance(each, AppendInfo))
    assert log.append(batch(7), 0).base_offset == 15


def test_a_refused_request_leaves_no_trace_of_its_sequences(log: Log, make_batch: MakeBatch) -> None:
    def batch(sequence: int) -> bytearray:
        return make_batch(**PRODUCER, base_sequence=sequence)

    outcomes = log.append_all([batch(0), batch(5), batch(1) + batch(2), batch(1), batch(2)], 0)
    assert offsets(outcomes) == [0, None, None, 1, 2]


def test_segments_begin_where_they_would_have_begun(tmp_path: Path, disk: CountingFiles, make_batch: MakeBatch) -> None:
    batch = bytes(make_batch())
    together = open_log(tmp_path / "together", disk, segment_bytes=len(batch) * 3)
    alone = open_log(tmp_path / "alone", disk, segment_bytes=len(batch) * 3)
    disk.writes = 0
    together.append_all([batch] * 10, 0)
    assert disk.writes == 4
    for _ in range(10):
        alone.append(batch, 0)
    assert together.segment_count == alone.segment_count == 4
    assert files(together) == files(alone)


def test_the_disk_is_full_in_the_middle(tmp_path: Path, disk: CountingFiles, make_batch: MakeBatch) -> None:
    batch = bytes(make_batch())
    log = open_log(tmp_path, disk, segment_bytes=len(batch) * 3)
    disk.refused_from = 2
    outcomes = log.append_all([batch] * 4 + [b""] + [batch] * 6, 0)
    assert offsets(outcomes) == [0, 1, 2, 3, None, 4, 5, None, None, None, None]
    assert isinstance(outcomes[4], ApiError)
    assert all(isinstance(outcome, StorageError) for outcome in outcomes[7:])
    assert log.read(0, 1_000, 6).batches
    disk.refused_from = sys.maxsize
    assert offsets(log.append_all([batch] * 2, 0)) == [6, 7]
    log.abandon()
    assert open_log(tmp_path, OsFileSystem()).log_end_offset == 8


def test_retries_of_what_the_disk_refused_are_not_acknowledged(
    log: Log, disk: CountingFiles, make_batch: MakeBatch
) -> None:
    batch = bytes(make_batch(**PRODUCER, base_sequence=0))
    disk.refused_from = 0
    outcomes = log.append_all([batch, batch], 0)
    assert [type(outcome) for outcome in outcomes] == [StorageError, StorageError]


def test_a_repeat_behind_a_failed_roll_is_not_acknowledged_either(
    tmp_path: Path, disk: CountingFiles, make_batch: MakeBatch
) -> None:
    count = read_header(make_batch()).record_count
    batches = [bytes(make_batch(**PRODUCER, base_sequence=number * count)) for number in range(3)]
    log = open_log(tmp_path, disk, segment_bytes=len(batches[0]))
    disk.refused_from = disk.writes + 1
    outcomes = log.append_all([*batches, batches[1]], 0)
    assert isinstance(outcomes[0], AppendInfo)
    assert [type(outcome) for outcome in outcomes[1:]] == [StorageError, ApiError, StorageError]
    assert log.log_end_offset == outcomes[0].last_offset + 1


def test_a_flush_that_fails_during_the_write_fails_them_all(
    log: Log, disk: CountingFiles, make_batch: MakeBatch
) -> None:
    log.append(make_batch(), 0)

    def fail_to_flush() -> None:
        disk.in_write = lambda: None
        with pytest.raises(StorageError):
            log.flush()

    def refuse(file: DataFile) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    disk.in_write, disk.fsync = fail_to_flush, refuse  # type: ignore[method-assign]
    outcomes = log.append_all([make_batch(), b"", make_batch()], 0)
    assert isinstance(outcomes[1], ApiError)
    assert [type(outcomes[0]), type(outcomes[2])] == [StorageError, StorageError]


@pytest.mark.parametrize("is_written", [False, True])
def test_a_log_that_is_closed_during_an_append_refuses_it_and_no_disk_is_blamed(
    log: Log, make_batch: MakeBatch, caplog: pytest.LogCaptureFixture, is_written: bool
) -> None:
    group = log.begin_append(lambda group: group.take(memoryview(make_batch())), 0)
    assert group
    if is_written:
        log.write_append(group)
    log.abandon()
    if not is_written:
        log.write_append(group)
    assert isinstance(log.finish_append(group), ClosedError)
    assert [type(outcome) for outcome in log.append_all([make_batch()], 0)] == [ClosedError]
    assert not log.is_offline
    assert not caplog.records


def test_an_older_leader_appends_nothing(log: Log, disk: CountingFiles, make_batch: MakeBatch) -> None:
    log.append(make_batch(), 5)
    outcomes = log.append_all([make_batch(), make_batch()], 4)
    assert [outcome.code for outcome in outcomes if isinstance(outcome, ApiError)] == [
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
    ]
    assert disk.writes == 1


def test_all_get_the_time_of_the_broker_where_it_counts(
    tmp_path: Path, disk: CountingFiles, make_batch: MakeBatch, read_all: Any
) -> None:
    log = open_log(tmp_path, disk, message_timestamp_type=TimestampType.LOG_APPEND_TIME)
    outcomes = log.append_all([make_batch(timestamp_ms=n) for n in range(3)], 0)
    now_ms = ManualClock().time_ms()
    assert [o.log_append_time_ms for o in outcomes if isinstance(o, AppendInfo)] == [now_ms] * 3
    assert {record.timestamp_ms for record in read_all(log)} == {now_ms}


REQUESTS = st.lists(
    st.one_of(
        st.integers(1, 4).map(lambda count: ("plain", count)),
        st.integers(0, 6).map(lambda sequence: ("sequence", sequence)),
        st.integers(0, 6).map(lambda sequence: ("two sequences", sequence)),
        st.tuples(st.just("row"), st.integers(0, 9)),
        st.just(("damaged", 0)),
        st.just(("empty", 0)),
    ),
    max_size=12,
)


@given(st.lists(REQUESTS, max_size=4), st.sampled_from([300, 700, 100_000]))
@settings(max_examples=examples(30), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_together_is_the_same_as_one_by_one(
    tmp_path_factory: pytest.TempPathFactory, make_batch: MakeBatch, groups: list[list[Any]], segment_bytes: int
) -> None:
    folder = tmp_path_factory.mktemp("logs")
    config = {"segment_bytes": segment_bytes, "index_interval_bytes": 100}
    together = open_log(folder / "together", OsFileSystem(), **config)
    alone = open_log(folder / "alone", OsFileSystem(), **config)
    for group in groups:
        requests = [request for each in group for request in requests_of(make_batch, *each)]
        expected: list[object] = []
        for request in requests:
            try:  # of bytes, which cannot be stamped where they are, and so never go together
                expected.append(alone.append(request, 0))
            except BarnabasError as error:
                expected.append(str(error))
        outcomes = together.append_all(list(map(bytearray, requests)), 0)
        assert [str(o) if isinstance(o, BarnabasError) else o for o in outcomes] == expected
        assert together.log_end_offset == alone.log_end_offset
    together.close()
    alone.close()
    assert files(together) == files(alone)


def requests_of(make_batch: MakeBatch, kind: str, number: int) -> list[bytes]:
    if kind == "row":
        return [
            bytes(make_batch(count, **PRODUCER, base_sequence=sequence))
            for sequence, count in ((number, 1), (number + 1, 2), (number + 3, 1), (number + 4, 3))
        ]
    return [request_of(make_batch, kind, number)]


def request_of(make_batch: MakeBatch, kind: str, number: int) -> bytes:
    if kind == "plain":
        return bytes(make_batch(number))
    if kind == "sequence":
        return bytes(make_batch(**PRODUCER, base_sequence=number))
    if kind == "two sequences":
        return b"".join(bytes(make_batch(**PRODUCER, base_sequence=number + n)) for n in range(2))
    return bytes(make_batch())[:-1] + b"?" if kind == "damaged" else b""


def files(log: Log) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(log.folder.iterdir())}
