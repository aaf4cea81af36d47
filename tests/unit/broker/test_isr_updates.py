"""In-sync replicas as the leader wants them, and as the tree has them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker import isr_updates
from barnabas.broker.broker_events import Events, IsrSettled
from barnabas.broker.isr_updates import IsrUpdates
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.metadata_image import MetadataImage
from barnabas.clock import ManualClock
from barnabas.coordination.change_notifications import StateChange
from barnabas.coordination.metadata_store import MetadataStoreUnavailableError
from barnabas.coordination.topic_metadata_store import PartitionInfo, TopicInfo
from barnabas.coordination.values import BrokerRegistration, LiveBroker, PartitionState, Remnant
from barnabas.model import TopicPartition
from barnabas.replication.in_sync import RemoteReplicas

CLICKS = TopicPartition("clicks", 0)
TOPIC_ID = bytes(16)
LAG_S = 10.0
START, END = 2, 7


class Led(SimpleNamespace):
    """What is needed of a partition."""

    __hash__ = object.__hash__


class Leading:
    """A partition with three replicas that broker 1 leads, the state in the tree, and what was proposed of it."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.in_tree = PartitionState(1, 4, (1, 2, 3)), 6
        self.metadata = MetadataCache(Events())
        self.metadata.put_topic(TopicInfo("clicks", TOPIC_ID, (PartitionInfo((1, 2, 3), *self.in_tree),)))
        self.metadata.put_brokers({each: LiveBroker(BrokerRegistration(each, "here", 1), each) for each in (1, 2, 3)})
        now_s = self.clock.monotonic()
        self.followers = RemoteReplicas(1, 4, (1, 2, 3), (1, 2, 3), END, END, now_s)
        self.partition: Any = Led(
            topic_partition=CLICKS,
            leader=1,
            leader_epoch=4,
            followers=self.followers,
            has_ended=False,
            log=SimpleNamespace(log_start_offset=START, log_end_offset=END),
            isr_changed=lambda: None,
        )
        self.proposed: list[StateChange] = []
        self.followed: list[Any] = []
        self.epochs_in_tree = {2: 2, 3: 3}
        self.is_written, self.is_answered = True, True
        self.settled: list[IsrSettled] = []
        events = Events()
        events.subscribe(IsrSettled, self.settled.append)
        self.updates = IsrUpdates(self, self.clock, LAG_S, events)  # type: ignore[arg-type]

    # -- what it needs of topics --

    @property
    def image(self) -> MetadataImage:
        return self.metadata.image

    def led(self) -> list[Any]:
        return [self.partition]

    async def write_states(self, wanted: list[StateChange]) -> dict[str, Any]:
        (change,) = wanted
        self.proposed.append(change)
        if self.is_written and change.version == self.in_tree[1] + 1:
            self.in_tree = change.state, change.version
        if not self.is_answered:
            raise MetadataStoreUnavailableError("the connection is lost")
        return await self.reread(wanted)

    async def read_broker_epochs(self, broker_ids: set[int]) -> dict[int, int]:
        return {each: epoch for each, epoch in self.epochs_in_tree.items() if each in broker_ids}

    async def reread(self, _states: Any) -> dict[str, Any]:
        if not self.is_answered:
            raise MetadataStoreUnavailableError("the connection is lost")
        return dict(self.metadata.put_states([StateChange(CLICKS, TOPIC_ID, *self.in_tree)]).partitions)

    async def apply_roles(self, changed: Any) -> None:
        self.followed.append(changed)

    # -- steps --

    async def update(self) -> None:
        await self.updates.update([self.partition])

    def let_lag(self) -> None:
        """Followers 2 and 3 fetch nothing for too long, while there are records that they lack."""
        self.partition.log.log_end_offset = END + 5
        self.clock.advance(LAG_S * 2)


def run(scenario: Callable[[Leading], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scenario(Leading()))


def test_subscribers_hear_of_a_change_that_left_the_metadata_as_it_was() -> None:
    async def scenario(leading: Leading) -> None:
        await leading.update()
        assert leading.settled == []
        leading.let_lag()
        leading.is_written = False
        await leading.update()
        assert leading.followers.isr == (1, 2, 3)
        assert leading.settled == [IsrSettled()]

    run(scenario)


def test_followers_that_lag_leave_by_one_change() -> None:
    async def scenario(leading: Leading) -> None:
        await leading.update()
        assert leading.proposed == []
        leading.let_lag()
        await leading.update()
        await leading.update()
        assert leading.proposed == [StateChange(CLICKS, TOPIC_ID, PartitionState(1, 4, (1,)), 7)]
        assert tuple(leading.followers.isr) == (1,)
        assert (leading.updates.shrink_count, leading.updates.expand_count) == (1, 0)
        assert leading.followed == []

    run(scenario)


def test_leader_that_another_broker_doubts_in_its_own_epoch_writes_nothing() -> None:
    """It is about to end: with its in-sync replicas written, all would think that nobody has to report."""

    async def scenario(leading: Leading) -> None:
        leading.let_lag()
        leading.in_tree = PartitionState(-1, 4, (), (Remnant(1), Remnant(2), Remnant(3))), 8
        await leading.update()
        assert leading.followed == [{"clicks": [0]}]
        await leading.update()
        assert len(leading.proposed) == 1
        assert leading.in_tree[1] == 8

    run(scenario)


def test_leader_that_lives_lets_those_that_lost_memory_be_forgotten() -> None:
    async def scenario(leading: Leading) -> None:
        leading.in_tree = PartitionState(1, 4, (1, 2), (Remnant(3),)), 7
        await leading.reread(())
        leading.followers.adopt((1, 2))
        await leading.update()
        await leading.update()
        assert leading.proposed == [StateChange(CLICKS, TOPIC_ID, PartitionState(1, 4, (1, 2)), 8)]
        assert not leading.followers.is_changing

    run(scenario)


@pytest.mark.parametrize("epoch_in_tree", [9, None])
def test_follower_joins_with_what_it_fetched_in_its_present_life_only(epoch_in_tree: int | None) -> None:
    async def scenario(leading: Leading) -> None:
        leading.let_lag()
        await leading.update()
        leading.followers.on_fetch(2, END + 5, END + 5, leading.clock.monotonic(), broker_epoch=2)
        leading.epochs_in_tree = {} if epoch_in_tree is None else {2: epoch_in_tree}
        await leading.update()
        await leading.update()
        assert len(leading.proposed) == 1, "it had begun another one"
        assert not leading.followers.is_changing
        leading.metadata.put_brokers({2: LiveBroker(BrokerRegistration(2, "here", 1), 9)})
        leading.epochs_in_tree = {2: 9}
        leading.followers.on_fetch(2, END + 5, END + 5, leading.clock.monotonic(), broker_epoch=9)
        leading.followers.on_log_start(2, START)
        await leading.update()
        assert leading.proposed[1:] == [StateChange(CLICKS, TOPIC_ID, PartitionState(1, 4, (1, 2)), 8)]

    run(scenario)


def test_follower_joins_once_its_log_is_known_to_begin_where_the_leaders_does() -> None:
    async def scenario(leading: Leading) -> None:
        leading.let_lag()
        await leading.update()
        assert [each.state.isr for each in leading.proposed] == [(1,)]
        for broker_id, start in ((2, START - 1), (3, START)):
            now_s = leading.clock.monotonic()
            leading.followers.on_fetch(broker_id, END + 5, END + 5, now_s, broker_epoch=broker_id)
            leading.followers.on_log_start(broker_id, start)
        await leading.update()
        assert leading.proposed[-1].state.isr == (1, 3)
        leading.followers.on_log_start(2, START)
        await leading.update()
        assert leading.proposed[-1].state.isr == (1, 2, 3)

    run(scenario)


def test_change_that_somebody_was_faster_with_is_not_repeated_with_the_new_version() -> None:
    async def scenario(leading: Leading) -> None:
        leading.let_lag()
        leading.in_tree = PartitionState(2, 5, (2, 3)), 7
        await leading.update()
        assert len(leading.proposed) == 1
        assert leading.followed == [{"clicks": [0]}], "its role ends"
        await leading.update()
        assert len(leading.proposed) == 1
        assert leading.in_tree[0] == PartitionState(2, 5, (2, 3))

    run(scenario)


@pytest.mark.parametrize("is_written", [True, False])
def test_change_of_which_nobody_knows_whether_it_was_made_is_read_before_the_next(is_written: bool) -> None:
    async def scenario(leading: Leading) -> None:
        leading.let_lag()
        leading.is_written, leading.is_answered = is_written, False
        for _ in range(2):
            with pytest.raises(MetadataStoreUnavailableError):
                await leading.update()
        assert len(leading.proposed) == 1, "the second time it was read, in vain"
        # The high watermark waits for both sets meanwhile.
        assert leading.followers.high_watermark(END + 5) == END
        leading.is_written = leading.is_answered = True
        await leading.update()
        assert leading.in_tree == (PartitionState(1, 4, (1,)), 7)
        assert len(leading.proposed) == (1 if is_written else 2)
        assert tuple(leading.followers.isr) == (1,)
        assert leading.followers.high_watermark(END + 5) == END + 5

    run(scenario)


def test_partition_whose_role_has_ended_proposes_nothing() -> None:
    async def scenario(leading: Leading) -> None:
        leading.let_lag()
        leading.partition.has_ended = True
        await leading.update()
        leading.partition.has_ended = False
        leading.metadata.remove_topic("clicks")
        await leading.update()
        assert leading.proposed == []

    run(scenario)


def test_change_that_could_not_be_written_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_updates, "AGAIN_S", 0)

    async def scenario(leading: Leading) -> None:
        leading.let_lag()
        leading.is_written = leading.is_answered = False
        told = asyncio.Event()
        leading.partition.isr_changed = told.set
        refused = asyncio.Event()
        reread = leading.reread

        async def refuse(states: Any) -> Any:
            refused.set()
            return await reread(states)

        monkeypatch.setattr(leading, "reread", refuse)
        task = asyncio.create_task(leading.updates.run())
        leading.updates.update_soon(leading.partition)
        async with asyncio.timeout(60):
            await refused.wait()
            leading.is_written = leading.is_answered = True
            while leading.in_tree[1] != 7:
                told.clear()
                await told.wait()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert leading.updates.failure_count > 0

    run(scenario)
