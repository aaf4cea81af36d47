"""A whole broker whose disk refuses any one write, fsync or rename: what it acknowledges is there afterwards.

One operation after the other of a broker's life is let fail, in a run of its own: from its start, by topics that are
made, records, commits and deletions, to its stop. The log that it befell is offline, or was refused something without
harm; the others go on; no folder with an offline log is called clean; and a broker that starts when the disk works has
all that was acknowledged, and takes more. The operations take turns with the four kinds of fault: EIO and ENOSPC,
once and from then on.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import itertools
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.broker import Broker
from barnabas.broker.disk_work import BrokerThreads, DiskWork
from barnabas.broker.environment import Environment
from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import Clock
from barnabas.coordination.embedded_metadata_store import EmbeddedMetadataStore
from barnabas.errors import BarnabasError, ErrorCode, StorageError
from barnabas.model import TopicPartition
from barnabas.protocol.apis import declared_apis
from barnabas.protocol.codec import decode_response, request_frame
from barnabas.protocol.declare import message_of
from barnabas.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from barnabas.records import BatchBuilder, Record
from barnabas.storage import Log, OsFileSystem, reserve
from barnabas.storage.file_names import CLEAN_SHUTDOWN
from tests.interop.test_raw_frames import produce_request
from tests.simulation.cluster import InlineExecutor
from tests.simulation.world import EPOCH_MS, HostClock, SimulatedLoop
from tests.support.fake_link import FakeLink
from tests.support.unsynced_files import UnsyncedFileSystem

FLUSHED, UNFLUSHED = "flushed", "unflushed"
TOPICS = {FLUSHED: {"segment.bytes": "300", "flush.messages": "1"}, UNFLUSHED: {"segment.bytes": "300"}}
GROUP = "readers"
OK, STORAGE_ERROR = ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR
ROUNDS = 6
DELETED_BEFORE = 2
STEP = int(os.environ.get("FAULT_STEP", "5"))
"""Of so many operations one is tried; with FAULT_STEP=1 each is, which takes some minutes."""
FIRST = {"anew": 0, "again": STEP // 2}
NOTHING = -1
INTERNAL = "__consumer_offsets"
LOADING = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}

ReadAll = Callable[[Log], list[Record]]


class Threads(BrokerThreads):
    """Threads that are none: what is given to them is done at once, so that operations always come in one order."""

    def __init__(self) -> None:
        pass

    async def _run(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        await asyncio.sleep(0)
        return function(*arguments, **named)

    def work(self) -> DiskWork:
        return DiskWork(self._run, self._run, self._run)

    def in_metadata_thread(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        return asyncio.ensure_future(self._run(function, *arguments))

    def close_disk(self) -> None:
        """Nothing runs."""

    def close_metadata(self) -> None:
        """The same."""


class NoListener:
    """Nobody connects."""

    def __init__(self, *_: object) -> None: ...
    def listen(self, _host: str, port: int) -> int:
        return port or 9092

    def accept(self, handler: object) -> None: ...
    async def finish(self, _timeout_s: float) -> None: ...
    def close(self) -> None: ...


def open_metadata_store(_config: BrokerConfig, own_file: Path, clock: Clock) -> EmbeddedMetadataStore:
    """Open a tree that does not wait for the disk."""
    tree = EmbeddedMetadataStore(own_file, clock)
    tree._store._connection.execute("PRAGMA synchronous=OFF")
    return tree


class Life:
    """A broker from its start to its stop, and what its one client knows afterwards."""

    def __init__(self, folder: Path, filesystem: OsFileSystem, read_all: ReadAll, boot: str) -> None:
        self.folder = folder
        self.filesystem = filesystem
        self.acknowledged: dict[str, dict[int, bytes]] = {topic: {} for topic in TOPICS}
        self.codes: dict[str, list[ErrorCode]] = {topic: [] for topic in TOPICS}
        self.sent: set[bytes] = set()
        self.found: dict[str, dict[int, bytes]] = {topic: {} for topic in TOPICS}
        """What was there when it began."""
        self.found_start: dict[str, int] = dict.fromkeys(TOPICS, 0)
        self.found_committed = NOTHING
        self.committed = NOTHING
        self.deleted = 0
        self.offline: set[TopicPartition] = set()
        self.began = self.ended_cleanly = self.is_marked_clean = False
        self._read_all = read_all
        self._boot = boot

    def run(self) -> None:
        """Live in virtual time, and come to an end however the disk is."""
        loop = SimulatedLoop()
        self._clock = HostClock(loop, 1.0, 0)
        with contextlib.closing(loop):
            loop.run_until_complete(self._live())
        assert not loop.unhandled

    async def _live(self) -> None:
        broker = self._broker()
        async with asyncio.timeout(120):
            try:
                await broker.start()
            except BarnabasError:
                return  # with a reason in a sentence, and nothing else
            self.began = True
            await self._work(broker)
            self.offline = {place for place, log in broker._logs.all().items() if log.is_offline}
            with contextlib.suppress(StorageError):
                await broker.stop()
                self.ended_cleanly = True
            self.is_marked_clean = (self.folder / CLEAN_SHUTDOWN).exists()

    def _broker(self) -> Broker:
        config = BrokerConfig(port=0, data=str(self.folder), log_cleaner_enable=False, offsets_topic_num_partitions=1)
        environment = Environment(
            clock=self._clock,
            filesystem=self.filesystem,
            threads=Threads,
            new_threads=InlineExecutor,
            open_metadata_store=open_metadata_store,
            listen=NoListener,  # type: ignore[arg-type]
            boot_id=lambda: self._boot,
            watches_loop=False,
        )
        return Broker(config, environment)

    async def _work(self, broker: Broker) -> None:
        await self._look(broker)
        for topic, settings in TOPICS.items():
            await self._create(broker, topic, settings)
        for number in range(ROUNDS):
            for topic in TOPICS:
                await self.send(broker, topic, f"{topic} {self._boot} {number}".encode() * 5)
            if number % 2:
                await self._commit(broker, number)
            if number == ROUNDS // 2:
                await self._delete(broker, FLUSHED, DELETED_BEFORE)
        with contextlib.suppress(StorageError):  # the broker logs it, and tries again later
            await broker.topics.replicas.delete_old_records()

    async def _look(self, broker: Broker) -> None:
        """Find out what is there, as a client sees it: below the high watermark."""
        for topic in TOPICS:
            log = broker._logs.get(TopicPartition(topic, 0))
            if log is not None and not log.is_offline:
                self.found[topic] = {each.offset: each.value or b"" for each in self._read_all(log)}
                self.found_start[topic] = log.log_start_offset
        if self._boot == "second" and broker.topics.get(INTERNAL) is not None:
            self.found_committed = await self._committed(broker)

    async def _committed(self, broker: Broker) -> int:
        wanted = OffsetFetchRequestTopic(name=FLUSHED, partition_indexes=[0])
        while True:
            response = await call(broker, OffsetFetchRequest(group_id=GROUP, topics=[wanted]), 7)
            if response.error_code not in LOADING:
                return int(response.topics[0].partitions[0].committed_offset)
            await asyncio.sleep(0.1)

    async def _create(self, broker: Broker, topic: str, settings: dict[str, str]) -> None:
        wanted = [CreatableTopicConfig(name=name, value=value) for name, value in settings.items()]
        request = CreateTopicsRequest(
            topics=[CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=wanted)],
            timeout_ms=1_000,
        )
        await call(broker, request)

    async def send(self, broker: Broker, topic: str, value: bytes) -> ErrorCode:
        """Send a batch of one record; note what was answered."""
        self.sent.add(value)
        if broker.topics.get(topic) is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        builder = BatchBuilder()
        builder.append_many(EPOCH_MS, [value])
        response = await call(broker, produce_request(bytes(builder.build()), -1, topic), 9)
        (answer,) = response.responses[0].partition_responses
        self.codes[topic].append(code := ErrorCode.of(answer.error_code))
        if code == OK:
            self.acknowledged[topic][answer.base_offset] = value
        return code

    async def _commit(self, broker: Broker, offset: int) -> None:
        partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=GROUP, topics=[OffsetCommitRequestTopic(name=FLUSHED, partitions=[partition])]
        )
        response = await call(broker, request, 9)
        if response.topics[0].partitions[0].error_code == OK:
            self.committed = offset

    async def _delete(self, broker: Broker, topic: str, before: int) -> None:
        place = DeleteRecordsTopic(name=topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=before)])
        response = await call(broker, DeleteRecordsRequest(topics=[place], timeout_ms=1_000))
        if response.topics[0].partitions[0].error_code == OK:
            self.deleted = before


async def call(broker: Broker, request: Any, version: int | None = None) -> Any:
    """Send a request in a version, or in the newest one; return the response."""
    spec = message_of(type(request))
    assert spec.api_key is not None
    version = spec.versions[-1] if version is None else version
    frame = b"".join(request_frame(request, version, 1, "me"))  # type: ignore[arg-type]
    reply = broker.requests.new_handler(FakeLink()).carry_out([bytearray(frame)[4:]])
    answer = reply.answer + (await reply.later if reply.later is not None else [])
    return decode_response(declared_apis()[spec.api_key].response, version, b"".join(answer)[4:])  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def small_reserve(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that not most of all operations are its."""
    monkeypatch.setattr(reserve, "RESERVE_BYTES", 1_000)


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """What hundreds of brokers say takes longer than what they do."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def worn(memory_path: Path, read_all: ReadAll) -> Life:
    """The life of a broker that ended cleanly, with its folder."""
    life = Life(memory_path / "worn", UnsyncedFileSystem(), read_all, "before")
    life.run()
    assert life.ended_cleanly
    assert life.is_marked_clean
    return life


def befallen(filesystem: Any) -> str:
    """Return the topic, or the internal one, whose file an operation failed on; empty if it belongs to none."""
    path = filesystem.failed_path
    names = {f"{topic}-0": topic for topic in (*TOPICS, INTERNAL)}
    return next((names[part] for part in path.parts if part in names), "") if path else ""


def check(first: Life, filesystem: Any, second: Life, before: Life | None) -> None:
    """See that a life with a fault kept its promises, and that the one after it found all that was promised."""
    hurt = befallen(filesystem)
    for topic in TOPICS:
        known = {**(before.acknowledged[topic] if before else {}), **first.acknowledged[topic]}
        kept = {offset: value for offset, value in known.items() if offset >= second.found_start[topic]}
        assert kept.items() <= second.found[topic].items(), "acknowledged, and not there"
        assert set(second.found[topic].values()) <= first.sent | (before.sent if before else set())
        # Also where it could be neither made nor removed: what is left of it is in nobody's way.
        assert second.codes[topic] == [OK] * ROUNDS
        if first.began and not filesystem.stays_broken and hurt not in {topic, ""}:
            assert first.codes[topic] == [OK] * ROUNDS, "another log goes on"
        if TopicPartition(topic, 0) in first.offline and STORAGE_ERROR in first.codes[topic]:
            assert OK not in first.codes[topic][first.codes[topic].index(STORAGE_ERROR) :], "it stays offline"
    assert set(first.codes[FLUSHED]) | set(first.codes[UNFLUSHED]) <= {OK, STORAGE_ERROR}
    if first.offline:
        assert not first.ended_cleanly
        # Where all is well but for making the mark durable, it is there, and true.
        assert not first.is_marked_clean
    assert second.found_committed >= first.committed
    assert before is None or second.found_committed != NOTHING
    assert max(first.deleted, before.deleted if before else 0) <= second.found_start[FLUSHED] <= DELETED_BEFORE
    assert second.found_start[UNFLUSHED] == 0
    assert second.ended_cleanly


@pytest.mark.parametrize("begins", ["anew", "again"])
def test_fault_at_every_operation_of_a_broker(
    begins: str, memory_path: Path, worn: Life, faulty_filesystem: Any, read_all: ReadAll
) -> None:
    modes = itertools.cycle(itertools.product((errno.EIO, errno.ENOSPC), (False, True)))
    for number, (error, stays_broken) in zip(itertools.count(FIRST[begins], STEP), modes, strict=False):
        folder = memory_path / f"data {number}"
        if begins == "again":
            shutil.copytree(worn.folder, folder)
        filesystem = faulty_filesystem(number, error, stays_broken=stays_broken)
        first = Life(folder, filesystem, read_all, "first")
        first.run()
        if not filesystem.failed:
            break
        second = Life(folder, UnsyncedFileSystem(), read_all, "second")
        second.run()
        check(first, filesystem, second, worn if begins == "again" else None)
        shutil.rmtree(folder)
    assert first.ended_cleanly
    assert number > 100
