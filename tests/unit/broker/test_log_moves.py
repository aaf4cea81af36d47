"""Logs that move to other data folders of their broker, while what is in them changes."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker import log_moves
from barnabas.broker.disk_work import DiskWork
from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.log_moves import LogMoves
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import topic_config
from barnabas.broker.throttles import NO_LIMIT
from barnabas.clock import ManualClock
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from barnabas.records import stamp
from barnabas.replication.quota import ReplicationQuota
from barnabas.storage import LogConfig, LogManager, OsFileSystem
from barnabas.storage.data_folders import DataFolders
from tests.support.replicas import batch, batches, until

CLICKS = TopicPartition("clicks", 0)
TOPIC_ID = uuid.UUID(int=7)
COUNT = 10
CUT = 6


def stamped(value: bytes, offset: int, epoch: int) -> memoryview:
    built = batch(value)
    stamp(built, 0, offset, epoch)
    return memoryview(built)


class FewTopics:
    """As much of a broker's topics as moves ask for."""

    def __init__(self) -> None:
        self.replicas: dict[TopicPartition, FollowerReplica] = {}
        self.existing: set[TopicPartition] = set()

    @property
    def image(self) -> FewTopics:
        return self

    def partition(self, where: TopicPartition) -> object | None:
        return where if where in self.existing else None


class Home:
    """A broker's data folders, and a follower in the first of them."""

    def __init__(self, folder: Path, names: str = "ab", quota: ReplicationQuota = NO_LIMIT) -> None:
        self.paths = [folder / name for name in names]
        self.managers: list[LogManager] = []
        self.folders = DataFolders(self.paths, OsFileSystem(), self._open)
        self.topics = FewTopics()
        self.on_copied: Callable[[], Any] | None = None
        """Called once, when the copy has got something."""
        self.held: list[bool] = []
        """For each time that the copy got something, whether appends waited."""
        topics: Any = self.topics
        self.moves = LogMoves(topics, self.folders, DiskWork(for_all=self._run), quota)

    def _open(self, path: Path) -> LogManager:
        manager = LogManager(
            path, LogConfig(), ManualClock(), OsFileSystem(), cluster_id="castle", boot_id="1", loads=False
        )
        self.managers.append(manager)
        return manager

    async def _run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        result = work(*arguments)
        if getattr(work, "__name__", "") == "append":
            waiting = self.follower.append(memoryview(b""), 0, 0)
            self.held.append(waiting is not None)
            call, self.on_copied = self.on_copied, None
            if call is not None:
                await call()
        return result

    def follow(self) -> None:
        log = self.folders.create(CLICKS, LogConfig(), TOPIC_ID)
        config = topic_config(BrokerConfig(), {})
        self.follower = FollowerReplica(CLICKS, log, 2, config, leader=2, topic_id=TOPIC_ID.bytes)
        self.topics.replicas[CLICKS] = self.follower

    async def append(self, value: bytes, offset: int, epoch: int) -> None:
        waiting = self.follower.append(stamped(value, offset, epoch), 0, 0)
        if waiting is not None:
            await waiting

    def close(self) -> None:
        for manager in self.managers:
            manager.abandon()


@pytest.mark.parametrize("new_count", [3, 8], ids=["shorter than the copy", "longer than the copy"])
def test_log_that_is_cut_before_it_is_exchanged_is_copied_anew_while_appends_go_on(
    tmp_path: Path, new_count: int
) -> None:
    async def scenario() -> None:
        for offset in range(COUNT):
            await home.append(b"old", offset, 1)

        async def cut() -> None:
            await home.follower.truncate_to(CUT)
            for offset in range(CUT, CUT + new_count):
                await home.append(b"new", offset, 2)

        home.on_copied = cut
        before = home.follower.log
        moving = asyncio.create_task(home.moves.run())
        assert home.moves.request(CLICKS, str(home.paths[1].absolute())) == 0
        await until(lambda: home.follower.log is not before and not home.folders.moves)
        moving.cancel()

    home = Home(tmp_path)
    home.follow()
    asyncio.run(scenario())
    log = home.follower.log
    assert log.folder == home.paths[1] / "clicks-0"
    old, new = range(CUT), range(CUT, CUT + new_count)
    assert log.log_end_offset == new.stop
    assert batches(log) == {
        **{each: bytes(stamped(b"old", each, 1)) for each in old},
        **{each: bytes(stamped(b"new", each, 2)) for each in new},
    }
    assert [tuple(each) for each in log.leader_epochs.entries] == [(1, 0), (2, CUT)]
    assert not any(home.held)
    home.close()


def test_move_waits_for_its_quota_and_goes_on_at_another_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        for offset in range(COUNT):
            await home.append(b"x" * 100, offset, 1)
        before = home.follower.log
        moving = asyncio.create_task(home.moves.run())
        home.moves.request(CLICKS, str(home.paths[1].absolute()))
        await until(lambda: quota.overdraft_count)
        size = int(quota.wait_s)
        clock.advance(size - 1)
        await asyncio.sleep(2 * log_moves.WAIT_S_MAX)
        assert home.follower.log is before
        assert len(home.held) == 1, "one piece was copied, and no more"
        quota.set_rate(1_000_000)
        await until(lambda: home.follower.log is not before and not home.folders.moves)
        moving.cancel()

    clock = ManualClock()
    quota = ReplicationQuota(1, clock.monotonic)
    monkeypatch.setattr(log_moves, "COPY_BYTES", 300)
    monkeypatch.setattr(log_moves, "NEARLY", 5)
    monkeypatch.setattr(log_moves, "WAIT_S_MAX", 0.02)
    home = Home(tmp_path, quota=quota)
    home.follow()
    asyncio.run(scenario())
    assert home.follower.log.log_end_offset == COUNT
    home.close()


@pytest.mark.parametrize("target", [0, 2], ids=["it is to stay", "it is to go elsewhere"])
def test_move_that_waits_for_its_quota_ends_when_something_else_is_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, target: int
) -> None:
    async def scenario() -> None:
        for offset in range(COUNT):
            await home.append(b"x" * 100, offset, 1)
        moving = asyncio.create_task(home.moves.run())
        home.moves.request(CLICKS, str(home.paths[1].absolute()))
        await until(lambda: quota.overdraft_count)
        assert home.moves.request(CLICKS, str(home.paths[target].absolute())) == 0
        await until(lambda: CLICKS not in home.folders.moves or home.folders.moves[CLICKS].target == home.paths[2])
        wanted = {CLICKS: home.paths[2]} if target else {}
        await until(lambda: home.folders.pending_moves.read() == wanted)
        moving.cancel()

    quota = ReplicationQuota(1, ManualClock().monotonic)
    monkeypatch.setattr(log_moves, "COPY_BYTES", 300)
    monkeypatch.setattr(log_moves, "NEARLY", 5)
    monkeypatch.setattr(log_moves, "WAIT_S_MAX", 0.02)
    home = Home(tmp_path, "abc", quota)
    home.follow()
    asyncio.run(scenario())
    assert home.follower.log.folder == home.paths[0] / "clicks-0"
    home.close()


def test_folder_is_chosen_for_partitions_that_exist_and_those_of_others_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_moves, "CHOICES_MAX", 2)
    home = Home(tmp_path)
    there = str(home.paths[1].absolute())
    unknown = [TopicPartition("x" * 250, 0), TopicPartition("a/b", 0), TopicPartition("views", -1)]
    assert {home.moves.request(each, there) for each in unknown} == {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    views = [TopicPartition("views", number) for number in range(4)]
    home.topics.existing = set(views)
    assert [home.moves.request(each, there) for each in views] == [ErrorCode.REPLICA_NOT_AVAILABLE] * 4
    assert home.folders.create(views[1]).folder.parent == home.paths[1]
    home.topics.existing = {views[2]}
    assert home.moves.request(views[2], there) is ErrorCode.REPLICA_NOT_AVAILABLE
    assert set(home.folders.chosen) == {views[2]}
    home.close()


def test_moves_that_a_stop_has_ended_go_on_after_the_next_start(tmp_path: Path) -> None:
    async def begin() -> None:
        for offset in range(COUNT):
            await home.append(b"x", offset, 1)
        moving = asyncio.create_task(home.moves.run())
        home.moves.request(CLICKS, str(home.paths[1].absolute()))
        home.on_copied = asyncio.Event().wait
        await until(lambda: home.paths[1].joinpath("log-moves").exists() and home.held)
        moving.cancel()
        await asyncio.wait([moving])

    async def go_on() -> None:
        moving = asyncio.create_task(home.moves.run())
        await until(lambda: home.follower.log.folder.parent == home.paths[1] and not home.folders.moves)
        await until(lambda: not home.paths[1].joinpath("log-moves").exists())
        moving.cancel()

    home = Home(tmp_path)
    home.follow()
    asyncio.run(begin())
    assert home.follower.log.folder.parent == home.paths[0]
    home.close()
    home = Home(tmp_path)
    home.follow()
    asyncio.run(go_on())
    assert home.follower.log.log_end_offset == COUNT
    home.close()


@pytest.mark.parametrize("taken", ["-", "0" * 31 + "8"], ids=["no id", "another topic"])
def test_move_of_another_topic_of_this_name_is_not_gone_on_with(tmp_path: Path, taken: str) -> None:
    async def go_on() -> None:
        moving = asyncio.create_task(home.moves.run())
        await until(lambda: not note.exists())
        moving.cancel()

    home = Home(tmp_path)
    home.follow()
    note = home.paths[1] / "log-moves"
    note.write_text(f"{taken} clicks-0\n")
    asyncio.run(go_on())
    assert home.follower.log.folder.parent == home.paths[0]
    home.close()


def test_note_of_moves_that_cannot_be_understood_is_no_reason_not_to_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = Home(tmp_path)
    for content in ("nonsense", "zz clicks-0", "- clicks", "- clicks-0\n" * 10_001):
        home.paths[1].joinpath("log-moves").write_text(content)
        assert home.folders.pending_moves.read() == {}
    assert caplog.text.count("log-moves is damaged") == 4
    home.close()


def test_no_choice_is_remembered_where_there_is_one_folder(tmp_path: Path) -> None:
    home = Home(tmp_path, "a")
    home.topics.existing = {TopicPartition("views", 0)}
    asked = home.moves.request(TopicPartition("views", 0), str(home.paths[0].absolute()))
    assert asked is ErrorCode.REPLICA_NOT_AVAILABLE
    assert not home.folders.chosen
    home.close()
