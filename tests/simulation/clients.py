"""Clients in the simulated world: their routing is that of production, and what they do goes into a history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from barnabas.client.cluster import Cluster
from barnabas.client.config import ClientConfig
from barnabas.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.model import Acks, TopicPartition
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records import BATCH_HEADER_SIZE, BatchBuilder
from barnabas.records.codec import decode_records
from barnabas.records.header import iter_headers
from barnabas.testing.history import History, Outcome
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.world import Host, HostClock

VERSION_MAX = 12
"""The last versions of Produce and Fetch that name topics by their names."""
REQUEST_S = 4.0
DELIVERY_S = 20.0
PAUSE_S = 0.2
FETCH_BYTES = 1 << 20
LATEST = -1


class SimulatedClient:
    """A process that talks to the brokers."""

    def __init__(self, cluster: SimulatedCluster, name: str, topics: tuple[str, ...]) -> None:
        self.name = name
        self.world = cluster.world
        self.host = Host(cluster.world, name, HostClock(cluster.world.loop, rate=1.0, ahead_ms=0))
        config = ClientConfig(
            bootstrap_servers=cluster.addresses,
            request_timeout_ms=int(REQUEST_S * 1000),
            default_api_timeout_ms=int(DELIVERY_S * 1000),
            connect_timeout_ms=2_000,
        )
        self.cluster = Cluster(
            config,
            dial=lambda host, port: cluster.network.dial(host, port, connect_timeout_s=2.0),
            clock=self.host.clock,
            random=self.world.random.random,
        )
        self.cluster.watch_topics(topics, auto_creates=False)

    async def leader_of(self, place: TopicPartition) -> int:
        leader = self.cluster.view.leader(place)
        if leader is None:
            leader = (await self.cluster.refresh()).leader(place)
        if leader is None:
            raise KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"{place} has no leader")
        return leader

    async def again(self) -> None:
        """Wait a little, and learn who leads now."""
        await asyncio.sleep(self.world.random.uniform(0, PAUSE_S))
        try:
            await self.cluster.refresh()
        except BarnabasError:
            await asyncio.sleep(PAUSE_S)

    async def create_topic(self, name: str, partitions: int, replicas: int, configs: dict[str, str]) -> None:
        """Create a topic, however often that has to be tried."""
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        while True:
            try:
                channel = await self.cluster.any_channel()
                answer = await self.cluster.ask(channel, CreateTopicsRequest(topics=[topic]))
            except BarnabasError:
                await self.again()
                continue
            code = answer.topics[0].error_code
            if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                return
            await self.again()


class SimulatedProducer(SimulatedClient):
    """Sends one batch after the other to one place, at acks=all and idempotent, until it is told to stop."""

    def __init__(self, cluster: SimulatedCluster, name: str, place: TopicPartition, history: History) -> None:
        super().__init__(cluster, name, (place.topic,))
        self._place = place
        self._history = history
        self.is_done = False
        self._id: tuple[int, int] | None = None
        self._sequence = 0

    async def run(self, pause_s: Callable[[], float]) -> None:
        number = 0
        while not self.is_done:
            count = self.world.random.randint(1, 3)
            values = [f"{self.name}:{number + each}".encode() for each in range(count)]
            number += count
            await self._deliver(values)
            await asyncio.sleep(pause_s())

    async def _deliver(self, values: list[bytes]) -> None:
        loop = self.world.loop
        sends = [self._history.send(self.name, self._place, value) for value in values]
        deadline_s = loop.time() + DELIVERY_S
        outcome, reason = Outcome.FAIL, "never sent"
        while loop.time() < deadline_s:
            try:
                if self._id is None:
                    self._id, self._sequence = await self._new_id(), 0
                request = self._request(values)
                leader = await self.leader_of(self._place)
                outcome = Outcome.INFO
                answer = await self.cluster.send(leader, request, version_max=VERSION_MAX)
                part = answer.responses[0].partition_responses[0]
                if part.error_code:
                    raise KafkaError(part.error_code)
            except BarnabasError as error:
                reason = str(error)
                if not error.retriable:
                    self.world.tell(f"{self.name}: {error}")
                    break
                await self.again()
            else:
                self._sequence += len(values)
                for number, send in enumerate(sends):
                    send.ok(part.base_offset + number if part.base_offset >= 0 else None)
                return
        self._id = None  # what comes next must not stand behind what may never have come
        for send in sends:
            send.ended(outcome, reason)

    def _request(self, values: list[bytes]) -> ProduceRequest:
        assert self._id is not None
        builder = BatchBuilder()
        builder.append_many(self.host.clock.time_ms(), values)
        data = PartitionProduceData(
            index=self._place.partition, records=bytes(builder.build(self._id[0], self._id[1], self._sequence))
        )
        topic = TopicProduceData(name=self._place.topic, partition_data=[data])
        return ProduceRequest(acks=Acks.ALL, timeout_ms=int(REQUEST_S * 1000), topic_data=[topic])

    async def _new_id(self) -> tuple[int, int]:
        channel = await self.cluster.any_channel()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        answer = await self.cluster.ask(channel, request)
        if answer.error_code:
            raise KafkaError(answer.error_code)
        return answer.producer_id, answer.producer_epoch


class SimulatedReader(SimulatedClient):
    """Reads one place from the beginning."""

    def __init__(
        self, cluster: SimulatedCluster, name: str, place: TopicPartition, history: History, *, final: bool = False
    ) -> None:
        super().__init__(cluster, name, (place.topic,))
        self._place = place
        self._history = history
        self._final = final
        self.position = 0
        self.is_done = False

    async def run(self) -> None:
        """Read until told to stop."""
        while not self.is_done:
            try:
                await self.fetch()
            except BarnabasError:
                await self.again()

    async def read_to_the_end(self, timeout_s: float) -> bool:
        """Read to the log's end, past all that anybody knows of; False if it could not be found out where that is."""
        loop = self.world.loop
        deadline_s = loop.time() + timeout_s
        while True:
            late = loop.time() > deadline_s
            try:
                await self.fetch()
                at_end = self.position >= await self._end()
                if at_end and (late or self.position > self._history.highest(self._place)):
                    self._history.read_whole(self._place)
                    return True
            except BarnabasError:
                await self.again()
            if late:
                return False

    async def fetch(self) -> None:
        leader = await self.leader_of(self._place)
        part = FetchPartition(
            partition=self._place.partition, fetch_offset=self.position, partition_max_bytes=FETCH_BYTES
        )
        topic = FetchTopic(topic=self._place.topic, partitions=[part])
        request = FetchRequest(max_wait_ms=500, min_bytes=1, topics=[topic])
        started = self._history.now()
        answer = await self.cluster.send(leader, request, version_max=VERSION_MAX)
        if answer.error_code:
            raise KafkaError(answer.error_code)
        found = answer.responses[0].partitions[0]
        if found.error_code:
            raise KafkaError(found.error_code)
        records = []
        data = memoryview(found.records or b"")
        for position, header in iter_headers(data):
            body = data[position + BATCH_HEADER_SIZE : position + header.size]
            if header.next_offset <= self.position:
                continue
            for record in decode_records(body, header, *self._place, self.position):
                records.append((self._place, record.offset, record.value or b""))
            self.position = header.next_offset
        if records:
            self._history.poll(self.name, started, records, final=self._final)

    async def _end(self) -> int:
        leader = await self.leader_of(self._place)
        part = ListOffsetsPartition(partition_index=self._place.partition, timestamp=LATEST)
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name=self._place.topic, partitions=[part])]
        )
        answer = await self.cluster.send(leader, request)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise KafkaError(found.error_code)
        return int(found.offset)
