"""Clients in the simulated world: their routing is that of production, and what they do goes into a history."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from barnabas.client.cluster import Cluster
from barnabas.client.config import ClientConfig
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.laboratory.history import History, Outcome
from barnabas.model import Acks, TopicPartition
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records import BATCH_HEADER_SIZE, BatchBuilder, Record
from barnabas.records.codec import decode_records
from barnabas.records.header import iter_headers
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.world import Host, HostClock

VERSION_MAX = 12
"""The last versions of Produce and Fetch that name topics by their names."""
REQUEST_S = 4.0
DELIVERY_S = 20.0
PAUSE_S, LONG_PAUSE_S = 0.2, 1.6
"""Before the next try, at most: after the first failure, and after many."""
FETCH_BYTES = 1 << 20
LATEST, EARLIEST = -1, -2
ASKS_FOR_END = 0.3
"""So often a reader asks for the log's end as well."""

KeyAndValue = tuple[bytes | None, bytes | None]


def reach(
    cluster: SimulatedCluster, host: Host, config: ClientConfig, kind: Callable[..., Cluster] = Cluster
) -> Cluster:
    """Return the cluster as a client on a host sees it."""
    return kind(
        config,
        dial=lambda name, port: cluster.network.dial(name, port, connect_timeout_s=2.0),
        clock=host.clock,
        random=cluster.world.random.random,
    )


class SimulatedClient:
    """A process that talks to the brokers."""

    def __init__(
        self,
        cluster: SimulatedCluster,
        name: str,
        topics: tuple[str, ...],
        kind: Callable[..., Cluster] = Cluster,
    ) -> None:
        self.name = name
        self.world = cluster.world
        self.simulated = cluster
        self.host = Host(cluster.world, name, HostClock(cluster.world.loop, rate=1.0, ahead_ms=0))
        self.scale = cluster.world.scale
        config = ClientConfig(
            bootstrap_servers=cluster.addresses,
            request_timeout_ms=int(REQUEST_S * self.scale * 1000),
            default_api_timeout_ms=int(DELIVERY_S * self.scale * 1000),
            connect_timeout_ms=2_000,
            retry_backoff_ms=int(50 * self.scale),
            retry_backoff_max_ms=int(1_000 * self.scale),
        )
        self.cluster = reach(cluster, self.host, config, kind)
        self.cluster.hold_topics(topics)
        self._pause_s = PAUSE_S
        self._well_s = 0.0

    async def leader_of(self, place: TopicPartition) -> int:
        self.cluster.use_topics([place.topic])
        leader = self.cluster.view.leader(place)
        if leader is None:
            leader = (await self.cluster.refresh()).leader(place)
        if leader is None:
            raise ApiError(ErrorCode.LEADER_NOT_AVAILABLE, f"{place} has no leader")
        return leader

    async def offset_of(self, place: TopicPartition, which: int) -> int:
        """Return where a log ends, or begins.

        :raises BarnabasError: as brokers and the network say.
        """
        leader = await self.leader_of(place)
        part = ListOffsetsPartition(partition_index=place.partition, timestamp=which)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=place.topic, partitions=[part])])
        answer = await self.cluster.send(leader, request)
        found = answer.topics[0].partitions[0]
        if found.error_code:
            raise ApiError(found.error_code)
        if which == LATEST:
            self.simulated.on_end_told(self.name, place, found.offset)
        return int(found.offset)

    async def again(self) -> None:
        """Wait a little, longer each time unless it went well for a while, and learn who leads now."""
        now_s = self.world.loop.time()
        self._pause_s = PAUSE_S if now_s > self._well_s else min(2 * self._pause_s, LONG_PAUSE_S)
        pause_s = self.world.random.uniform(0, self._pause_s * self.scale)
        self._well_s = now_s + pause_s + 2 * LONG_PAUSE_S * self.scale
        await asyncio.sleep(pause_s)
        try:
            await self.cluster.refresh()
        except BarnabasError:
            await asyncio.sleep(PAUSE_S * self.scale)

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


class SimulatedSender(SimulatedClient):
    """Sends one batch after the other to one place, at acks=all and idempotent.

    :param topic_id: names the topic, so that nothing comes into another one that has its name later.
    """

    def __init__(
        self, cluster: SimulatedCluster, name: str, place: TopicPartition, topic_id: bytes | None = None
    ) -> None:
        super().__init__(cluster, name, (place.topic,))
        self.place = place
        self.is_done = False
        self._topic_id = topic_id
        self._id: tuple[int, int] | None = None
        self._sequence = 0

    async def deliver(self, records: Sequence[KeyAndValue]) -> tuple[Outcome, int | None, str]:
        """Send a batch, as often as that has to be tried; return how it ended, the base offset if known, and why."""
        loop = self.world.loop
        deadline_s = loop.time() + DELIVERY_S * self.scale
        outcome, reason = Outcome.FAIL, "never sent"
        while loop.time() < deadline_s:
            try:
                if self._id is None:
                    self._id, self._sequence = await self._new_id(), 0
                request = self._request(records)
                leader = await self.leader_of(self.place)
                outcome = Outcome.INFO
                version_max = VERSION_MAX if self._topic_id is None else None
                answer = await self.cluster.send(leader, request, version_max=version_max)
                part = answer.responses[0].partition_responses[0]
                if part.error_code:
                    raise ApiError(part.error_code)
            except BarnabasError as error:
                reason = str(error)
                if not error.retriable:
                    self.world.tell(f"{self.name}: {error}")
                    break
                if self.is_done and self._topic_id is not None:
                    break
                await self.again()
            else:
                self._sequence += len(records)
                if part.base_offset >= 0:
                    self.simulated.on_acknowledged(self.place, part.base_offset + len(records) - 1)
                return Outcome.OK, part.base_offset if part.base_offset >= 0 else None, ""
        self._id = None  # what comes next must not stand behind what may never have come
        return outcome, None, reason

    def _request(self, records: Sequence[KeyAndValue]) -> ProduceRequest:
        assert self._id is not None
        builder = BatchBuilder()
        now_ms = self.host.clock.time_ms()
        for key, value in records:
            builder.append(now_ms, key, value)
        data = PartitionProduceData(
            index=self.place.partition, records=bytes(builder.build(self._id[0], self._id[1], self._sequence))
        )
        if self._topic_id is None:
            topic = TopicProduceData(name=self.place.topic, partition_data=[data])
        else:
            topic = TopicProduceData(topic_id=self._topic_id, partition_data=[data])
        return ProduceRequest(acks=Acks.ALL, timeout_ms=int(REQUEST_S * self.scale * 1000), topic_data=[topic])

    async def _new_id(self) -> tuple[int, int]:
        channel = await self.cluster.any_channel()
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        answer = await self.cluster.ask(channel, request)
        if answer.error_code:
            raise ApiError(answer.error_code)
        return answer.producer_id, answer.producer_epoch


class SimulatedProducer(SimulatedSender):
    """Sends values into a history until it is told to stop.

    :param known_as: what the place is called in the history, if not by its name.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        name: str,
        place: TopicPartition,
        history: History,
        topic_id: bytes | None = None,
        known_as: TopicPartition | None = None,
    ) -> None:
        super().__init__(cluster, name, place, topic_id)
        self._known_as = known_as or place
        self._history = history

    async def run(self, pause_s: Callable[[], float]) -> None:
        number = 0
        while not self.is_done:
            count = self.world.random.randint(1, 3)
            values = [f"{self.name}:{number + each}".encode() for each in range(count)]
            number += count
            sends = [self._history.send(self.name, self._known_as, value) for value in values]
            outcome, base_offset, reason = await self.deliver([(None, value) for value in values])
            for each, send in enumerate(sends):
                if outcome is Outcome.OK:
                    send.ok(None if base_offset is None else base_offset + each)
                else:
                    send.ended(outcome, reason)
            await asyncio.sleep(pause_s())


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
        self.offsets: list[int] = []
        """Of all that the reading at the end found."""

    async def run(self) -> None:
        """Read until told to stop."""
        while not self.is_done:
            try:
                await self.fetch()
                if self.world.random.random() < ASKS_FOR_END:
                    await self.end()
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
                at_end = self.position >= await self.end()
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
            raise ApiError(answer.error_code)
        found = answer.responses[0].partitions[0]
        if found.error_code:
            raise ApiError(found.error_code)
        records: list[Record] = []
        data = memoryview(found.records or b"")
        for position, header in iter_headers(data):
            body = data[position + BATCH_HEADER_SIZE : position + header.size]
            if header.next_offset <= self.position:
                continue
            records += decode_records(body, header, *self._place, self.position)
            self.position = header.next_offset
        if records:
            self.take(started, records)

    def take(self, started: float, records: list[Record]) -> None:
        """Take what a fetch brought that began at `started`."""
        given = [(self._place, record.offset, record.value or b"") for record in records]
        if self._final:
            self.offsets += [record.offset for record in records]
        self._history.poll(self.name, started, given, final=self._final)

    async def end(self, which: int = LATEST) -> int:
        """Return the log's end, or its beginning.

        :raises BarnabasError: as brokers and the network say.
        """
        return await self.offset_of(self._place, which)
