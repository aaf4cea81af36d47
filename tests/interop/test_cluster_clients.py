"""Clients of three brokers whose leaders move and go: what was acknowledged is there once, and groups read it all."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import subprocess
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Self

import pytest

import barnabas
from tests.interop import test_kcat
from tests.interop.clients.neutral import (
    HEARTBEAT_INTERVAL_MS,
    RETRY_BACKOFF_MS,
    SESSION_TIMEOUT_MS,
    Client,
    Event,
    Membership,
    Place,
    Sending,
)
from tests.interop.conftest import CLIENTS
from tests.support.process_cluster import Cluster
from tests.support.reading import TIMEOUT_S, Member, read_topic, wait_until
from tests.support.xdist_groups import CLUSTERS

pytestmark = pytest.mark.xdist_group(CLUSTERS)

SETTINGS = {"zookeeper_session_timeout_ms": "4000", "replica_lag_time_max_ms": "3000"}
"""Of the brokers."""
PARTITIONS = 3
AT_ONCE = 20
IN_FLIGHT_MAX = 500
BETWEEN_FAULTS = 200
"""So many records of each producer are to be acknowledged between two faults."""
PAUSE_S = 0.01
"""Between two times that a producer gets records, so that there are not more than can be read again."""


# --- clients of others, and ours ---


def let_leaders_go(cluster: Cluster, topic: str, wait_for_progress: Callable[[], object]) -> None:
    """Stop the leader of one partition and kill that of another, with progress before, between and after."""
    stopped, killed = cluster.leader_of(topic, 0), cluster.leader_of(topic, 1)
    wait_for_progress()
    assert cluster.brokers[stopped].stop() == 0
    wait_for_progress()
    cluster.brokers[stopped].restart()
    cluster.wait_until_in_sync(topic, 3)
    cluster.brokers[killed].kill()
    wait_for_progress()
    cluster.brokers[killed].restart()
    wait_for_progress()


class Sender:
    """Sends numbers to a partition of its own until it is stopped, a few at a time; remembers where they are."""

    def __init__(self, client: Client, bootstrap: str, topic: str, partition: int) -> None:
        self.places: list[Place] = []
        self._failure: BaseException | None = None
        self._ends = threading.Event()
        self._thread = threading.Thread(
            target=self._run, args=(client, bootstrap, topic, partition), name=client.name, daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()

    def stop(self) -> int:
        """Stop; return how many were acknowledged."""
        self._ends.set()
        self._thread.join(90)
        assert not self._thread.is_alive(), self._thread.name
        if self._failure:
            raise self._failure
        return len(self.places)

    def _run(self, client: Client, bootstrap: str, topic: str, partition: int) -> None:
        try:
            with contextlib.closing(client.producer(bootstrap, Sending(idempotent=True))) as producer:
                while not self._ends.is_set():
                    sent = len(self.places)
                    events = [Event(b"%d" % number) for number in range(sent, sent + AT_ONCE)]
                    self.places += producer.produce(topic, events, partition)
        except BaseException as failure:  # noqa: BLE001 - it is raised where the test sees it
            self._failure = failure


def test_all_clients_live_through_leaders_that_go(cluster: Cluster) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic("numbers", len(CLIENTS), 3, {"min.insync.replicas": "2"})
    cluster.wait_until_in_sync("numbers", 3)
    with contextlib.ExitStack() as stack:
        senders = [
            stack.enter_context(Sender(client, cluster.bootstrap, "numbers", number))
            for number, client in enumerate(CLIENTS)
        ]
        members = [
            stack.enter_context(Member(client, cluster.bootstrap, "numbers", Membership(group=f"of {client.name}")))
            for client in CLIENTS
        ]
        let_leaders_go(cluster, "numbers", lambda: _wait_for_progress(senders))
        counts = [sender.stop() for sender in senders]
        wanted = {(partition, number) for partition, count in enumerate(counts) for number in range(count)}
        for member in members:
            wait_until(functools.partial(_has_all, member, wanted), f"all numbers, {member._thread.name}")
    found: dict[int, list[int]] = {number: [] for number in range(len(CLIENTS))}
    for place, event in read_topic(CLIENTS[0], cluster.bootstrap, "numbers", sum(counts)):
        assert place.offset == len(found[place.partition])
        found[place.partition].append(int(event.value or b""))
    assert found == {number: list(range(count)) for number, count in enumerate(counts)}


def _has_all(member: Member, wanted: set[tuple[int, int]]) -> bool:
    return {(place.partition, int(event.value or b"")) for place, event in member.received} >= wanted


def _wait_for_progress(senders: list[Sender]) -> None:
    before = [len(sender.places) for sender in senders]

    def go_on() -> bool:
        for sender in senders:
            if sender._failure:
                raise sender._failure
        return all(len(sender.places) >= count + BETWEEN_FAULTS for sender, count in zip(senders, before, strict=True))

    wait_until(go_on, "all producers go on")


def test_group_goes_on_elsewhere_with_its_offsets(cluster: Cluster) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic("letters", 1, 3)
    with barnabas.Producer(cluster.bootstrap) as producer:
        for number in range(10):
            producer.send("letters", b"%d" % number)
    with barnabas.Consumer(cluster.bootstrap, group="readers", auto_offset_reset="earliest") as consumer:
        consumer.subscribe("letters")
        read: set[int] = set()
        wait_until(lambda: _read_on(consumer, read) == set(range(10)), "all letters")
        consumer.commit()
        cluster.wait_until_in_sync("__consumer_offsets", 3)
        with barnabas.Admin(cluster.bootstrap) as admin:
            coordinator = _coordinator(admin, "readers")
        cluster.brokers[coordinator].kill()
        others = cluster.bootstrap_of(*cluster.others(coordinator))
        with barnabas.Producer(others) as producer:
            producer.send("letters", b"10").result()
        wait_until(lambda: _read_on(consumer, read) == set(range(11)), "the next letter")
        consumer.commit()
        with barnabas.Admin(others) as admin:
            assert _coordinator(admin, "readers") != coordinator
            (committed,) = admin.group_offsets("readers").values()
    assert committed.offset == 11


def _read_on(consumer: barnabas.Consumer, read: set[int]) -> set[int]:
    read.update(record.offset for record in consumer.poll(timeout_s=0.1))
    return read


def _coordinator(admin: barnabas.Admin, group: str) -> int:
    found = admin.describe_group(group).coordinator
    assert found
    return found.id


# --- kcat ---


class KcatProducer:
    """An idempotent kcat, which is given a number on each line until it is stopped."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        command = ["kcat", "-b", bootstrap, "-P", "-t", topic, "-X", "enable.idempotence=true"]
        command += ["-X", "linger.ms=1", "-X", "batch.num.messages=50", "-X", "retry.backoff.ms=20"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        self.given = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="kcat", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self.process.kill()
        self._thread.join()
        self.process.communicate()

    def stop(self) -> int:
        """Stop; return how many numbers, from 0 on, were given to it, all of which have to be acknowledged."""
        self._ends.set()
        self._thread.join(TIMEOUT_S)
        _, told = self.process.communicate(timeout=TIMEOUT_S)
        assert self.process.returncode == 0, told.decode()
        return self.given

    def _run(self) -> None:
        assert self.process.stdin
        with contextlib.suppress(BrokenPipeError):  # its exit code tells
            while not self._ends.wait(PAUSE_S):
                numbers = range(self.given, self.given + AT_ONCE)
                self.process.stdin.write(b"".join(b"%d\n" % number for number in numbers))
                self.process.stdin.flush()
                self.given += AT_ONCE


@test_kcat.pytestmark
def test_kcat_lives_through_leaders_that_go(cluster: Cluster, tmp_path: Path) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic("lines", PARTITIONS, 3, {"min.insync.replicas": "2"})
    cluster.wait_until_in_sync("lines", 3)
    seen = tmp_path / "seen"
    with (
        KcatProducer(cluster.bootstrap, "lines") as producer,
        test_kcat.member(cluster.bootstrap, "of kcat", "lines", seen) as member,
    ):

        def wait_for_progress() -> None:
            before = len(test_kcat.seen_in(seen))

            def go_on() -> bool:
                assert (producer.process.poll(), member.poll()) == (None, None)
                return len(test_kcat.seen_in(seen)) >= before + BETWEEN_FAULTS

            wait_until(go_on, "kcat goes on")

        let_leaders_go(cluster, "lines", wait_for_progress)
        count = producer.stop()
        wait_until(lambda: {number for _, number in test_kcat.seen_in(seen)} == set(range(count)), "all lines")
    shown = test_kcat.kcat(cluster.bootstrap, "-C", "-t", "lines", "-q", "-e", "-f", "%p %s\n")
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    for line in shown.splitlines():
        partition, number = map(int, line.split())
        found[partition].append(number)
    assert sorted(number for numbers in found.values() for number in numbers) == list(range(count))
    assert all(numbers == sorted(numbers) for numbers in found.values())
    assert _committed(cluster, "of kcat") == {partition: len(numbers) for partition, numbers in found.items()}


def _committed(cluster: Cluster, group: str) -> dict[int, int]:
    with barnabas.Admin(cluster.bootstrap) as admin:
        return {where.partition: each.offset for where, each in admin.group_offsets(group).items()}


# --- our clients for event loops ---


class OnOneLoop:
    """A producer and the members of a group, all on one event loop, while the test goes on in a thread."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.places: dict[Place, int] = {}
        """Where each number is that was acknowledged."""
        self.sent = 0
        self.received: list[tuple[int, int]] = []
        """Partition and number."""
        self._bootstrap = bootstrap
        self._topic = topic
        self._ends = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self, test: Callable[[], object]) -> None:
        """Send and receive until the test has ended and everything sent is received."""
        self._tasks = [asyncio.create_task(self._send()), *(asyncio.create_task(self._receive()) for _ in range(2))]
        try:
            await asyncio.to_thread(test)
        finally:
            self._ends.set()
            await asyncio.gather(*self._tasks)

    def wait_for_progress(self) -> None:
        """Wait, in the test's thread, until there is more acknowledged and more received."""
        acknowledged, received = len(self.places), len(self.received)

        def go_on() -> bool:
            assert not any(task.done() for task in self._tasks)
            more = min(len(self.places) - acknowledged, len(self.received) - received)
            return more >= BETWEEN_FAULTS

        wait_until(go_on, "the clients on the loop go on")

    async def _send(self) -> None:
        in_flight: deque[tuple[int, barnabas.Delivery]] = deque()
        async with barnabas.AsyncProducer(
            self._bootstrap, linger_ms=1, batch_size=1_000, retry_backoff_ms=RETRY_BACKOFF_MS
        ) as producer:
            while not self._ends.is_set():
                for number in range(self.sent, self.sent + AT_ONCE):
                    delivery = await producer.send(self._topic, b"%d" % number, partition=number % PARTITIONS)
                    in_flight.append((number, delivery))
                self.sent += AT_ONCE
                await asyncio.sleep(PAUSE_S)
                while in_flight and (in_flight[0][1].done() or len(in_flight) > IN_FLIGHT_MAX):
                    await self._note(*in_flight.popleft())
            for number, delivery in in_flight:
                await self._note(number, delivery)

    async def _note(self, number: int, delivery: barnabas.Delivery) -> None:
        metadata = await delivery
        self.places[Place(metadata.partition, metadata.offset)] = number

    async def _receive(self) -> None:
        async with barnabas.AsyncConsumer(
            self._bootstrap,
            group="on the loop",
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_INTERVAL_MS,
            retry_backoff_ms=RETRY_BACKOFF_MS,
        ) as consumer:
            consumer.subscribe(self._topic)
            while not self._ends.is_set() or len({number for _, number in self.received}) < self.sent:
                records = await consumer.poll(timeout_s=0.1)
                self.received += [(record.partition, int(record.value or b"")) for record in records]


def test_our_clients_on_an_event_loop_live_through_leaders_that_go(cluster: Cluster) -> None:
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic("looped", PARTITIONS, 3, {"min.insync.replicas": "2"})
    cluster.wait_until_in_sync("looped", 3)

    async def main() -> OnOneLoop:
        clients = OnOneLoop(cluster.bootstrap, "looped")
        async with asyncio.timeout(3 * TIMEOUT_S):
            await clients.run(lambda: let_leaders_go(cluster, "looped", clients.wait_for_progress))
        return clients

    clients = asyncio.run(main())
    assert len(clients.places) == clients.sent
    found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    for place, event in read_topic(CLIENTS[0], cluster.bootstrap, "looped", clients.sent):
        assert place.offset == len(found[place.partition])
        assert int(event.value or b"") == clients.places[place]
        found[place.partition].append(clients.places[place])
    assert found == {number: list(range(number, clients.sent, PARTITIONS)) for number in range(PARTITIONS)}
    assert set(clients.received) == {(number % PARTITIONS, number) for number in range(clients.sent)}
    assert _committed(cluster, "on the loop") == {partition: len(numbers) for partition, numbers in found.items()}
