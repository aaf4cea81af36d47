"""Topics that are made, deleted, made again under the same name, grown, changed, and shortened, while faults go on.

What was acknowledged of that is there in the end; a topic that was deleted has left nothing on any broker, and nothing
in the tree; a log's start never goes back; and no record of one life of a name is found in the next.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from barnabas.coordination import paths
from barnabas.coordination.values import decode_config
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest
from barnabas.protocol.messages.incremental_alter_configs import (
    SET,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementallyAlterableConfig,
)
from barnabas.records import Record
from barnabas.storage.file_names import is_deleted_folder, partition_of
from tests.simulation.clients import EARLIEST, SimulatedClient, SimulatedProducer, SimulatedReader
from tests.simulation.cluster import DATA
from tests.simulation.workload import REPLICAS, SAFE, Workload

TRIES = 12
TOPIC_RESOURCE = 2
DELETE_VERSION_MAX = 5
"""Later versions name topics by their ids."""
EVERYTHING = 2**62
KEPT_MS = (6 * 3_600_000, 12 * 3_600_000)
"""How long records are kept: longer than a run lasts."""
END_S = 60.0


class UnsureError(Exception):
    """Nobody knows whether a change was made, or will be."""


class TopicLife:
    """A topic from its making to its deletion."""

    def __init__(self, name: str, number: int, topic_id: bytes, partitions: int) -> None:
        self.name = name
        self.label = f"{name}, life {number}"
        self.topic_id = topic_id
        self.partitions = partitions
        self.settings: dict[str, str] = {}
        self.starts: dict[int, int] = {}
        """Where each partition begins at least."""
        self.producers: list[SimulatedProducer] = []

    def known_as(self, number: int) -> TopicPartition:
        """What a partition of it is called in the history."""
        return TopicPartition(self.label, number)


class TopicAdmin(SimulatedClient):
    """Changes one topic after the other; each name until nobody knows what became of a change of it."""

    def __init__(self, topics: Topics, name: str) -> None:
        super().__init__(topics.cluster, name, ())
        self._topics = topics
        self.is_done = False
        self.life: TopicLife | None = None
        self._life_counters = self._names = 0
        self._topic = ""

    async def run(self, pace_s: float) -> None:
        """Change things until told to stop."""
        draw = self.world.random
        self._next_name()
        while not self.is_done:
            try:
                if self.life is None:
                    await self._create()
                else:
                    await draw.choice([self._delete, self._grow, self._alter, self._shorten, self._shorten])(self.life)
            except UnsureError as error:
                self.world.tell(f"{self.name}: nobody knows of {self._topic}: {error}")
                self._give_up()
            except BarnabasError as error:
                self.world.tell(f"{self.name}: {error}")
            await asyncio.sleep(draw.uniform(0, 2 * pace_s))

    def _next_name(self) -> None:
        self._names += 1
        self._topic = f"{self.name}-{self._names}"

    def _give_up(self) -> None:
        """Go on with another name: a change that is on its way still may come at any time."""
        if self.life is not None:
            self._topics.forget(self.life)
        self.life = None
        self._next_name()

    async def _sure(self, ask: Callable[[], Any], right: set[int], what: str) -> Any:
        """Ask until the answer is one that is right.

        :raises UnsureError: an attempt had no answer.
        :raises ApiError: no attempt was taken.
        """
        code = ErrorCode.NONE
        for _ in range(TRIES):
            try:
                result = await ask()
            except BarnabasError as error:
                raise UnsureError(f"{what}: {error}") from error
            code = ErrorCode.of(result.error_code)
            if code in right:
                return result
            if code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR):
                raise UnsureError(f"{what}: {code.name}")
            await self.again()
        raise ApiError(code, f"{what} of {self._topic} was refused")

    async def _any(self, request: object, version_max: int | None = None) -> Any:
        while True:
            try:
                channel = await self.cluster.any_channel()
                break
            except BarnabasError:  # nothing was sent
                await self.again()
        return await self.cluster.ask(channel, request, version_max=version_max)

    async def _create(self) -> None:
        partitions = self.world.random.randint(1, 2)
        topic = CreatableTopic(
            name=self._topic,
            num_partitions=partitions,
            replication_factor=REPLICAS,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in SAFE.items()],
        )

        async def ask() -> Any:
            return (await self._any(CreateTopicsRequest(topics=[topic]))).topics[0]

        # Whoever is asked may not know of the deletion yet.
        try:
            made = await self._sure(ask, {ErrorCode.NONE}, "the making")
        except ApiError as error:
            raise UnsureError(str(error)) from error
        self._life_counters += 1
        life = self.life = TopicLife(self._topic, self._life_counters, made.topic_id, partitions)
        self.world.tell(f"{life.label} is made")
        self._topics.begin_incarnation(life)

    async def _delete(self, life: TopicLife) -> None:
        self._topics.forget(life)
        request = DeleteTopicsRequest(topic_names=[life.name], timeout_ms=4_000)

        async def ask() -> Any:
            return (await self._any(request, DELETE_VERSION_MAX)).responses[0]

        await self._sure(ask, {ErrorCode.NONE}, "the deletion")
        self.world.tell(f"{life.label} is deleted")
        self._topics.deleted.append(life)
        self.life = None

    async def _grow(self, life: TopicLife) -> None:
        if life.partitions >= 3:
            return
        topic = CreatePartitionsTopic(name=life.name, count=life.partitions + 1, assignments=None)
        request = CreatePartitionsRequest(topics=[topic], timeout_ms=4_000, validate_only=False)

        async def ask() -> Any:
            return (await self._any(request)).results[0]

        await self._sure(ask, {ErrorCode.NONE}, "the growth")
        life.partitions += 1
        self._topics.produce(life, life.partitions - 1)

    async def _alter(self, life: TopicLife) -> None:
        draw = self.world.random
        name, value = draw.choice(
            [
                ("segment.bytes", str(draw.choice([1_000, 5_000, 20_000]))),
                ("flush.messages", str(draw.choice([1, 10, 1_000_000]))),
                ("min.insync.replicas", str(draw.choice([2, 3]))),
                ("retention.ms", str(draw.choice(KEPT_MS))),
            ]
        )
        config = IncrementallyAlterableConfig(name=name, config_operation=SET, value=value)
        resource = IncrementalAlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=life.name, configs=[config]
        )
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)

        async def ask() -> Any:
            return (await self._any(request)).responses[0]

        life.settings.pop(name, None)
        await self._sure(ask, {ErrorCode.NONE}, "the change")
        life.settings[name] = value

    async def _shorten(self, life: TopicLife) -> None:
        """Delete records, and look where the log begins."""
        number = self.world.random.randrange(life.partitions)
        place = TopicPartition(life.name, number)
        floor = life.starts.get(number, 0)
        start = await self.offset_of(place, EARLIEST)
        if start < floor:
            self._topics.say(f"{life.label}, partition {number} begins at {start}, and had begun at {floor}")
        highest = self._topics.history.highest(life.known_as(number))
        if highest <= start:
            return
        offset = self.world.random.randint(start + 1, highest)
        self._topics.history.deleted(life.known_as(number), offset)
        part = DeleteRecordsPartition(partition_index=number, offset=offset)
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=life.name, partitions=[part])], timeout_ms=4_000)
        answer = await self.cluster.send(await self.leader_of(place), request)
        result = answer.topics[0].partitions[0]
        if not result.error_code:
            life.starts[number] = max(result.low_watermark, floor)


class LifeReader(SimulatedReader):
    """Reads a partition of a topic in its present life."""

    def __init__(self, topics: Topics, life: TopicLife, number: int) -> None:
        place = TopicPartition(life.name, number)
        super().__init__(topics.cluster, f"end of {life.label}, {number}", place, topics.history, final=True)
        self._topics = topics
        self._life = life
        self._known_as = life.known_as(number)
        self.start = 0

    def take(self, started: float, records: list[Record]) -> None:
        given = [(self._known_as, record.offset, bytes(record.value or b"")) for record in records]
        mine = f"{self._life.label}:".encode()
        for place, offset, value in given:
            if mine not in value:
                self._topics.say(f"{place}: {value!r} is at offset {offset}, a record of another life")
        self._history.poll(self.name, started, given, final=True)

    async def read_life(self) -> bool:
        """Read all from where the log begins.

        :raises BarnabasError: as brokers and the network say.
        """
        self.start = await self.end(EARLIEST)
        self.position = max(self.start, self.position)
        await self.fetch()
        if self.position >= await self.end() and self.position > self._history.highest(self._known_as):
            self._history.read_whole(self._known_as)
            return True
        return False


class Topics(Workload):
    """The admins, the producers of what they make, and what is left at the end."""

    async def begin(self, topic: str, partitions: int) -> None:
        del topic, partitions
        draw = self.world.random
        self.deleted: list[TopicLife] = []
        self._living: list[TopicLife] = []
        self._admins = [TopicAdmin(self, f"passing-{number}") for number in range(draw.randint(1, 2))]
        pace_s = draw.choice([0.5, 2.0])
        self._changing = [(admin.host, self.start(admin.host, admin.run(pace_s))) for admin in self._admins]

    def heal(self) -> None:
        for admin in self._admins:
            admin.is_done = True

    def begin_incarnation(self, life: TopicLife) -> None:
        """A topic was made: fill it."""
        self._living.append(life)
        for number in range(life.partitions):
            self.produce(life, number)

    def produce(self, life: TopicLife, number: int) -> None:
        """Fill a partition, but not of a topic that is there because its deletion was refused."""
        if life not in self._living:
            return
        producer = SimulatedProducer(
            self.cluster,
            f"{life.label}:{number}",
            TopicPartition(life.name, number),
            self.history,
            life.topic_id,
            life.known_as(number),
        )
        life.producers.append(producer)
        draw = self.world.random
        self.start(producer.host, producer.run(lambda: draw.uniform(0, 0.4)))

    def forget(self, life: TopicLife) -> None:
        """From now on nothing of it need be there."""
        if life in self._living:
            self._living.remove(life)
            self._end(life)
            for number in range(life.partitions):
                self.history.deleted(life.known_as(number), EVERYTHING)
                self.history.read_whole(life.known_as(number))

    def _end(self, life: TopicLife) -> None:
        for producer in life.producers:
            producer.is_done = True

    async def finish(self, at_end: Mapping[TopicPartition, list[int]]) -> bool:
        del at_end
        # A topic that is just being made gets producers yet.
        if changing := {task for host, task in self._changing if host.is_alive}:
            await asyncio.wait(changing)
        for life in self._living:
            self._end(life)
        await self.end_tasks()
        whole = True
        for life in self._living:
            self._check_tree(life)
            for number in range(life.partitions):
                last = LifeReader(self, life, number)
                if not await self.on(last, self.until(last.read_life, END_S, last)):
                    whole = False
                    self.say(f"{life.label}: partition {number} cannot be read to its end")
                elif last.start < life.starts.get(number, 0):
                    self.say(f"{life.label}: partition {number} does not begin at {life.starts[number]} any more")
        return await self._is_tidy() and whole

    def _check_tree(self, life: TopicLife) -> None:
        """Check that what was acknowledged of a topic stands in the tree."""
        nodes = self.cluster.ensemble.nodes
        count = sum(
            path.startswith(f"{paths.topic_partitions(life.name)}/") and path.endswith("/state") for path in nodes
        )
        if count < life.partitions:
            self.say(f"{life.label} has {count} partitions, and not {life.partitions}")
        path = paths.topic_config(life.name)
        found = decode_config(path, nodes[path].data) if path in nodes else {}
        for name, value in life.settings.items():
            if found.get(name) != value:
                self.say(f"{life.label}: {name} is {found.get(name)}, and not {value}")

    async def _is_tidy(self) -> bool:
        """Wait until nothing is left of topics that there are no more; tell what is left else."""

        async def is_tidy() -> bool:
            return not self._leftovers()

        whole = await self.until(is_tidy, END_S)
        for what in self._leftovers():
            self.say(f"left of a topic that was deleted: {what}")
        return whole

    def _leftovers(self) -> list[str]:
        nodes = self.cluster.ensemble.nodes
        found = [path for path in nodes if path.startswith(f"{paths.DELETED_TOPIC_IDS}/")]
        found += [
            path
            for path in nodes
            if path.startswith(f"{paths.TOPIC_CONFIGS}/") and f"{paths.TOPICS}/{path.rpartition('/')[2]}" not in nodes
        ]
        for machine in self.cluster.machines.values():
            for name in machine.names_in(Path(DATA)):
                place = partition_of(name)
                is_left = place is not None and paths.partition_state(place) not in nodes
                if is_left or is_deleted_folder(name):
                    found.append(f"{name} on {machine.name}")
        return found
