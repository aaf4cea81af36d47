"""What is told of values that are in the logs twice."""

from __future__ import annotations

import shutil
from pathlib import Path

from barnabas.clock import ManualClock
from barnabas.laboratory.history import History
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder
from barnabas.storage import Log, LogConfig, OsFileSystem
from tests.faults.doubled import what_is_doubled
from tests.support.duplicate_values import doubled_in_logs

PLACE = TopicPartition("numbers", 1)


def batch(values: list[bytes], epoch: int, sequence: int) -> bytearray:
    builder = BatchBuilder()
    builder.append_many(1_000, values)
    return bytearray(builder.build(producer_id=12, producer_epoch=epoch, base_sequence=sequence))


def write(folder: Path, *sent: tuple[list[bytes], int, int]) -> None:
    """Leave what a run leaves: a history, and the log of a broker."""
    log = Log.open(folder / "broker-1" / str(PLACE), PLACE, LogConfig(), ManualClock(), OsFileSystem())
    with History(folder / "history") as history:
        for values, epoch, sequence in sent:
            offset = log.append(batch(values, epoch, sequence), leader_epoch=3).base_offset
            found = [(PLACE, offset + number, value) for number, value in enumerate(values)]
            for _ in range(2):  # who reads it twice finds it at the same offset
                history.poll("reader", 0.0, found)
    log.close()


def test_producer_epochs_and_sequences_of_both_batches_are_told(tmp_path: Path) -> None:
    write(tmp_path, ([b"a", b"b"], 0, 0), ([b"c"], 0, 2), ([b"b", b"c"], 1, 0))
    assert what_is_doubled(tmp_path) == [
        "1 values are in numbers-1 at 0 to 1: producer 12, epoch 0, sequence 0 to 1, leader epoch 3, 1000 ms;"
        " and in numbers-1 at 3 to 4: producer 12, epoch 1, sequence 0 to 1, leader epoch 3, 1000 ms",
        "1 values are in numbers-1 at 2 to 2: producer 12, epoch 0, sequence 2 to 2, leader epoch 3, 1000 ms;"
        " and in numbers-1 at 3 to 4: producer 12, epoch 1, sequence 0 to 1, leader epoch 3, 1000 ms",
    ]


def test_nothing_is_told_where_each_value_is_there_once(tmp_path: Path) -> None:
    write(tmp_path, ([b"a", b"b"], 0, 0), ([b"c"], 0, 2))
    assert what_is_doubled(tmp_path) == []


def test_a_batch_that_is_gone_is_told_as_such(tmp_path: Path) -> None:
    write(tmp_path, ([b"a"], 0, 0), ([b"a"], 1, 0))
    for path in (tmp_path / "broker-1" / str(PLACE)).glob("*.log"):
        path.unlink()
    assert what_is_doubled(tmp_path) == [
        "1 values are in numbers-1, no longer there; and in numbers-1, no longer there"
    ]


def test_what_a_replica_has_twice_is_told_from_its_log_alone_with_who_has_it(tmp_path: Path) -> None:
    write(tmp_path, ([b"a", b"b"], 0, 0), ([b"c"], 0, 2), ([b"b", b"c"], 1, 0))
    shutil.copytree(tmp_path / "broker-1", tmp_path / "broker-2")
    assert doubled_in_logs(tmp_path, PLACE) == [f"broker-1, broker-2: {line}" for line in what_is_doubled(tmp_path)]
    assert doubled_in_logs(tmp_path, TopicPartition("numbers", 2)) == []
