"""A mirror between two real brokers: what is in the source is in the target, once, and goes on being so."""

from __future__ import annotations

import itertools
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import confluent_kafka
import pytest

import barnabas
from barnabas.client.range_reader import RangeReader
from barnabas.errors import BarnabasError
from barnabas.model import OffsetAndMetadata
from barnabas.records import iter_headers
from tests.interop.conftest import COMPACTS_SOON
from tests.support.broker_process import BrokerProcess
from tests.support.mirror_process import MirrorProcess, stored
from tests.support.reading import wait_until

BROKER_SETTINGS = {**COMPACTS_SOON, "log_retention_check_interval_ms": "86400000"}
_numbers = itertools.count(1)


class Pair(NamedTuple):
    """Two brokers, each a cluster."""

    a: BrokerProcess
    b: BrokerProcess


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Two brokers that the tests of this module share, each with topics of its own."""
    folder = tmp_path_factory.mktemp("pair")
    brokers = Pair(BrokerProcess(folder / "a", BROKER_SETTINGS), BrokerProcess(folder / "b", BROKER_SETTINGS))
    for broker in brokers:
        broker.begin()
    for broker in brokers:
        broker.wait_until_ready()
    yield brokers
    for broker in brokers:
        broker.close()


Run = Callable[..., MirrorProcess]


@pytest.fixture
def run(pair: Pair, tmp_path: Path) -> Iterator[Run]:
    """Start a mirror from a to b, or `back=True` the other way."""
    started: list[MirrorProcess] = []

    def start(*options: str, back: bool = False) -> MirrorProcess:
        source, target = (pair.b, pair.a) if back else (pair.a, pair.b)
        log = tmp_path / f"mirror-{len(started)}.log"
        started.append(MirrorProcess(source.bootstrap, target.bootstrap, log, *options))
        return started[-1]

    yield start
    for each in started:
        each.close()


def once(run: Run, *options: str, back: bool = False) -> MirrorProcess:
    """Mirror what there is, and expect all to be well."""
    mirror = run(*options, "--once", back=back)
    assert mirror.wait() == 0, mirror.log.read_text()
    return mirror


def send(bootstrap: str, topic: str, first: int, count: int, partitions: int = 1) -> None:
    with barnabas.Producer(bootstrap, batch_size=2_000, compression_type="lz4") as producer:
        for number in range(first, first + count):
            producer.send(
                topic,
                b"value %d" % number,
                key=None if number % 7 == 0 else b"%d" % (number % 50),
                headers=[("number", b"%d" % number)] if number % 3 == 0 else [],
                partition=number % partitions,
                timestamp_ms=1_000_000 + number,
            )


def bodies(bootstrap: str, topic: str) -> list[bytes]:
    """Return the batches of partition 0 without their headers."""
    with barnabas.Admin(bootstrap) as admin:
        end = admin.end_offsets([(topic, 0)])[(topic, 0)]  # type: ignore[index]
    with RangeReader(bootstrap, topic, 0, 0, end) as reader:
        return [bytes(data[at + 61 : at + header.size]) for data in reader for at, header in iter_headers(data)]


def test_records_partitions_and_settings_follow(pair: Pair, run: Run) -> None:
    a, b = pair.a.bootstrap, pair.b.bootstrap
    with barnabas.Admin(a) as admin_a, barnabas.Admin(b) as admin_b:
        admin_a.create_topic("follows", 2, config={"retention.ms": "900000000", "min.insync.replicas": "1"})
        send(a, "follows", 0, 3_000, 2)
        once(run, "--topics", "follows")
        assert stored(a, "follows") == stored(b, "follows")
        assert bodies(a, "follows") == bodies(b, "follows"), "batches are neither decoded nor compressed anew"
        assert admin_b.describe_config("follows")["retention.ms"].value == "900000000"

        admin_a.add_partitions("follows", 3)
        admin_a.alter_config("follows", to_set={"segment.ms": "800000000"}, to_unset=["retention.ms"])
        admin_b.alter_config("follows", to_set={"max.message.bytes": "2000000"})
        wait_until(lambda: len(admin_a.describe_topics(["follows"])[0].partitions) == 3, "the topic has grown")
        send(a, "follows", 3_000, 600, 3)
        mirror = once(run, "--topics", "follows")
        assert stored(a, "follows") == stored(b, "follows")
        settings = admin_b.describe_config("follows")
        assert (settings["segment.ms"].value, settings["retention.ms"].is_default) == ("800000000", True)
        assert settings["max.message.bytes"].value == "2000000", "what somebody else sets in the target stays"
        assert mirror.said("ended")[0]["records"] == 600

        admin_a.delete_topic("follows")
        wait_until(lambda: "follows" not in admin_a.list_topics(), "the topic is gone")
        once(run, "--topics", "follows")
        assert sum(map(len, stored(b, "follows").values())) == 3_600, "what is deleted stays in the target"


def test_two_mirrors_at_the_same_time_store_each_record_once(pair: Pair, run: Run) -> None:
    a, b = pair.a.bootstrap, pair.b.bootstrap
    with barnabas.Admin(a) as admin:
        admin.create_topic("shared", 2)
    send(a, "shared", 0, 20_000, 2)
    mirrors = [run("--topics", "shared", "--once") for _ in range(2)]
    assert [mirror.wait() for mirror in mirrors] == [0, 0], [mirror.log.read_text() for mirror in mirrors]
    assert stored(a, "shared") == stored(b, "shared")


def test_target_and_source_that_go_away_and_come_back(pair: Pair, run: Run) -> None:
    a, b = pair.a.bootstrap, pair.b.bootstrap
    with barnabas.Admin(a) as admin:
        admin.create_topic("away", 2)
    send(a, "away", 0, 1_000, 2)
    mirror = run("--topics", "away", "--metrics-port", "0", "--status", "0.2s")
    wait_until(lambda: any(each.get("records") == 1_000 for each in mirror.events), mirror.log.read_text)
    pair.b.kill()
    send(a, "away", 1_000, 1_000, 2)
    pair.b.restart()
    wait_until(lambda: any(each.get("records") == 2_000 for each in mirror.events), mirror.log.read_text)
    pair.a.kill()
    pair.a.restart()
    send(a, "away", 2_000, 1_000, 2)
    wait_until(lambda: any(each.get("records", 0) == 3_000 for each in mirror.events), mirror.log.read_text)
    with urllib.request.urlopen(mirror.said("ready")[0]["metrics"], timeout=30) as answer:
        text = answer.read().decode()
    assert 'barnabas_mirror_records_total{partition="0",topic="away"} 1500.0\n' in text
    # Records get on at once; that a look at the topics has failed is known until the next one.
    wait_until(lambda: not mirror.waits, mirror.log.read_text)
    assert mirror.stop() == 0, mirror.log.read_text()
    assert stored(a, "away") == stored(b, "away")


def test_compacted_topic_with_holes_and_a_beginning_that_is_gone(pair: Pair, run: Run) -> None:
    a, b = pair.a.bootstrap, pair.b.bootstrap
    config = {
        "cleanup.policy": "compact",
        "segment.bytes": "20000",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "100",
    }
    with barnabas.Admin(a) as admin:
        admin.create_topic("keys", 1, config=config)
        with barnabas.Producer(a, batch_size=1_000) as producer:
            for number in range(3_000):
                producer.send("keys", b"%d" % number, key=b"%d" % (number % 40 if number % 5 else number))

        def count() -> int:
            return len(stored(a, "keys")[0])

        wait_until(lambda: count() < 2_000, lambda: f"{count()} records are left")
        once(run, "--topics", "keys")
        first = stored(b, "keys")[0]
        send_more = [b"%d" % number for number in range(3_000, 3_300)]
        with barnabas.Producer(a, batch_size=1_000) as producer:
            for value in send_more:
                producer.send("keys", value, key=value)
        once(run, "--topics", "keys")
    values = {each.key: each.value for each in stored(b, "keys")[0]}
    assert values == {each.key: each.value for each in stored(a, "keys")[0]}
    assert len({each.value for each in first}) == len(first)


def test_offsets_that_were_deleted_before_are_told_and_the_map_is_right(pair: Pair, run: Run) -> None:
    a, b = pair.a.bootstrap, pair.b.bootstrap
    with barnabas.Admin(a) as admin, barnabas.Admin(b) as there:
        admin.create_topic("begins", 1)
        send(a, "begins", 0, 1_000)
        admin.delete_records({("begins", 0): 777})
        admin.set_group_offsets("begins-group", {("begins", 0): 900})
        once(run, "--topics", "begins", "--groups", "begins-group")
        assert stored(a, "begins") == stored(b, "begins")
        send(a, "begins", 1_000, 500)
        admin.delete_records({("begins", 0): 1_400})
        mirror = run("--topics", "begins", "--groups", "begins-group", "--once")
        assert mirror.wait() == 1, "not all was mirrored"
        assert "400 offsets before 1400 were deleted" in mirror.said("remark")[0]["reason"]
        assert mirror.said("ended")[0]["missing"] == 400
        assert len(stored(b, "begins")[0]) == 323
        admin.set_group_offsets("begins-group", {("begins", 0): OffsetAndMetadata(1_450, "kept")})
        mirror = run("--topics", "begins", "--groups", "begins-group")
        place = ("begins", 0)
        wait_until(lambda: _offset(there, "begins-group", place) == 273, mirror.log.read_text)
        (committed,) = there.group_offsets("begins-group").values()
        assert committed.metadata == "kept"
        assert mirror.stop() == 0


def _offset(admin: barnabas.Admin, group: str, place: tuple[str, int]) -> int | None:
    found = {tuple(tp): each.offset for tp, each in admin.group_offsets(group).items()}
    return found.get(place)


def _confluent_reads_some(bootstrap: str, topic: str, group: str, count: int) -> list[bytes]:
    """The same with confluent-kafka."""
    values: list[bytes] = []
    settings = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    try:
        consumer.subscribe([topic])

        def has_read() -> bool:
            for message in consumer.consume(count - len(values), 0.2):
                assert message.error() is None
                values.append(message.value())
            return len(values) >= count

        wait_until(has_read, "records")
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return values


def _read_some(bootstrap: str, topic: str, group: str, count: int) -> list[bytes]:
    """Read so many records as a member of a group, and commit."""
    values: list[bytes] = []
    with barnabas.Consumer(bootstrap, group=group, enable_auto_commit=False, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        wait_until(
            lambda: (
                values.extend(each.value for each in consumer.poll(max_records=count - len(values), timeout_s=0.2))
                or len(values) >= count
            ),
            "records",
        )  # type: ignore[misc,func-returns-value]
        consumer.commit()
    return values


@pytest.mark.parametrize("reads", [_read_some, _confluent_reads_some])
def test_group_moves_to_the_other_cluster_and_back_and_goes_on_where_it_was(
    pair: Pair, run: Run, reads: Callable[[str, str, str, int], list[bytes]]
) -> None:
    a, b = pair.a.bootstrap, pair.b.bootstrap
    topic = f"read{reads.__name__}"
    with barnabas.Admin(a) as admin, barnabas.Admin(b) as there:
        admin.create_topic(topic, 1)
        send(a, topic, 0, 500)
        admin.delete_records({(topic, 0): 100})
        mirror = run("--topics", topic, "--groups", "travellers")
        place = (topic, 0)
        first = reads(a, topic, "travellers", 150)
        wait_until(lambda: _offset(there, "travellers", place) == 150, mirror.log.read_text)
        second = reads(b, topic, "travellers", 100)
        wait_until(lambda: _offset(admin, "travellers", place) == 350, mirror.log.read_text)
        third = reads(a, topic, "travellers", 150)
        assert first + second + third == [b"value %d" % number for number in range(100, 500)]
        wait_until(lambda: _offset(there, "travellers", place) == 400, mirror.log.read_text)
        assert mirror.stop() == 0


def test_records_do_not_circle(pair: Pair, run: Run) -> None:
    a, b = pair.a.bootstrap, pair.b.bootstrap
    with barnabas.Admin(a) as admin, barnabas.Admin(b) as there:
        admin.create_topic("round", 1)
        there.create_topic("round-back", 1)
        send(a, "round", 0, 100)
        send(b, "round-back", 0, 100)
        once(run, "--topics", "round.*")
        back = once(run, "--topics", "round.*", back=True)
        once(run, "--topics", "round.*")
        assert [each["about"] for each in back.said("left out")] == ["round"]
        for bootstrap in (a, b):
            assert [len(stored(bootstrap, name)[0]) for name in ("round", "round-back")] == [100, 100]


def test_two_mirrors_that_face_each_other_and_begin_at_once_bring_each_topic_its_own_way(pair: Pair, run: Run) -> None:
    a, b = pair.a.bootstrap, pair.b.bootstrap
    with barnabas.Admin(a) as admin, barnabas.Admin(b) as there:
        admin.create_topic("facing-a", 1)
        there.create_topic("facing-b", 1)
        mirrors = run("--topics", "facing-.*"), run("--topics", "facing-.*", back=True)

        def ends(count: int) -> bool:
            try:
                return all(
                    each.end_offsets([(name, 0)])[(name, 0)] == count  # type: ignore[index]
                    for each in (admin, there)
                    for name in ("facing-a", "facing-b")
                )
            except BarnabasError:
                return False

        for count in (100, 200):
            send(a, "facing-a", count - 100, 100)
            send(b, "facing-b", count - 100, 100)
            wait_until(lambda count=count: ends(count), lambda: "".join(each.log.read_text() for each in mirrors))  # type: ignore[misc]
        for mirror, name in zip(mirrors, ("facing-b", "facing-a"), strict=True):
            wait_until(lambda: name in {each["about"] for each in mirror.said("left out")}, mirror.log.read_text)  # noqa: B023
            assert mirror.stop() == 0, mirror.log.read_text()
        for name in ("facing-a", "facing-b"):
            assert stored(a, name) == stored(b, name)
            assert len(stored(a, name)[0]) == 200


def test_foreign_records_are_told_and_never_passed_over(pair: Pair, run: Run) -> None:
    a, b = pair.a.bootstrap, pair.b.bootstrap
    with barnabas.Admin(a) as admin, barnabas.Admin(b) as there:
        admin.create_topic("foreign", 1)
        send(a, "foreign", 0, 100)
        once(run, "--topics", "foreign")
        with barnabas.Producer(b) as producer:
            producer.send("foreign", b"of somebody else", partition=0)
        send(a, "foreign", 100, 100)
        mirror = run("--topics", "foreign", "--once")
        assert mirror.wait() == 1
        assert "wrote offset 100" in mirror.said("stopped")[0]["reason"]
        assert len(stored(b, "foreign")[0]) == 101

        there.create_topic("taken", 1)
        admin.create_topic("taken", 1)
        send(b, "taken", 0, 1)
        mirror = run("--topics", "taken", "--once")
        assert mirror.wait() == 1
        assert "has records that no mirror wrote" in mirror.said("not mirrored")[0]["reason"]
        once(run, "--topics", "taken", "--prefix", "a.")
        assert stored(a, "taken") == stored(b, "a.taken")


def test_topic_that_is_made_again_is_refused_until_it_is_deleted_in_the_target(pair: Pair, run: Run) -> None:
    a, b = pair.a.bootstrap, pair.b.bootstrap
    with barnabas.Admin(a) as admin, barnabas.Admin(b) as there:
        admin.create_topic("again", 1)
        send(a, "again", 0, 100)
        once(run, "--topics", "again")
        admin.delete_topic("again")
        wait_until(lambda: "again" not in admin.list_topics(), "the topic is gone")
        admin.create_topic("again", 1)
        send(a, "again", 5_000, 50)
        mirror = run("--topics", "again", "--once")
        assert mirror.wait() == 1
        assert "deleted and created again in the source" in mirror.said("not mirrored")[0]["reason"]
        there.delete_topic("again")
        wait_until(lambda: "again" not in there.list_topics(), "the topic is gone")
        once(run, "--topics", "again")
        assert stored(a, "again") == stored(b, "again")


@pytest.mark.parametrize("in_target", [False, True])
def test_topic_that_is_made_again_between_two_looks_gets_nothing_of_the_other(
    pair: Pair, run: Run, in_target: bool
) -> None:
    """The new one has more records than the one before, so that its offsets alone do not tell."""
    a, b = pair.a.bootstrap, pair.b.bootstrap
    name = f"swapped-{in_target}"
    with barnabas.Admin(a) as admin, barnabas.Admin(b) as there:
        admin.create_topic(name, 1)
        send(a, name, 0, 100)
        mirror = run("--topics", name, "--refresh", "1h", "--status", "0.2s")
        wait_until(lambda: _told_records(mirror) >= 100, mirror.log.read_text)
        side = there if in_target else admin
        side.delete_topic(name)
        wait_until(lambda: name not in side.list_topics(), "the topic is gone")
        side.create_topic(name, 1)
        send(a, name, 5_000, 300)
        wait_until(lambda: any(each["event"] == "waiting" for each in mirror.events), mirror.log.read_text)
        assert "UNKNOWN_TOPIC_ID" in mirror.said("waiting")[0]["reason"]
        assert len(stored(b, name)[0]) == (0 if in_target else 100)
        mirror.kill()
    again = run("--topics", name, "--once")
    assert again.wait() == (0 if in_target else 1), again.log.read_text()
    if in_target:
        assert stored(a, name) == stored(b, name)


def _told_records(mirror: MirrorProcess) -> int:
    return max((each.get("records", 0) for each in mirror.events), default=0)
