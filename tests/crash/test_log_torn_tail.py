"""A log whose end was torn or damaged keeps all that is sound before, and raises nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.model import TopicPartition
from barnabas.records import Record, read_header
from barnabas.storage import Log, LogConfig, OsFileSystem
from barnabas.storage.filesystem import DataFile
from tests.support.log_steps import read

CONFIG = LogConfig(index_interval_bytes=100, segment_bytes=1_000)
MakeBatch = Callable[..., bytearray]
ReadAll = Callable[[Log], list[Record]]


@pytest.fixture
def folder(memory_path: Path, partition: TopicPartition, make_batch: MakeBatch) -> Path:
    """A log of three segments that was not closed, with batches of two records, the value being the offset."""
    folder = memory_path / "original"
    log = Log.open(folder, partition, CONFIG, ManualClock(), OsFileSystem())
    for number in range(30):
        values = [f"value {2 * number + index}".encode() for index in range(2)]
        producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 2 * number}
        log.append(make_batch(values, 1_000 + number, **producer), number // 8)
    assert log.segment_count == 3
    log.abandon()
    return folder


def reopen(folder: Path, partition: TopicPartition, *, clean: bool = False, recovery_point: int = 0) -> Log:
    return Log.open(folder, partition, CONFIG, ManualClock(), OsFileSystem(), clean, recovery_point)


def logs_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.log"))


def is_sound(log: Log, read_all: ReadAll, make_batch: MakeBatch) -> int:
    """Check that a log can be read and appended to; return where it ended."""
    end = log.log_end_offset
    records = read_all(log)
    assert [record.value for record in records] == [f"value {record.offset}".encode() for record in records]
    # The producer goes on where the log ends; so its state fits the log.
    if end:
        retry = make_batch([b"", b""], producer_id=1, producer_epoch=0, base_sequence=end - 2)
        assert log.append(retry, 9).duplicate
    following = make_batch([b"more"], producer_id=1, producer_epoch=0, base_sequence=end)
    assert log.append(following, 9).base_offset == end
    assert len(read_all(log)) == end - log.log_start_offset + 1
    assert all(entry.start_offset <= end for entry in log.leader_epochs.entries)
    log.abandon()
    return end


def test_active_segment_cut_at_every_byte_of_its_last_two_batches(
    folder: Path, partition: TopicPartition, memory_path: Path, make_batch: MakeBatch, read_all: ReadAll
) -> None:
    last = logs_of(folder)[-1]
    size = last.stat().st_size
    batch_size = len(make_batch([b"value 58", b"value 59"]))
    for cut in range(size - 2 * batch_size, size):
        copy = memory_path / "copy"
        shutil.copytree(folder, copy)
        os.truncate(copy / last.name, cut)
        log = reopen(copy, partition)
        assert is_sound(log, read_all, make_batch) == (56 if cut < size - batch_size else 58)
        shutil.rmtree(copy)


@pytest.mark.parametrize(
    "junk",
    ids=["zeros", "ones", "header"],
    argvalues=[b"\x00" * 5_000, b"\xff" * 70, b"\x00" * 11 + b"\x40" + b"\x00" * 4 + b"\x02" * 60],
)
def test_junk_after_the_last_batch_is_cut(
    junk: bytes, folder: Path, partition: TopicPartition, make_batch: MakeBatch, read_all: ReadAll
) -> None:
    with logs_of(folder)[-1].open("ab") as file:
        file.write(junk)
    assert is_sound(reopen(folder, partition), read_all, make_batch) == 60


def test_flipped_bit_anywhere_in_a_batch_is_never_served(
    folder: Path, partition: TopicPartition, memory_path: Path, make_batch: MakeBatch, read_all: ReadAll
) -> None:
    """Whichever field it is in: the log is cut before the batch, and later segments are gone."""
    middle = logs_of(folder)[1]
    base = int(middle.stem)
    size = len(make_batch([b"value 30", b"value 31"], producer_id=1, producer_epoch=0, base_sequence=30))
    for position in range(size):
        copy = memory_path / "copy"
        shutil.copytree(folder, copy)
        data = bytearray((copy / middle.name).read_bytes())
        data[size + position] ^= 0x10
        (copy / middle.name).write_bytes(data)
        log = reopen(copy, partition)
        assert len(logs_of(copy)) == 2
        assert is_sound(log, read_all, make_batch) == base + 2, position
        shutil.rmtree(copy)


def test_missing_segment_ends_the_log(
    folder: Path, partition: TopicPartition, make_batch: MakeBatch, read_all: ReadAll
) -> None:
    first, second, _ = logs_of(folder)
    second.unlink()
    log = reopen(folder, partition)
    assert logs_of(folder) == [first]
    assert is_sound(log, read_all, make_batch) == int(second.stem)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["missing", "empty", "odd size", "zeros", "flipped", "shuffled"])
@pytest.mark.parametrize("clean", [True, False])
def test_damaged_index_is_rebuilt(
    suffix: str,
    damage: str,
    clean: bool,
    folder: Path,
    partition: TopicPartition,
    make_batch: MakeBatch,
    read_all: ReadAll,
) -> None:
    log = reopen(folder, partition)
    sound = [log.time_search().first_at(0), log.time_search().latest()]
    log.close()
    for path in folder.glob(f"*{suffix}"):
        data = bytearray(path.read_bytes())
        assert len(data) >= 8
        if damage == "missing":
            path.unlink()
        elif damage == "empty":
            path.write_bytes(b"")
        elif damage == "odd size":
            path.write_bytes(data[:-1])
        elif damage == "zeros":
            path.write_bytes(bytes(len(data)))
        elif damage == "flipped":
            data[len(data) // 8 * 4 + 3] ^= 0x20
            path.write_bytes(data)
        else:
            path.write_bytes(data[8:] + data[:8])
    log = reopen(folder, partition, clean=clean, recovery_point=60)
    for offset in range(60):
        region = read(log, offset, 1, 60)
        assert region
        data = os.pread(region.file.fileno(), region.length, region.position)
        assert read_header(data).base_offset == offset // 2 * 2
    if suffix == ".index":
        assert [log.time_search().first_at(0), log.time_search().latest()] == sound
    assert is_sound(log, read_all, make_batch) == 60


@pytest.mark.parametrize(
    "content", [None, b"", b"0\n1\n", b"0\n1\n9 0\n", b"7\n0\n", b"0\n1\nx y\n", b"0\n2\n0 0\n9 30\n"]
)
def test_damaged_epoch_checkpoint_is_rebuilt_from_the_batches(
    content: bytes | None, folder: Path, partition: TopicPartition, read_all: ReadAll
) -> None:
    log = reopen(folder, partition)
    sound = log.leader_epochs.entries
    log.close()
    assert len(sound) == 4
    path = folder / "leader-epoch-checkpoint"
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    log = reopen(folder, partition)
    assert log.leader_epochs.entries == sound
    assert len(read_all(log)) == 60
    log.close()


def test_damaged_producer_snapshots_are_replaced_by_the_batches(
    folder: Path, partition: TopicPartition, make_batch: MakeBatch, read_all: ReadAll
) -> None:
    log = reopen(folder, partition)
    log.close()
    snapshots = list(folder.glob("*.snapshot"))
    assert snapshots
    for path in snapshots:
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    assert is_sound(reopen(folder, partition, clean=True), read_all, make_batch) == 60


def test_what_was_flushed_is_not_read_again(folder: Path, partition: TopicPartition, make_batch: MakeBatch) -> None:
    """The bytes read at start do not depend on the bytes flushed."""
    log = reopen(folder, partition)
    log.close()
    counter = CountingFileSystem()
    for more in (0, 500):
        log = reopen(folder, partition, clean=True)
        for _ in range(more):
            log.append(make_batch([b"x" * 100]), 9)
        log.close()
        for clean in (True, False):
            counter.read_bytes = 0
            reopened = Log.open(folder, partition, CONFIG, ManualClock(), counter, clean, log.recovery_point)
            reopened.abandon()
            assert counter.read_bytes < 5_000


class CountingFileSystem(OsFileSystem):
    """Counts the bytes that are read."""

    read_bytes = 0

    def pread(self, file: DataFile, size: int, position: int) -> bytes:
        data = super().pread(file, size, position)
        self.read_bytes += len(data)
        return data


def test_leftovers_of_interrupted_work_are_tidied_away(folder: Path, partition: TopicPartition) -> None:
    leftovers = [f"{7:020}.index", f"{7:020}.timeindex", f"{9:020}.log.deleted", "leader-epoch-checkpoint.tmp"]
    for name in leftovers:
        (folder / name).write_bytes(b"left")
    (folder / "notes.txt").write_bytes(b"not ours")
    log = reopen(folder, partition)
    names = {path.name for path in folder.iterdir()}
    assert not names & set(leftovers)
    assert "notes.txt" in names
    log.close()
