"""The logs of a broker's replicas: opened and made, what is in their way, and which folders go."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.replica_logs import CREATED_AT_ONCE, ReplicaLogs, create_logs
from barnabas.clock import ManualClock
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.model import TopicPartition
from barnabas.storage import LogConfig, LogManager, OsFileSystem
from barnabas.storage.filesystem import DataFile
from tests.support.replicas import batch

CLICKS, MORE, VIEWS = (TopicPartition(*each) for each in (("clicks", 0), ("clicks", 1), ("views", 0)))
FIRST, SECOND, THIRD = (bytes(15) + bytes([each]) for each in (1, 2, 3))
PLAIN, FLUSHING = LogConfig(), LogConfig(flush_messages=1)


class Disk(OsFileSystem):
    """Refuses to flush, or to touch what has one of these names."""

    def __init__(self) -> None:
        self.refuses_flushes = False
        self.refused: set[str] = set()

    def fsync(self, file: DataFile) -> None:
        if self.refuses_flushes:
            raise OSError(5, "Input/output error")
        super().fsync(file)

    def replace(self, source: Path, target: Path) -> None:
        if source.name in self.refused:
            raise OSError(13, "Permission denied")
        super().replace(source, target)

    def make_folder(self, path: Path) -> None:
        if path.name in self.refused:
            raise OSError(13, "Permission denied")
        super().make_folder(path)


async def at_once(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


class Home:
    """A data folder, and what is hosted there; `begin_anew` is the next start."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.disk = Disk()
        self.begin()

    def begin(self) -> None:
        self.logs = LogManager(self.folder, PLAIN, ManualClock(), self.disk)
        self.replica_logs = ReplicaLogs(self.logs, at_once)

    def begin_anew(self) -> None:
        """Start again, as after kill -9."""
        self.logs.abandon()
        self.begin()

    def make(self, where: TopicPartition = CLICKS, topic_id: bytes = FIRST) -> Any:
        return asyncio.run(self.replica_logs.create(where, PLAIN, topic_id))

    def folders(self) -> set[str]:
        return {path.name for path in self.folder.iterdir() if path.is_dir() and not path.name.endswith("-delete")}


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path)
    yield made
    made.logs.abandon()


# --- opened and made ---


@pytest.mark.parametrize(("config", "durable"), [(PLAIN, 0), (FLUSHING, 3)])
def test_what_a_killed_broker_left_is_flushed_where_the_topic_asks_for_it(
    home: Home, config: LogConfig, durable: int
) -> None:
    home.make().append(batch(count=3), 0)
    home.begin_anew()
    restored = home.replica_logs.restore(CLICKS, config, FIRST)
    assert (restored.log_end_offset, restored.recovery_point) == (3, durable)


def test_log_of_a_new_replica_that_was_left_by_a_killed_broker_is_flushed_too(home: Home) -> None:
    home.make().append(batch(count=3), 0)
    home.begin_anew()
    assert asyncio.run(home.replica_logs.create(CLICKS, FLUSHING, FIRST)).recovery_point == 3


def test_log_that_cannot_be_flushed_at_the_start_is_offline_and_the_start_goes_on(home: Home) -> None:
    home.make().append(batch(), 0)
    home.begin_anew()
    home.disk.refuses_flushes = True
    assert home.replica_logs.restore(CLICKS, FLUSHING, FIRST).is_offline


def test_replica_whose_log_is_gone_was_missing_and_a_new_one_is_not(home: Home) -> None:
    home.make()
    home.make(VIEWS, SECOND)
    home.logs.abandon()
    shutil.rmtree(home.folder / "clicks-0")
    home.begin()
    for where, topic_id in ((CLICKS, FIRST), (VIEWS, SECOND)):
        home.replica_logs.restore(where, PLAIN, topic_id)
    home.make(MORE, FIRST)
    assert [home.replica_logs.was_missing(each) for each in (CLICKS, VIEWS, MORE)] == [True, False, False]


def test_replica_is_made_once(home: Home) -> None:
    assert not home.replica_logs.is_there(CLICKS)
    made = home.make()
    assert home.replica_logs.is_there(CLICKS)
    assert home.make() is made


def test_folder_of_another_topic_is_in_the_way_and_stays(home: Home) -> None:
    home.make().append(batch(), 0)
    with pytest.raises(ApiError, match="clicks-0 belongs to an unknown topic") as caught:
        home.make(topic_id=SECOND)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
    with pytest.raises(ApiError):
        home.replica_logs.check_free(CLICKS)
    home.replica_logs.check_free(VIEWS)
    assert home.make().log_end_offset == 1


def test_what_others_have_made_and_cannot_be_made_here_is_offline_alone(home: Home) -> None:
    home.disk.refused = {"clicks-0"}
    with pytest.raises(StorageError):
        home.make()
    assert not home.replica_logs.is_there(CLICKS)
    put_offline = asyncio.run(home.replica_logs.create_or_put_offline(CLICKS, PLAIN, FIRST))
    assert put_offline.is_offline
    assert home.logs.get(CLICKS) is put_offline
    assert not asyncio.run(home.replica_logs.create_or_put_offline(VIEWS, PLAIN, SECOND)).is_offline


# --- folders that go ---


def test_all_that_can_be_is_set_aside_and_the_first_refusal_told(home: Home) -> None:
    for where in (CLICKS, MORE, VIEWS):
        home.make(where)
    home.disk.refused = {"clicks-0", "clicks-1"}
    refused = home.replica_logs.delete([CLICKS, MORE, VIEWS])
    assert refused is not None
    assert "clicks-0" in str(refused)
    assert home.folders() == {"clicks-0", "clicks-1"}
    home.disk.refused = set()
    assert home.replica_logs.delete([VIEWS]) is None  # it is gone already


def test_folders_of_deleted_topics_go_and_all_others_stay(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    """Also one whose topic has the name of a deleted one, and one of which nothing is known."""
    home.make(CLICKS, FIRST)
    home.make(MORE, SECOND)
    home.make(VIEWS, THIRD)
    unread = TopicPartition("unread", 0)
    home.make(unread, bytes(16))
    assert home.replica_logs.set_strays_aside({VIEWS}, {"unread"}, {FIRST, THIRD}, ()) == set()
    assert home.folders() == {"clicks-1", "views-0", "unread-0"}
    assert "the partition directory of clicks-1 belongs to no topic; keeping the directory" in caplog.text
    assert caplog.text.count("belongs to no topic") == 1


def test_folder_that_was_being_made_when_the_power_went_goes_and_one_with_records_stays(home: Home) -> None:
    """Its topic was not to be in the end, or not with so many partitions."""
    home.make(CLICKS).append(batch(), 0)
    for where in (CLICKS, MORE, VIEWS):
        (home.folder / str(where)).mkdir(exist_ok=True)
        (home.folder / str(where) / "partition.metadata").unlink(missing_ok=True)
    (home.folder / "clicks-1" / "partition.metadata.tmp").touch()
    home.begin_anew()
    assert home.replica_logs.set_strays_aside((), {"views"}, (), ()) == set()
    assert home.folders() == {"clicks-0", "views-0"}


def test_folder_of_a_partition_that_a_topic_did_not_get_goes_unless_there_are_records_in_it(home: Home) -> None:
    """The broker died when it had made the folder, and had yet to let the topic grow."""
    home.make(CLICKS, FIRST).append(batch(), 0)
    home.make(MORE, FIRST)
    home.make(VIEWS, SECOND)
    home.begin_anew()
    assert home.replica_logs.set_strays_aside((), (), (), {FIRST}) == set()
    assert home.folders() == {"clicks-0", "views-0"}


def test_topics_of_which_folders_are_left_are_told(home: Home, caplog: pytest.LogCaptureFixture) -> None:
    home.make(CLICKS, FIRST)
    home.make(MORE, FIRST)
    home.make(VIEWS, SECOND)
    home.disk.refused = {"clicks-0"}
    assert home.replica_logs.set_strays_aside((), (), {FIRST, SECOND, THIRD}, ()) == {FIRST}
    assert home.folders() == {"clicks-0"}
    assert "cannot rename" in caplog.text


def test_deleted_records_are_freed_once_it_is_stored_where_the_log_begins(home: Home) -> None:
    made = home.make()
    made.append(batch(count=3), 0)
    made.roll()
    made.delete_records_before(3)
    home.replica_logs.remove_deleted_records()
    assert "clicks 0 3" in (home.folder / "log-start-offset-checkpoint").read_text()
    assert [path.name for path in (home.folder / "clicks-0").glob("*.log")] == ["00000000000000000003.log"]


# --- folders in which there is nothing ---


def test_empty_log_of_a_topic_that_is_not_known_is_in_nobodys_way(home: Home) -> None:
    """As where the disk failed while a topic was made, and again while that was undone."""
    home.make(CLICKS, FIRST)
    home.begin_anew()
    home.replica_logs.check_free(CLICKS)
    home.make(CLICKS, SECOND).append(batch(), 0)
    home.begin_anew()
    assert home.replica_logs.restore(CLICKS, PLAIN, SECOND).log_end_offset == 1


# --- many at once ---


def test_logs_are_made_side_by_side_in_their_order(home: Home) -> None:
    together = asyncio.Barrier(2)

    async def make(where: TopicPartition, config: LogConfig, topic_id: bytes) -> Any:
        async with asyncio.timeout(60), together:
            return await home.replica_logs.create(where, config, topic_id)

    places = [TopicPartition("clicks", number) for number in range(2 * CREATED_AT_ONCE)]
    assert [each.partition for each in asyncio.run(create_logs(make, places, PLAIN, FIRST))] == places


def test_first_refusal_is_told_when_nothing_is_under_way_any_more(home: Home) -> None:
    ended: list[TopicPartition] = []

    async def make(where: TopicPartition, config: LogConfig, topic_id: bytes) -> Any:
        if where.partition == 1:
            raise StorageError("the disk is full")
        for _ in range(5):
            await asyncio.sleep(0)
        ended.append(where)
        return await home.replica_logs.create(where, config, topic_id)

    places = [TopicPartition("clicks", number) for number in range(2 * CREATED_AT_ONCE)]
    with pytest.raises(StorageError, match="the disk is full"):
        asyncio.run(create_logs(make, places, PLAIN, FIRST))
    assert ended == [each for each in places[:CREATED_AT_ONCE] if each.partition != 1]


def test_replicas_are_restored_in_their_order_and_made_where_they_are_missing(home: Home) -> None:
    home.make(MORE)
    home.begin_anew()
    places = [CLICKS, MORE]
    restored = asyncio.run(home.replica_logs.restore_all(places, FLUSHING, FIRST))
    assert [each.partition for each in restored] == places
    assert [home.replica_logs.was_missing(each) for each in places] == [True, False]
