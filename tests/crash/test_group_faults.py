"""Requests that are appended together, to a disk that fails at any one operation: what is acknowledged is stored.

Three requests wait each time, of an idempotent producer that sends all of them again until it is told where they are.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import BarnabasError, StorageError
from barnabas.model import TopicPartition
from barnabas.records import Record
from barnabas.storage import AppendInfo, Log, LogConfig

CONFIG = LogConfig(segment_bytes=600, index_interval_bytes=100)
TOGETHER = 3
GROUPS = 6

MakeBatch = Callable[..., bytearray]
ReadAll = Callable[[Log], list[Record]]


class Sender:
    """Sends numbered values, several requests at a time; knows what was acknowledged and what was flushed."""

    def __init__(self, make_batch: MakeBatch) -> None:
        self.make_batch = make_batch
        self.acknowledged = 0
        self.flushed = 0

    def request(self, number: int) -> bytearray:
        producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": number}
        return self.make_batch([b"%d" % number * 50], 1_000 + number, **producer)

    def send_all(self, log: Log) -> None:
        """:raises StorageError: the disk failed; some of the requests may have been acknowledged."""
        for group in range(GROUPS):
            first = self.acknowledged
            outcomes = log.append_all([self.request(first + n) for n in range(TOGETHER)], group // 2)
            for number, outcome in enumerate(outcomes, start=first):
                if isinstance(outcome, AppendInfo):
                    assert outcome.base_offset == number
                    assert number == self.acknowledged, "nothing is acknowledged behind what failed"
                    self.acknowledged += 1
            for outcome in outcomes:
                if isinstance(outcome, BarnabasError):
                    raise outcome
            log.flush()
            self.flushed = self.acknowledged


def check_after_restart(
    folder: Path, partition: TopicPartition, sender: Sender, read_all: ReadAll, sound: Any, at_least: int
) -> None:
    log = Log.open(folder, partition, CONFIG, ManualClock(), sound)
    records = read_all(log)
    assert [record.value for record in records] == [b"%d" % n * 50 for n in range(len(records))]
    assert len(records) >= at_least
    # The producer sends again all that it does not know to be stored; none of it is stored twice.
    first = min(sender.acknowledged, len(records))
    outcomes = log.append_all([sender.request(number) for number in range(first, first + TOGETHER)], 9)
    assert [o.base_offset if isinstance(o, AppendInfo) else o for o in outcomes] == list(range(first, first + TOGETHER))
    assert len(read_all(log)) == max(len(records), first + TOGETHER)
    log.close()


@pytest.fixture
def operation_count(memory_path: Path, partition: TopicPartition, make_batch: MakeBatch, faulty_filesystem: Any) -> int:
    """How many operations there are when nothing fails."""
    filesystem = faulty_filesystem()
    Sender(make_batch).send_all(Log.open(memory_path / "dry run", partition, CONFIG, ManualClock(), filesystem))
    assert len([operation for operation in filesystem.operations if operation.startswith("write 0")]) > GROUPS
    return len(filesystem.operations)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("stays_broken", [True, False], ids=["dead", "once"])
def test_fault_at_every_operation_then_kill(
    error: int,
    stays_broken: bool,
    operation_count: int,
    memory_path: Path,
    partition: TopicPartition,
    make_batch: MakeBatch,
    read_all: ReadAll,
    faulty_filesystem: Any,
) -> None:
    for number in range(operation_count):
        folder, sender = memory_path / f"data {number}", Sender(make_batch)
        filesystem = faulty_filesystem(number, error, stays_broken=stays_broken)
        with pytest.raises(StorageError):
            sender.send_all(Log.open(folder, partition, CONFIG, ManualClock(), filesystem))
        check_after_restart(folder, partition, sender, read_all, faulty_filesystem(), sender.acknowledged)


@pytest.mark.parametrize("kept", [lambda durable, size: durable, lambda durable, size: (durable + size) // 2])
def test_power_loss_at_every_operation(
    kept: Callable[[int, int], int],
    operation_count: int,
    memory_path: Path,
    partition: TopicPartition,
    make_batch: MakeBatch,
    read_all: ReadAll,
    faulty_filesystem: Any,
) -> None:
    for number in range(operation_count):
        folder, sender = memory_path / f"data {number}", Sender(make_batch)
        filesystem = faulty_filesystem(number)
        with pytest.raises(StorageError):
            sender.send_all(Log.open(folder, partition, CONFIG, ManualClock(), filesystem))
        filesystem.lose_power(kept)
        check_after_restart(folder, partition, sender, read_all, faulty_filesystem(), sender.flushed)
