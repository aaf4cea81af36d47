"""What was made is known to the other brokers, or no longer waited for, before its maker is told."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from barnabas.broker import metadata_propagation
from barnabas.broker.handlers.create_partitions import create_partitions
from barnabas.broker.handlers.create_topics import create_topics
from barnabas.broker.handlers.metadata import known_topics, metadata
from barnabas.broker.identity import Identity
from barnabas.broker.metadata_propagation import MetadataPropagation
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.quotas.enforcement import MutationQuotas, ThrottleCounts
from barnabas.broker.settings.dynamic import DynamicSettings
from barnabas.coordination.values import BrokerEndpoint
from barnabas.errors import DisconnectedError
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.rates import Windows
from tests.support.fake_link import call_of
from tests.support.topics_cluster import Cluster, Node, Run, in_metadata_thread

UNLIMITED = MutationQuotas(Windows(), lambda: 0.0, lambda: 0.0, ThrottleCounts())
CALL = call_of(metadata, 13, "broker-1")
ASKS = 3
"""So often a broker is asked, in these tests, until it has heard."""


class Others:
    """The brokers that are asked; each hears of what is new before it answers for the `ASKS`th time."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.scheduler = CooperativeScheduler(time.monotonic)
        self.asked: list[int] = []
        self.closed: list[int] = []
        self.before_answer: Callable[[int], Awaitable[None]] = self.hear_at_last

    async def hear_at_last(self, broker_id: int) -> None:
        if self.asked.count(broker_id) == ASKS:
            await self.node(broker_id).follow()

    def node(self, broker_id: int) -> Node:
        (found,) = (each for each in self.cluster.nodes if each.id == broker_id)
        return found

    async def connect(self, broker_id: int) -> Any:
        return Asked(self, broker_id)


class Asked:
    """A connection with one of them."""

    def __init__(self, others: Others, broker_id: int) -> None:
        self._others = others
        self._id = broker_id

    async def send(self, request: MetadataRequest) -> Any:
        assert not request.allow_auto_topic_creation
        self._others.asked.append(self._id)
        await self._others.before_answer(self._id)
        topics = self._others.node(self._id).topics
        return await self._others.scheduler.finish(known_topics.function(topics, request, CALL))

    def close(self) -> None:
        self._others.closed.append(self._id)


class Maker:
    """The broker at which topics are made."""

    def __init__(self, cluster: Cluster, node: Node) -> None:
        self.others = Others(cluster)
        self.topics, self.topic_admin = node.topics, node.topic_admin
        self.propagation = MetadataPropagation(node.topics, node.id, self.others.connect)
        self.settings = DynamicSettings(node.config, node.tree, in_metadata_thread, _nothing)  # type: ignore[arg-type]

    async def create(self, *names: str, timeout_ms: int = 60_000, validate_only: bool = False) -> list[int]:
        request = CreateTopicsRequest(
            topics=[
                CreatableTopic(name=each, num_partitions=2, replication_factor=2, assignments=[], configs=[])
                for each in names
            ],
            timeout_ms=timeout_ms,
            validate_only=validate_only,
        )
        response = await create_topics.function(
            self.topics,
            self.topic_admin,
            self.settings,
            self.propagation,
            self.others.scheduler,
            UNLIMITED,
            request,
            CALL,
        )
        return [each.error_code for each in response.topics]

    async def grow(self, name: str, count: int) -> list[int]:
        wanted = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(topics=[wanted], timeout_ms=60_000, validate_only=False)
        response = await create_partitions.function(
            self.topics, self.topic_admin, self.propagation, self.others.scheduler, UNLIMITED, request, CALL
        )
        return [each.error_code for each in response.results]

    async def ask_for(self, *names: str) -> list[int]:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=each) for each in names])
        identity = Identity(1, "castle", (BrokerEndpoint("PLAINTEXT", "here", 9001),))
        others = self.others.scheduler
        parts = self.topics, self.topic_admin, self.settings, identity, self.propagation, others, UNLIMITED
        response = await self.others.scheduler.finish(metadata.function(*parts, request, CALL))
        if not isinstance(response, MetadataResponse):
            response = await response.later
        return [each.error_code for each in response.topics]


async def _nothing(_config: object) -> None:
    pass


def _counts(cluster: Cluster, name: str) -> list[int]:
    """Return how many partitions of a topic each broker knows."""
    found = [node.topics.get(name) for node in cluster.nodes]
    return [0 if each is None else len(each.partitions) for each in found]


def test_answer_waits_until_all_others_know(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two, _three = await cluster.start(1, 2, 3)
        maker = Maker(cluster, one)
        assert await maker.create("clicks", "views") == [0, 0]
        assert _counts(cluster, "clicks") == _counts(cluster, "views") == [2, 2, 2]
        assert sorted(maker.others.asked) == [2] * ASKS + [3] * ASKS
        assert sorted(maker.others.closed) == [2, 3]
        maker.others.asked.clear()
        assert await maker.grow("clicks", 5) == [0]
        assert _counts(cluster, "clicks") == [5, 5, 5]
        assert sorted(maker.others.asked) == [2] * ASKS + [3] * ASKS

    run(scenario)


def test_topic_that_is_made_since_a_client_asks_for_it_is_known_everywhere(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two, _three = await cluster.start(1, 2, 3)
        maker = Maker(cluster, one)
        assert await maker.ask_for("clicks", "views") == [0, 0]
        assert _counts(cluster, "clicks") == _counts(cluster, "views") == [1, 1, 1]
        maker.others.asked.clear()
        assert await maker.ask_for("clicks", "views") == [0, 0]
        assert maker.others.asked == []

    run(scenario)


def test_nobody_is_asked_where_nothing_was_made(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two = await cluster.start(1, 2)
        maker = Maker(cluster, one)
        assert await maker.create("clicks") == [0]
        maker.others.asked.clear()
        assert await maker.create("clicks", "a topic") != [0, 0]
        assert await maker.create("views", validate_only=True) == [0]
        assert await maker.grow("clicks", 1) != [0]
        assert maker.others.asked == []

    run(scenario)


def test_broker_alone_has_nobody_to_ask(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        (one,) = await cluster.start(1)
        maker = Maker(cluster, one)
        await maker.propagation.until_known({(await one.topic_admin.create("clicks", 1, {})).id: 1}, timeout_s=1.0)
        assert maker.others.asked == []

    run(scenario)


def test_broker_that_cannot_be_asked_is_not_waited_for(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two, three = await cluster.start(1, 2, 3)
        maker = Maker(cluster, one)

        async def answer(broker_id: int) -> None:
            if broker_id == 2:
                raise DisconnectedError("it is gone")
            await maker.others.hear_at_last(broker_id)

        maker.others.before_answer = answer
        assert await maker.create("clicks") == [0]
        assert three.topics.get("clicks")
        assert sorted(maker.others.closed) == [2, 3]

    run(scenario)


@pytest.mark.parametrize("hangs", [True, False], ids=["does not answer", "never hears"])
def test_broker_that_does_not_hear_is_waited_for_in_vain(
    run: Run, hangs: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(metadata_propagation, "KNOWN_S", 0.05)

    async def scenario(cluster: Cluster) -> None:
        one, _two = await cluster.start(1, 2)
        maker = Maker(cluster, one)

        async def answer(_broker_id: int) -> None:
            if hangs:
                await asyncio.get_running_loop().create_future()

        maker.others.before_answer = answer
        with caplog.at_level(logging.WARNING, logger=metadata_propagation.__name__):
            assert await maker.create("clicks") == [0]
        assert maker.others.closed == [2]
        (line,) = caplog.messages
        assert line == "broker 2 has not read new topics within 0.05 s; not waiting for this broker"

    run(scenario)


def test_request_that_does_not_wait_is_answered_at_once(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two = await cluster.start(1, 2)
        maker = Maker(cluster, one)
        assert await maker.create("clicks", timeout_ms=0) == [0]
        assert await maker.create("views", timeout_ms=-1) == [0]
        assert maker.others.asked == []

    run(scenario)


def test_topic_that_is_deleted_meanwhile_is_not_waited_for(run: Run) -> None:
    async def scenario(cluster: Cluster) -> None:
        one, _two = await cluster.start(1, 2)
        maker = Maker(cluster, one)

        async def answer(broker_id: int) -> None:
            if maker.others.asked.count(broker_id) == 2:
                await one.topic_admin.delete("clicks")

        maker.others.before_answer = answer
        assert await maker.create("clicks") == [0]
        assert maker.others.asked == [2, 2]

    run(scenario)
