"""Brokers with ACLs that have lost contact with the metadata store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.broker.authorization.cluster_acls import ClusterAcls
from barnabas.coordination import acls, paths
from barnabas.coordination.metadata_store import Set
from barnabas.errors import ErrorCode
from barnabas.model import Acks
from barnabas.protocol.messages.create_acls import CreateAclsRequest
from barnabas.protocol.messages.delete_acls import DeleteAclsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records import BatchBuilder
from barnabas.security.acls import Operation, PatternType, ResourcePattern, ResourceType
from tests.simulation.access_check import IN_FORCE_S
from tests.simulation.acls import PLACE, REQUEST_S, TOPIC, Acls, all_of, allow, principal
from tests.simulation.clients import FETCH_BYTES, VERSION_MAX, SimulatedClient
from tests.simulation.cluster import PORT, SimulatedCluster
from tests.simulation.ensemble import NAME
from tests.simulation.world import Host, HostClock, World

ALICE = "alice"
SCALE = 0.25
SLOWLY_S = 3.0


class Scene:
    """A cluster with ACLs, in which alice may use a topic. Nothing fails by itself."""

    def __init__(self, machines: int) -> None:
        self.world = World(1)
        self.world.scale = SCALE
        self.cluster = SimulatedCluster(self.world, machines, dict(Acls.settings))
        self.admin = SimulatedClient(self.cluster, "administrator", (TOPIC,))
        self.guest = Host(self.world, ALICE, HostClock(self.world.loop, rate=1.0, ahead_ms=0), identity=ALICE)

    async def begin(self) -> None:
        self.cluster.start()
        await self.admin.create_topic(TOPIC, 1, len(self.cluster.machines), {})
        creations = [
            allow(str(principal(ALICE)), each, ResourceType.TOPIC, TOPIC, PatternType.LITERAL)
            for each in (Operation.READ, Operation.WRITE)
        ]
        channel = await self.admin.cluster.any_channel()
        response = await self.admin.cluster.ask(channel, CreateAclsRequest(creations=creations))
        assert [each.error_code for each in response.results] == [0, 0]

    def revoke(self) -> None:
        """Revoke alice's permissions in the metadata store, without a change notification."""
        path = paths.acl(ResourcePattern(ResourceType.TOPIC, TOPIC))
        self.cluster.ensemble.do(None, [Set(path, acls.encode_acls([]))])  # type: ignore[arg-type]

    def cut(self, number: int) -> None:
        """End the contact of a broker with the metadata store."""
        name = self.cluster.machines[number].name
        self.cluster.network.cut |= {(name, NAME), (NAME, name)}

    async def ask(self, number: int, request: object) -> Any:
        """Send alice's request to a broker over a new connection."""
        network, name = self.cluster.network, self.cluster.machines[number].name

        async def send() -> Any:
            connection = await network.dial(name, PORT)
            return await connection.send(request, version=VERSION_MAX, timeout_s=REQUEST_S)

        return await self.guest.task(send())

    async def produce(self, number: int) -> int:
        """Produce to a broker; return the error code."""
        builder = BatchBuilder()
        builder.append(self.guest.clock.time_ms(), None, b"value")
        data = PartitionProduceData(index=PLACE.partition, records=bytes(builder.build(-1, -1, -1)))
        topic = TopicProduceData(name=TOPIC, partition_data=[data])
        request = ProduceRequest(acks=Acks.LEADER, timeout_ms=1_000, topic_data=[topic])
        response = await self.ask(number, request)
        return int(response.responses[0].partition_responses[0].error_code)

    async def fetch(self, number: int) -> tuple[int, int]:
        """Fetch from a follower; return the error code and the number of bytes."""
        part = FetchPartition(partition=PLACE.partition, fetch_offset=0, partition_max_bytes=FETCH_BYTES)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            rack_id=f"rack-{number}",
            topics=[FetchTopic(topic=TOPIC, partitions=[part])],
        )
        found = (await self.ask(number, request)).responses[0].partitions[0]
        return int(found.error_code), len(found.records or b"")

    @property
    def leader(self) -> int:
        return next(
            number
            for number, machine in self.cluster.machines.items()
            if machine.broker is not None and machine.broker.topics.replicas.leaders()
        )

    @property
    def session_s(self) -> float:
        return self.cluster.ensemble.session_timeout_s


def play(machines: int, scenario: Callable[[Scene], Coroutine[Any, Any, None]]) -> None:
    scene = Scene(machines)

    async def whole() -> None:
        await scene.begin()
        await scenario(scene)

    try:
        with scene.world.loop.found_quickly():
            scene.world.loop.run_until_complete(scene.admin.host.task(whole()))
    finally:
        scene.world.end()


async def until(holds: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Wait until something holds; a loop without an end fails the test."""
    while not await holds():  # noqa: ASYNC110 - looked at from outside
        await asyncio.sleep(0.05)


def test_broker_reads_acls_in_a_new_session_before_it_leads_again(monkeypatch: pytest.MonkeyPatch) -> None:
    load = ClusterAcls.load

    async def load_slowly(self: ClusterAcls) -> None:
        await asyncio.sleep(SLOWLY_S)
        await load(self)

    async def scenario(scene: Scene) -> None:
        assert await scene.produce(1) == ErrorCode.NONE
        monkeypatch.setattr(ClusterAcls, "load", load_slowly)
        scene.cut(1)
        await asyncio.sleep(2 * scene.session_s)
        scene.revoke()
        scene.cluster.network.heal()
        seen: list[int] = []

        async def is_refused() -> bool:
            seen.append(await scene.produce(1))
            return seen[-1] == ErrorCode.TOPIC_AUTHORIZATION_FAILED

        await until(is_refused)
        assert set(seen[:-1]) == {ErrorCode.NOT_LEADER_OR_FOLLOWER}

    play(1, scenario)


def test_revocation_does_not_wait_for_a_change_of_topics() -> None:
    async def scenario(scene: Scene) -> None:
        leader = scene.leader

        async def is_produced() -> bool:
            return await scene.produce(leader) == ErrorCode.NONE

        await until(is_produced)
        broker = scene.cluster.machines[leader].broker
        assert broker is not None
        async with broker.topics.changing:  # as while the broker creates a large topic
            channel = await scene.admin.cluster.any_channel()
            request = DeleteAclsRequest(filters=[all_of(str(principal(ALICE)))])
            response = await scene.admin.cluster.ask(channel, request)
            assert len(response.filter_results[0].matching_acls) == 2
            await asyncio.sleep(IN_FORCE_S)
            assert await scene.produce(leader) == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    play(3, scenario)


def test_follower_without_contact_serves_no_records() -> None:
    async def scenario(scene: Scene) -> None:
        leader = scene.leader
        follower = next(number for number in scene.cluster.machines if number != leader)

        async def is_produced() -> bool:
            return await scene.produce(leader) == ErrorCode.NONE

        async def is_served() -> bool:
            code, size = await scene.fetch(follower)
            return code == ErrorCode.NONE and size > 0

        await until(is_produced)
        await until(is_served)
        scene.cut(follower)
        scene.revoke()
        await asyncio.sleep(scene.session_s)
        assert await scene.fetch(follower) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
        scene.cluster.network.heal()

        async def is_refused() -> bool:
            code, _ = await scene.fetch(follower)
            return code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

        await until(is_refused)

    play(3, scenario)
