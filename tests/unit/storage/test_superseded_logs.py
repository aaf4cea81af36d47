"""Which of several folders of a log counts, when data folders go and come back."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import StorageError
from barnabas.model import TopicPartition
from barnabas.storage import Log, LogConfig, LogManager, OsFileSystem
from barnabas.storage.data_folders import DataFolders
from barnabas.storage.future_logs import LogMove

MakeBatch = Callable[..., bytearray]
TOPIC_ID = uuid.UUID(int=7)
CLICKS = TopicPartition("clicks", 0)
OTHER = TopicPartition("others", 0)
AWAY = "away"


class Disks:
    """Two data folders, `a` and `b`, of which one can be taken away."""

    def __init__(self, folder: Path, clock: ManualClock) -> None:
        self.folder = folder
        self.clock = clock
        self.opened: list[LogManager] = []

    def open(self, *names: str) -> DataFolders:
        for manager in self.opened:
            manager.abandon()

        def open_folder(path: Path) -> LogManager:
            manager = LogManager(
                path, LogConfig(), self.clock, OsFileSystem(), cluster_id="castle", boot_id="1", loads=False
            )
            self.opened.append(manager)
            return manager

        return DataFolders([self.folder / name for name in names or "ab"], OsFileSystem(), open_folder)

    def take_away(self, name: str) -> None:
        """Nothing can be made where it was."""
        shutil.move(self.folder / name, self.folder / AWAY)
        (self.folder / name).write_text("a disk that is not mounted")

    def bring_back(self, name: str) -> None:
        (self.folder / name).unlink()
        shutil.move(self.folder / AWAY, self.folder / name)

    def replace(self, name: str) -> None:
        """An empty disk is in its place."""
        shutil.rmtree(self.folder / name)


@pytest.fixture
def disks(tmp_path: Path, clock: ManualClock) -> Iterator[Disks]:
    made = Disks(tmp_path, clock)
    yield made
    for manager in made.opened:
        manager.abandon()


def restore(folders: DataFolders) -> Log:
    return folders.restore(CLICKS, None, TOPIC_ID)


def copy(folders: DataFolders, name: str) -> LogMove:
    path = next(state.path for state in folders.states() if state.path.name == name)
    move = folders.begin_move(CLICKS, path)
    move.prepare()
    while move.missing:
        region = move.current.read(move.future.log_end_offset, 1000, move.current.log_end_offset).batches
        assert region
        move.append(move.current.bytes_of(region), 0)
    return move


@pytest.fixture
def swapped(disks: Disks, make_batch: MakeBatch) -> Disks:
    """A log moved from `a` to `b`, and got a record more there; the broker was killed before `a` let go of it."""
    folders = disks.open()
    folders.create(CLICKS, topic_id=TOPIC_ID).append(make_batch(1), 0)
    folders.note_boot()
    log = folders.swap(copy(folders, "b"))
    log.append(make_batch(1), 0)
    return disks


def test_old_copy_is_not_served_while_the_disk_of_the_new_one_is_away(swapped: Disks) -> None:
    swapped.take_away("b")
    for _ in range(2):
        folders = swapped.open()
        log = restore(folders)
        assert log.is_offline
        assert CLICKS in folders.gone
        folders.note_boot()
        with pytest.raises(StorageError):
            folders.create(CLICKS, topic_id=uuid.UUID(int=8)).append(bytearray(), 0)
    swapped.bring_back("b")
    folders = swapped.open()
    assert restore(folders).log_end_offset == 2
    assert folders.folder_of(CLICKS) == swapped.folder / "b"
    assert not (swapped.folder / "a" / "clicks-0").exists()
    assert not (swapped.folder / "a" / "logs-moved-away").exists()


@pytest.mark.parametrize("names", ["ab", "a"], ids=["replaced", "left out"])
def test_old_copy_has_lost_its_end_when_the_disk_of_the_new_one_is_lost(swapped: Disks, names: str) -> None:
    swapped.replace("b")
    for _ in range(2):
        folders = swapped.open(*names)
        assert restore(folders).lost_from == 1, "until it is in the tree that it is not in sync"
    folders.note_boot()
    folders = swapped.open(*names)
    assert restore(folders).lost_from is None


def test_log_that_did_not_leave_is_served(disks: Disks, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = disks.open()
    folders.create(CLICKS, topic_id=TOPIC_ID).append(make_batch(1), 0)
    folders.note_boot()
    move = copy(folders, "b")

    def refuse(*_: object) -> None:
        raise OSError(5, "the disk fails")

    with monkeypatch.context() as patched:
        patched.setattr(OsFileSystem, "replace", refuse)
        with pytest.raises(StorageError):
            folders.swap(move)
    folders = disks.open()
    log = restore(folders)
    assert (log.is_offline, log.lost_from, log.log_end_offset) == (False, None, 1)
    assert not (disks.folder / "a" / "logs-moved-away").exists()


def test_log_that_could_not_be_let_go_of_is_when_it_moves_again(disks: Disks, make_batch: MakeBatch) -> None:
    folders = disks.open("a", "b", "c")
    folders.create(CLICKS, topic_id=TOPIC_ID).append(make_batch(1), 0)
    folders.note_boot()
    move = copy(folders, "b")
    log = folders.swap(move)
    folders.moves.clear()  # what is left in `a` was not to be removed
    folders._managers[disks.folder / "a"]._logs.pop(CLICKS)
    log.append(make_batch(1), 0)
    again = copy(folders, "c")
    assert not (disks.folder / "a" / "clicks-0").exists()
    folders.swap(again)
    folders.end_move(again, is_done=True)
    folders = disks.open("a", "b", "c")
    assert restore(folders).log_end_offset == 2
    assert folders.folder_of(CLICKS) == disks.folder / "c"


def test_log_is_not_moved_to_where_something_else_has_its_name(disks: Disks, make_batch: MakeBatch) -> None:
    """As of a topic that was deleted, and made again, while the disk was away."""
    folders = disks.open()
    log = folders.create(CLICKS, topic_id=TOPIC_ID)
    log.append(make_batch(1), 0)
    folders.note_boot()
    others = disks.folder / "b" / "clicks-0" / "00000000000000000000.log"
    others.parent.mkdir()
    others.write_bytes(b"another's")
    with pytest.raises(StorageError, match="b/clicks-0 exists"):
        folders.swap(copy(folders, "b"))
    assert not log.is_offline
    assert folders.get(CLICKS) is log
    log.append(make_batch(1), 0)
    assert log.log_end_offset == 2
    assert others.read_bytes() == b"another's"
    assert not list((disks.folder / "b").glob("clicks-0?*"))


def make_with_a_disk_away(disks: Disks, make_batch: MakeBatch) -> None:
    """A log is in `b`; that is away when the partition comes here once more, and it is made in `a`."""
    folders = disks.open()
    folders.create(OTHER, topic_id=TOPIC_ID)
    folders.create(CLICKS, topic_id=TOPIC_ID).append(make_batch(1), 0)
    assert folders.folder_of(CLICKS) == disks.folder / "b"
    folders.note_boot()
    folders.close()
    disks.take_away("b")
    folders = disks.open()
    log = folders.create(CLICKS, topic_id=TOPIC_ID)
    for _ in range(3):
        log.append(make_batch(1), 0)
    folders.note_boot()
    folders.close()


def test_log_that_was_made_while_another_folder_was_away_is_the_newest(disks: Disks, make_batch: MakeBatch) -> None:
    make_with_a_disk_away(disks, make_batch)
    disks.bring_back("b")
    for _ in range(2):
        folders = disks.open()
        assert restore(folders).log_end_offset == 3
        assert folders.folder_of(CLICKS) == disks.folder / "a"
        assert not (disks.folder / "b" / "clicks-0").exists()
    assert not (disks.folder / "a" / "clicks-0" / ".moved-by-broker").exists()


def test_newest_log_is_known_also_if_it_has_moved_meanwhile(disks: Disks, make_batch: MakeBatch) -> None:
    make_with_a_disk_away(disks, make_batch)
    folders = disks.open("a", "b", "c")
    restore(folders)
    move = copy(folders, "c")
    folders.swap(move)
    folders.end_move(move, is_done=True)
    folders.close()
    disks.bring_back("b")
    folders = disks.open("a", "b", "c")
    assert restore(folders).log_end_offset == 3
    assert folders.folder_of(CLICKS) == disks.folder / "c"
