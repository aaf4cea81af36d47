"""Which role a replica has in each epoch, and how one role follows another over the same log."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.broker_events import Events, IsrChangeDue, RoleBegan, RoleEnded
from barnabas.broker.disk_work import DiskWork
from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.replica import Replica
from barnabas.broker.replica_manager import RoleTransitions
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import topic_config
from barnabas.clock import ManualClock
from barnabas.coordination.topic_metadata_store import PartitionInfo, TopicInfo
from barnabas.coordination.values import NO_LEADER, PartitionState, Remnant
from barnabas.errors import ApiError, ErrorCode, StorageError
from barnabas.model import Acks, TopicPartition
from barnabas.storage import Log, LogConfig, LogManager, OsFileSystem
from tests.support.replica_listeners import RecordedReads
from tests.support.replicas import batch

CLICKS = TopicPartition("clicks", 0)
TOPIC_ID = bytes(15) + b"\7"
OWN, OTHER, THIRD = 1, 2, 3
CONFIG = topic_config(BrokerConfig(), {})
FLUSHING = topic_config(BrokerConfig(), {"flush.messages": "100"})


async def at_once(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    return function(*arguments, **named)


def state(leader: int, epoch: int, *isr: int, replicas: tuple[int, ...] = (OWN, OTHER, THIRD)) -> PartitionInfo:
    return PartitionInfo(replicas, PartitionState(leader, epoch, isr or replicas), epoch)


def alone(epoch: int) -> PartitionInfo:
    return state(OWN, epoch, replicas=(OWN,))


class Stage:
    """One log, and the roles that it has had."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clock = ManualClock()
        self.bus = Events()
        self.metadata = MetadataCache(self.bus)
        self.roles = RoleTransitions(OWN, self.metadata, DiskWork(at_once, at_once, at_once), self.clock, self.bus)
        self.events: list[RoleBegan | RoleEnded] = []
        self.bus.subscribe(RoleBegan, self.events.append)
        self.bus.subscribe(RoleEnded, self.events.append)
        self.logs = LogManager(folder, LogConfig(), self.clock, OsFileSystem())

    @property
    def log(self) -> Log:
        return self.logs.create(CLICKS)

    def was_left_with(self, count: int, high_watermark: int) -> None:
        """Let an earlier start have left so many records, and so many of them readable."""
        self.log.hold_high_watermark()
        self.log.append(batch(count=count), 0)
        self.log.move_high_watermark(high_watermark)
        self.logs.checkpoint_high_watermarks()
        self.logs.abandon()
        self.logs = LogManager(self.folder, LogConfig(), self.clock, OsFileSystem())

    def see(self, info: PartitionInfo) -> PartitionInfo:
        """Let the image have a state."""
        self.metadata.put_topic(TopicInfo("clicks", TOPIC_ID, (info,)))
        return info

    def begin_incarnation(self) -> None:
        self.metadata.begin_incarnation(OWN, self.metadata.image.topics.values())

    def first(self, info: PartitionInfo, config: Any = CONFIG) -> Any:
        return self.roles.begin(CLICKS, self.log, self.see(info), config)

    async def next(self, replica: Replica, info: PartitionInfo) -> Any:
        return await self.roles.transition(replica, self.see(info))


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.logs.abandon()


def run(scenario: Coroutine[Any, Any, None]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(60):
            await scenario

    asyncio.run(bounded())


# --- the first role ---


def test_replica_follows_whoever_leads(stage: Stage) -> None:
    replica = stage.first(state(OTHER, 4))
    assert isinstance(replica, FollowerReplica)
    assert (replica.leader, replica.leader_epoch, replica.topic_id) == (OTHER, 4, TOPIC_ID)
    assert stage.events == [RoleBegan(replica)]


def test_replica_leads_where_the_image_says_so(stage: Stage) -> None:
    due: list[IsrChangeDue] = []
    stage.bus.subscribe(IsrChangeDue, due.append)
    replica = stage.first(state(OWN, 4, OWN, THIRD))
    assert isinstance(replica, LeaderReplica)
    assert (replica.leader, replica.leader_epoch) == (OWN, 4)
    assert replica.followers is not None
    assert replica.followers.isr == (OWN, THIRD)
    assert replica.followers.leader_epoch == 4
    replica.ask_for_isr_change()
    assert due == [IsrChangeDue(replica)]


@pytest.mark.parametrize("info", [state(OWN, 4), alone(4)])
def test_what_this_broker_led_in_an_earlier_life_waits_for_a_leader(stage: Stage, info: PartitionInfo) -> None:
    stage.see(info)
    stage.begin_incarnation()
    replica = stage.first(info)
    assert isinstance(replica, FollowerReplica)
    assert replica.leader == NO_LEADER


# --- the high watermark ---


def test_leader_of_several_replicas_promises_no_more_than_was_stored(stage: Stage) -> None:
    """Its followers may lack all above."""
    stage.was_left_with(5, high_watermark=3)
    replica = stage.first(state(OWN, 1))
    assert replica.log.high_watermark == 3
    assert replica.followers.high_watermark(5) == 3
    for follower in (OTHER, THIRD):
        replica.on_follower_fetch(follower, -1, 5, 0.0)
    assert replica.log.high_watermark == 5


def test_follower_lets_be_read_no_more_than_was_stored(stage: Stage) -> None:
    stage.was_left_with(5, high_watermark=3)
    assert stage.first(state(OTHER, 1)).log.high_watermark == 3


def test_sole_replica_lets_all_that_it_has_be_read(stage: Stage) -> None:
    stage.was_left_with(5, high_watermark=3)
    replica = stage.first(alone(0))
    assert replica.followers is None
    assert replica.log.high_watermark == 5


def test_sole_replica_that_waited_for_its_leadership_goes_on_to_its_end(stage: Stage) -> None:
    async def scenario() -> None:
        stage.was_left_with(5, high_watermark=3)
        stage.see(alone(0))
        stage.begin_incarnation()
        waiting = stage.first(alone(0))
        assert waiting.log.high_watermark == 3
        leading = await stage.next(waiting, alone(1))
        assert leading.log.high_watermark == 5

    run(scenario())


def test_sole_replica_with_a_flush_policy_shows_what_is_flushed(stage: Stage) -> None:
    async def scenario() -> None:
        stage.was_left_with(5, high_watermark=3)
        stage.log.append(batch(), 0)
        assert stage.log.recovery_point == 0
        replica = stage.first(alone(0), FLUSHING)
        assert replica.log.high_watermark == 0
        await replica.storage.flush()
        again = await stage.next(replica, alone(1))
        assert again.log.high_watermark == 6
        again.resign(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "over"))

    run(scenario())


def test_sole_replica_with_a_flush_policy_flushes_what_it_was_left_with(stage: Stage) -> None:
    async def scenario() -> None:
        stage.was_left_with(5, high_watermark=3)
        stage.log.append(batch(), 0)
        replica = stage.first(alone(0), FLUSHING)
        reads = RecordedReads()
        replica.watch(reads)
        await reads.next()
        assert replica.log.high_watermark == replica.log.recovery_point == 6
        replica.resign(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "over"))
        await replica.end()

    run(scenario())


def test_log_that_is_offline_keeps_what_was_stored(stage: Stage) -> None:
    async def scenario() -> None:
        stage.was_left_with(5, high_watermark=3)
        stage.logs.put_offline(CLICKS, "it is damaged")
        assert stage.log.recovery_point == 0
        replica = stage.first(alone(0), FLUSHING)
        with pytest.raises(StorageError, match="offline"):
            await replica.storage.flush()
        assert replica.log.high_watermark == 3
        replica.resign(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "over"))
        await replica.end()

    run(scenario())


# --- one role after another ---


def test_role_goes_on_in_its_epoch(stage: Stage) -> None:
    async def scenario() -> None:
        for info in (state(OTHER, 1), state(OWN, 2), alone(3)):
            replica = stage.first(info)
            assert await stage.next(replica, info) is replica
            assert not replica.has_ended

    run(scenario())


@pytest.mark.parametrize("info", [state(OTHER, 2), state(OTHER, 3), state(OWN, 3), state(NO_LEADER, 3)])
def test_another_leader_or_epoch_is_another_role_over_the_same_log(stage: Stage, info: PartitionInfo) -> None:
    async def scenario() -> None:
        old = stage.first(state(OWN, 2))
        new = await stage.next(old, info)
        assert (new.leader, new.leader_epoch) == (info.state.leader, info.state.leader_epoch)
        assert new.log is old.log
        assert new.config is old.config
        assert old.has_ended
        assert stage.events == [RoleBegan(old), RoleEnded(old), RoleBegan(new)]

    run(scenario())


def test_role_that_has_ended_says_who_leads_now(stage: Stage) -> None:
    async def scenario() -> None:
        old = stage.first(state(OWN, 2))
        waiting = old.when_acknowledged(old.log.append(batch(), 2), -1)
        await stage.next(old, state(OTHER, 3))
        with pytest.raises(ApiError, match="leader epoch 2 has ended; broker 2 leads now") as caught:
            await waiting
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        with pytest.raises(ApiError, match="broker 2 leads now"):
            old.check_epoch(-1)

    run(scenario())


def test_who_waits_for_what_is_in_the_log_waits_on_where_the_leader_stays(stage: Stage) -> None:
    """Who is refused sends it again, and it is there twice, where no producer id tells that."""

    async def scenario() -> None:
        old = stage.first(state(OWN, 2, OWN, OTHER))
        appended = [old.log.append(batch(), 2) for _ in range(3)]
        waiting = [old.when_acknowledged(each, Acks.ALL) for each in appended[:2]]
        old.on_follower_fetch(OTHER, -1, 0, 0.0, 0)
        new = await stage.next(old, state(OWN, 3, OWN, OTHER))
        # This one was being written when the epoch ended.
        waiting.append(old.when_acknowledged(appended[2], Acks.ALL))
        assert not any(each.done() for each in waiting)
        with pytest.raises(ApiError, match="NOT_LEADER_OR_FOLLOWER"):
            old.check_epoch(-1)
        new.on_follower_fetch(OTHER, -1, 1, 0.0)
        assert [each.done() for each in waiting] == [True, False, False]
        newest = await stage.next(new, state(OWN, 5, OWN, OTHER))
        newest.on_follower_fetch(OTHER, -1, 2, 0.0)
        assert [each.done() for each in waiting] == [True, True, False]
        await stage.next(newest, state(OTHER, 6))
        assert waiting[0].result() is waiting[1].result() is None
        for late in (waiting[2], old.when_acknowledged(appended[2], Acks.ALL)):
            with pytest.raises(ApiError, match="broker 2 leads now"):
                await late

    run(scenario())


def test_who_waits_is_refused_where_another_life_begins_before_the_next_role(stage: Stage) -> None:
    async def scenario() -> None:
        old = stage.first(state(OWN, 2, OWN, OTHER))
        appended = old.log.append(batch(), 2)
        waiting = old.when_acknowledged(appended, Acks.ALL)
        stage.bus.subscribe(RoleEnded, lambda _event: stage.begin_incarnation())
        new = await stage.next(old, state(OWN, 3, OWN, OTHER))
        assert isinstance(new, FollowerReplica)
        for each in (waiting, old.when_acknowledged(appended, Acks.ALL)):
            assert each.done()
            with pytest.raises(ApiError, match="NOT_LEADER_OR_FOLLOWER"):
                await each

    run(scenario())


def test_append_that_is_under_way_when_the_epoch_ends_is_acknowledged_in_the_next_one(stage: Stage) -> None:
    async def scenario() -> None:
        old = stage.first(state(OWN, 2, OWN, OTHER))
        reads, is_written = RecordedReads(), asyncio.Event()

        async def write() -> None:
            await reads.next()
            appended.append(old.log.append(batch(), 2))
            is_written.set()

        async def end() -> None:
            await is_written.wait()
            waiting.append(old.when_acknowledged(appended[0], Acks.ALL))
            assert old.has_ended
            assert len(stage.events) == 2, "the next role has yet to begin"

        appended, waiting = list[Any](), list[Any]()
        old.watch(reads)
        old.hold_appends(write)
        waits = asyncio.create_task(end())
        changing = asyncio.create_task(stage.next(old, state(OWN, 3, OWN, OTHER)))
        await waits
        new = await changing
        assert not waiting[0].done()
        new.on_follower_fetch(OTHER, -1, 1, 0.0)
        assert await waiting[0] is None

    run(scenario())


def test_who_waits_where_the_leader_is_left_alone_is_answered(stage: Stage) -> None:
    async def scenario() -> None:
        old = stage.first(state(OWN, 2))
        waiting = old.when_acknowledged(old.log.append(batch(), 2), Acks.ALL)
        new = await stage.next(old, alone(3))
        assert new.log.high_watermark == 1
        assert await waiting is None

    run(scenario())


@pytest.mark.parametrize("others", [(), (OTHER,)])
def test_flush_that_was_waited_for_is_made_in_the_next_epoch(stage: Stage, others: tuple[int, ...]) -> None:
    async def scenario() -> None:
        old = stage.first(alone(2), topic_config(BrokerConfig(), {"flush.messages": "2"}))
        appended = [old.log.append(batch(), 2) for _ in range(2)]
        waiting = [old.when_acknowledged(appended[0], Acks.ALL), old.when_acknowledged(appended[1], Acks.LEADER)]
        # The flush has not begun yet, and does not in this epoch.
        new = await stage.next(old, state(OWN, 3, OWN, replicas=(OWN, *others)))
        assert await asyncio.gather(*waiting) == [None, None]
        assert new.log.recovery_point == 2
        new.resign(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "over"))
        await new.end()

    run(scenario())


def test_who_waits_until_followers_have_deleted_records_waits_on_where_the_leader_stays(stage: Stage) -> None:
    async def scenario() -> None:
        old = stage.first(state(OWN, 2, OWN, OTHER))
        old.log.append(batch(count=3), 2)
        old.on_follower_fetch(OTHER, -1, 3, 0.0, 0)
        await old.delete_records_before(2)
        waiting = old.when_deleted(2)
        new = await stage.next(old, state(OWN, 3, OWN, OTHER))
        assert not waiting.done()
        new.on_follower_fetch(OTHER, -1, 3, 0.0, 2)
        assert await waiting is None
        assert old.when_deleted(2) is None

    run(scenario())


def test_next_role_begins_when_nothing_of_the_last_one_is_under_way(stage: Stage) -> None:
    async def scenario() -> None:
        old = stage.first(state(OWN, 2))
        done = asyncio.Event()
        under_way = old.hold_appends(done.wait)
        await asyncio.sleep(0)
        changing = asyncio.create_task(stage.next(old, state(OTHER, 3)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert stage.events == [RoleBegan(old), RoleEnded(old)]
        done.set()
        new = await changing
        assert under_way.done()
        assert stage.events[-1] == RoleBegan(new)

    run(scenario())


# --- a leader that another state deposes ---

ALL_REPORT = tuple(Remnant(each) for each in (OWN, OTHER, THIRD))


def without_leader(isr: tuple[int, ...], lost: tuple[Remnant, ...], *, is_doubted: bool = False) -> PartitionInfo:
    return PartitionInfo((OWN, OTHER, THIRD), PartitionState(NO_LEADER, 4, isr, lost, is_doubted), 4)


@pytest.mark.parametrize(
    "info",
    [
        pytest.param(without_leader((THIRD,), (Remnant(OTHER),)), id="its successor lost memory"),
        pytest.param(without_leader((), (Remnant(OTHER), Remnant(THIRD))), id="all members lost memory"),
        pytest.param(without_leader((), ALL_REPORT), id="the only member is an older copy"),
        pytest.param(state(OTHER, 4), id="another leader"),
    ],
)
def test_leader_that_missed_its_successor_may_truncate_its_log(stage: Stage, info: PartitionInfo) -> None:
    async def scenario() -> None:
        old = stage.first(state(OWN, 2))
        old.log.append(batch(count=2), 2)
        follower = await stage.next(old, info)
        assert not follower.log.is_newer_than_tree
        await follower.truncate_to(1)

    run(scenario())


def test_leader_that_a_newer_log_deposes_keeps_its_records(stage: Stage) -> None:
    async def scenario() -> None:
        old = stage.first(state(OWN, 2))
        old.log.append(batch(count=2), 2)
        follower = await stage.next(old, without_leader((), ALL_REPORT, is_doubted=True))
        assert follower.log.is_newer_than_tree
        with pytest.raises(StorageError, match="the metadata store was older than"):
            await follower.truncate_to(1)

    run(scenario())


def test_follower_of_a_leader_that_a_newer_log_deposes_may_truncate_its_log(stage: Stage) -> None:
    async def scenario() -> None:
        old = stage.first(state(OTHER, 2))
        follower = await stage.next(old, without_leader((), ALL_REPORT, is_doubted=True))
        assert not follower.log.is_newer_than_tree

    run(scenario())


# --- who is in sync ---


def test_leader_takes_over_the_replicas_in_sync_that_the_tree_has(stage: Stage) -> None:
    async def scenario() -> None:
        replica = stage.first(state(OWN, 2))
        replica.log.append(batch(), 2)
        replica.on_follower_fetch(OTHER, -1, 1, 0.0)
        assert replica.log.high_watermark == 0
        assert await stage.next(replica, state(OWN, 2, OWN, OTHER)) is replica
        assert replica.followers.isr == (OWN, OTHER)
        assert replica.log.high_watermark == 1

    run(scenario())


def test_change_that_is_under_way_outlasts_news_of_what_was_before(stage: Stage) -> None:
    async def scenario() -> None:
        replica = stage.first(state(OWN, 2, OWN, OTHER))
        replica.followers.begin_change((OWN, OTHER, THIRD))
        await stage.next(replica, state(OWN, 2, OWN, OTHER))
        assert replica.followers.is_changing
        await stage.next(replica, state(OWN, 2, OWN, OTHER, THIRD))
        assert not replica.followers.is_changing

    run(scenario())
