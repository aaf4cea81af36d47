"""Batches in a file whose headers lie, with the right CRC: a start cuts them or lives with them, and never raises."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition
from barnabas.records import BatchHeader, read_header
from barnabas.records.header import pack_header, write_crc
from barnabas.storage import Log, LogConfig, OsFileSystem

CONFIG = LogConfig(index_interval_bytes=100)
BITS = {
    "base_offset": 64,
    "batch_length": 32,
    "leader_epoch": 32,
    "magic": 8,
    "attributes": 16,
    "last_offset_delta": 32,
    "base_timestamp_ms": 64,
    "max_timestamp_ms": 64,
    "producer_id": 64,
    "producer_epoch": 16,
    "base_sequence": 32,
    "record_count": 32,
}
BATCHES = 6
DAMAGED = 3
RECORDS = 2

MakeBatch = Callable[..., bytearray]


def extremes(field: str) -> list[int]:
    bits = BITS[field]
    return [-(2 ** (bits - 1)), -2, -1, 0, 2 ** (bits - 1) - 2, 2 ** (bits - 1) - 1]


def lies() -> Iterator[dict[str, int]]:
    """Every field at its extremes, alone and in pairs."""
    for field in BITS:
        yield from ({field: value} for value in extremes(field))
    for first, second in itertools.combinations(BITS, 2):
        yield {first: extremes(first)[0], second: extremes(second)[-1]}
        yield {first: extremes(first)[-1], second: extremes(second)[-1]}


@pytest.fixture
def folder(memory_path: Path, partition: TopicPartition, make_batch: MakeBatch) -> Path:
    folder = memory_path / "original"
    log = Log.open(folder, partition, CONFIG, ManualClock(), OsFileSystem())
    for number in range(BATCHES):
        producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": number * RECORDS}
        log.append(make_batch([b"x" * 50] * RECORDS, 1_000 + number, **producer), 0)
    log.close()
    return folder


def lie(path: Path, number: int, fields: dict[str, int]) -> None:
    """Change fields of a batch, and make its CRC right again if its length can be believed."""
    data = bytearray(path.read_bytes())
    size = read_header(data).size
    start = number * size
    header: BatchHeader = read_header(data, start)._replace(**fields)
    with memoryview(data)[start:] as view:
        pack_header(view, header)
    write_crc(data, start, header.size if 61 <= header.size <= len(data) - start else size)
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("has_indexes", "clean"), [(True, True), (True, False), (False, False)], ids=["stopped", "killed", "no indexes"]
)
@pytest.mark.parametrize("number", [DAMAGED, BATCHES - 1], ids=["middle", "last"])
def test_start_never_raises(
    number: int,
    has_indexes: bool,
    clean: bool,
    folder: Path,
    partition: TopicPartition,
    memory_path: Path,
    make_batch: MakeBatch,
    faulty_filesystem: Any,
) -> None:
    disk = faulty_filesystem()  # it does not wait for the disk
    for fields in lies():
        copy = memory_path / "copy"
        shutil.copytree(folder, copy)
        if not has_indexes:
            for path in [*copy.glob("*.index"), *copy.glob("*.timeindex"), *copy.glob("*.snapshot")]:
                path.unlink()
        lie(copy / f"{0:020}.log", number, fields)
        log = Log.open(copy, partition, CONFIG, ManualClock(), disk, clean)
        assert log.log_end_offset >= number * RECORDS or clean, fields
        use(log, make_batch)
        again = Log.open(copy, partition, CONFIG, ManualClock(), disk, clean=True)
        assert again.log_end_offset == log.log_end_offset or clean, fields
        use(again, make_batch)
        shutil.rmtree(copy)


def use(log: Log, make_batch: MakeBatch) -> None:
    """Whatever is asked of the log, it answers or refuses."""
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        try:
            log.read(offset, 1, log.log_end_offset)
        except BarnabasError:
            break
        offset += 1
        if offset > 100:
            break
    try:
        log.append(make_batch([b"more"]), max(log.leader_epochs.latest, 0))
        log.roll()
        log.append(make_batch([b"more"]), max(log.leader_epochs.latest, 0))
        log.flush()
    except BarnabasError:
        assert log.log_end_offset > 2**31 - 100
    try:
        log.close()
    except BarnabasError:
        log.abandon()
