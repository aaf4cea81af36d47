"""Consumers that share partitions out among themselves, each with a session of one embedded tree; no servers."""

from __future__ import annotations

import asyncio
import threading

import pytest

from barnabas.client.backoff import Backoff
from barnabas.client.config import ConsumerConfig
from barnabas.client.consumer.state import ConsumerState
from barnabas.client.consumer.sync_async_drivers import LoopGuard
from barnabas.client.consumer.zookeeper_group_session import ZooKeeperGroupSession
from barnabas.clock import ManualClock
from barnabas.coordination import offsets, paths, topic_metadata_store
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.coordination.metadata_store import MetadataStoreUnavailableError
from barnabas.errors import ApiError, DisconnectedError, ErrorCode
from barnabas.model import OffsetAndMetadata, TopicPartition

SESSION_TIMEOUT_S = 6.0
AT_5 = OffsetAndMetadata(5)


def tps(*numbers):
    return [TopicPartition("t", number) for number in numbers]


class Session:
    """A session that can be lost, and that may hear nothing."""

    session_timeout_s = SESSION_TIMEOUT_S

    def __init__(self, tree):
        self._tree = tree
        self._end = None
        self.is_silent = False
        self.pings = 0

    def __getattr__(self, name):
        return getattr(self._tree, name)

    def on_session_end(self, call):
        self._end = call

    def ping(self, timeout_s):
        if self.is_silent:
            raise MetadataStoreUnavailableError("no answer")
        self.pings += 1
        self._tree.ping(timeout_s)

    def lose(self):
        self._tree.close()
        self._end()


class FakeCluster:
    backoff = Backoff(1, 1, lambda: 0.5)

    def request_refresh(self, *, is_stale=False):
        pass


class Consumer:
    """A consumer but for the application and the brokers; `take` is what its poll does."""

    def __init__(self, tree, clock, topics=("t",), **settings):
        config = ConsumerConfig(group="g", coordination="zookeeper://z", heartbeat_interval_ms=1, **settings)
        self.state = ConsumerState(config, LoopGuard(), clock)
        self.state.subscription.subscribe(topics, None)
        self.membership = self.state.membership
        self.sessions = []
        self.coordination = ZooKeeperGroupSession(self.state, FakeCluster(), self.membership, lambda: self.opened(tree))
        self.is_reading = []
        self.may_open = lambda: None
        self.keeping = asyncio.create_task(self.coordination.maintain())

    def opened(self, tree):
        self.may_open()
        self.sessions.append(Session(tree.new_session()))
        return self.sessions[-1]

    async def take(self):
        self.is_reading = []
        self.membership.on_lost_given_up()
        self.is_reading = await self.coordination.join()
        return self.is_reading

    async def until_due(self):
        while not self.membership.rejoin_needed:  # noqa: ASYNC110  as the application looks with each poll
            await asyncio.sleep(0.001)

    async def close(self):
        self.keeping.cancel()
        await asyncio.gather(self.keeping, return_exceptions=True)
        await self.coordination.leave("closed")
        await self.coordination.close()


class Group:
    """Consumers of one group."""

    def __init__(self, folder):
        self.clock = ManualClock()
        self.tree = EmbeddedMetadataStore(folder / "tree.db", self.clock)
        topic_metadata_store.create_topic(self.tree, "t", bytes(16), [[1]] * 4)
        self.consumers = []

    def add(self, **options):
        self.consumers.append(Consumer(self.tree, self.clock, **options))
        return self.consumers[-1]

    async def settle(self):
        """All take until none has to again; what they read is whole then, and shared out."""
        while any(each.membership.rejoin_needed for each in self.consumers):
            await asyncio.gather(*(each.take() for each in self.consumers if each.membership.rejoin_needed))
        return [each.is_reading for each in self.consumers]

    def owners(self):
        return {path.rsplit("/", 1)[1]: node.data for path, node in self.tree.subtree("/consumers/g/owners/t").items()}


@pytest.fixture
def play(tmp_path):
    """Run a scene with a group, and close all after it."""

    def run(scene):
        group = Group(tmp_path)

        async def main():
            async with asyncio.timeout(120):
                try:
                    await scene(group)
                finally:
                    for each in group.consumers:
                        await each.close()

        try:
            asyncio.run(main())
            assert group.owners() == {}
            assert group.tree.children(paths.group_members("g")) == []
        finally:
            group.tree.close()

    return run


def test_consumer_alone_takes_everything_and_says_so_in_the_tree(play):
    async def scene(group):
        consumer = group.add()
        assert await consumer.take() == tps(0, 1, 2, 3)
        assert set(group.owners().values()) == {consumer.membership.consumer_id.encode()}

    play(scene)


def test_second_consumer_gets_its_half_and_leaves_it_again(play):
    async def scene(group):
        first, second = group.add(), group.add()
        await first.take()
        taking = asyncio.create_task(second.take())
        await first.until_due()
        assert not taking.done(), "nobody takes what another still has"
        await asyncio.gather(first.take(), taking)
        assert sorted(await group.settle()) == [tps(0, 1), tps(2, 3)]
        await second.close()
        group.consumers.remove(second)
        await first.until_due()
        assert await first.take() == tps(0, 1, 2, 3)

    play(scene)


def test_topic_that_grows_is_shared_out_anew(play):
    async def scene(group):
        consumer = group.add(topics=("t", "u"))
        assert await consumer.take() == tps(0, 1, 2, 3)
        topic_metadata_store.grow_topic(group.tree, "t", [[1]], 4)
        await consumer.until_due()
        assert await consumer.take() == tps(0, 1, 2, 3, 4)
        topic_metadata_store.create_topic(group.tree, "u", bytes(16), [[1]])
        await consumer.until_due()
        assert await consumer.take() == [*tps(0, 1, 2, 3, 4), TopicPartition("u", 0)]

    play(scene)


def test_lost_session_is_followed_by_another(play):
    async def scene(group):
        first = group.add()
        await first.take()
        first.sessions[0].lose()
        await first.until_due()
        assert first.membership.lost
        assert not first.membership.owns
        assert await first.take() == tps(0, 1, 2, 3)
        assert len(first.sessions) == 2

    play(scene)


def test_who_hears_nothing_for_two_thirds_of_the_timeout_owns_nothing_any_more(play):
    async def scene(group):
        consumer = group.add()
        await consumer.take()
        consumer.sessions[0].is_silent = True
        group.clock.advance(SESSION_TIMEOUT_S * 2 / 3 + 0.01)
        await consumer.until_due()
        assert consumer.membership.lost
        with pytest.raises(ApiError, match="other members may own the partitions"):
            await consumer.coordination.commit({tps(0)[0]: AT_5})

    play(scene)


def test_application_that_does_not_poll_leaves_its_partitions(play):
    async def scene(group):
        first, second = group.add(), group.add()
        await first.take()
        group.clock.advance(first.state.config.max_poll_interval_ms / 1000 + 1)
        second.state.note_poll()
        while await second.take() != tps(0, 1, 2, 3):
            await second.until_due()
        assert first.membership.lost

    play(scene)


def test_offsets_are_committed_by_the_owner_alone(play):
    async def scene(group):
        consumer = group.add()
        await consumer.take()
        await consumer.coordination.commit(dict.fromkeys(tps(0, 3), AT_5))
        assert await consumer.coordination.committed(tps(0, 1)) == {tps(0)[0]: AT_5}
        with pytest.raises(ApiError) as refused:
            await consumer.coordination.commit({tps(7)[0]: AT_5})
        assert refused.value.code is ErrorCode.UNKNOWN_MEMBER_ID
        assert offsets.read_offsets(group.tree, "g") == dict.fromkeys(tps(0, 3), AT_5)

    play(scene)


def test_zombies_commit_is_refused_by_the_tree_where_it_does_not_know_yet(play):
    async def scene(group):
        consumer = group.add()
        await consumer.take()
        thief = group.tree.new_session()
        for number in range(4):
            group.tree.delete(paths.group_owner("g", tps(number)[0]))
        thief.close()
        with pytest.raises(ApiError, match="other members may own the partitions"):
            await consumer.coordination.commit({tps(0)[0]: AT_5})

    play(scene)


def test_threads_end_with_the_consumer(play):
    before = set(threading.enumerate())

    async def scene(group):
        await group.add().take()

    play(scene)
    for thread in set(threading.enumerate()) - before:
        if thread.name.startswith("barnabas-consumer"):
            thread.join(60)
            assert not thread.is_alive()


def test_application_that_looks_at_the_clock_first_gets_a_session_of_its_own(play):
    """As after a stop of the whole process, where the thread that polls may be the first to run."""

    async def scene(group):
        consumer = group.add()
        await consumer.take()
        assert consumer.membership.valid_until_s == SESSION_TIMEOUT_S * 2 / 3
        consumer.keeping.cancel()
        group.clock.advance(SESSION_TIMEOUT_S * 2 / 3)
        assert not consumer.state.assignment_is_valid()
        with pytest.raises(ApiError, match="other members may own the partitions"):
            await consumer.coordination.commit({tps(0)[0]: AT_5})
        consumer.membership.on_expired()
        assert await consumer.take() == tps(0, 1, 2, 3)
        assert len(consumer.sessions) == 2, "what the first still had went with it"
        assert consumer.state.assignment_is_valid()

    play(scene)


def test_session_that_is_replaced_between_two_signs_of_life_does_no_harm(play):
    async def scene(group):
        consumer = group.add()
        await consumer.take()
        for number in range(1, 6):
            consumer.membership.on_expired()
            await consumer.take()
            while consumer.sessions[number].pings < 3:
                assert not consumer.keeping.done()
                await asyncio.sleep(0.001)

    play(scene)


def refuse():
    raise MetadataStoreUnavailableError("nobody there")


def test_join_ends_with_the_time_allowed_where_no_session_is_granted(play):
    async def scene(group):
        consumer = group.add(default_api_timeout_ms=60_000)
        refusals = []

        def note_and_refuse():
            refusals.append(1)
            refuse()

        consumer.may_open = note_and_refuse
        taking = asyncio.create_task(consumer.take())
        while not taking.done():
            if refusals:
                group.clock.advance(10.0)
            await asyncio.sleep(0.001)
        with pytest.raises(DisconnectedError, match=r"'g'.*zookeeper://z.*nobody there.*does ZooKeeper run there"):
            await taking
        consumer.may_open = lambda: None
        assert await consumer.take() == tps(0, 1, 2, 3), "the next poll begins anew"

    play(scene)


def test_join_ends_with_the_time_allowed_while_a_call_hangs(play):
    async def scene(group):
        consumer = group.add(default_api_timeout_ms=50)
        answers = threading.Event()
        consumer.may_open = answers.wait
        with pytest.raises(DisconnectedError, match=r"no response from zookeeper://z for 0.05 s; does ZooKeeper run"):
            await consumer.take()
        answers.set()
        while not consumer.is_reading:
            try:
                await consumer.take()
            except DisconnectedError:  # 50 ms are not much
                continue
        assert consumer.is_reading == tps(0, 1, 2, 3)

    play(scene)


def test_tree_that_answers_is_not_out_of_reach_however_long_another_keeps_its_partitions(play):
    async def scene(group):
        first, second = group.add(), group.add(default_api_timeout_ms=1_000)
        await first.take()
        taking = asyncio.create_task(second.take())
        await first.until_due()
        for _ in range(3):
            group.clock.advance(0.9)
            second.coordination._changed.set()
            await asyncio.sleep(0.01)
        assert not taking.done()
        await asyncio.gather(first.take(), taking)

    play(scene)


def test_commit_that_waited_until_its_session_was_lost_is_not_made_in_the_next(play):
    """There the check that the partition has an owner would not help: it has another one."""

    async def scene(group):
        first, second = group.add(), group.add()
        await first.take()
        goes_on = threading.Event()
        busy = first.coordination._thread.submit(goes_on.wait)
        commit = asyncio.create_task(first.coordination.commit({tps(0)[0]: AT_5}))
        await asyncio.sleep(0)
        first.sessions[0].lose()
        await second.take()
        first.membership.on_expired()
        goes_on.set()
        with pytest.raises(DisconnectedError):
            await commit
        assert busy.result()
        assert offsets.read_offsets(group.tree, "g") == {}
        with pytest.raises(ApiError, match="other members may own the partitions"):
            await first.coordination.commit({tps(0)[0]: AT_5})

    play(scene)


def test_what_a_lost_session_could_not_answer_is_worth_another_try(play):
    async def scene(group):
        consumer = group.add()
        await consumer.take()
        consumer.may_open = refuse
        consumer.membership.on_expired()
        with pytest.raises(DisconnectedError) as error:
            await consumer.coordination.committed(tps(0))
        assert error.value.retriable
        consumer.may_open = lambda: None
        assert await consumer.coordination.committed(tps(0)) == {}

    play(scene)
