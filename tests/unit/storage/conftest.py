"""A log in a folder of its own, and batches to put into it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder, Record, read_records
from barnabas.storage import Log, LogConfig, LogManager, OsFileSystem

START_MS = 1_700_000_000_000


def _make_batch(
    count: int = 1, *, timestamp_ms: int = START_MS, value: bytes = b"v" * 100, **producer: int
) -> bytearray:
    builder = BatchBuilder()
    for index in range(count):
        builder.append(timestamp_ms + index, None, value)
    return bytearray(builder.build(**producer))


def _read_all(log: Log, max_bytes: int = 1_000_000) -> list[Record]:
    """Read the log from its start to its end, as a consumer does."""
    offset = log.log_start_offset
    records: list[Record] = []
    while region := log.read(offset, max_bytes, log.high_watermark).batches:
        data = os.pread(region.file.fileno(), region.length, region.position)
        assert len(data) == region.length
        records += read_records(data, *log.partition, min_offset=offset)
        offset = records[-1].offset + 1
    assert offset == log.log_end_offset
    return records


@pytest.fixture
def make_batch() -> Callable[..., bytearray]:
    return _make_batch


@pytest.fixture
def read_all() -> Callable[..., list[Record]]:
    return _read_all


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START_MS)


@pytest.fixture
def open_log(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., Log]]:
    """Open the log `clicks-0`; what is opened is let go of at the end."""
    logs: list[Log] = []

    def open_it(clean: bool = False, recovery_point: int = 0, log_start_offset: int = 0, **config: object) -> Log:
        partition = TopicPartition("clicks", 0)
        folder = tmp_path / str(partition)
        settings = LogConfig(**config)
        log = Log.open(folder, partition, settings, clock, OsFileSystem(), clean, recovery_point, log_start_offset)
        logs.append(log)
        return log

    yield open_it
    for log in logs:
        log.abandon()


@pytest.fixture
def open_manager(tmp_path: Path, clock: ManualClock) -> Iterator[Callable[..., LogManager]]:
    managers: list[LogManager] = []

    def open_it(**options: object) -> LogManager:
        disk = options.pop("disk", None) or OsFileSystem()
        manager = LogManager(tmp_path / "data", LogConfig(), clock, disk, **options)
        managers.append(manager)
        return manager

    yield open_it
    for manager in managers:
        manager.abandon()
