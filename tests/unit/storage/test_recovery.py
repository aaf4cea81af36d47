"""What a start makes of a log's folder: what is learned, what is set aside, what is not touched."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.records import Record, read_header
from barnabas.storage import Log, LogConfig, LogManager, OsFileSystem
from barnabas.storage.checkpoints import EpochStart
from barnabas.storage.file_names import CLEAN_SHUTDOWN, RECOVERY_POINT_CHECKPOINT
from barnabas.storage.filesystem import Chunk, DataFile
from barnabas.storage.log_config import CleanupPolicy
from tests.support.compacted_logs import Batch, Kept, write_segments

CLICKS = TopicPartition("clicks", 0)

MakeBatch = Callable[..., bytearray]
OpenLog = Callable[..., Log]
ReadAll = Callable[..., list[Record]]


class CountingFileSystem(OsFileSystem):
    """Counts operations, does not wait for the disk, and has no room for some files."""

    def __init__(self) -> None:
        self.fsyncs: list[str] = []
        self.full_for = "nothing"

    def fsync(self, file: DataFile) -> None:
        self.fsyncs.append(file.path.name)

    def fsync_folder(self, path: Path) -> None:
        self.fsyncs.append(path.name)

    def writev(self, file: DataFile, chunks: Sequence[Chunk]) -> int:
        if self.full_for in file.path.name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(file.path))
        return super().writev(file, chunks)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


# --- what is cut, and what is kept of it ---


def test_torn_tail_is_cut_and_no_copy_made(
    open_log: OpenLog, make_batch: MakeBatch, tmp_path: Path, read_all: ReadAll
) -> None:
    log = open_log()
    for _ in range(3):
        log.append(make_batch(2), 0)
    size = log.size_bytes
    log.abandon()
    os.truncate(tmp_path / "clicks-0" / f"{0:020}.log", size - 10)
    assert len(read_all(open_log())) == 4
    assert not list((tmp_path / "clicks-0").glob("*.damaged*"))


def test_sound_batches_behind_a_damaged_one_are_copied_first(
    open_log: OpenLog, make_batch: MakeBatch, tmp_path: Path, read_all: ReadAll
) -> None:
    path = tmp_path / "clicks-0" / f"{0:020}.log"
    for number in (1, 2):
        log = open_log()
        for _ in range(3):
            log.append(make_batch(2), 0)
        log.abandon()
        content = bytearray(path.read_bytes())
        batch = len(make_batch(2))
        content[batch + 70] ^= 1
        path.write_bytes(content)
        assert len(read_all(open_log())) == 2
        copy = path.with_name(path.name + (".damaged" if number == 1 else ".damaged-2"))
        assert copy.read_bytes() == content[batch:]


def test_tail_that_cannot_be_copied_is_not_cut(tmp_path: Path, clock: ManualClock, make_batch: MakeBatch) -> None:
    disk = CountingFileSystem()
    log = Log.open(tmp_path / "clicks-0", CLICKS, LogConfig(), clock, disk)
    for _ in range(3):
        log.append(make_batch(2), 0)
    log.abandon()
    path = log.folder / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    content[len(content) // 3 + 70] ^= 1
    path.write_bytes(content)
    disk.full_for = ".damaged"
    with pytest.raises(StorageError, match="No space left"):
        Log.open(log.folder, CLICKS, LogConfig(), clock, disk)
    assert path.read_bytes() == content
    assert not list(log.folder.glob("*.damaged*"))
    disk.full_for = "nothing"
    assert Log.open(log.folder, CLICKS, LogConfig(), clock, disk).log_end_offset == 2


def test_segments_behind_a_damaged_one_are_set_aside(
    open_log: OpenLog, make_batch: MakeBatch, tmp_path: Path, read_all: ReadAll
) -> None:
    log = open_log()
    for _ in range(3):
        log.append(make_batch(10), 0)
        log.roll()
    log.abandon()
    folder = tmp_path / "clicks-0"
    sound = (folder / f"{20:020}.log").read_bytes()
    os.truncate(folder / f"{10:020}.log", 100)
    assert len(read_all(open_log())) == 10
    assert (folder / f"{20:020}.log.damaged").read_bytes() == sound
    assert {f"{30:020}.log.damaged", f"{20:020}.index.damaged"} <= names_in(folder)


def test_segment_under_another_name_is_set_aside(
    open_log: OpenLog, make_batch: MakeBatch, tmp_path: Path, read_all: ReadAll
) -> None:
    log = open_log()
    log.append(make_batch(10), 0)
    log.roll()
    log.append(make_batch(10), 0)
    log.abandon()
    folder = tmp_path / "clicks-0"
    (folder / f"{10:020}.log").write_bytes((folder / f"{0:020}.log").read_bytes())
    log = open_log()
    assert len(read_all(log)) == log.log_end_offset == 10
    assert (folder / f"{10:020}.log.damaged").exists()
    log.append(make_batch(1), 0)
    log.abandon()
    assert open_log().log_end_offset == 11


def test_snapshot_of_a_later_end_is_set_aside(open_log: OpenLog, make_batch: MakeBatch, tmp_path: Path) -> None:
    log = open_log()
    log.append(make_batch(2, producer_id=1, producer_epoch=0, base_sequence=0), 0)
    log.append(make_batch(2, producer_id=1, producer_epoch=0, base_sequence=2), 0)
    log.close()
    folder = tmp_path / "clicks-0"
    os.truncate(folder / f"{0:020}.log", log.size_bytes - 1)
    log = open_log()
    assert log.append(make_batch(2, producer_id=1, producer_epoch=0, base_sequence=2), 0).base_offset == 2
    log.close()
    assert {f"{4:020}.snapshot.damaged", f"{4:020}.snapshot"} <= names_in(folder)


def test_segments_before_the_start_of_the_log_are_renamed(
    open_log: OpenLog, make_batch: MakeBatch, tmp_path: Path
) -> None:
    log = open_log()
    for _ in range(2):
        log.append(make_batch(10), 0)
        log.roll()
    log.close()
    assert open_log(clean=True, log_start_offset=15).log_start_offset == 15
    assert f"{0:020}.log.before-start" in names_in(tmp_path / "clicks-0")


def test_only_names_that_a_log_gives_are_tidied_away(open_log: OpenLog, tmp_path: Path) -> None:
    open_log().close()
    folder = tmp_path / "clicks-0"
    theirs = {"photos.deleted", "notes.tmp", f"{7:020}.jpg.deleted", "9.log.deleted", f"{2**63:020}.log"}
    ours = {f"{7:020}.log.deleted", f"{7:020}.snapshot.deleted", f"{7:020}.index.tmp", "partition.metadata.tmp"}
    for name in theirs | ours:
        (folder / name).write_text("x")
    open_log()
    assert theirs <= names_in(folder)
    assert not ours & names_in(folder)


# --- leader epochs ---


@pytest.mark.parametrize("stored", [None, b"0\n1\n0 0\n"], ids=["missing", "behind"])
def test_epochs_that_are_not_in_the_checkpoint_yet_are_learned(
    stored: bytes | None, open_log: OpenLog, make_batch: MakeBatch, tmp_path: Path, read_all: ReadAll
) -> None:
    log = open_log()
    for epoch in (0, 0, 3, 3, 7):
        log.append(make_batch(2), epoch)
    log.abandon()
    checkpoint = tmp_path / "clicks-0" / "leader-epoch-checkpoint"
    if stored is None:
        checkpoint.unlink(missing_ok=True)
    else:
        checkpoint.write_bytes(stored)
    log = open_log()
    assert log.leader_epochs.entries == (EpochStart(0, 0), EpochStart(3, 4), EpochStart(7, 8))
    assert len(read_all(log)) == 10
    log.flush()
    log.abandon()
    log = open_log(recovery_point=10)
    assert log.leader_epochs.latest == 7
    log.close()
    assert checkpoint.read_bytes() == b"0\n3\n0 0\n3 4\n7 8\n"


@pytest.mark.parametrize("bit", [0x10, 0x10 << 24], ids=["low", "high"])
@pytest.mark.parametrize("stored", [None, b"0\n1\n0 0\n"], ids=["missing", "behind"])
def test_epoch_that_one_batch_has_by_damage_is_not_learned(
    bit: int, stored: bytes | None, open_log: OpenLog, make_batch: MakeBatch, tmp_path: Path
) -> None:
    log = open_log()
    for _ in range(4):
        log.append(make_batch(2), 0)
    log.abandon()
    folder = tmp_path / "clicks-0"
    if stored is None:
        (folder / "leader-epoch-checkpoint").unlink(missing_ok=True)
    path = folder / f"{0:020}.log"
    content = bytearray(path.read_bytes())
    start = len(content) // 2
    content[start + 12 : start + 16] = bit.to_bytes(4, "big")
    path.write_bytes(content)
    log = open_log()
    assert log.log_end_offset == 4
    assert log.leader_epochs.entries == (EpochStart(0, 0),)
    assert path.with_name(path.name + ".damaged").exists()


# --- what is done when ---


def test_stop_does_nothing_to_logs_that_were_not_written_to(
    tmp_path: Path, clock: ManualClock, make_batch: MakeBatch
) -> None:
    disk = CountingFileSystem()
    manager = LogManager(tmp_path, LogConfig(), clock, disk)
    logs = [manager.create(TopicPartition("clicks", number)) for number in range(50)]
    logs[7].append(make_batch(1), 0)
    disk.fsyncs.clear()
    manager.close()
    in_logs = [name for name in disk.fsyncs if name.startswith(("clicks", "0"))]
    assert sorted(in_logs) == [f"{0:020}.log", "clicks-7"]
    assert names_in(tmp_path / "clicks-8") == {f"{0:020}.log"}


def test_stop_of_many_logs_makes_all_of_them_durable(tmp_path: Path, clock: ManualClock, make_batch: MakeBatch) -> None:
    disk = CountingFileSystem()
    manager = LogManager(tmp_path, LogConfig(), clock, disk)
    for number in range(100):
        manager.create(TopicPartition("clicks", number)).append(make_batch(1), 0)
    manager.close()
    assert disk.fsyncs.count(f"{0:020}.log") == 100
    manager = LogManager(tmp_path, LogConfig(), clock, disk)
    assert manager.was_clean
    assert {log.recovery_point for log in manager.all().values()} == {1}
    manager.close()


def test_log_that_much_was_appended_to_is_flushed_now_and_then(
    tmp_path: Path, clock: ManualClock, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("barnabas.storage.log_flusher.CHECKPOINT_BYTES", 1_000)
    manager = LogManager(tmp_path, LogConfig(), clock, OsFileSystem())
    little, much = manager.create(CLICKS), manager.create(TopicPartition("clicks", 1))
    little.append(make_batch(1), 0)
    much.append(make_batch(100), 0)
    manager.flush_sealed()
    assert (little.recovery_point, much.recovery_point) == (0, 100)
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nclicks 1 100\n"
    assert (tmp_path / "replication-offset-checkpoint").read_text() == "0\n2\nclicks 0 1\nclicks 1 100\n"
    assert (tmp_path / "clicks-1" / f"{0:020}.index").exists()
    manager.close()


def test_checkpoints_are_lowered_before_a_log_is_cut(tmp_path: Path, clock: ManualClock, make_batch: MakeBatch) -> None:
    """A crash in between must not look as if the disk had lost what was flushed."""
    seen: list[str] = []

    class Watching(OsFileSystem):
        def truncate(self, file: DataFile, size: int) -> None:
            if size and file.path.suffix == ".log":
                seen.append((tmp_path / "recovery-point-offset-checkpoint").read_text())
            super().truncate(file, size)

    manager = LogManager(tmp_path, LogConfig(), clock, Watching())
    log = manager.create(CLICKS)
    for _ in range(3):
        log.append(make_batch(1), 0)
    log.flush()
    manager.checkpoint_recovery_points()
    log.truncate_to(1)
    assert seen == ["0\n1\nclicks 0 1\n"]
    manager.close()


# --- gaps ---


def two_segments_with_gaps(folder: Path) -> None:
    """Records 0, 2 and 3; 10 and 12: gaps in a segment, between two, and in front of the second."""
    records = [[Batch(0, 0, [Kept(0, 1)]), Batch(2, 3, [Kept(2, 1), Kept(3, 1)])]]
    records.append([Batch(10, 10, [Kept(10, 1)]), Batch(12, 12, [Kept(12, 1)])])
    write_segments(folder, zip((0, 8), records, strict=True))


@pytest.mark.parametrize(
    ("recovery_point", "end"), [(0, 1), (1, 1), (2, 4), (7, 4), (8, 8), (11, 11), (12, 13), (13, 13)]
)
def test_gap_behind_the_recovery_point_ends_a_log_that_is_not_compacted(
    open_log: OpenLog, tmp_path: Path, recovery_point: int, end: int
) -> None:
    two_segments_with_gaps(tmp_path / "clicks-0")
    log = open_log(recovery_point=recovery_point)
    assert log.log_end_offset == end


@pytest.mark.parametrize("recovery_point", range(14))
def test_compacted_log_is_whole_wherever_its_gaps_are(open_log: OpenLog, tmp_path: Path, recovery_point: int) -> None:
    two_segments_with_gaps(tmp_path / "clicks-0")
    log = open_log(recovery_point=recovery_point, cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    assert log.log_end_offset == 13
    assert not [name for name in names_in(tmp_path / "clicks-0") if "damaged" in name]


@pytest.mark.parametrize(("recovery_point", "end"), [(0, 4), (7, 4), (8, 13), (13, 13)])
def test_compacted_log_of_a_machine_that_crashed_ends_where_a_segment_has_lost_its_end(
    tmp_path: Path, clock: ManualClock, recovery_point: int, end: int
) -> None:
    """Nothing of what is not flushed was compacted. What a start cut off is no gap for the next one."""
    data = tmp_path / "data"
    compacted = LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))

    def start(boot_id: str) -> LogManager:
        return LogManager(data, compacted, clock, OsFileSystem(), cluster_id="castle", boot_id=boot_id)

    first = start("monday")
    first.note_boot()
    first.abandon()
    two_segments_with_gaps(data / "clicks-0")
    (data / RECOVERY_POINT_CHECKPOINT).write_text(f"0\n1\nclicks 0 {recovery_point}\n")
    for boot_id in ("tuesday", "tuesday"):
        manager = start(boot_id)
        log = manager.get(CLICKS)
        assert log is not None
        assert log.log_end_offset == end
        manager.note_boot()
        manager.abandon()


@pytest.mark.parametrize(("topic", "end"), [("clicks", 13), ("other", 1)])
def test_settings_of_topics_say_whether_gaps_are_damage(
    tmp_path: Path, clock: ManualClock, topic: str, end: int
) -> None:
    """They are known to those who load the logs."""
    two_segments_with_gaps(tmp_path / "data" / "clicks-0")
    compacted = LogConfig(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    manager = LogManager(
        tmp_path / "data", LogConfig(), clock, OsFileSystem(), topic_configs=lambda: {topic: compacted}
    )
    log = manager.get(CLICKS)
    assert log is not None
    assert log.log_end_offset == end
    manager.close()


def test_epochs_whose_batches_are_gone_are_kept(open_log: OpenLog, tmp_path: Path) -> None:
    """The checkpoint says more of where epochs began than the batches that compaction has left."""
    folder = tmp_path / "clicks-0"
    batches = [Batch(4, 5, [Kept(5, 1)], leader_epoch=1), Batch(9, 9, [Kept(9, 1)], leader_epoch=7)]
    write_segments(folder, [(0, batches), (10, [Batch(11, 11, [Kept(11, 1)], leader_epoch=9)])])
    (folder / "leader-epoch-checkpoint").write_bytes(b"0\n4\n0 0\n1 3\n4 6\n7 8\n")
    log = open_log(cleanup_policy=frozenset({CleanupPolicy.COMPACT}))
    assert [tuple(entry) for entry in log.leader_epochs.entries] == [(0, 0), (1, 3), (4, 6), (7, 8), (9, 11)]


def test_log_goes_on_further_than_its_indexes_can_say(
    tmp_path: Path, clock: ManualClock, make_batch: MakeBatch
) -> None:
    """Two checkpoints say that it had come there: no offset below is used again."""
    folder, reached = tmp_path / "clicks-0", 5 * 2**31
    log = Log.open(folder, CLICKS, LogConfig(), clock, OsFileSystem())
    log.append(make_batch(2), 0)
    log.abandon()
    log = Log.open(folder, CLICKS, LogConfig(), clock, OsFileSystem(), recovery_point=reached, high_watermark=reached)
    assert log.log_end_offset == reached
    offset = 2
    while offset < reached:
        gap = log.read(offset, 1_000, reached).batches
        assert isinstance(gap, bytearray)
        header = read_header(gap)
        assert (header.base_offset, header.record_count) == (offset, 0)
        offset = header.next_offset
    assert offset == reached
    assert log.append(make_batch(1), 0).base_offset == reached
    log.close()
    assert Log.open(folder, CLICKS, LogConfig(), clock, OsFileSystem(), clean=True).log_end_offset == reached + 1


def test_hole_at_the_end_is_known_to_each_start_until_something_was_done_about_it(
    tmp_path: Path, clock: ManualClock, make_batch: MakeBatch
) -> None:
    def start(reached: int) -> Log:
        disk = OsFileSystem()
        return Log.open(folder, CLICKS, LogConfig(), clock, disk, recovery_point=reached, high_watermark=reached)

    folder = tmp_path / "clicks-0"
    log = start(0)
    log.append(make_batch(2), 0)
    log.abandon()
    for reached, lost_from in ((2, None), (5, 2), (5, 2), (7, 2), (7, 2)):
        log = start(reached)
        assert (log.log_end_offset, log.lost_from) == (reached, lost_from)
        log.abandon()
    log = start(7)
    log.append(make_batch(1), 0)
    log.abandon()
    log = start(8)
    assert (log.log_end_offset, log.lost_from) == (8, None)
    log.close()


def test_log_whose_segments_are_lost_is_known_to_each_start_until_something_was_done_about_it(
    tmp_path: Path, clock: ManualClock, make_batch: MakeBatch
) -> None:
    data = tmp_path / "data"

    def start() -> tuple[LogManager, Log]:
        manager = LogManager(data, LogConfig(), clock, OsFileSystem())
        return manager, manager.create(CLICKS)

    manager, log = start()
    log.append(make_batch(5), 0)
    log.flush()
    manager.checkpoint_recovery_points()
    manager.abandon()
    for path in log.folder.glob("0*"):
        path.unlink()
    for _ in range(3):
        manager, log = start()
        assert (log.log_start_offset, log.log_end_offset, log.lost_from) == (5, 5, 0)
        manager.checkpoint_log_starts()
        manager.abandon()
    log.accept_loss()
    manager, log = start()
    log.accept_loss()
    manager.checkpoint_log_starts()
    manager.abandon()
    manager, log = start()
    assert (log.log_start_offset, log.log_end_offset, log.lost_from) == (5, 5, None)
    manager.close()


def test_log_whose_records_are_all_deleted_has_lost_nothing(
    tmp_path: Path, clock: ManualClock, make_batch: MakeBatch
) -> None:
    data = tmp_path / "data"
    manager = LogManager(data, LogConfig(), clock, OsFileSystem())
    log = manager.create(CLICKS)
    log.append(make_batch(5), 0)
    log.roll()
    log.delete_records_before(5)
    manager.remove_deleted_records()
    manager.abandon()
    log = LogManager(data, LogConfig(), clock, OsFileSystem()).create(CLICKS)
    assert (log.log_start_offset, log.log_end_offset, log.lost_from) == (5, 5, None)


def test_stop_with_a_hole_that_nobody_did_something_about_is_not_clean(tmp_path: Path, clock: ManualClock) -> None:
    data = tmp_path / "data"
    LogManager(data, LogConfig(), clock, OsFileSystem()).close()
    assert (data / CLEAN_SHUTDOWN).exists()
    manager = LogManager(data, LogConfig(), clock, OsFileSystem())
    manager.create(CLICKS).note_loss(0)
    manager.close()
    assert not (data / CLEAN_SHUTDOWN).exists()
