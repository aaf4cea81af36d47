"""Several data folders of one broker: where logs go, and what is left when a disk fails."""

from __future__ import annotations

import errno
import functools
import logging
import shutil
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import DataFolderError, StorageError
from barnabas.model import TopicPartition
from barnabas.storage import LogConfig, LogManager, OsFileSystem
from barnabas.storage.data_folders import DataFolders
from barnabas.storage.filesystem import DataFile, FilePath

MakeBatch = Callable[..., bytearray]
OpenFolders = Callable[..., DataFolders]
TOPIC_ID = uuid.UUID(int=7)
OTHER_ID = uuid.UUID(int=8)
CLICKS = [TopicPartition("clicks", number) for number in range(6)]


class FailingDisks(OsFileSystem):
    """Files below these folders cannot be made, or opened to write."""

    def __init__(self) -> None:
        self.failing: dict[Path, int] = {}

    def open(self, path: FilePath, *, create: bool = False, writable: bool = True) -> DataFile:
        for folder, error in self.failing.items():
            if writable and folder in Path(path).parents:
                raise OSError(error, "the disk fails")
        return super().open(path, create=create, writable=writable)

    def fail(self, folder: Path, error: int = errno.EIO) -> None:
        self.failing[folder] = error


@pytest.fixture
def disks() -> FailingDisks:
    return FailingDisks()


@pytest.fixture
def open_folders(tmp_path: Path, clock: ManualClock, disks: FailingDisks) -> Iterator[OpenFolders]:
    """Open folders of these names; what is opened is let go of at the end."""
    opened: list[LogManager] = []

    def open_folder(path: Path, broker_id: int = 0) -> LogManager:
        manager = LogManager(
            path, LogConfig(), clock, disks, broker_id=broker_id, cluster_id="castle", boot_id="1", loads=False
        )
        opened.append(manager)
        return manager

    def open_them(
        *names: str, broker_id: int = 0, on_all_failed: Callable[[str], object] = lambda _reason: None
    ) -> DataFolders:
        paths = [tmp_path / name for name in names]
        opening = functools.partial(open_folder, broker_id=broker_id)
        return DataFolders(paths, disks, opening, on_all_failed=on_all_failed)

    yield open_them
    for manager in opened:
        manager.abandon()


def _begin(folders: DataFolders, make_batch: MakeBatch, *partitions: TopicPartition) -> None:
    """Make logs with a record each, as a first start with topics does."""
    for each in partitions:
        folders.create(each, topic_id=TOPIC_ID).append(make_batch(1), 0)
    folders.note_boot()


def test_new_log_goes_to_the_folder_with_the_fewest(open_folders: OpenFolders, tmp_path: Path) -> None:
    one = open_folders("a")
    one.create(CLICKS[0])
    one.create(CLICKS[1])
    one.close()
    folders = open_folders("a", "b", "c")
    for each in CLICKS[2:]:
        folders.create(each)
    assert [folders.folder_of(each) for each in CLICKS[2:]] == [tmp_path / name for name in "bcbc"]
    assert folders.count() == len(folders.all()) == 6


def test_log_that_is_asked_for_again_while_others_are_made_does_not_count_twice(
    open_folders: OpenFolders, disks: FailingDisks, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folders = open_folders("a", "b")
    first, second, third, fourth = CLICKS[:4]
    folders.create(first)
    folders.create(second)
    make_folder = disks.make_folder

    def make_folder_while_others_come(path: FilePath) -> None:
        monkeypatch.setattr(disks, "make_folder", make_folder)
        assert folders.create(first) is folders.get(first)
        folders.create(fourth)
        make_folder(path)

    monkeypatch.setattr(disks, "make_folder", make_folder_while_others_come)
    folders.create(third)
    assert [folders.folder_of(each) for each in CLICKS[:4]] == [tmp_path / name for name in "abab"]


def test_logs_that_are_made_by_many_threads_at_once_are_spread_evenly(
    open_folders: OpenFolders, tmp_path: Path
) -> None:
    folders = open_folders("a", "b")
    made = [TopicPartition("views", number) for number in range(200)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(folders.create, made))
    assert Counter(folders.folder_of(each) for each in made) == {tmp_path / "a": 100, tmp_path / "b": 100}


def test_each_folder_has_its_own_checkpoints_and_clean_mark(
    open_folders: OpenFolders, make_batch: MakeBatch, tmp_path: Path
) -> None:
    folders = open_folders("a", "b")
    _begin(folders, make_batch, *CLICKS[:2])
    folders.close()
    for name, number in (("a", 0), ("b", 1)):
        assert (tmp_path / name / "recovery-point-offset-checkpoint").read_text() == f"0\n1\nclicks {number} 1\n"
        assert (tmp_path / name / ".kafka_cleanshutdown").exists()
    again = open_folders("a", "b")
    assert not again.lost_memory
    assert {each: again.restore(each, None, TOPIC_ID).log_end_offset for each in CLICKS[:2]} == dict.fromkeys(
        CLICKS[:2], 1
    )
    assert not again.missing


def test_folder_of_another_broker_is_refused(open_folders: OpenFolders, make_batch: MakeBatch) -> None:
    _begin(folders := open_folders("b", broker_id=3), make_batch, CLICKS[0])
    folders.close()
    with pytest.raises(DataFolderError, match="belongs to broker 3, not to broker 0"):
        open_folders("a", "b")


def test_folder_that_is_in_use_is_refused(open_folders: OpenFolders) -> None:
    open_folders("b")
    with pytest.raises(DataFolderError, match="used by another broker"):
        open_folders("a", "b")


def test_start_goes_on_without_a_folder_that_cannot_be_opened(
    open_folders: OpenFolders, make_batch: MakeBatch, disks: FailingDisks, tmp_path: Path
) -> None:
    folders = open_folders("a", "b")
    _begin(folders, make_batch, *CLICKS[:2])
    folders.close()
    disks.fail(tmp_path / "b")
    folders = open_folders("a", "b")
    assert [state.failure is None for state in folders.states()] == [True, False]
    assert folders.restore(CLICKS[0], None, TOPIC_ID).log_end_offset == 1
    lost = folders.restore(CLICKS[1], None, TOPIC_ID)
    assert lost.is_offline
    assert folders.gone == {CLICKS[1]}, "somebody else may have more; but nobody may count on that"
    assert folders.folder_of(CLICKS[1]) is None
    assert not (tmp_path / "a" / "clicks-1").exists()
    folders.note_boot()
    folders.close()
    disks.failing.clear()
    folders = open_folders("a", "b")
    assert folders.restore(CLICKS[1], None, TOPIC_ID).log_end_offset == 1
    assert not folders.gone


def test_start_ends_where_no_folder_can_be_opened(
    open_folders: OpenFolders, disks: FailingDisks, tmp_path: Path
) -> None:
    for name in "ab":
        disks.fail(tmp_path / name)
    with pytest.raises(DataFolderError, match="no data directory is usable"):
        open_folders("a", "b")
    with pytest.raises(DataFolderError, match="cannot be used as a data directory"):
        open_folders("a")


def test_log_in_a_folder_that_is_offline_is_deleted_when_it_is_back(
    open_folders: OpenFolders, make_batch: MakeBatch, disks: FailingDisks, tmp_path: Path
) -> None:
    folders = open_folders("a", "b")
    _begin(folders, make_batch, *CLICKS[:2])
    folders.close()
    disks.fail(tmp_path / "b")
    folders = open_folders("a", "b")
    folders.restore(CLICKS[1], None, TOPIC_ID)
    with pytest.raises(StorageError, match="after a start that finds its directory"):
        folders.delete(CLICKS[1])
    assert folders.get(CLICKS[1]) is None


def test_log_that_was_in_a_folder_that_is_not_given_any_more_is_gone(
    open_folders: OpenFolders, make_batch: MakeBatch, caplog: pytest.LogCaptureFixture
) -> None:
    folders = open_folders("a", "b")
    _begin(folders, make_batch, *CLICKS[:2])
    folders.close()
    folders = open_folders("a")
    assert "are not configured" in caplog.text
    assert folders.restore(CLICKS[1], None, TOPIC_ID).log_end_offset == 0
    assert folders.gone == {CLICKS[1]}
    folders.note_boot()
    folders.close()
    caplog.clear()
    folders = open_folders("a")
    assert "are not configured" not in caplog.text
    folders.restore(CLICKS[2], None, TOPIC_ID)
    assert folders.missing == {CLICKS[2]}
    assert not folders.gone


def test_folder_that_is_added_does_not_make_the_others_new(open_folders: OpenFolders, make_batch: MakeBatch) -> None:
    folders = open_folders("a")
    _begin(folders, make_batch, CLICKS[0])
    folders.close()
    folders = open_folders("a", "b")
    folders.restore(CLICKS[1], None, TOPIC_ID)
    assert not folders.gone


def test_lone_folder_has_no_list_of_others(open_folders: OpenFolders, tmp_path: Path) -> None:
    open_folders("a").note_boot()
    assert "folder.ids" not in (tmp_path / "a" / "meta.properties").read_text()


@pytest.mark.parametrize("in_b", [TOPIC_ID, OTHER_ID], ids=["the same topic", "another topic"])
def test_log_in_two_folders_is_used_where_it_is_clear_whose_it_is(
    open_folders: OpenFolders, make_batch: MakeBatch, tmp_path: Path, in_b: uuid.UUID
) -> None:
    folders = open_folders("a")
    _begin(folders, make_batch, CLICKS[0])
    folders.close()
    folders = open_folders("b")
    folders.create(CLICKS[0], topic_id=in_b).append(make_batch(2), 0)
    folders.close()
    before = _files(tmp_path)
    folders = open_folders("a", "b")
    log = folders.restore(CLICKS[0], None, TOPIC_ID)
    assert log.is_offline == (in_b == TOPIC_ID)
    assert log.is_offline or log.log_end_offset == 1
    assert {name for name in before if "clicks-0" in name} <= _files(tmp_path)


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_disk_that_fails_takes_its_logs_offline_and_no_others(
    open_folders: OpenFolders,
    make_batch: MakeBatch,
    disks: FailingDisks,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    told: list[str] = []
    folders = open_folders("a", "b", on_all_failed=told.append)
    _begin(folders, make_batch, *CLICKS[:4])
    disks.fail(tmp_path / "b")
    with caplog.at_level(logging.CRITICAL), pytest.raises(StorageError):
        folders.checkpoint_high_watermarks()
    assert [each for each, log in folders.all().items() if log.is_offline] == [CLICKS[1], CLICKS[3]]
    assert len(caplog.records) == 1, "one line, however many logs there are"
    assert not told
    folders.flush_sealed()
    assert folders.folder_of(folders.create(CLICKS[4]).partition) == tmp_path / "a"
    with pytest.raises(StorageError, match=f"{tmp_path / 'b'}: not closed cleanly"):
        folders.close()
    assert (tmp_path / "a" / ".kafka_cleanshutdown").exists()
    assert not (tmp_path / "b" / ".kafka_cleanshutdown").exists()
    disks.failing.clear()
    folders = open_folders("a", "b")
    assert [folders.restore(each, None, TOPIC_ID).log_end_offset for each in CLICKS[:4]] == [1] * 4


def test_new_log_goes_elsewhere_when_a_disk_fails(
    open_folders: OpenFolders, make_batch: MakeBatch, disks: FailingDisks, tmp_path: Path
) -> None:
    folders = open_folders("a", "b")
    disks.fail(tmp_path / "a")
    assert folders.folder_of(folders.create(CLICKS[0], topic_id=TOPIC_ID).partition) == tmp_path / "b"
    assert folders.states()[0].failure is not None


def test_broker_is_told_when_the_last_disk_fails(
    open_folders: OpenFolders, make_batch: MakeBatch, disks: FailingDisks, tmp_path: Path
) -> None:
    told: list[str] = []
    folders = open_folders("a", "b", on_all_failed=told.append)
    _begin(folders, make_batch, *CLICKS[:2])
    for name in "ab":
        disks.fail(tmp_path / name)
    with pytest.raises(StorageError):
        folders.checkpoint_high_watermarks()
    assert len(told) == 1
    with pytest.raises(StorageError, match="all data directories are offline"):
        folders.create(CLICKS[2])


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EMFILE])
def test_shortage_takes_no_folder_offline(
    open_folders: OpenFolders, make_batch: MakeBatch, disks: FailingDisks, tmp_path: Path, error: int
) -> None:
    folders = open_folders("a", "b")
    _begin(folders, make_batch, *CLICKS[:2])
    disks.fail(tmp_path / "b", error)
    with pytest.raises(StorageError):
        folders.checkpoint_high_watermarks()
    assert all(state.failure is None for state in folders.states())


def test_lone_folder_is_tried_again(
    open_folders: OpenFolders, make_batch: MakeBatch, disks: FailingDisks, tmp_path: Path
) -> None:
    folders = open_folders("a")
    _begin(folders, make_batch, CLICKS[0])
    disks.fail(tmp_path / "a")
    with pytest.raises(StorageError):
        folders.checkpoint_high_watermarks()
    disks.failing.clear()
    folders.checkpoint_high_watermarks()
    folders.close()


def test_folder_is_tried_when_a_log_of_it_failed(
    open_folders: OpenFolders, make_batch: MakeBatch, disks: FailingDisks, tmp_path: Path
) -> None:
    folders = open_folders("a", "b")
    _begin(folders, make_batch, *CLICKS[:4])
    logs = folders.all()
    logs[CLICKS[0]].put_offline("a bad sector")
    folders.check()
    assert [state.failure for state in folders.states()] == [None, None]
    assert not (tmp_path / "a" / ".probe").exists()
    disks.fail(tmp_path / "b")
    folders.check()
    assert [state.failure for state in folders.states()] == [None, None], "nothing is written while nothing failed"
    logs[CLICKS[1]].put_offline("the disk fails")
    folders.check()
    assert [logs[each].is_offline for each in CLICKS[:4]] == [True, True, False, True]


def test_deleted_log_is_made_anew_in_its_folder_while_that_could_not_be_renamed(
    open_folders: OpenFolders, make_batch: MakeBatch, tmp_path: Path
) -> None:
    folders = open_folders("a", "b")
    _begin(folders, make_batch, *CLICKS[:2])
    shutil.copytree(tmp_path / "a" / "clicks-0", tmp_path / "b" / "clicks-5")
    with pytest.raises(StorageError, match="files of an unknown topic"):
        folders.create(CLICKS[5])
    folders.delete(CLICKS[0])
    folders.purge_deleted()
    assert {path.name for path in (tmp_path / "a").iterdir()} & {"clicks-0"} == set()
