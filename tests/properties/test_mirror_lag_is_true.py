"""A mirror that reports lag 0 has the records of its source, whatever either cluster lost, got back or was given.

The mirror's own reading, writing and placing run against two clusters in memory. Their logs lose their ends with a
restart or an unclean election, are restored from copies, trimmed, made again and enlarged; somebody forges batches with
the mirror's identity; mirrors are killed and start again from the ledger. Whenever the mirror is at rest, the test
compares both logs record by record with what the mirror reports.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine, Mapping
from types import SimpleNamespace
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.clock import ManualClock
from barnabas.errors import ApiError, BarnabasError, DisconnectedError, ErrorCode
from barnabas.mirror.errors import MirrorError
from barnabas.mirror.events import EventReporter
from barnabas.mirror.ledger import PartitionMark
from barnabas.mirror.partition_copy import PartitionCopy
from barnabas.mirror.partition_link import LeaderTerm, PartitionLink
from barnabas.mirror.resume_positions import ResumePositions
from barnabas.mirror.source_fetcher import REFUSED_S, SourceFetcher
from barnabas.mirror.target_producer import TargetProducer
from barnabas.model import TopicPartition
from barnabas.records import BatchBuilder, read_header, read_records
from barnabas.records.header import stamp
from barnabas.records.mirror_identity import lineage_of, producer_of
from barnabas.storage.producer_state import ProducerStates
from tests.simulation.loop import SimulatedLoop
from tests.support.searches import examples

BROKER = 1
ROUNDS_MAX = 60
PARTITIONS_MAX = 3
NEED_REST = frozenset({"source trimmed", "target trimmed", "target made again", "forged"})


class Channel:
    """A connection to a broker, until the broker restarts."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.is_open = True

    def version_for(self, _request: object) -> int:
        return 13

    def submit(self, request: Any, on_answer: Any, *, version: int, **_more: object) -> None:
        assert version == 13
        if not self.is_open:
            on_answer(None, DisconnectedError("the broker restarted"))
            return
        on_answer(self.cluster.produce(request), None)

    def flush(self) -> None:
        """It is there already."""


class Log:
    """A partition's log, whose values are unique."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.start = self.end = self.epoch = 0
        self.expired: set[bytes] = set()
        """Values that retention has deleted."""
        self.states = ProducerStates()

    def append(self, batch: bytes) -> int:
        base, header = self.end, read_header(batch)
        written = bytearray(batch)
        stamp(written, 0, base, self.epoch)
        self.states.update(header, base, 0)
        self.batches.append(bytes(written))
        self.end = base + header.last_offset_delta + 1
        return base

    def lose_end(self, kept: int) -> None:
        """Keep so many batches; the log does not end before it starts."""
        self.batches = self.batches[:kept]
        self.end = max(self.start, read_header(self.batches[-1]).next_offset if self.batches else 0)
        self.states = ProducerStates()
        for batch in self.batches:
            self.states.update(read_header(batch), read_header(batch).base_offset, 0)

    def trim(self, kept: int) -> None:
        """Delete the batches before the last `kept` ones."""
        gone = self.batches[: max(0, len(self.batches) - kept)]
        self.batches = self.batches[len(gone) :]
        if gone:
            self.start = read_header(gone[-1]).next_offset
            self.expired.update(_values(gone))

    def fetch(self, offset: int, count: int) -> bytes:
        if not self.start <= offset <= self.end:
            raise ApiError(ErrorCode.OFFSET_OUT_OF_RANGE)
        return b"".join([batch for batch in self.batches if read_header(batch).next_offset > offset][:count])

    @property
    def values(self) -> list[bytes]:
        return _values(self.batches)


def _values(batches: list[bytes]) -> list[bytes]:
    return [record.value or b"" for batch in batches for record in read_records(batch, "clicks", 0)]


class Cluster:
    """One broker with the partitions of one topic, and the client's view of it."""

    def __init__(self, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self.logs = [Log()]
        self.backoff = SimpleNamespace(delay_s=lambda _tries: 0.0)
        self._channel = Channel(self)
        self._epochs: dict[int, int] = {}

    def make_again(self, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self.logs = [Log() for _ in self.logs]

    def restart(self) -> None:
        self._channel.is_open = False
        self._channel = Channel(self)

    # As a client sees it

    @property
    def view(self) -> Cluster:
        return self

    def leader(self, _where: TopicPartition) -> int:
        return BROKER

    def leader_epoch(self, where: TopicPartition) -> int:
        return self._epochs.get(where.partition, 0)

    def request_refresh(self, **_more: object) -> None:
        self._epochs = {number: log.epoch for number, log in enumerate(self.logs)}

    async def channel_to(self, _broker: int, _purpose: str) -> Channel:
        return self._channel

    def open_channel(self, _broker: int, _purpose: str) -> Channel | None:
        return self._channel

    async def ask(self, channel: Channel, request: Any, **_more: object) -> Any:
        if not channel.is_open:
            raise DisconnectedError("the broker restarted")
        return SimpleNamespace(
            responses=[
                SimpleNamespace(
                    topic="",
                    topic_id=topic.topic_id,
                    partitions=[self._read(topic.topic_id, each) for each in topic.partitions],
                )
                for topic in request.topics
            ]
        )

    def _read(self, topic_id: bytes, part: Any) -> Any:
        answer = SimpleNamespace(partition_index=part.partition, error_code=0, high_watermark=-1, records=b"")
        if topic_id != self.topic_id:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
            return answer
        log = self.logs[part.partition]
        answer.high_watermark = log.end
        try:
            answer.records = log.fetch(part.fetch_offset, 3)
        except ApiError as error:
            answer.error_code = error.code
        return answer

    def produce(self, request: Any) -> Any:
        responses = []
        for topic in request.topic_data:
            parts = []
            for each in topic.partition_data:
                answer = SimpleNamespace(index=each.index, error_code=0, base_offset=-1, error_message=None)
                if topic.topic_id != self.topic_id:
                    answer.error_code = ErrorCode.UNKNOWN_TOPIC_ID
                else:
                    self._store(bytes(each.records), answer)
                parts.append(answer)
            responses.append(SimpleNamespace(name="", topic_id=topic.topic_id, partition_responses=parts))
        return SimpleNamespace(responses=responses)

    def _store(self, batch: bytes, answer: Any) -> None:
        log = self.logs[answer.index]
        try:
            known = log.states.check(read_header(batch), 0)
            answer.base_offset = log.append(batch) if known is None else known.base_offset
        except ApiError as error:
            answer.error_code = error.code


class Side:
    """What `barnabas.mirror.mirrored_cluster.Side` is to a mirror."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def term(self, where: TopicPartition) -> LeaderTerm:
        return LeaderTerm(BROKER, self.cluster.leader_epoch(where), self.cluster._channel)

    async def begin_term(self, where: TopicPartition) -> LeaderTerm:
        return self.term(where)

    async def ends(self, where: TopicPartition) -> tuple[int, int]:
        log = self.cluster.logs[where.partition]
        return log.start, log.end

    async def log_ends(self, partitions: Any) -> dict[TopicPartition, int]:
        return {where: self.cluster.logs[where.partition].end for where in partitions}

    async def fetch(self, where: TopicPartition, offset: int, _bytes_max: int, _end: int) -> memoryview:
        return memoryview(self.cluster.logs[where.partition].fetch(offset, 2))

    async def check_topic(self, _topic: str, topic_id: bytes) -> None:
        if topic_id != self.cluster.topic_id:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID)


class Ledger:
    """Marks by key, as the next mirror reads them."""

    def __init__(self) -> None:
        self.entries: dict[str, Mapping[str, Any]] = {}

    def find(self, _kind: type[PartitionMark], key: str) -> PartitionMark | None:
        entry = self.entries.get(key)
        return None if entry is None else PartitionMark.read(json.loads(json.dumps(entry)))

    async def write(self, entries: Mapping[str, Mapping[str, Any]]) -> None:
        self.entries.update(entries)


class Mirror:
    """The parts of a mirror, one turn after the other."""

    def __init__(self, source: Cluster, target: Cluster, ledger: Ledger, clock: ManualClock) -> None:
        self.source, self.target, self.ledger, self.clock = source, target, ledger, clock
        self.links: dict[TopicPartition, PartitionLink] = {}
        sides: Any = Side(source), Side(target)
        clusters: Any = source, target
        ledger_topic: Any = ledger
        self.sides = sides
        self.placing = ResumePositions(*sides, ledger_topic, clock, EventReporter(lambda _event: None), self.stop)
        rest: Any = self.links, clock, lambda: None, self.stop, lambda _link: None
        self.reading = SourceFetcher(clusters[0], *rest)
        self.writing = TargetProducer(clusters[1], *rest)

    def stop(self, link: PartitionLink, error: MirrorError) -> None:
        link.stop_with(str(error), self.clock.monotonic())

    def follow(self) -> None:
        """Have a link for each partition, as a round over the topics does."""
        for number in range(len(self.source.logs)):
            where = TopicPartition("clicks", number)
            link = self.links.get(where)
            ids = self.source.topic_id, self.target.topic_id
            if link is None or (link.source_topic_id, link.target_topic_id) != ids:
                copy = PartitionCopy(where, lineage_of("source", ids[0]))
                self.links[where] = PartitionLink(where, where, ids[1], copy, ids[0])
                self.links[where].attention.set()
            elif link.stopped is not None:
                link.try_again()

    async def turn(self) -> None:
        """Give each part its turn."""
        self.clock.advance(REFUSED_S)
        for link in self.links.values():
            if link.attention.is_set():
                link.attention.clear()
                try:
                    await self.placing._attend(link)
                except MirrorError as error:
                    self.stop(link, error)
                except BarnabasError as error:
                    link.reset_after(str(error))
        for part in (self.reading, self.writing):
            try:
                await part._round(BROKER)
            except BarnabasError:
                self.source.request_refresh()
                self.target.request_refresh()

    async def look(self) -> None:
        """What a mirror does now and then by itself: metadata, terms, and the ends of partitions without traffic."""
        self.source.request_refresh()
        self.target.request_refresh()
        self.follow()
        for link in self.links.values():
            terms = self.sides[0].term(link.source), self.sides[1].term(link.target)
            if link.is_idle and terms != (link.source_term, link.target_term):
                link.recheck()
        await self.placing.check_idle(list(self.links.values()))

    async def note(self) -> None:
        """Write the ledger."""
        await self.ledger.write(
            {PartitionMark.key(*link.target): mark.value() for link in self.links.values() if (mark := link.mark)}
        )


class World:
    """A mirror between two clusters, and what befalls them."""

    def __init__(self) -> None:
        self.source, self.target = Cluster(b"s" * 16), Cluster(b"t" * 16)
        self.ledger, self.clock = Ledger(), ManualClock()
        self.mirror = self.begin()
        self.written = 0
        self.has_faults = False
        """Whether the source lost records or somebody forged some: only then may the mirror stop."""

    def begin(self) -> Mirror:
        mirror = Mirror(self.source, self.target, self.ledger, self.clock)
        mirror.follow()
        return mirror

    def _batch(self, count: int) -> BatchBuilder:
        builder = BatchBuilder()
        for _ in range(count):
            self.written += 1
            builder.append(1_000, None, b"%d" % self.written)
        return builder

    def produce(self, log: Log, number: int) -> None:
        for each in range(1 + number % 3):
            log.append(bytes(self._batch(1 + (number + each) % 4).build()))

    def forge(self, log: Log, target: Log, number: int) -> None:
        """Write a batch that says to be the mirror's: of the next source offsets, or of some further on."""
        claimed = max(log.start, target.end + (0, 0, 3, 40)[number % 4])  # before its start the source confirms nothing
        lineage = lineage_of("source", self.source.topic_id)
        builder = self._batch(1 + number % 3)
        target.append(bytes(builder.build(*producer_of(lineage, claimed), 0)))
        if number % 5 == 0:
            self.produce(log, number)

    def forge_next(self, log: Log, target: Log, link: PartitionLink, number: int) -> None:
        """Write a batch with the identity of the very next one, which the target then takes for a duplicate."""
        copy, count = link.copy, 1 + number % 3
        if copy.offsets is None or copy.origin is None or copy.offsets.source_end != log.end:
            return
        self.has_faults = True
        producer, sequence = producer_of(copy.lineage, copy.origin), log.end - copy.origin
        target.append(bytes(self._batch(count).build(*producer, sequence)))
        log.append(bytes(self._batch(count).build()))
        self.produce(log, number)

    async def do(self, step: str, number: int) -> None:
        place = number % len(self.source.logs)
        source, target = self.source.logs[place], self.target.logs[place]
        match step:
            case "turn":
                await self.mirror.turn()
            case "look":
                await self.mirror.look()
            case "note":
                await self.mirror.note()
            case "kill":
                self.mirror = self.begin()
            case "rest":
                await self.rest()
            case "produce":
                self.produce(source, number)
            case "forged amid traffic":
                await self.rest()
                self.forge_next(source, target, self.mirror.links[TopicPartition("clicks", place)], number)
                for _ in range(5):
                    await self.mirror.turn()
                await self.rest()
            case _ if step in NEED_REST:
                # While nobody has looked, these would remove the only records that show an earlier loss.
                await self.rest()
                await self.mirror.note()
                self.befall(step, source, target, number)
                await self.rest()
            case _:
                self.befall(step, source, target, number)

    def befall(self, step: str, source: Log, target: Log, number: int) -> None:
        """Do something to the clusters."""
        self.has_faults = self.has_faults or step == "forged" or step.startswith("source re")
        match step.split():
            case ["source", "regrows"]:
                length = len(source.batches)
                self.lose(self.source, source, number, is_restart=number % 2 == 1)
                while len(source.batches) <= length:
                    self.produce(source, number)
            case ["source", "trimmed"]:
                source.trim(number % 3)
            case ["target", "trimmed"]:
                target.trim(number % 3)
            case ["source", how]:
                self.has_faults = True
                self.lose(self.source, source, number, is_restart=how == "restored")
            case ["target", how]:
                self.lose(self.target, target, number, is_restart=how == "restored")
            case ["forged"]:
                self.forge(source, target, number)
            case ["enlarged"] if len(self.source.logs) < PARTITIONS_MAX:
                self.target.logs.append(Log())
                self.source.logs.append(Log())
            case [name, "made", "again"]:
                self.written += 1
                self.target.make_again(b"t%15d" % self.written)
                if name == "both":
                    self.source.make_again(b"s%15d" % self.written)
                self.mirror.follow()

    def lose(self, cluster: Cluster, log: Log, number: int, *, is_restart: bool) -> None:
        """Have a log lose batches at its end, with a restart of its broker or an unclean election."""
        log.lose_end(max(0, len(log.batches) - 1 - number % 5))
        if is_restart:
            cluster.restart()
        else:
            log.epoch += 1

    async def rest(self) -> None:
        """Let the mirror work until nothing changes, and compare."""
        for _ in range(3):
            await self.mirror.look()
            for _ in range(ROUNDS_MAX):
                await self.mirror.turn()
                links = self.mirror.links.values()
                if all(link.is_idle or link.stopped for link in links) and not any(
                    link.attention.is_set() for link in links
                ):
                    break
            else:
                raise AssertionError(f"no rest: {[(link.lag, link.trouble, link.refused) for link in links]}")
        self.check()

    def check(self) -> None:
        for where, link in self.mirror.links.items():
            source, target = self.source.logs[where.partition], self.target.logs[where.partition]
            if link.stopped is not None:
                assert self.has_faults, link.stopped
                assert link.lag is None
                continue
            assert link.lag == 0
            there, wanted = target.values, source.values
            unknown = [value for value in there if value not in source.expired and value not in wanted]
            assert not unknown, "the target has records that the source lacks"
            missing = [value for value in wanted if value not in target.expired and value not in there]
            assert not missing, "the target lacks records of the source"
            assert there == sorted(set(there), key=int), "once and in order"


STEPS = st.sampled_from(
    ["produce", "turn", "rest"] * 3
    + ["look", "note", "note", "kill", "source restored", "source elected", "source regrows", "source regrows"]
    + ["target restored", "target elected", "source trimmed", "target trimmed", "forged", "enlarged"]
    + ["forged amid traffic"]
    + ["target made again", "both made again"]
)
STORY = st.lists(st.tuples(STEPS, st.integers(0, 10_000)), min_size=5, max_size=40)


def run(told: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine in virtual time: a mirror's pauses between requests take none."""
    with asyncio.Runner(loop_factory=SimulatedLoop) as runner:
        runner.run(told)


def tell(story: list[tuple[str, int]]) -> World:
    world = World()

    async def told() -> None:
        for step in story:
            await world.do(*step)
        await world.rest()

    run(told())
    return world


@settings(max_examples=examples(300))
@example([("produce", 2), ("rest", 0), ("source regrows", 1)])
@example([("produce", 2), ("rest", 0), ("source regrows", 2)])
@example([("produce", 2), ("rest", 0), ("target restored", 1)])
@example([("produce", 2), ("rest", 0), ("forged", 3)])
@example([("produce", 2), ("rest", 0), ("forged amid traffic", 1)])
@example([("produce", 0), ("produce", 0), ("forged amid traffic", 0), ("produce", 0), ("source trimmed", 2)])
@example([("produce", 0), ("produce", 0), ("forged amid traffic", 0), ("target trimmed", 1)])
@given(STORY)
def test_lag_is_0_only_where_both_logs_are_the_same(story: list[tuple[str, int]]) -> None:
    tell(story)


def test_partition_that_diverged_stays_stopped_in_the_next_mirror_until_the_source_has_the_records_again() -> None:
    world = World()

    async def told() -> None:
        log = world.source.logs[0]
        world.produce(log, 2)
        await world.rest()
        whole, end = list(log.batches), log.end
        world.lose(world.source, log, 0, is_restart=True)
        for _ in range(3):
            world.produce(log, 2)
        world.has_faults = True
        await world.rest()
        (link,) = world.mirror.links.values()
        assert "another record at offset" in (link.stopped or "")
        other = list(log.batches)
        log.trim(0)  # nothing is left that shows it
        world.mirror = world.begin()
        await world.rest()
        (link,) = world.mirror.links.values()
        assert "another record at offset" in (link.stopped or ""), "the ledger kept it"
        assert other != whole
        log.batches, log.start, log.end, log.expired = whole, 0, end, set()
        world.source.restart()
        await world.rest()
        assert link.stopped is None
        world.produce(log, 2)
        await world.rest()
        assert link.lag == 0
        assert world.target.logs[0].values == log.values

    run(told())
