"""Strangers write anything at any node of the metadata tree: brokers start, serve, and hear of each other's changes."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from barnabas.broker.broker import Broker
from barnabas.coordination.metadata_store import MetadataStore, NodeError
from barnabas.errors import BarnabasError
from barnabas.model import Acks, TopicPartition
from barnabas.protocol.apis import declared_apis
from barnabas.protocol.codec import decode_response, request_frame
from barnabas.protocol.declare import message_of
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.records import BatchBuilder
from barnabas.records.header import iter_headers
from tests.simulation.cluster import SimulatedCluster
from tests.simulation.network import content_of
from tests.simulation.world import Host, HostClock, World
from tests.support.fake_link import FakeLink
from tests.support.searches import examples

T = TypeVar("T")
Node = tuple[str, bytes]

PATIENCE_S = 120.0
"""In virtual time."""
VERSION = 12
"""The last version of Produce and Fetch that names topics by their names."""
REPLICAS = [[1, 2], [2, 1]]

# --- what strangers write ---

EXTREMES = st.sampled_from(
    [
        -7,
        -1,
        0,
        2**31 - 1,
        2**31,
        2**40,
        2**63,
        10**400,
        1.5,
        True,
        None,
        "",
        "x",
        "1",
        "9" * 10_000,
        "h" * 40_000,
        "\ud800",
        "\0",
        [],
        [[]],
        {},
        [-1],
        [2**40],
        [9],
        ["1"],
        [True],
        [1, 1],
        {"0": 5},
        float("nan"),
        float("inf"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)
RAW = st.sampled_from(
    [b"", b"nonsense", b"\xff\xfe\x00", b"[" * 100_000, b'{"a":' * 50_000, b"9" * 10_000, b'{"config":{}}{}', b"{}"]
) | st.binary(max_size=20)
FOREIGN = st.sampled_from(
    ["abc", "%FF", "no json", "2147483648", "9" * 400, "-1", "01", "7", "8", "x" * 260, "%2e", "a%", "C-0000000001"]
)
CHANGE_NAMES = st.sampled_from(
    [
        "c-9999999999",
        "c-2147483647",
        "c-2147483600",
        "c--2147483648",
        "c--000000001",
        "backup-20261127",
        "c-1",
        "c-",
        "c-0000000100",
        "lock",
        "c-00000000000",
        "c-0000000007.bak",
    ]
)
TOPIC_ID = "AAECAwQFBgcICQoLDA0ODw"
BROKER: dict[str, Any] = {"host": "broker-1", "port": 9092, "timestamp": "1", "endpoints": ["REPLICATION://h:1"]}
BROKER |= {"rack": "r", "folder_id": "f", "is_leaving": False, "release": "9", "epoch": 5}
TOPIC = {"topic_id": TOPIC_ID, "partitions": {"0": [1, 2]}, "adding_replicas": {}, "removing_replicas": {}}
STATE = {"leader": 1, "leader_epoch": 0, "isr": [1, 2], "lost_memory": []}
# The first setting gets other values. "1" is a valid one, so it is a setting that changes nothing about these topics.
CONFIG = {"config": {"delete.retention.ms": "1000000000", "retention.ms": "1000000000", "segment.bytes": "20000"}}
BROKER_CONFIG = {"config": {"log.cleaner.delete.retention.ms": "1000000000", "log.retention.ms": "1000000000"}}
QUOTA_CONFIG = {"config": {"producer_byte_rate": "1", "request_percentage": "0.5", "connection_creation_rate": "1"}}
CHANGE = {"topics": ["bad"], "brokers": [1], "settings": ["/config/brokers/1"], "states": {"good": {"id": TOPIC_ID}}}
BLOCK = {"block_start": "0", "block_end": "999"}
NOTE = {"name": "bad", "brokers": [1, 2]}
OFFSET = {"offset": 7, "metadata": "", "timestamp": 1}
LIFE = {"life": 5, "timestamp": 1, "records": 1}
HEX = "00" * 15 + "ff"


def damaged(fields: dict[str, Any]) -> st.SearchStrategy[bytes]:
    """Return what is almost right: one field is gone, or has another value."""

    def change(name: str, value: object, *, is_gone: bool) -> bytes:
        changed = {key: each for key, each in fields.items() if key != name}
        if not is_gone:
            inner = fields[name]
            is_nested = isinstance(inner, dict) and inner
            changed[name] = {**inner, next(iter(inner)): value} if is_nested else value
        return json.dumps(changed).encode()

    almost = st.builds(change, st.sampled_from(sorted(fields)), EXTREMES, is_gone=st.booleans())
    return almost | RAW | JSON.map(lambda value: json.dumps(value).encode())


def node(path: str | st.SearchStrategy[str], fields: dict[str, Any]) -> st.SearchStrategy[Node]:
    return st.tuples(st.just(path) if isinstance(path, str) else path, damaged(fields))


def below(folder: str, names: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return names.map(lambda name: f"{folder}/{name}")


NODES = st.one_of(
    node(below("/brokers/ids", FOREIGN), BROKER),
    node("/brokers/ids/1", BROKER),
    node(below("/brokers/topics", FOREIGN), TOPIC),
    node("/brokers/topics/bad", TOPIC),
    node("/brokers/topics/good/partitions/0/state", STATE),
    node("/brokers/topics/bad/partitions/0/state", STATE),
    node(below("/brokers/topics/good/partitions", FOREIGN), STATE),
    node("/brokers/topics/good/partitions/0/stranger", STATE),
    node(below("/brokers/changes", CHANGE_NAMES), CHANGE),
    node(below("/config/topics", st.just("good") | st.just("bad") | FOREIGN), CONFIG),
    node(below("/config/brokers", st.sampled_from(["<default>", "1", "2"]) | FOREIGN), BROKER_CONFIG),
    node(below("/config/groups", FOREIGN), CONFIG),
    node(below("/config/users", st.just("<default>") | FOREIGN), QUOTA_CONFIG),
    node(below("/config/users/alice/clients", st.just("<default>") | FOREIGN), QUOTA_CONFIG),
    node(below("/config/clients", st.just("<default>") | FOREIGN), QUOTA_CONFIG),
    node(below("/config/ips", st.sampled_from(["<default>", "10.0.0.1"]) | FOREIGN), QUOTA_CONFIG),
    node("/config/stranger", CONFIG),
    node("/latest_producer_id_block", BLOCK),
    node("/cluster/id", {"version": "1"}),  # with the id of another cluster, brokers rightly refuse to start
    node(below("/cluster", FOREIGN), CONFIG),
    node(below("/admin/deleted_topic_ids", st.just(HEX) | FOREIGN), NOTE),
    node(below("/admin/removed_replicas", st.sampled_from([f"{HEX}-0-1", f"{HEX}-x-1", "a-b-1"]) | FOREIGN), NOTE),
    node(below("/admin", FOREIGN), NOTE),
    node(below("/brokers/lives", FOREIGN), LIFE),
    node(below("/consumers", FOREIGN), OFFSET),
    node(below("/consumers/g/offsets/good", st.sampled_from(["0", "x", "-1", "9" * 30])), OFFSET),
    node(below("/consumers/g/ids", FOREIGN), {"subscription": {"good": 1}}),
)


def write(tree: MetadataStore, path: str, data: bytes) -> bool:
    """Write a node as a stranger does; return whether the tree took it."""
    try:
        if tree.exists(path) is None:
            tree.create(path, data, make_parents=True)
        else:
            tree.set(path, data)
    except NodeError:
        return False
    return True


# --- what brokers do nevertheless ---


class Scene:
    """Two brokers, and a stranger with a session of its own."""

    def __init__(self, seed: int) -> None:
        self.world = World(seed)
        self.cluster = SimulatedCluster(self.world, 2)
        self.stranger = Host(self.world, "stranger", HostClock(self.world.loop, 1.0, 0))
        self.acknowledged = Counter[int]()
        self._starts = 2
        self.cluster.start()
        self.run(self.both_are_up())
        self.tree = self.cluster.ensemble.connect(self.stranger)
        for name in ("good", "bad"):
            self.run(self.broker(1).topic_admin.create(name, 2, {}, assignment=REPLICAS), on=1)
        self.until(lambda: self.knows(2, "good") and self.knows(2, "bad"))

    def run(self, work: Coroutine[Any, Any, T], on: int | None = None) -> T:
        """Run something to its end, on a broker's machine or on the stranger's."""
        host = self.stranger if on is None else self.cluster.machines[on].host
        assert host is not None

        async def bounded() -> T:
            try:
                async with asyncio.timeout(PATIENCE_S):
                    return await work
            except TimeoutError:
                pytest.fail(f"not within {PATIENCE_S} s: {work}; {self.world.story}")

        return self.world.loop.run_until_complete(host.task(bounded()))

    def until(self, condition: Callable[[], bool]) -> None:
        async def wait() -> None:
            while not condition():  # noqa: ASYNC110 - in virtual time
                await asyncio.sleep(0.1)

        self.run(wait())

    async def both_are_up(self) -> None:
        """Return when all lives of the brokers have begun."""
        while len([text for _, text in self.world.story if text.endswith("is up")]) < self._starts:  # noqa: ASYNC110
            await asyncio.sleep(0.1)

    def broker(self, number: int) -> Broker:
        broker = self.cluster.machines[number].broker
        assert broker is not None
        return broker

    def knows(self, number: int, topic: str) -> bool:
        return self.broker(number).topics.get(topic) is not None

    def restart(self, number: int) -> None:
        self.cluster.machines[number].kill()
        self._starts += 1
        self.cluster.machines[number].start()
        self.run(self.both_are_up())

    async def call(self, number: int, request: Any, version: int) -> Any:
        spec = message_of(type(request))
        assert spec.api_key is not None
        frame = b"".join(request_frame(request, version, 1, "me"))  # type: ignore[arg-type]
        reply = (
            self.broker(number).requests.new_handler(FakeLink("client", 1, "here")).carry_out([bytearray(frame)[4:]])
        )
        answer = reply.answer + (await reply.later if reply.later is not None else [])
        return decode_response(declared_apis()[spec.api_key].response, version, b"".join(map(content_of, answer))[4:])  # type: ignore[arg-type]

    async def metadata_decodes(self, number: int) -> None:
        for version in message_of(MetadataRequest).versions:
            wanted = None if version else []
            answer = await self.call(number, MetadataRequest(topics=wanted, allow_auto_topic_creation=True), version)
            assert {"good"} <= {topic.name for topic in answer.topics}

    def leader_of(self, partition: int) -> int:
        info = self.broker(1).topics.image.partition(TopicPartition("good", partition))
        assert info is not None
        return info.state.leader

    def produces_and_fetches(self, partition: int) -> None:
        """Check that the leader takes records at acks=all, and hands them out."""
        for _ in range(100):
            number = self.leader_of(partition)
            if number in self.cluster.machines and self.run(self.produces(number, partition), on=number):
                break
            self.run(asyncio.sleep(1))
        else:
            pytest.fail(f"nobody takes records of good-{partition}: {self.world.story}")
        wanted = FetchPartition(partition=partition, fetch_offset=0, partition_max_bytes=100_000)
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=1_000_000, topics=[FetchTopic(topic="good", partitions=[wanted])]
        )
        answer = self.run(self.call(number, request, VERSION), on=number)
        (read,) = answer.responses[0].partitions
        assert not read.error_code
        self.acknowledged[partition] += 1
        assert sum(header.record_count for _, header in iter_headers(read.records)) >= self.acknowledged[partition]

    async def produces(self, number: int, partition: int) -> bool:
        builder = BatchBuilder()
        builder.append(self.broker(number).clock.time_ms(), None, b"value")
        data = PartitionProduceData(index=partition, records=bytes(builder.build()))
        topic = TopicProduceData(name="good", partition_data=[data])
        request = ProduceRequest(acks=Acks.ALL, timeout_ms=5_000, topic_data=[topic])
        answer = await self.call(number, request, 9)
        return not answer.responses[0].partition_responses[0].error_code

    async def gives_producer_ids(self, number: int) -> int:
        answer = await self.call(number, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000), 4)
        assert not answer.error_code
        assert 0 <= answer.producer_id < 2**63
        return int(answer.producer_id)

    def check(self, later: str) -> None:
        """Check that both brokers serve, and that one hears what the other changes."""
        self.run(self.broker(1).topic_admin.create(later, 1, {}, assignment=[[1, 2]]), on=1)
        self.until(lambda: self.knows(1, later) and self.knows(2, later))
        for number in (1, 2):
            self.run(self.metadata_decodes(number), on=number)
        for partition in (0, 1):
            self.produces_and_fetches(partition)
        ids = [self.run(self.gives_producer_ids(number), on=number) for number in (1, 2)]
        assert len(set(ids)) == len(ids)


@settings(max_examples=examples(12), phases=[Phase.explicit, Phase.generate], suppress_health_check=list(HealthCheck))
@example(nodes=[("/brokers/topics/good/partitions/0/state", b"{}"), ("/brokers/ids/1", b"")], seed=113)
@example(nodes=[("/brokers/topics/good/partitions/0/state", b'{"leader":1,"isr":[1,2]}')], seed=14)
@given(nodes=st.lists(NODES, min_size=5, max_size=25), seed=st.integers(0, 1000))
def test_brokers_serve_whatever_strangers_write(nodes: list[Node], seed: int) -> None:
    lines: Counter[str] = Counter()
    handler = logging.Handler()
    handler.emit = lambda record: lines.update([record.getMessage()])  # type: ignore[method-assign]
    root = logging.getLogger("barnabas")
    root.addHandler(handler)
    scene = Scene(seed)
    try:
        for path, data in nodes:
            write(scene.tree, path, data)
        scene.check("later")
        scene.restart(2)
        scene.check("afterwards")
        scene.restart(1)
        scene.check("at-last")
    except BarnabasError as error:
        pytest.fail(f"{error!r}; {scene.world.story}")
    finally:
        root.removeHandler(handler)
        scene.world.end()
    # Two brokers had two lives each.
    skipped = {line: count for line, count in lines.items() if line.startswith(("skipping", "ignoring", "taking"))}
    assert max(skipped.values(), default=0) <= 4, skipped
    assert not [line for line in lines if "cannot apply an update from the metadata store" in line]
