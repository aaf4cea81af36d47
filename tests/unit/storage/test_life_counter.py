"""Which log directories count as older copies of themselves."""

from __future__ import annotations

import errno
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import StorageError
from barnabas.model import LifeMark, TopicPartition
from barnabas.storage import LogConfig, LogManager, OsFileSystem
from barnabas.storage.data_folders import DataFolders
from barnabas.storage.life_counter import LifeCounter

MakeBatch = Callable[..., bytearray]
TOPIC_ID = uuid.UUID(int=7)
CLICKS, VIEWS = TopicPartition("clicks", 0), TopicPartition("views", 0)


def counter(folder: Path) -> LifeCounter:
    return LifeCounter(OsFileSystem(), folder)


@pytest.mark.parametrize(
    ("own", "known", "is_old"),
    [
        (None, None, False),
        (4, None, False),
        (4, 4, False),
        (5, 4, False),
        (40, 4, False),
        (4, 5, True),
        (None, 1, True),
    ],
)
def test_directory_below_the_tree_is_an_older_copy(
    tmp_path: Path, own: int | None, known: int | None, is_old: bool
) -> None:
    for _ in range(own or 0):
        counter(tmp_path).increment(1_000, 0)
    found = counter(tmp_path)
    found.compare(None if known is None else LifeMark(known))
    assert (found.old_copy is not None) == is_old
    assert found.increment(2_000, 7) == LifeMark(max(own or 0, known or 0) + 1, 2_000, 7)
    assert counter(tmp_path).mark == found.mark


@pytest.mark.parametrize(
    "content",
    [b"", b"nonsense", b"0\n1\n-4 0 0\n", b"0\n1\n4 0\n", b"0\n1\n4 0 0 -1\n", b"0\n1\n" + b"9" * 5_000, bytes(99)],
)
def test_damaged_counter_stands_for_an_older_copy_where_the_tree_has_one(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "life-counter").write_bytes(content)
    found = counter(tmp_path)
    assert found.mark is None
    found.compare(None)
    assert found.old_copy is None
    found.report(0)
    assert "older copy" not in caplog.text
    found.compare(LifeMark(9, 0, 42))
    found.report(2)
    assert "life-counter is missing or damaged; the metadata store has life 9; it lacks at least 40" in caplog.text
    assert "if a newer copy exists, stop this broker and restore that copy" in caplog.text
    assert found.increment(1_000, 0).life == 10


def test_tree_that_is_older_than_the_directory_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = counter(tmp_path)
    for _ in range(3):
        own.increment(1_000, 0)
    own.confirm()
    for _ in range(20):
        own.increment(1_000, 0)
    for known in (3, 22, 23):
        again = counter(tmp_path)
        again.compare(LifeMark(known))
        assert not again.is_ahead, "the tree did not get the later counters"
    assert not caplog.text
    for lost in (LifeMark(2), None):
        again = counter(tmp_path)
        again.compare(lost)
        assert again.is_ahead
    assert "the metadata store is older than data directory" in caplog.text


def test_directory_shows_until_the_tree_has_its_counter_that_the_tree_is_older(tmp_path: Path) -> None:
    own = counter(tmp_path)
    own.compare(LifeMark(own.increment(1_000, 0).life))
    own.confirm()
    own.stay_ahead()
    for _ in range(2):
        own = counter(tmp_path)
        own.compare(LifeMark(1))
        assert own.is_ahead
    mark = own.increment(1_000, 0)
    own.confirm()
    own = counter(tmp_path)
    own.compare(mark)
    assert not own.is_ahead


def test_counter_that_a_disk_refuses_is_not_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsFileSystem()
    found = LifeCounter(disk, tmp_path)
    found.increment(1_000, 0)

    def refuse(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(disk, "fsync_folder", refuse)
        with pytest.raises(StorageError, match=r"cannot write .*life-counter: .*No space left"):
            found.increment(1_000, 0)
    assert found.mark == LifeMark(1, 1_000, 0)
    assert found.increment(1_000, 0).life == 3


class Disks:
    """Two data folders, and the counters that a metadata tree has of them."""

    def __init__(self, folder: Path, clock: ManualClock) -> None:
        self.folder = folder
        self.clock = clock
        self.tree: dict[str, LifeMark] = {}
        self.disk = OsFileSystem()
        self._opened: list[LogManager] = []

    def open(self) -> DataFolders:
        self.close()

        def open_folder(path: Path) -> LogManager:
            manager = LogManager(
                path, LogConfig(), self.clock, self.disk, cluster_id="castle", boot_id="1", loads=False
            )
            self._opened.append(manager)
            return manager

        def known(ids: Collection[str]) -> Mapping[str, LifeMark]:
            return {each: self.tree[each] for each in ids if each in self.tree}

        folders = DataFolders([self.folder / "a", self.folder / "b"], self.disk, open_folder, known_lives=known)
        folders.note_boot()
        return folders

    def increment_life_counters(self, folders: DataFolders) -> None:
        self.tree |= folders.increment_life_counters(1_000)

    def copy(self, name: str) -> None:
        shutil.copytree(self.folder / name, self.folder / f"copy of {name}")

    def restore(self, name: str) -> None:
        shutil.rmtree(self.folder / name)
        shutil.copytree(self.folder / f"copy of {name}", self.folder / name)

    def close(self) -> None:
        for manager in self._opened:
            manager.abandon()


@pytest.fixture
def disks(tmp_path: Path, clock: ManualClock) -> Iterator[Disks]:
    disks = Disks(tmp_path, clock)
    yield disks
    disks.close()


def test_only_the_logs_of_the_restored_folder_are_old(disks: Disks, make_batch: MakeBatch) -> None:
    folders = disks.open()
    for each in (CLICKS, VIEWS):
        folders.create(each, topic_id=TOPIC_ID).append(make_batch(1), 0)
    disks.increment_life_counters(folders)
    disks.copy("a")
    disks.increment_life_counters(folders)
    assert folders.folder_of(CLICKS) == disks.folder / "a"
    assert not any(map(disks.open().is_in_old_copy, (CLICKS, VIEWS)))
    disks.restore("a")
    folders = disks.open()
    assert [folders.is_in_old_copy(each) for each in (CLICKS, VIEWS)] == [True, False]
    new = TopicPartition("new", 0)
    folders.restore(new, None, TOPIC_ID)
    assert folders.is_in_old_copy(new), "the copy may be from before the partition was made"
    disks.increment_life_counters(folders)
    assert not any(map(disks.open().is_in_old_copy, (CLICKS, VIEWS)))


def test_the_note_of_a_move_in_an_older_copy_does_not_end_it(disks: Disks, make_batch: MakeBatch) -> None:
    """The log has moved from `a` to `b` when the copy of `b` is made, and back to `a` since."""
    folders = disks.open()
    folders.create(CLICKS, topic_id=TOPIC_ID).append(make_batch(1), 0)
    disks.increment_life_counters(folders)
    ids = {path.name: manager.folder_id for path, manager in folders._managers.items()}
    shutil.copytree(disks.folder / "a" / str(CLICKS), disks.folder / "b" / str(CLICKS))
    (disks.folder / "b" / str(CLICKS) / ".moved-by-broker").write_text(ids["a"])
    disks.copy("b")
    shutil.rmtree(disks.folder / "b" / str(CLICKS))
    disks.increment_life_counters(folders)
    disks.restore("b")
    folders = disks.open()
    assert folders.restore(CLICKS, None, TOPIC_ID).is_offline
    assert (disks.folder / "a" / str(CLICKS) / "00000000000000000000.log").exists()


def test_folder_whose_disk_refuses_keeps_its_counter(
    disks: Disks, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    folders = disks.open()
    disks.increment_life_counters(folders)
    replace = disks.disk.replace

    def refuse(source: Path, target: Path) -> None:
        if target == disks.folder / "a" / "life-counter":
            raise OSError(errno.ENOSPC, "No space left on device", str(source))
        replace(source, target)

    monkeypatch.setattr(disks.disk, "replace", refuse)
    assert len(folders.increment_life_counters(1_000)) == len(folders.increment_life_counters(1_000)) == 1
    assert caplog.text.count("cannot store the life counter of") == 1
    assert folders.states() == [(disks.folder / "a", None), (disks.folder / "b", None)]


def test_counter_that_somebody_else_has_raised_is_left_where_it_is(
    disks: Disks, caplog: pytest.LogCaptureFixture
) -> None:
    folders = disks.open()
    disks.increment_life_counters(folders)
    one, other = sorted(disks.tree)
    for _ in range(2):
        folders.stop_life_counter(one)
    assert caplog.text.count("another broker uses a copy of log directory") == 1
    assert list(folders.increment_life_counters(1_000)) == [other]
