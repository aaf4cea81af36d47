"""The disk fails at any one step of a compaction, or the machine stops there: each segment is the old one or has its
new content, and no old one comes before a new one."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition
from barnabas.records import Record
from barnabas.storage import Log, LogConfig, OsFileSystem
from barnabas.storage.log_config import CleanupPolicy
from tests.support.compaction_steps import Keyed, compact, keyed_batch, last_values, read_gapped

START_MS = 1_700_000_000_000
CONFIG = LogConfig(
    segment_bytes=600,
    index_interval_bytes=100,
    cleanup_policy=frozenset({CleanupPolicy.COMPACT}),
    delete_retention_ms=0,
)
PARTITION = TopicPartition("states", 0)


class Scene:
    """A log of several segments, some of which compaction empties, and one that was compacted before."""

    def __init__(self, folder: Path, sound: OsFileSystem) -> None:
        self.folder = folder
        self.clock = ManualClock(START_MS)
        self.log = self.open(sound)
        self.sequence = 0
        for round_ in range(2):
            for number in range(14):
                key = b"%d" % (number % 3)
                self.append(key, None if number % 11 == 0 else b"%d of %d" % (number, round_) * 4)
            self.log.roll()
            self.log.flush()
            if not round_:
                compact(self.log, sound, self.clock.time_ms())
        self.append(b"open", b"in the active segment")
        self.log.flush()
        self.recovery_point = self.log.recovery_point
        self.old = read_gapped(self.log)

    def append(self, key: bytes, value: bytes | None) -> None:
        record = Keyed(key, value, START_MS + self.sequence)
        batch = keyed_batch([record], producer_id=1, producer_epoch=0, base_sequence=self.sequence)
        self.log.append(batch, 0)
        self.sequence += 1

    def open(self, filesystem: OsFileSystem) -> Log:
        recovery_point = getattr(self, "recovery_point", 0)
        return Log.open(self.folder, PARTITION, CONFIG, self.clock, filesystem, recovery_point=recovery_point)

    def reopen(self, filesystem: OsFileSystem) -> None:
        self.log.abandon()
        self.log = self.open(filesystem)

    def check(self, new: list[Record]) -> None:
        """The log holds the old records, or the new ones, or the new ones up to some offset and the old ones behind."""
        found = read_gapped(self.log)
        ends = {0, *(record.offset + 1 for record in self.old)}
        mixes = (
            [each for each in new if each.offset < end] + [each for each in self.old if each.offset >= end]
            for end in ends
        )
        assert found in list(mixes)
        assert last_values(found) == last_values(self.old)

    def check_after_start(self, new: list[Record]) -> None:
        self.check(new)
        left = {path.suffix for path in self.folder.iterdir()}
        assert left <= {".log", ".index", ".timeindex", ".snapshot", ""}
        # The producer goes on where it was, and compaction too.
        with suppress(BarnabasError):  # a retry of the last batch
            assert self.log.append(self.retry(), 0).duplicate
        self.append(b"more", b"value")
        self.log.roll()
        self.log.flush()
        assert compact(self.log, OsFileSystem(), self.clock.time_ms()) is not None
        assert last_values(read_gapped(self.log)) == last_values([*self.old]) | {b"more": b"value"}

    def retry(self) -> bytearray:
        record = Keyed(b"open", b"in the active segment", 0)
        return keyed_batch([record], producer_id=1, producer_epoch=0, base_sequence=self.sequence - 1)


def interrupted(folder: Path, filesystem: Any, number: int) -> Scene:
    """Return a log whose compaction fails at the operation with this number."""
    scene = Scene(folder, filesystem)
    filesystem.fail_at = len(filesystem.operations) + number
    with suppress(BarnabasError, OSError):
        compact(scene.log, filesystem, scene.clock.time_ms())
    return scene


@pytest.fixture
def new(memory_path: Path, faulty_filesystem: Any) -> list[Record]:
    """The records that compaction leaves when nothing fails."""
    sound = faulty_filesystem()
    scene = Scene(memory_path / "dry run", sound)
    compact(scene.log, sound, scene.clock.time_ms())
    records = read_gapped(scene.log)
    assert len(records) < len(scene.old)
    scene.log.close()
    return records


@pytest.fixture
def operation_count(memory_path: Path, faulty_filesystem: Any) -> int:
    """How many operations that change something a compaction needs."""
    filesystem = faulty_filesystem()
    scene = Scene(memory_path / "counted", filesystem)
    before = len(filesystem.operations)
    compact(scene.log, filesystem, scene.clock.time_ms())
    operations = filesystem.operations[before:]
    scene.log.abandon()
    assert {operation.split()[0] for operation in operations} >= {"create", "write", "fsync", "rename", "unlink"}
    assert sum("fsync folder" in operation for operation in operations) >= 6
    return len(operations)


@pytest.mark.parametrize(
    ("error", "stays_broken"),
    [(errno.EIO, True), (errno.EIO, False), (errno.ENOSPC, False)],
    ids=["dead", "once", "full for a moment"],
)
def test_fault_at_every_step_of_a_compaction(
    error: int,
    stays_broken: bool,
    operation_count: int,
    new: list[Record],
    memory_path: Path,
    faulty_filesystem: Any,
) -> None:
    for number in range(operation_count):
        filesystem = faulty_filesystem(-1, error, stays_broken=stays_broken)
        scene = interrupted(memory_path / f"data {number}", filesystem, number)
        assert filesystem.failed
        if not scene.log.is_offline:
            scene.check(new)
        scene.reopen(OsFileSystem())
        scene.check_after_start(new)
        scene.log.abandon()


def test_power_loss_at_every_step_of_a_compaction(
    operation_count: int, new: list[Record], memory_path: Path, faulty_filesystem: Any
) -> None:
    for number in range(operation_count):
        filesystem = faulty_filesystem()
        scene = interrupted(memory_path / f"data {number}", filesystem, number)
        scene.log.abandon()
        filesystem.lose_power()
        scene.reopen(OsFileSystem())
        scene.check_after_start(new)
        scene.log.abandon()


def test_a_fault_in_every_step_of_the_recovery_too(
    operation_count: int, new: list[Record], memory_path: Path, faulty_filesystem: Any
) -> None:
    """The start after a crash in the middle of a swap is interrupted itself, again and again."""
    for number in range(operation_count):
        filesystem = faulty_filesystem()
        scene = interrupted(memory_path / f"data {number}", filesystem, number)
        scene.log.abandon()
        for step in range(100):
            starting = faulty_filesystem(step)
            try:
                scene.reopen(starting)
            except BarnabasError:
                assert starting.failed
                continue
            break
        else:
            pytest.fail("the log cannot be opened")
        scene.reopen(OsFileSystem())
        scene.check_after_start(new)
        scene.log.abandon()
