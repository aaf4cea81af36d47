"""Whose a data folder is, and whether the machine has lost its memory since."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.clock import ManualClock
from barnabas.errors import DataFolderError
from barnabas.storage import LogConfig, LogManager, OsFileSystem
from barnabas.storage.folder_identity import identify, note_boot

OpenManager = Callable[..., LogManager]
FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)


@pytest.fixture
def open_manager(tmp_path: Path, clock: ManualClock) -> Iterator[OpenManager]:
    managers: list[LogManager] = []

    def open_it(**options: object) -> LogManager:
        manager = LogManager(tmp_path, LogConfig(), clock, OsFileSystem(), **options)  # type: ignore[arg-type]
        managers.append(manager)
        return manager

    yield open_it
    for manager in managers:
        manager.abandon()


def test_folder_of_another_broker_or_cluster_is_refused(open_manager: OpenManager) -> None:
    open_manager(cluster_id="castle", broker_id=1).close()
    with pytest.raises(DataFolderError, match=r"meta\.properties belongs to broker 1, not to broker 2"):
        open_manager(broker_id=2)
    with pytest.raises(DataFolderError, match="belongs to cluster 'castle', not to 'village'"):
        open_manager(broker_id=1, cluster_id="village")
    open_manager(broker_id=1)


def test_folder_of_a_newer_release_is_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\nbroker.id=1\ncluster.id=castle\n")
    with pytest.raises(
        DataFolderError, match="format version '1' is unknown, '0' is supported; a newer Barnabas may have written"
    ):
        identify(OsFileSystem(), tmp_path, 1, "castle", lambda: FIRST)
    assert (tmp_path / "meta.properties").read_text().startswith("version=1\n")


def test_refused_folder_keeps_what_it_says(tmp_path: Path) -> None:
    identify(OsFileSystem(), tmp_path, 1, "castle", lambda: FIRST)
    said = (tmp_path / "meta.properties").read_bytes()
    for broker_id, cluster_id in ((2, "castle"), (1, "village")):
        with pytest.raises(DataFolderError):
            identify(OsFileSystem(), tmp_path, broker_id, cluster_id, lambda: SECOND)
    assert (tmp_path / "meta.properties").read_bytes() == said


def test_folder_gets_an_id_once_and_an_older_release_s_folder_too(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=castle\n")
    first = identify(OsFileSystem(), tmp_path, 1, "castle", lambda: FIRST)
    assert first
    assert (first.directory_id != "", first.boot_id) == (True, "")
    assert note_boot(OsFileSystem(), tmp_path, first, "monday") == first._replace(boot_id="monday")
    second = identify(OsFileSystem(), tmp_path, 1, "castle", lambda: SECOND)
    assert second == first._replace(boot_id="monday")


def test_folder_without_a_cluster_says_nothing_yet(tmp_path: Path) -> None:
    assert identify(OsFileSystem(), tmp_path, 1, None, lambda: FIRST) is None
    assert not list(tmp_path.iterdir())


def test_disk_that_refuses_the_new_name_or_boot_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = OsFileSystem()

    def refuse(source: Path, _target: Path) -> None:
        raise OSError(errno.EROFS, "Read-only file system", str(source))

    monkeypatch.setattr(disk, "replace", refuse)
    with pytest.raises(DataFolderError, match=r"cannot write .*meta\.properties"):
        identify(disk, tmp_path, 1, "castle", lambda: FIRST)
    named = identify(OsFileSystem(), tmp_path, 1, "castle", lambda: FIRST)
    assert named
    with pytest.raises(DataFolderError, match=r"cannot write .*meta\.properties"):
        note_boot(disk, tmp_path, named, "monday")


@pytest.mark.parametrize(
    ("is_clean", "boot_id", "has_lost"),
    [
        (True, "monday", False),
        (True, "tuesday", False),
        (False, "monday", False),
        (False, "tuesday", True),
    ],
)
def test_memory_is_lost_with_another_boot_after_a_stop_that_was_not_clean(
    open_manager: OpenManager, is_clean: bool, boot_id: str, has_lost: bool
) -> None:
    first = open_manager(cluster_id="castle", boot_id="monday")
    assert not first.lost_memory
    first.note_boot()
    if is_clean:
        first.close()
    else:
        first.abandon()
    assert open_manager(cluster_id="castle", boot_id=boot_id).lost_memory is has_lost


def test_memory_may_not_be_lost_where_no_boot_was_noted(open_manager: OpenManager) -> None:
    open_manager(cluster_id="castle").abandon()
    assert not open_manager(cluster_id="castle", boot_id="monday").lost_memory


@pytest.mark.parametrize("is_closed", [True, False])
def test_lost_memory_is_known_to_each_start_until_it_was_noted(open_manager: OpenManager, is_closed: bool) -> None:
    """A start may fail before it could tell the other brokers."""
    first = open_manager(cluster_id="castle", boot_id="monday")
    first.note_boot()
    first.abandon()
    failed = open_manager(cluster_id="castle", boot_id="tuesday")
    if is_closed:
        failed.close()
    else:
        failed.abandon()
    second = open_manager(cluster_id="castle", boot_id="tuesday")
    assert second.lost_memory
    second.note_boot()
    assert not second.lost_memory
    second.abandon()
    assert not open_manager(cluster_id="castle", boot_id="tuesday").lost_memory
