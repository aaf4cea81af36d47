"""The script: scenes, each with a broker of its own, that together send every API in every version in every way.

A scene is a function that talks to the broker of a `Play`. The requests come from code alone, so two runs send the same
bytes as long as the broker gives the same answers.
"""

from __future__ import annotations

import random
import resource
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

from barnabas.broker.broker import Broker
from barnabas.broker.settings.in_force import BrokerSettings, DescribedSetting
from barnabas.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.protocol.messages.fetch import ForgottenTopic, ReplicaState
from barnabas.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.protocol.messages.metadata import MetadataRequest
from tests.conversation import samples as s
from tests.conversation.samples import Names, batch
from tests.conversation.stage import BROKERS, CLIENTS, OTHER_EPOCH, Line, Stage
from tests.conversation.transcript import Exchange, LineRecord
from tests.support.random_messages import RandomMessages

TOPICS: dict[str, tuple[list[list[int]], dict[str, str]]] = {
    "plain": ([[1]] * 4, {}),
    "led-by-2": ([[2, 1]], {}),
    "pair": ([[1, 2]] * 2, {}),
    "compact": ([[1]], {"cleanup.policy": "compact"}),
    "changed": ([[1]], {}),
    "stamped": ([[1]], {"message.timestamp.type": "LogAppendTime"}),
}
"""The topics of every scene: the brokers of each partition, and settings."""

DISK_USAGE = SimpleNamespace(total=1 << 40, used=1 << 38, free=3 << 38)
"""Of the disk, in bytes."""
OPEN_FILES_MAX = 65_536
NEWER_SETTINGS = {"telemetry.interval.ms", "telemetry.max.bytes", "telemetry.metrics"}
"""Settings of the broker that are newer than the recording. The broker of the conversation does not list them."""
INTER_BROKER_APIS = ("Fetch", "Metadata", "ApiVersions", "OffsetForLeaderEpoch", "ElectLeaders")


class Play:
    """A broker with topics, and what a scene knows of it."""

    def __init__(self, seed: str, *, alone: bool = False, **settings: Any) -> None:
        self.random = random.Random(seed)
        self.stage = Stage([api.key for api in s.conversation_apis()], alone=alone, **settings)
        self.names = Names()
        self.admin = self.stage.line("admin", "admin")
        topics = [
            s.new_topic(name, assignments, configs=configs)
            for name, (assignments, configs) in TOPICS.items()
            if not alone or assignments[0] == [1]
        ]
        self.admin.ask(s.create_topics(7, *topics), 7)
        self.learn_ids()

    def line(self, name: str, client_id: str | None = "script", listener: str = CLIENTS) -> Line:
        return self.stage.line(name, client_id, listener)

    def learn_ids(self) -> None:
        """Ask for the ids of all topics."""
        answer = self.admin.ask(MetadataRequest(topics=None, allow_auto_topic_creation=False), 12)
        self.names.ids = {topic.name: topic.topic_id for topic in answer.topics}

    def create(self, name: str, partitions: int, **configs: str) -> None:
        self.admin.ask(s.create_topics(7, s.new_topic(name, [[1]] * partitions, configs=configs)), 7)
        self.learn_ids()

    def join_alone(self, group: str, line: Line, instance_id: str | None = None) -> None:
        """Make a group of one member, and remember the member."""
        answer = line.ask(s.join(9, group, instance_id=instance_id), 9)
        if instance_id is None:
            answer = line.ask(s.join(9, group, answer.member_id), 9)
        self.names.member_id, self.names.generation = answer.member_id, answer.generation_id
        assignments = [(answer.member_id, b"all of it")]
        line.ask(s.sync(5, group, answer.generation_id, answer.member_id, assignments, instance_id=instance_id), 5)

    def new_producer(self, line: Line) -> int:
        answer = line.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1_000), 4)
        self.names.producer_id = answer.producer_id
        return int(answer.producer_id)

    def ask_each(self, name: str, asked: Sequence[tuple[Any, int]], listener: str = CLIENTS) -> None:
        """Send requests one by one; where the broker ends the connection, go on with another."""
        line = self.line(name, f"{name}-client", listener)
        for request, version in asked:
            if not line.is_open:
                line = self.line(name, f"{name}-client", listener)
            line.ask(request, version)


Scene = Callable[[Play], None]


# --- all APIs ---------------------------------------------------------------------------------------------


def alone(play: Play) -> None:
    """Every sample of every API in every version, one after the other."""
    play.join_alone("members", play.line("member"))
    play.new_producer(play.admin)
    for api in s.conversation_apis():
        asked = [(each, version) for version in api.versions for each in s.samples(play.names, api.name, version)]
        play.ask_each(api.name, asked)


def inter_broker(play: Play) -> None:
    """The same on the listener for brokers, and what that one does not serve."""
    for api in s.conversation_apis():
        if api.name in INTER_BROKER_APIS:
            asked = [(each, version) for version in api.versions for each in s.samples(play.names, api.name, version)]
        else:
            asked = [(s.samples(play.names, api.name, api.versions[-1])[0], api.versions[-1])]
        play.ask_each(api.name, asked, BROKERS)


def pipelined(play: Play) -> None:
    """Samples of all APIs mixed, in few segments, cut at odd places."""
    play.join_alone("members", play.line("member"))
    play.new_producer(play.admin)
    for number in range(8):
        asked = []
        for api in s.conversation_apis():
            version = api.versions[-1 - number * len(api.versions) // 8]
            asked += [
                (each, version)
                for each in s.samples(play.names, api.name, version)
                if not closes(api.name, version, each)
            ]
        play.random.shuffle(asked)
        line = play.line(f"mixed {number}", None if number == 3 else f"mixed-{number}")
        exchanges = [line.exchange(request, version) for request, version in asked]
        size = sum(len(each.frame) for each in exchanges)
        cuts = sorted(play.random.sample(range(1, size), [0, 1, 5, 50, 500, 1_500, 2, 9][number]))
        play.stage.beat()
        line.send(*exchanges, cuts=cuts)
        play.stage.wait_for([line])


def closes(name: str, version: int, request: Any) -> bool:
    """Whether the broker ends the connection over a sample."""
    del version
    return name == "Produce" and request.acks == 0 and not request.topic_data


def byte_by_byte(play: Play) -> None:
    """A sample of each API in segments of one byte, and in segments that end within the next request."""
    line = play.line("bytes")
    for api in s.conversation_apis():
        if api.name == "JoinGroup":
            continue
        version = api.versions[-1]
        exchange = line.exchange(s.samples(play.names, api.name, version)[0], version)
        play.stage.beat()
        line.send(exchange, cuts=range(1, len(exchange.frame)))
        play.stage.wait_for([line])
    asked = [(s.metadata(play.names, 12, ["plain"]), 12), (s.heartbeat(4, "nobody", 1, "x"), 4)] * 20
    for step in (11, 37, 90):
        exchanges = [line.exchange(request, version) for request, version in asked]
        play.stage.beat()
        line.send(*exchanges, cuts=range(step, sum(len(each.frame) for each in exchanges), step))
        play.stage.wait_for([line])


class PlainRandomMessages(RandomMessages):
    """Random requests whose batches are not compressed: compressed bytes depend on the library."""

    def _batch(self, kind: Any) -> bytes:
        return batch(b"key", b"value" * 20, b"%d" % kind, producer=(7, 0, 0))


def wild(play: Play) -> None:
    """Random requests to every API in every version, and damaged ones."""
    messages = PlainRandomMessages(20_261_127, s.conversation_apis())
    for api in s.conversation_apis():
        line = play.line(api.name, "wild")
        for version in api.versions:
            for _ in range(2):
                exchange = line.exchange(messages.struct(api.request, version), version)
                line = send_or_reopen(play, line, exchange)
    line = play.line("damaged", "damaged")
    for _ in range(300):
        line.stage.beat()
        line.send_bytes(sized(messages.frame()))
        play.stage.pass_time(0.02)
        if not line.is_open:
            line = play.line("damaged", "damaged")


def send_or_reopen(play: Play, line: Line, exchange: Exchange) -> Line:
    """Send a request and wait; return the connection, or another one if it ended or no answer came."""
    play.stage.beat()
    line.send(exchange)
    if not play.stage.waits_for([line]):
        line.leave()
    return line if line.is_open else play.line(line.name[4:], "wild")


def sized(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def malformed(play: Play) -> None:
    """What ends a connection: unknown APIs and versions, frames that are none, requests that are too large."""
    for api in s.conversation_apis():
        for version in (api.versions.stop, api.versions.start - 1, 32_767):
            line = play.line(f"{api.name} version {version}")
            request = s.samples(play.names, api.name, api.versions[-1])[0]
            exchange = line.exchange(request, api.versions[-1], closes=api.name != "ApiVersions")
            exchange.version = version
            exchange.frame = exchange.frame[:6] + version.to_bytes(2, "big", signed=True) + exchange.frame[8:]
            play.stage.beat()
            first = line.exchange(s.metadata(play.names, 12, []), 12)
            behind = line.exchange(s.metadata(play.names, 12, ["plain"]), 12)
            line.send(first, exchange, behind)
            play.stage.wait_for([line])
    for key in (-1, 4, 6, 24, 25, 26, 28, 36, 38, 51, 68, 76, 500):
        line = play.line(f"key {key}")
        exchange = line.exchange(s.metadata(play.names, 12, []), 12, closes=True)
        exchange.key = key
        exchange.frame = exchange.frame[:4] + key.to_bytes(2, "big", signed=True) + exchange.frame[6:]
        play.stage.beat()
        line.send(exchange)
        play.stage.wait_for([line])
    good = play.line("template").exchange(s.metadata(play.names, 12, ["plain"]), 12).frame
    for name, data in {
        "negative size": b"\xff\xff\xff\xff",
        "no header": sized(b"\0\3\0"),
        "empty": sized(b""),
        "client id too long": sized(b"\0\3\0\0\0\0\0\1\x7f\xff"),
        "too large": (100 << 20).to_bytes(4, "big") + b"\0" * 100,
        "larger than any": (2**31 - 1).to_bytes(4, "big") + b"\0" * 100,
        "HTTP": b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n",
        "ends within": sized(good[4:-5]),
        "header ends": sized(good[4:14]),
        "array too long": sized(good[4:22] + b"\xff\xff\xff\xff\x07"),
    }.items():
        for with_others in (False, True):
            line = play.line(name, "raw")
            play.stage.beat()
            if with_others:
                line.send(line.exchange(s.metadata(play.names, 12, []), 12))
            line.send_bytes(data)
            play.stage.pass_time(0.05)
    damaged_within_runs(play)


def damaged_within_runs(play: Play) -> None:
    """Produce requests of which one in the middle ends too early, names another version, or is none."""
    names = play.names
    for acks in (1, -1, 0):
        for what in ("short", "version", "key", "large"):
            line = play.line(f"{what} in a run acks={acks}", "damaged")
            run = [line.exchange(s.produce(names, 9, [("plain", 0, batch(b"%d" % n))], acks), 9) for n in range(9)]
            bad = run[5]
            if what == "short":
                bad.frame = sized(bad.frame[4:40])
            elif what == "version":
                bad.version = 99
                bad.frame = bad.frame[:6] + b"\0\x63" + bad.frame[8:]
            elif what == "key":
                bad.key = 99
                bad.frame = bad.frame[:4] + b"\0\x63" + bad.frame[6:]
            else:
                parts = [("plain", 0, batch(b"x" * 3_000))] * 12
                run[5] = bad = line.exchange(s.produce(names, 9, parts, acks), 9)
            bad.closes = what != "large"
            play.stage.beat()
            line.send(*run)
            play.stage.wait_for([line])
            play.stage.pass_time(0.02)


# --- produce ----------------------------------------------------------------------------------------------


def produce(play: Play) -> None:
    """Runs of produce requests: all acks, one partition and many, kinds mixed."""
    play.create("many", 100)
    for version in range(3, 14):
        for acks in (1, -1, 0):
            runs(play, version, acks)
    for version in (9, 12, 13):
        kinds_mixed(play, version)
    names, line = play.names, play.line("other topics")
    for version in (8, 12):
        for topic in ("compact", "stamped", "missing", "led-by-2", "__consumer_offsets"):
            good = s.keyed_batch([(b"a", b"1"), (b"b", None)])
            bad = s.keyed_batch([(None, b"1"), (b"b", b"2"), (None, None)])
            line.ask_all([(s.produce(names, version, [(topic, 0, each)]), version) for each in (good, bad, good)])
    refused_batches(play)
    acks_none_fails(play)
    line = play.line("many runs")
    run = [(s.produce(names, 9, [("plain", 3, batch(b"%04d" % n))]), 9) for n in range(1_100)]
    line.ask_all(run)
    line.ask(s.fetch(names, 12, [("plain", 3, 0)], max_bytes=2_000), 12)
    for n in range(3):
        lines = [play.line(f"side by side {n}") for n in range(5)]
        play.stage.beat()
        for number, each in enumerate(lines):
            values = [b"%d %d %d" % (n, number, k) for k in range(9)]
            each.send_all([(s.produce(names, 9, [("plain", 2, batch(value))]), 9) for value in values])
        play.stage.wait_for(lines)


def runs(play: Play, version: int, acks: int) -> None:
    """Runs of one to sixty requests for the same acknowledgement."""
    line = play.line(f"run version {version} acks {acks}", f"run-{acks}")
    for size in (1, 2, 3, 60):
        parts = [("plain", n % 2 if size == 60 else 0, batch(b"%d" % n)) for n in range(size)]
        line.ask_all([(s.produce(play.names, version, [part], acks), version) for part in parts])
    line.ask(s.list_offsets(5, [("plain", n, -1) for n in range(4)]), 5)


def kinds_mixed(play: Play, version: int) -> None:
    """Requests for one partition and for many, of two versions and two APIs, good and refused, in one segment."""
    names, line = play.names, play.line(f"kinds mixed version {version}", "mixed")
    asked = []
    for n in range(150):
        parts: list[tuple[str, int, bytes | None]] = [("plain", n % 4, batch(b"value %d" % n, b"x" * (n % 7)))]
        if n % 5 == 0:
            parts = [("many", each, batch(b"%d" % n)) for each in range(n % 30)]
        if n % 11 == 0:
            parts = [*parts, ("missing", 0, batch(b"lost")), ("led-by-2", 0, batch(b"not here"))]
        if n % 13 == 0:
            parts = [("plain", 1, None)]
        acks = 0 if n % 17 == 3 and n % 11 and n % 13 else 1
        asked.append((s.produce(names, version if n % 19 else 8, parts, acks), version if n % 19 else 8))
        if n % 23 == 0:
            asked.append((s.metadata(names, 12, ["plain"]), 12))
    line.ask_all(asked)
    line.ask_all(asked[40:90], cuts=range(100, 3_000, 333))


def refused_batches(play: Play) -> None:
    """Batches whose bytes are wrong, between good ones of a run."""
    names, line = play.names, play.line("damaged batches")
    good = batch(b"good", b"better")
    for position in (0, 8, 12, 16, 17, 20, 22, 23, 27, 43, 51, 57, 61, 62, len(good) - 1):
        bad = bytearray(good)
        bad[position] ^= 0x41
        line.ask_all([(s.produce(names, 9, [("plain", 0, each)]), 9) for each in (good, bytes(bad), good)])
    for data in (good[:30], good + good[:20], good + good, good + b"\0", b"\0" * 61, batch(b"x" * 1_100_000)):
        line.ask_all([(s.produce(names, 9, [("plain", 0, data)]), 9), (s.produce(names, 9, [("plain", 1, good)]), 9)])


def acks_none_fails(play: Play) -> None:
    """Requests without acknowledgement that fail."""
    names = play.names
    bad = bytearray(batch(b"bad"))
    bad[-1] ^= 1
    for topic, partition, data in (("missing", 0, batch(b"x")), ("plain", 0, bytes(bad)), ("led-by-2", 0, batch(b"x"))):
        line = play.line(f"acks=0 to {topic}")
        exchanges = [
            line.exchange(s.produce(names, 9, [("plain", 0, batch(b"before"))], acks=0), 9),
            line.exchange(s.produce(names, 9, [(topic, partition, data)], acks=0), 9, closes=True),
            line.exchange(s.produce(names, 9, [("plain", 0, batch(b"behind"))], acks=0), 9),
            line.exchange(s.metadata(names, 12, ["plain"]), 12),
        ]
        play.stage.beat()
        line.send(*exchanges)
        play.stage.wait_for([line])


def idempotent(play: Play) -> None:
    """Sequences of idempotent producers: in order, repeated, with gaps, of old epochs, behind a refused batch."""
    names, line = play.names, play.line("idempotent", "idempotent")
    for version in range(3, 14):
        producer = play.new_producer(line)

        def one(sequence: int, epoch: int = 0, count: int = 1, producer: int = producer) -> bytes:
            return batch(*[b"%d" % (sequence + n) for n in range(count)], producer=(producer, epoch, sequence))

        def send(*batches: bytes, version: int = version, partition: int = 0) -> None:
            line.ask_all([(s.produce(names, version, [("plain", partition, each)], -1), version) for each in batches])

        send(one(0))
        send(one(1), one(2), one(3, count=5), one(8))
        send(one(8))
        send(one(3, count=5), one(2), one(9))
        send(one(0), one(20), one(10))
        send(one(10, epoch=1), one(0, epoch=1), one(1, epoch=1))
        send(one(11), one(2, epoch=1))
        send(*[one(n, epoch=1) for n in range(3, 60)])
        send(*[one(n, epoch=1) for n in range(50, 63)])
        send(one(70, epoch=1), one(71, epoch=1), one(63, epoch=1), one(64, epoch=1))
        send(
            batch(b"x", producer=(producer, 5, 7)), batch(b"x", producer=(-1, 3, 3)), batch(b"x", producer=(99, -1, -1))
        )
        bad = bytearray(one(65, epoch=1))
        bad[-1] ^= 1
        send(bytes(bad), one(66, epoch=1), one(67, epoch=1))
        send(one(65, epoch=1), one(66, epoch=1))
        parts: list[tuple[str, int, bytes | None]] = [("plain", n, one(0, epoch=2)) for n in range(4)]
        line.ask_all([(s.produce(names, version, parts, -1), version)] * 3)
    play.ask_each("who", [(each, 0) for each in s.samples(names, "DescribeProducers", 0)])


def refused_for_now(play: Play) -> None:
    """Batches refused because too few replicas are in sync, and what an idempotent producer sent behind them."""
    names, line = play.names, play.line("refused for now", "idempotent")
    configs = {"min.insync.replicas": "2"}
    play.admin.ask(s.create_topics(7, s.new_topic("needs-two", [[1, 2]] * 3, configs=configs)), 7)
    play.learn_ids()
    play.stage.pass_time(40)
    for version in (9, 13):
        producer = play.new_producer(line)
        for topic, epoch in (("needs-two", 0), ("plain", 1)):
            for sequences in ((0, 1, 2), (0, 1, 5, 2), (3, 4, 3)):
                batches = [batch(b"%d" % n, producer=(producer, epoch, n)) for n in sequences]
                line.ask_all([(s.produce(names, version, [(topic, 0, each)], -1), version) for each in batches])
        several: list[tuple[str, int, bytes | None]]
        for first in (0, 1):
            several = [(t, 1, batch(b"x", producer=(producer, 0, first))) for t in ("needs-two", "plain")]
            line.ask_all([(s.produce(names, version, several, acks), version) for acks in (-1, -1, 1)])
    line.ask(s.produce(names, 9, [("needs-two", 2, batch(b"acks=1"))], 1), 9)
    # What was sent behind a batch to a partition that came to be in the meantime.
    for version in (3, 9, 12):
        topic, producer = f"later-{version}", play.new_producer(line)

        def send(*sequences: int) -> None:
            batches = [batch(b"%d" % n, producer=(producer, 0, n)) for n in sequences]  # noqa: B023
            line.ask_all([(s.produce(names, version, [(topic, 0, each)], -1), version) for each in batches])  # noqa: B023

        send(0, 1)
        play.create(topic, 1)
        send(2, 3)
        send(4, 0, 1)
        send(0, 1, 2, 3, 4)


def rolls(play: Play) -> None:
    """Appends that begin segments, so that a thread works while the requests wait in line."""
    names = play.names
    for version in (7, 9, 13):
        for acks in (1, -1, 0):
            line, other = play.line(f"rolls {version} acks={acks}", "rolls"), play.line("other", "other")
            for partitions in (1, 3):
                run = [
                    (s.produce(names, version, [("plain", n % partitions, batch(b"%03d" % n * 100))], acks), version)
                    for n in range(120)
                ]
                several = [("plain", n, batch(b"v" * 3_000)) for n in range(4)]
                run[60:60] = [
                    (s.produce(names, version, several, acks), version),
                    (s.metadata(names, 12, ["plain"]), 12),
                ]
                play.stage.beat()
                line.send_all(run)
                other.send_all([(s.produce(names, 9, [("plain", 0, batch(b"other" * 100))], acks), 9)] * 30)
                play.stage.wait_for([line, other])
            line.ask(s.list_offsets(5, [("plain", n, -1) for n in range(4)]), 5)
        line = play.line("bad batches among rolls", "rolls")
        bad = bytearray(batch(b"bad" * 100))
        bad[-1] ^= 1
        line.ask_all(
            [
                (
                    s.produce(
                        names, 9, [("plain", 3, bytes(bad))] if n % 9 == 4 else [("plain", 3, batch(b"%03d" % n * 100))]
                    ),
                    9,
                )
                for n in range(90)
            ]
        )
        producer = play.new_producer(line)
        sequences = [*range(40), 39, 50, *range(40, 80)]
        batches = [batch(b"%03d" % n * 100, producer=(producer, 0, n)) for n in sequences]
        line.ask_all([(s.produce(names, version, [("plain", 2, each)], -1), version) for each in batches])
    reader = play.line("reader", "rolls")
    for offset in (0, 57, 300, 700):
        reader.ask(s.fetch(names, 12, [("plain", n, offset) for n in range(4)], max_bytes=30_000), 12)
    reader.ask(s.list_offsets(7, [("plain", 0, when) for when in (-1, -2, -3, s.TIME_MS)]), 7)
    for version in (0, 2):
        for each in s.samples(names, "DeleteRecords", version):
            reader.ask(each, version)


def acknowledgements(play: Play) -> None:
    """Acks=all with a follower: waits that the follower ends, waits that time out, pipelined with others."""
    names = play.names
    follower = play.line("follower", "broker-2", BROKERS)
    pair = [("pair", 0, 0), ("pair", 1, 0)]
    replica = ReplicaState(replica_id=2, replica_epoch=OTHER_EPOCH)
    opened = follower.ask(s.fetch(names, 17, pair, replica_state=replica, session_id=0, session_epoch=0), 17)
    epoch = 1

    def follow(offsets: Sequence[tuple[str, int, int]] = (), **values: Any) -> Any:
        nonlocal epoch
        session = {"session_id": opened.session_id, "session_epoch": epoch, "replica_state": replica}
        epoch += 1
        return s.fetch(names, 17, offsets, **session, **values)

    offset = 0
    for version in range(3, 14):
        writer, other = play.line(f"writer {version}", "writer"), play.line(f"other {version}", "other")
        for count in (1, 3, 60):
            run = [(s.produce(names, version, [("pair", 0, batch(b"%d" % n))], -1), version) for n in range(count)]
            run.append((s.metadata(names, 12, ["pair"]), 12))
            play.stage.beat()
            writer.send_all(run)
            other.send_all([(s.produce(names, version, [("pair", 0, batch(b"acks=1"))]), version)])
            play.stage.wait_for([other])
            follower.ask(follow(), 17)
            offset += count + 1
            follower.ask(follow([("pair", 0, offset)]), 17)
            play.stage.wait_for([writer])
    late = play.line("late", "late")
    run = [(s.produce(names, 9, [("pair", n % 2, batch(b"late"))], -1, timeout_ms=200 * n), 9) for n in range(4)]
    late.ask_all(run)
    late.ask_all(
        [(s.produce(names, 9, [("pair", 0, batch(b"l")), ("pair", 1, batch(b"l"))], -1, timeout_ms=300), 9)] * 2
    )
    late.ask_all([(s.list_offsets(5, [("pair", 0, -1), ("pair", 1, -1)]), 5)])
    late.send_all([(s.produce(names, 9, [("pair", 0, batch(b"left"))], -1, timeout_ms=3_000), 9)])
    play.stage.pass_time(0.05)
    late.leave()
    # The follower asks no more: the leader takes it out of the in-sync replicas.
    waits = play.line("waits", "writer")
    waits.ask_all([(s.produce(names, 9, [("pair", 0, batch(b"wait"))], -1, timeout_ms=60_000), 9)])
    waits.ask(s.metadata(names, 12, ["pair"]), 12)


def follower_fetches(play: Play) -> None:
    """Fetches of a follower: sessions, long polls, wrong identities."""
    names = play.names
    writer = play.line("writer")
    replica = ReplicaState(replica_id=2, replica_epoch=OTHER_EPOCH)
    end = 0

    def begun(name: str, version: int) -> tuple[Line, Callable[..., tuple[Any, int]]]:
        """Open a session at the end of the logs; return its connection, and what makes its next requests."""
        line = play.line(f"{name} {version}", name, BROKERS)
        parts = [("pair", 0, end), ("pair", 1, 0)]
        opened = line.ask(s.fetch(names, version, parts, replica_state=replica, session_id=0, session_epoch=0), version)
        epochs = iter(range(1, 100))

        def follow(parts: Sequence[tuple[str, int, int]] = (), **values: Any) -> tuple[Any, int]:
            session = {"replica_state": replica, "session_id": opened.session_id, "session_epoch": next(epochs)}
            return s.fetch(names, version, parts, **{**session, **values}), version

        return line, follow

    for version in range(15, 19):
        line, follow = begun("follower", version)
        line.ask(*follow())
        play.stage.beat()
        line.send_all([follow(max_wait_ms=500)])
        play.stage.pass_time(0.1)
        writer.ask(s.produce(names, 9, [("pair", 0, batch(b"wakes"))]), 9)
        play.stage.wait_for([line])
        end += 1
        line.ask(*follow([("pair", 0, end)]))
        line.ask(*follow(max_wait_ms=500))
        line.ask(*follow(max_wait_ms=500))
        line.ask_all([follow(max_wait_ms=9_000), follow(), (s.samples(names, "ApiVersions", 4)[0], 4)])
        line.ask(*follow(min_bytes=500, max_wait_ms=200))
        line.ask(*follow([("pair", 0, 1 << 30)]))
        line.ask(*follow([("pair", 9, 0), ("plain", 0, 0)]))
        forgotten = [ForgottenTopic(topic_id=names.topic_id("pair"), partitions=[1])]
        line.ask(*follow([("pair", 0, end)], forgotten_topics_data=forgotten))
        of_other_epoch = follow([("pair", 0, end), ("pair", 1, 3)])
        for each in of_other_epoch[0].topics[0].partitions:
            each.last_fetched_epoch = 5
        line.ask(*of_other_epoch)
        line.ask(*follow(session_epoch=77))
        line.ask(*follow(session_id=4))
        gone, follow_and_leave = begun("leaves", version)
        play.stage.beat()
        gone.send_all([follow_and_leave(max_wait_ms=9_000)])
        play.stage.pass_time(0.1)
        gone.leave()
        line.ask(*follow())
    strangers(play)


def strangers(play: Play) -> None:
    """Fetches of those who claim to be a broker, and are not the one that is registered."""
    names, pair = play.names, [("pair", 0, 0), ("pair", 1, 0)]
    for broker_id, epoch in ((2, 5), (3, -1), (1, -1)):
        claimed = ReplicaState(replica_id=broker_id, replica_epoch=epoch)
        line = play.line("stranger", "broker-2", BROKERS)
        line.ask_all([(s.fetch(names, 17, pair, replica_state=claimed, session_id=0, session_epoch=0), 17)] * 2)
    line = play.line("old", "broker-2", BROKERS)
    line.ask(s.fetch(names, 14, pair, replica_id=2), 14)
    replica = ReplicaState(replica_id=2, replica_epoch=OTHER_EPOCH)
    line = play.line("among clients", "broker-2")
    line.ask(s.fetch(names, 17, pair, replica_state=replica, session_id=0, session_epoch=0), 17)
    line.ask(s.fetch(names, 14, pair, replica_id=2), 14)


# --- templates --------------------------------------------------------------------------------------------


def repeated(play: Play) -> None:
    """Requests that differ in correlation id, record bytes or offsets only, and then in something else."""
    names = play.names
    member = play.line("member")
    play.join_alone("members", member)
    play.new_producer(play.admin)
    for api in s.conversation_apis():
        line = play.line(api.name, "repeats")
        for version in {api.versions[-1], api.versions[len(api.versions) // 2]}:
            if api.name == "JoinGroup":
                continue
            for request in s.samples(names, api.name, version)[:3]:
                if closes(api.name, version, request):
                    continue
                line.ask(request, version)
                line.ask_all([(request, version)] * 4)
    for version in range(3, 14):
        line = play.line(f"produce {version}", "repeats")
        for size in (10, 10, 11, 300, 10, 19_000, 22_000, 10):
            line.ask(s.produce(names, version, [("plain", 0, batch(b"v" * size))]), version)
        line.ask(s.produce(names, version, [("plain", 1, batch(b"v"))]), version)
        line.ask(s.produce(names, version, [("plain", 1, batch(b"w"))], -1), version)
        line.ask(s.produce(names, version, [("plain", 1, batch(b"w"))], -1, timeout_ms=77), version)
        line.client_id = "other"
        line.ask_all([(s.produce(names, version, [("plain", 1, batch(b"%d" % n))]), version) for n in range(5)])
        bad = bytearray(batch(b"bad"))
        bad[-1] ^= 1
        line.ask_all(
            [(s.produce(names, version, [("plain", 1, each)]), version) for each in (bytes(bad), batch(b"good"))]
        )
        other = version - 1 if version > 3 else 4
        line.ask_all([(s.produce(names, each, [("plain", 1, batch(b"z"))]), each) for each in (version, other) * 3])


def commits(play: Play) -> None:
    """Commits that a connection repeats, in all versions, and all that may change in between."""
    names = play.names
    play.create("gone", 2)
    for version in range(2, 11):
        group, line = f"commits-{version}", play.line(f"commits {version}", "committer")
        play.join_alone(group, line)
        generation, member_id = names.generation, names.member_id
        places = [("plain", n) for n in range(4)] + [("gone", 1)]

        def one(offset: int, **values: Any) -> tuple[Any, int]:
            parts = [(topic, partition, offset + partition) for topic, partition in places]  # noqa: B023
            given = {"generation": generation, "member_id": member_id, **values}  # noqa: B023
            return s.commit(names, version, group, parts, **given), version  # noqa: B023

        for offset in range(5):
            line.ask(*one(offset))
        line.ask_all([one(offset) for offset in range(5, 25)])
        line.ask_all([one(5, text="text"), one(6, text="text"), one(7, text="other"), one(8), one(9), one(10)])
        line.ask_all([one(11), one(12, generation=generation + 1), one(13), one(14, member_id="x"), one(15)])
        if version % 3 == 0:
            line.ask_all([one(offset, text="text") for offset in range(16, 20)])
            for value in ("100000", None):
                play.admin.ask(s.alter_broker("log.retention.ms", value), 1)
                line.ask_all([one(offset, text="text") for offset in range(16, 20)])
        mixed: list[tuple[Any, int]] = []
        for offset in range(20, 30):
            mixed += [one(offset), (s.heartbeat(4, group, generation, member_id), 4)]
        line.ask_all(mixed)
        line.ask(s.offset_fetch(names, 7, group, [("plain", [0, 1, 2, 3])]), 7)
        alone_line = play.line(f"simple {version}", "simple")
        for offset in (1, 2, 3):
            alone_line.ask(s.commit(names, version, f"simple-{version}", [("plain", 0, offset)]), version)
            alone_line.ask(s.commit(names, version, group, [("plain", 0, offset)]), version)
        # A rebalance makes the generation of the learnt commit an old one.
        second = play.line(f"second {version}", "committer")
        second.ask(s.join(5, group), 5)
        line.ask_all([one(40), one(41)])
        if version == 9:
            play.admin.ask(s.delete_topics(names, 5, ["gone"]), 5)
            play.stage.pass_time(0.5)
            line.ask_all([one(42), one(43)])
        line.ask(s.leave(4, group, (member_id, None)), 4)
        line.ask_all([one(44), one(45)])
        line.ask(s.offset_fetch(names, 7, group, None), 7)


# --- reading ----------------------------------------------------------------------------------------------


def fetches(play: Play) -> None:
    """Fetch sessions, and long polls that are satisfied, time out, or lose their client."""
    names, writer = play.names, play.line("writer")
    for n in range(4):
        for k in range(6):
            writer.ask(s.produce(names, 9, [("plain", n, batch(b"%d-%d" % (n, k), b"x" * 500))]), 9)
    all_four = [("plain", n, 0) for n in range(4)]
    for version in range(4, 19):
        line = play.line(f"reads {version}", f"reader-{version}")
        line.ask_all(
            [(s.fetch(names, version, [("plain", n, k)]), version) for n in range(2) for k in (0, 3, 11, 12, 13)]
        )
        line.ask(s.fetch(names, version, all_four, max_bytes=1_500), version)
        line.ask(s.fetch(names, version, all_four, partition_max_bytes=700), version)
        line.ask(s.fetch(names, version, [("plain", 0, 12)], max_wait_ms=250), version)
        line.ask(s.fetch(names, version, all_four, max_wait_ms=250, min_bytes=1 << 20), version)
        line.send_all([(s.fetch(names, version, [("stamped", 0, version - 4)], max_wait_ms=5_000), version)])
        play.stage.pass_time(0.3)
        line.send_all([(s.metadata(names, 12, ["plain"]), 12)])
        play.stage.pass_time(0.3)
        writer.ask(s.produce(names, 9, [("stamped", 0, batch(b"wakes the reader"))]), 9)
        play.stage.wait_for([line])
        if version >= 7:
            sessions(play, line, version)
        gone = play.line(f"leaves {version}", "leaver")
        play.stage.beat()
        gone.send_all([(s.fetch(names, version, [("plain", 0, 12)], max_wait_ms=5_000), version)])
        play.stage.pass_time(0.1)
        gone.leave()
    evicted(play)


def sessions(play: Play, line: Line, version: int) -> None:
    """One fetch session: full, incremental, with topics added and forgotten, out of order, closed."""
    names = play.names
    opened = line.ask(
        s.fetch(names, version, [("plain", 0, 0), ("plain", 1, 0)], session_id=0, session_epoch=0), version
    )
    epochs = iter(range(1, 100))

    def go_on(parts: Sequence[tuple[str, int, int]] = (), **values: Any) -> None:
        asked = {"session_id": opened.session_id, "session_epoch": next(epochs), **values}
        line.ask(s.fetch(names, version, parts, **asked), version)

    go_on()
    go_on([("plain", 0, 12), ("plain", 1, 12)])
    go_on(max_wait_ms=100)
    go_on([("plain", 2, 11)])
    forgotten = [s.made(ForgottenTopic, version, topic="plain", topic_id=names.topic_id("plain"), partitions=[0, 2])]
    go_on(forgotten_topics_data=forgotten)
    go_on([("missing", 0, 0), ("plain", 9, 0)])
    go_on()
    go_on(session_epoch=50)
    go_on(session_id=1)
    line.ask_all([(s.fetch(names, version, [], session_id=opened.session_id, session_epoch=8), version)] * 2)
    go_on([("plain", 0, 0)], session_epoch=-1)
    go_on()


def evicted(play: Play) -> None:
    """More fetch sessions than the broker remembers."""
    names = play.names
    lines = [play.line(f"session {n}", f"evicted-{n}") for n in range(6)]
    ids = []
    for line in lines:
        answer = line.ask(s.fetch(names, 12, [("plain", 0, 12)], session_id=0, session_epoch=0), 12)
        ids.append(answer.session_id)
        play.stage.pass_time(0.1)
    play.stage.pass_time(130)
    for epoch in (1, 2):
        for line, session_id in zip(lines, ids, strict=True):
            line.ask(s.fetch(names, 12, [], session_id=session_id, session_epoch=epoch), 12)
        late = play.line(f"late {epoch}", "late")
        late.ask(s.fetch(names, 12, [("plain", n, 0) for n in range(4)], session_id=0, session_epoch=0), 12)


def nearest_replicas(play: Play) -> None:
    """Fetches that name a rack, of leaders and followers, and fetches that name the epoch that was read last."""
    names, writer = play.names, play.line("writer")
    for n in range(5):
        writer.ask(s.produce(names, 9, [("plain", 0, batch(b"%d" % n)), ("pair", 0, batch(b"%d" % n))], 1), 9)
    follower = play.line("follower", "broker-2", BROKERS)
    replica = ReplicaState(replica_id=2, replica_epoch=OTHER_EPOCH)
    opened = follower.ask(s.fetch(names, 17, [("pair", 0, 0)], replica_state=replica, session_epoch=0), 17)
    session = {"replica_state": replica, "session_id": opened.session_id}
    follower.ask(s.fetch(names, 17, [("pair", 0, 5)], session_epoch=1, **session), 17)
    for version in range(4, 19):
        line = play.line(f"reads {version}", "reader")
        for rack in ("", "rack-1", "rack-2", "rack-9"):
            line.ask(s.fetch(names, version, [("pair", 0, 1), ("plain", 0, 2)], rack_id=rack), version)
            line.ask(s.fetch(names, version, [("led-by-2", 0, 0)], rack_id=rack), version)
        line.ask(s.fetch(names, version, [("led-by-2", 0, 9)], rack_id="rack-1", max_wait_ms=100), version)
        for epoch, offset in ((0, 3), (0, 99), (7, 3), (-1, 3)):
            request = s.fetch(names, version, [("plain", 0, offset)])
            for each in request.topics[0].partitions if version >= 12 else ():
                each.last_fetched_epoch = epoch
            for each in request.topics[0].partitions:
                each.current_leader_epoch = epoch
            line.ask(request, version)


# --- groups -----------------------------------------------------------------------------------------------


def groups(play: Play) -> None:
    """Groups of three members in every version: join, sync, heartbeat, rebalance, leave, expire."""
    for version in range(10):
        three_members(play, version)
    static_members(play)
    join_versions = [(9, 5), (5, 3), (0, 0)]
    for join_version, sync_version in join_versions:
        silent(play, join_version, sync_version)


def joined(play: Play, lines: Sequence[Line], group: str, version: int, ids: Sequence[str]) -> list[Any]:
    """Have members join at once; return their answers."""
    play.stage.beat()
    exchanges = []
    for line, member_id in zip(lines, ids, strict=True):
        exchanges.append(line.exchange(s.join(version, group, member_id), version))
        line.send(exchanges[-1])
    play.stage.wait_for(lines)
    return [line.answer_to(exchange) for line, exchange in zip(lines, exchanges, strict=True)]


def synced(play: Play, lines: Sequence[Line], group: str, version: int, answers: Sequence[Any]) -> None:
    """Have members sync at once; the leader brings the assignments."""
    play.stage.beat()
    for line, answer in zip(lines, answers, strict=True):
        assignments = []
        if answer.leader == answer.member_id:
            assignments = [(each.member_id, b"for " + each.member_id[:9].encode()) for each in answer.members]
        request = s.sync(version, group, answer.generation_id, answer.member_id, assignments)
        line.send(line.exchange(request, version))
    play.stage.wait_for(lines)


def three_members(play: Play, version: int) -> None:
    group = f"group-{version}"
    lines = [play.line(f"{group} member {n}", f"member-{n}") for n in range(3)]
    sync_version, beat_version, leave_version = min(version, 5), min(version, 4), min(version, 5)
    ids = [""] * 3
    if version >= 4:
        ids = [line.ask(s.join(version, group), version).member_id for line in lines]
    first = joined(play, lines[:1], group, version, ids[:1])
    ids[0] = first[0].member_id
    synced(play, lines[:1], group, sync_version, first)
    for line, member_id in zip(lines[1:], ids[1:], strict=True):
        play.stage.beat()
        line.send_all([(s.join(version, group, member_id), version)])
    play.stage.pass_time(0.2)
    lines[0].ask(s.heartbeat(beat_version, group, first[0].generation_id, ids[0]), beat_version)
    joined(play, lines[:1], group, version, ids[:1])
    play.stage.wait_for(lines)
    ids = [last_answer(line).member_id for line in lines]
    answers = [last_answer(line) for line in lines]
    synced(play, lines, group, sync_version, answers)
    generation = answers[0].generation_id
    for line, member_id in zip(lines, ids, strict=True):
        line.ask_all([(s.heartbeat(beat_version, group, generation, member_id), beat_version)] * 5)
    play.admin.ask_all([(each, 5) for each in s.samples(play.names, "DescribeGroups", 5)])
    play.admin.ask(s.made(type(s.samples(play.names, "DescribeGroups", 5)[0]), 5, groups=[group]), 5)
    lines[1].ask(s.leave(leave_version, group, (ids[1], None)), leave_version)
    lines[0].ask(s.heartbeat(beat_version, group, generation, ids[0]), beat_version)
    # The third member does not come back: it is dropped when the rebalance times out.
    joined(play, lines[:1], group, version, ids[:1])
    lines[2].ask(s.heartbeat(beat_version, group, generation, ids[2]), beat_version)
    # A leaves while it waits for the assignment.
    lines[0].ask(s.leave(leave_version, group, (ids[0], None)), leave_version)
    for each in s.samples(play.names, "ListGroups", 4):
        play.admin.ask(each, 4)


def last_answer(line: Line) -> Any:
    """Return the answer to the last request."""
    return line.answer_to(line.record.exchanges[-1])


def static_members(play: Play) -> None:
    """Static members: replaced, fenced, removed by instance id."""
    for version in range(5, 10):
        group = f"static-{version}"
        lines = [play.line(f"{group} {n}", f"static-{n}") for n in range(2)]
        play.join_alone(group, lines[0], "instance-a")
        member_id, generation = play.names.member_id, play.names.generation
        lines[0].ask(s.heartbeat(3, group, generation, member_id, "instance-a"), 3)
        lines[1].ask(s.join(version, group, instance_id="instance-a"), version)
        lines[0].ask(s.heartbeat(3, group, generation, member_id, "instance-a"), 3)
        lines[0].ask(s.sync(3, group, generation, member_id, instance_id="instance-a"), 3)
        lines[0].ask(s.join(version, group, member_id, instance_id="instance-a"), version)
        parts = [("plain", 0, 1)]
        values = {"generation": generation, "member_id": member_id, "group_instance_id": "instance-a"}
        lines[0].ask(s.commit(play.names, 7, group, parts, **values), 7)
        lines[0].ask(s.leave(3, group, ("", "instance-a"), ("", "instance-b")), 3)


def silent(play: Play, join_version: int, sync_version: int) -> None:
    """A member that is not heard of any more."""
    group, line = f"silent-{join_version}", play.line(f"silent {join_version}", "silent")
    asked = s.join(join_version, group, session_timeout_ms=6_000)
    answer = line.ask(asked, join_version)
    if join_version >= 4:
        asked.member_id = answer.member_id
        answer = line.ask(asked, join_version)
    line.ask(s.sync(sync_version, group, 1, answer.member_id, [(answer.member_id, b"x")]), sync_version)
    play.stage.pass_time(7)
    line.ask(s.heartbeat(0, group, 1, answer.member_id), 0)


# --- size and number --------------------------------------------------------------------------------------


def slices(play: Play) -> None:
    """Requests and answers so long that the broker handles them in slices, with short ones in between."""
    names, count = play.names, 1_000
    play.create("wide", count)
    play.admin.ask(s.create_topics(7, s.new_topic("wide-pair", [[1, 2]] * 250)), 7)
    play.learn_ids()
    places = [("wide", n) for n in range(count)]
    pairs = [("wide-pair", n) for n in range(250)]
    long: list[tuple[str, Callable[[int], Any], range]] = [
        (
            "produce",
            lambda v: s.produce(names, v, [(*each, batch(b"v%d" % each[1])) for each in places]),
            range(9, 14, 2),
        ),
        ("acks=all", lambda v: s.produce(names, v, [(*each, batch(b"a")) for each in places], -1), range(9, 10)),
        ("acks=0", lambda v: s.produce(names, v, [(*each, batch(b"0")) for each in places], 0), range(9, 10)),
        (
            "acks=all that waits",
            lambda v: s.produce(names, v, [(*each, batch(b"w" * 40)) for each in pairs], -1, timeout_ms=300),
            range(8, 14, 5),
        ),
        (
            "large batches that wait",
            lambda v: s.produce(names, v, [(*each, batch(b"w" * 5_000)) for each in pairs[:40]], -1, timeout_ms=300),
            range(9, 10),
        ),
        ("fetch", lambda v: s.fetch(names, v, [(*each, 0) for each in places]), range(6, 19, 4)),
        ("poll", lambda v: s.fetch(names, v, [(*each, 99) for each in places], max_wait_ms=50), range(12, 13)),
        ("offsets", lambda v: s.list_offsets(v, [(*each, -1) for each in places]), range(1, 12, 3)),
        ("commit", lambda v: s.commit(names, v, "wide", [(*each, 7) for each in places]), range(2, 11, 4)),
        ("committed", lambda v: s.offset_fetch(names, v, "wide", [("wide", range(count))]), range(1, 11, 4)),
        ("all committed", lambda v: s.offset_fetch(names, v, "wide", None), range(7, 9)),
        ("metadata", lambda v: s.metadata(names, v, ["wide"]), range(1, 14, 6)),
        ("named often", lambda v: s.metadata(names, v, [f"missing-{n}" for n in range(900)]), range(9, 13, 3)),
    ]
    failing = [(*each, batch(b"0")) for each in places[:800]] + [("missing", n, batch(b"0")) for n in range(3)]
    with play.stage.busy(work_s=0.000_2):
        line = play.line("acks=0 that fails", "slices")
        line.ask_all([(s.produce(names, 9, failing, 0), 9), (s.metadata(names, 12, []), 12)])
        for name, make, versions in long:
            line, short = play.line(name, f"slices-{name}"), play.line(f"beside {name}", "short")
            for version in versions:
                play.stage.beat()
                line.send_all([(make(version), version), (s.metadata(names, 12, ["plain"]), 12)])
                short.send_all([(s.heartbeat(4, "nobody", 1, "x"), 4)] * 3)
                play.stage.wait_for([line, short])
        line = play.line("large batches", "large")
        for size in (18_000, 21_000, 60_000, 300_000, 900_000):
            line.ask_all([(s.produce(names, 9, [("plain", 0, batch(b"x" * size))]), 9)] * 3)
            line.ask(s.fetch(names, 12, [("plain", 0, 0)], max_bytes=size), 12)
        for api in s.conversation_apis():
            padded(play, api.name, api.versions[-1])
    too_much(play)


def padded(play: Play, name: str, version: int) -> None:
    """A sample with bytes behind it that make it long."""
    line = play.line(f"padded {name}", "padded")
    request = s.samples(play.names, name, version)[0]
    exchange = line.exchange(request, version)
    exchange.frame = sized(exchange.frame[4:] + bytes(25_000))
    play.stage.beat()
    line.send(exchange)
    play.stage.wait_for([line])


def too_much(play: Play) -> None:
    """Requests with more entries, or more bytes, than the broker takes."""
    names = play.names
    too_long: dict[str, tuple[Any, int]] = {
        "metadata": (s.metadata(names, 12, ["x"] * 60_000), 12),
        "fetch": (s.fetch(names, 12, [("plain", n, 0) for n in range(60_000)]), 12),
        "members": (s.leave(4, "group", *[("m", None)] * 20_000), 4),
        "protocols": (s.join(9, "group", protocols=[(f"p{n}", b"") for n in range(3_000)]), 9),
        "metadata of a member": (s.join(9, "group", protocols=[("p", bytes(5 << 20))]), 9),
        "long names": (s.metadata(names, 12, ["x" * 30_000] * 150), 12),
        "produce with long names": (s.produce(names, 9, [(f"{n:030000}", 0, None) for n in range(150)]), 9),
        "client id": (s.metadata(names, 12, []), 12),
    }
    for name, (request, version) in too_long.items():
        line = play.line(f"too much: {name}", "x" * 30_000 if name == "client id" else "much")
        exchange = line.exchange(request, version, closes=name != "client id")
        play.stage.beat()
        line.send(exchange)
        play.stage.wait_for([line])


def crowds(play: Play) -> None:
    """Hundreds of connections that ask the same at once."""
    names, count = play.names, 200
    lines = [play.line(f"crowd {n}", f"crowd-{n % 7}") for n in range(count)]
    asked: list[tuple[str, Callable[[int], tuple[Any, int]]]] = [
        ("metadata", lambda n: (s.metadata(names, 12, ["plain"]), 12)),
        ("join", lambda n: (s.join(9, f"crowd-{n % 20}", instance_id=f"instance-{n}"), 9)),
        ("heartbeat", lambda n: (s.heartbeat(4, f"crowd-{n % 20}", 1, "x"), 4)),
        ("produce", lambda n: (s.produce(names, 9, [("plain", n % 4, batch(b"same"))]), 9)),
        ("poll", lambda n: (s.fetch(names, 12, [("plain", n % 4, 50)], max_wait_ms=500), 12)),
        ("find", lambda n: (s.samples(names, "FindCoordinator", 4)[0], 4)),
        ("commit", lambda n: (s.commit(names, 8, f"simple-{n}", [("plain", 0, n)]), 8)),
    ]
    with play.stage.busy():
        for _, make in asked:
            play.stage.beat()
            for number, line in enumerate(lines):
                request, version = make(number)
                line.send_all([(request, version)])
            play.stage.wait_for(lines)
    synced_crowd(play)


def synced_crowd(play: Play) -> None:
    """One group of a hundred members who join, sync and beat at once."""
    lines = [play.line(f"member {n}", "crowd") for n in range(100)]
    ids = [""] * len(lines)
    with play.stage.busy():
        ids = [answer.member_id for answer in joined(play, lines, "hundred", 9, ids)]
        answers = joined(play, lines, "hundred", 9, ids)
        if len({answer.generation_id for answer in answers}) > 1:
            answers = joined(play, lines, "hundred", 9, ids)
        synced(play, lines, "hundred", 5, answers)
        play.stage.beat()
        for line, answer in zip(lines, answers, strict=True):
            line.send_all([(s.heartbeat(4, "hundred", answer.generation_id, answer.member_id), 4)])
        play.stage.wait_for(lines)


def in_turns(play: Play) -> None:
    """So many short requests in one segment that a connection lets others have their turn."""
    names = play.names
    line, other = play.line("many"), play.line("other")
    with play.stage.busy():
        for version in (5, 12):
            play.stage.beat()
            line.send_all([(s.metadata(names, version, ["plain"]), version)] * 700)
            other.send_all([(s.heartbeat(4, "nobody", 1, "x"), 4)] * 3)
            play.stage.wait_for([line, other])
        asked = [(s.produce(names, 9, [("plain", 0, batch(b"%d" % n))]), 9) for n in range(700)]
        for n in range(10, 700, 70):
            asked[n] = s.heartbeat(4, "nobody", 1, "x"), 4
        line.ask_all(asked)


def held_up(play: Play) -> None:
    """Clients that read no answers, send half a request, send too much at once, or nothing at all."""
    names = play.names
    writer = play.line("writer")
    for _ in range(4):
        writer.ask(s.produce(names, 9, [("plain", n, batch(b"x" * 40_000)) for n in range(4)]), 9)
    everything = s.fetch(names, 12, [("plain", n, 0) for n in range(4)])
    slow = play.line("reads late", "slow")
    slow.pause_reading()
    play.stage.beat()
    slow.send_all([(everything, 12), (s.metadata(names, 12, ["plain"]), 12)] * 10)
    play.stage.pass_time(0.5)
    slow.send_all([(s.metadata(names, 12, ["plain"]), 12)] * 5)
    play.stage.pass_time(0.5)
    slow.resume_reading()
    play.stage.wait_for([slow])
    behind_a_poll(play)
    half = play.line("half a request", "half")
    frame = half.exchange(s.metadata(names, 12, ["plain"]), 12).frame
    half.send_bytes(frame[:20])
    silent_line = play.line("silent", "silent")
    play.stage.pass_time(1)
    writer.ask(s.metadata(names, 12, ["plain"]), 12)
    play.stage.pass_time(8)
    assert not half.is_open, "half a request keeps its connection"
    waiting_for_memory(play)
    play.stage.pass_time(40)
    assert not silent_line.is_open, "a silent connection lasts"
    stuck = [play.line(f"reads nothing {n}", "stuck") for n in range(6)]
    play.stage.beat()
    for number, line in enumerate(stuck):  # each with another amount: those with the most unread bytes end first
        line.pause_reading()
        line.send_all([(s.metadata(names, 12, ["plain"]), 12)] * (10 * number))
        line.send_all([(everything, 12)] * 8)
    play.stage.pass_time(20)
    for line in stuck:
        line.resume_reading()
    play.stage.wait_for(stuck)
    too_many_connections(play)


def behind_a_poll(play: Play) -> None:
    """More requests behind a long poll than the broker reads."""
    names = play.names
    line = play.line("behind a poll", "behind")
    play.stage.beat()
    line.send_all([(s.fetch(names, 12, [("stamped", 0, 0)], max_wait_ms=700), 12)])
    for n in range(20):
        line.send_all([(s.produce(names, 9, [("plain", 0, batch(b"%d" % n))]), 9), (s.metadata(names, 12, []), 12)] * 5)
    play.stage.wait_for([line])
    # Waiting requests keep as much as they may: the later polls are answered at once.
    lines = [play.line(f"poll {n}", "polls") for n in range(8)]
    play.stage.beat()
    for line in lines:
        line.send_all(
            [(s.fetch(names, 4, [("plain", 1 + n % 3, 4) for n in range(200)], max_wait_ms=400, min_bytes=1 << 30), 4)]
        )
    play.stage.wait_for(lines)


def waiting_for_memory(play: Play) -> None:
    """Large requests that arrive in parts, more of them than there is memory for."""
    names = play.names
    lines = [play.line(f"large {n}", "large") for n in range(8)]
    rests = []
    for number, line in enumerate(lines):
        values = bytes([number]) * (500_000 + 60_000 * number)
        exchange = line.exchange(s.produce(names, 9, [("plain", number % 4, batch(values))]), 9)
        play.stage.beat()
        rests.append(line.send_begin(exchange, 100 if number % 2 else 70_000))
    play.stage.pass_time(0.1)
    lines[3].leave()
    for begin, end in ((0, 200_000), (200_000, 1 << 20)):
        for line, rest in zip(lines, rests, strict=True):
            play.stage.beat()
            if line.is_open:
                line.send_rest(rest[begin:end])
    play.stage.wait_for(lines)
    # One that sends nothing more, one with requests behind a poll, and one that stands in line. Of several that stall,
    # the broker looks at one first by chance: it keeps connections in a set.
    stalled, in_the_way, other = (play.line(name, "large") for name in ("stalled", "in the way", "in line"))
    play.stage.beat()
    stalled.send_begin(stalled.exchange(s.produce(names, 9, [("plain", 0, batch(b"x" * 900_000))]), 9), 500_000)
    in_the_way.send_all([(s.fetch(names, 12, [("stamped", 0, 0)], max_wait_ms=20_000), 12)])
    play.stage.beat()
    in_the_way.send_all([(s.produce(names, 9, [("plain", 0, batch(b"y" * 40_000))]), 9)] * 5)
    play.stage.beat()
    rest = other.send_begin(other.exchange(s.produce(names, 9, [("plain", 1, batch(b"z" * 900_000))]), 9), 300_000)
    play.stage.pass_time(5)
    other.send_rest(rest)
    play.stage.wait_for([other, in_the_way])
    play.stage.pass_time(15)


def too_many_connections(play: Play) -> None:
    """More connections than the broker accepts."""
    lines = [play.line(f"one of many {n}", "many") for n in range(20)]
    play.stage.pass_time(0.1)
    for line in lines:
        if line.is_open:
            line.ask(s.metadata(play.names, 12, []), 12)
            line.leave()


def left_alone(play: Play) -> None:
    """Clients that leave while their requests wait: the broker carries out what was received whole."""
    names, reader = play.names, play.line("reader")
    for version in (9, 13):
        line = play.line(f"leaves behind an acknowledgement {version}", f"leaver-{version}")
        play.stage.beat()
        line.send_all(
            [
                (s.produce(names, version, [("pair", 0, batch(b"waits"))], -1, timeout_ms=400), version),
                (s.metadata(names, 12, ["plain"]), 12),
                (s.produce(names, version, [("plain", 0, batch(b"behind"))]), version),
                (s.commit(names, 8, "left", [("plain", 0, version)]), 8),
                (s.join(5, "left"), 5),
                (s.create_topics(5, s.new_topic(f"left-{version}", [[1]])), 5),
            ]
        )
        play.stage.pass_time(0.1)
        line.leave()
        play.stage.pass_time(1)
        reader.ask(s.list_offsets(5, [("plain", 0, -1), ("pair", 0, -1)]), 5)
        reader.ask(s.offset_fetch(names, 7, "left", None), 7)
        reader.ask(s.metadata(names, 9, [f"left-{version}"]), 9)
    asked: list[tuple[Any, int]] = [
        (s.join(9, "left", instance_id="a"), 9),
        (s.fetch(names, 12, [("plain", 0, 99)], max_wait_ms=5_000), 12),
        (s.fetch(names, 12, [("plain", 0, 99)], max_wait_ms=5_000, session_epoch=0), 12),
        (s.create_topics(7, s.new_topic("left-at-once", [[1]])), 7),
        (s.delete_topics(names, 5, ["compact"]), 5),
    ]
    for number, (request, version) in enumerate(asked):
        line = play.line("leaves at once", f"leaver-at-once-{number}")
        play.stage.beat()
        line.send_all([(request, version)] * 2)
        play.stage.pass_time(0.000_5)
        line.leave()
        play.stage.pass_time(0.5)
        reader.ask(s.metadata(names, 9, ["left-at-once", "compact"]), 9)
    for each in s.samples(names, "ListGroups", 4):
        reader.ask(each, 4)
    member = play.line("member")
    play.join_alone("members", member)
    for version in (3, 9):
        line = play.line(f"leaves while it joins {version}", f"joiner-{version}")
        play.stage.beat()
        line.send_all([(s.join(version, "members", instance_id=None if version < 5 else "joiner"), version)])
        play.stage.pass_time(0.1)
        line.leave()
        play.stage.pass_time(0.1)
        member.ask(s.heartbeat(4, "members", names.generation, names.member_id), 4)
        answer = member.ask(s.join(9, "members", names.member_id), 9)
        names.generation = answer.generation_id
        member.ask(s.sync(5, "members", names.generation, names.member_id, [(names.member_id, b"all")]), 5)
        for each in s.samples(names, "DescribeGroups", 5):
            reader.ask(each, 5)


def stops(play: Play) -> None:
    """A broker that stops while requests wait, and with connections that are silent."""
    names = play.names
    lines = {name: play.line(name, "stops") for name in ("silent", "poll", "acks", "join", "behind", "half", "group")}
    play.join_alone("members", lines["group"])
    play.stage.beat()
    poll = s.fetch(names, 12, [("plain", 0, 9)], max_wait_ms=60_000)
    lines["poll"].send_all([(poll, 12)])
    lines["acks"].send_all([(s.produce(names, 9, [("pair", 0, batch(b"x"))], -1, timeout_ms=1_500), 9)])
    lines["join"].send_all([(s.join(5, "members"), 5)])
    lines["behind"].send_all([(poll, 12), (s.produce(names, 9, [("plain", 0, batch(b"never"))]), 9)])
    lines["half"].send_bytes(b"\0\0\0\x40\0\3")
    play.stage.pass_time(0.2)
    play.stage.stop_broker()


# --- administration ---------------------------------------------------------------------------------------


def first_requests(play: Play) -> None:
    """What is asked of a broker that has no internal topic yet."""
    names = play.names
    line = play.line("first", "first")
    for name in ("ListGroups", "DescribeGroups", "DeleteGroups", "OffsetDelete", "OffsetFetch", "Heartbeat"):
        api = next(each for each in s.conversation_apis() if each.name == name)
        for each in s.samples(names, name, api.versions[-1])[:2]:
            line.ask(each, api.versions[-1])
    lines = [play.line(f"first {n}", "first") for n in range(4)]
    play.stage.beat()
    lines[0].send_all([(s.commit(names, 8, "one", [("plain", 0, 1)]), 8)] * 2)
    lines[1].send_all([(s.join(5, "two"), 5)])
    lines[2].send_all([(s.samples(names, "FindCoordinator", 4)[0], 4)])
    lines[3].send_all([(s.offset_fetch(names, 7, "one", None), 7)])
    play.stage.wait_for(lines)
    play.stage.pass_time(2)
    lines[3].ask_all([(s.commit(names, 8, "one", [("plain", 0, n)]), 8) for n in range(3)])
    lines[3].ask(s.offset_fetch(names, 7, "one", None), 7)
    for name in ("Metadata", "DeleteTopics", "CreateTopics", "ElectLeaders", "AlterPartitionReassignments"):
        api = next(each for each in s.conversation_apis() if each.name == name)
        for version in api.versions:
            for each in s.samples(names, name, version):
                line.ask(each, version)


def administration(play: Play) -> None:
    """Topics that are made, changed, grown and deleted, and what others see of it."""
    names, line = play.names, play.line("administrator", "admin-2")
    for version in range(8):
        name = f"topic-{version}"
        line.ask_all(
            [
                (s.create_topics(version, s.new_topic(name, [[1]] * 2, configs={"retention.ms": "5000"})), version),
                (s.metadata(names, 12, [name]), 12),
                (s.create_topics(version, s.new_topic(name, [[1]])), version),
            ]
        )
        for api in ("DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs", "CreatePartitions", "DeleteRecords"):
            found = next(each for each in s.conversation_apis() if each.name == api)
            used = found.versions[min(version, len(found.versions) - 1)]
            line.ask_all([(each, used) for each in s.samples(names, api, used)])
        line.ask(s.produce(names, 9, [(name, n, batch(b"x")) for n in range(3)]), 9)
        deleted = min(version, 5)
        line.ask_all(
            [
                (s.delete_topics(names, deleted, [name, "missing"]), deleted),
                (s.metadata(names, 12, [name]), 12),
                (s.produce(names, 9, [(name, 0, batch(b"x"))]), 9),
            ]
        )
    play.learn_ids()
    line.ask(s.delete_topics(names, 6, ["compact", "missing"], by_id=True), 6)
    line.ask(s.metadata(names, 10, None), 10)
    # Every setting of a topic, as clients see it.
    for kind, name in ((2, "plain"), (4, "1")):
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
        line.ask(DescribeConfigsRequest(resources=[resource], include_synonyms=True), 4)


SCENES: dict[str, tuple[Scene, dict[str, Any]]] = {
    "alone": (alone, {}),
    "inter_broker": (inter_broker, {}),
    "pipelined": (pipelined, {}),
    "byte_by_byte": (byte_by_byte, {}),
    "wild": (wild, {}),
    "malformed": (malformed, {}),
    "produce": (produce, {}),
    "idempotent": (idempotent, {}),
    "refused_for_now": (refused_for_now, {}),
    "rolls": (rolls, {"log_segment_bytes": 20_000}),
    "acknowledgements": (acknowledgements, {}),
    "follower_fetches": (follower_fetches, {}),
    "repeated": (repeated, {}),
    "commits": (commits, {"offsets_topic_segment_bytes": 20_000}),
    "fetches": (fetches, {"max_incremental_fetch_session_cache_slots": 4}),
    "nearest_replicas": (nearest_replicas, {"replica_selector_class": "RackAwareReplicaSelector"}),
    "groups": (groups, {}),
    "slices": (slices, {}),
    "crowds": (crowds, {}),
    "in_turns": (in_turns, {}),
    "held_up": (
        held_up,
        {
            "queued_max_request_bytes": 2 << 20,
            "socket_request_max_bytes": 3 << 19,
            "socket_partial_request_timeout_ms": 3_000,
            "connections_max_idle_ms": 30_000,
            "max_connections": 60,
        },
    ),
    "left_alone": (left_alone, {}),
    "stops": (stops, {}),
    "administration": (administration, {}),
    "first_requests": (
        first_requests,
        {"alone": True, "delete_topic_enable": False, "auto_create_topics_enable": False},
    ),
}
"""Each scene, and the settings of its broker."""


def perform(name: str, at_end: Callable[[Broker], None] | None = None) -> list[LineRecord]:
    """Perform a scene, and return what each connection sent and received.

    :param at_end: called with the broker when all is answered, before the broker ends.
    """
    scene, settings = SCENES[name]
    describe = BrokerSettings.describe
    # The next two are not injected: the broker asks the operating system.
    with (
        mock.patch.object(BrokerSettings, "describe", lambda own: without_newer(describe(own))),
        mock.patch.object(shutil, "disk_usage", return_value=DISK_USAGE),
        mock.patch.object(resource, "getrlimit", return_value=(OPEN_FILES_MAX, OPEN_FILES_MAX)),
    ):
        play = Play(name, **settings)
        scene(play)
        play.stage.pass_time(0.05)
        if at_end is not None:
            at_end(play.stage.broker)
        return play.stage.end()


def without_newer(settings: Iterable[DescribedSetting]) -> Iterator[DescribedSetting]:
    """Leave out the settings that are newer than the recording."""
    return (each for each in settings if each.name not in NEWER_SETTINGS)


def conversation() -> Iterator[LineRecord]:
    """Perform all scenes."""
    for name in SCENES:
        yield from perform(name)
