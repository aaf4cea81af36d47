"""Consumers that share partitions out among themselves, in a real ZooKeeper and in the tree of a single broker: they
come, go and are killed, brokers go and topics grow. Every record is read, and no partition by two at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
import threading

import pytest

import barnabas
from barnabas.clock import SYSTEM_CLOCK
from barnabas.coordination import offsets
from barnabas.model import TopicPartition
from tests.support.broker_process import BrokerProcess
from tests.support.driven_consumer import DrivenConsumer
from tests.support.links import Link
from tests.support.owner_history import Handed, OwnerHistory, not_owned
from tests.support.ports import free_port
from tests.support.reading import wait_until
from tests.support.xdist_groups import ZOOKEEPER
from tests.support.zookeeper_servers import sessions

pytestmark = pytest.mark.xdist_group(ZOOKEEPER)

SETTINGS = {"zookeeper_session_timeout_ms": "4000", "replica_lag_time_max_ms": "3000"}
"""Of the brokers."""


class Readers:
    """Consumers of one group in this process, polled in turn; the records that they have read."""

    def __init__(self, cluster, name):
        self.cluster = cluster
        self.name = name
        """Of the topic and of the group."""
        self.coordination = f"zookeeper://{cluster.zookeeper}"
        self.settings = {
            "coordination": self.coordination,
            "session_timeout_ms": 9_000,
            "heartbeat_interval_ms": 500,
            "auto_offset_reset": "earliest",
        }
        self.consumers = []
        self.processes = []
        self.handed = []
        """What polls brought here, of which partitions and when."""
        self.values = set()
        self.sent = 0

    def add(self, **settings):
        consumer = barnabas.Consumer(self.cluster.bootstrap, group=self.name, **{**self.settings, **settings})
        consumer.subscribe(self.name)
        self.consumers.append(consumer)
        return consumer

    def process(self):
        """A consumer in a process of its own."""
        made = DrivenConsumer(self.cluster.bootstrap, self.name, **self.settings)
        self.processes.append(made)
        return made

    def remove(self, consumer):
        self.consumers.remove(consumer)
        consumer.close()

    def send(self, count=300):
        with barnabas.Producer(self.cluster.bootstrap) as producer:
            for number in range(self.sent, self.sent + count):
                producer.send(self.name, b"%d" % number, partition=number % 6)
        self.sent += count

    def counts(self):
        """Poll all, and return how many partitions each has."""
        for consumer in self.consumers:
            begin_s = SYSTEM_CLOCK.monotonic()
            records = consumer.poll(timeout_s=0.05)
            end_s = SYSTEM_CLOCK.monotonic()
            self.values.update(int(record.value) for record in records)
            own = consumer._core.state.membership.consumer_id
            self.handed += [Handed(each, own, begin_s, end_s) for each in {record.partition for record in records}]
        owned = [tp for consumer in self.consumers for tp in consumer.assignment()]
        assert len(owned) == len(set(owned)), "a partition is read by two"
        return sorted(len(consumer.assignment()) for consumer in self.consumers)

    def until(self, *counts):
        wait_until(lambda: self.counts() == sorted(counts), f"the consumers have {counts} partitions")

    def has_read(self, others=frozenset()):
        return self.counts() and self.values | others == set(range(self.sent))

    def until_read(self):
        wait_until(self.has_read, "all records are read")

    def owners(self, tree):
        """Return the owner nodes of the partitions."""
        nodes = tree.subtree(f"/consumers/{self.name}/owners")
        return {path: node for path, node in nodes.items() if node.data}


class OneBroker:
    """A broker that serves its own tree: what readers need of a cluster."""

    def __init__(self, broker):
        self.broker = broker
        self.bootstrap = broker.bootstrap
        self.zookeeper = f"127.0.0.1:{broker.settings['zookeeper_listener']}"


@pytest.fixture(scope="module")
def one_broker(tmp_path_factory):
    folder = tmp_path_factory.mktemp("one") / "broker"
    broker = BrokerProcess(folder, {"zookeeper_listener": str(free_port()), "auto_create_topics_enable": "false"})
    broker.start()
    yield OneBroker(broker)
    broker.close()


@contextlib.contextmanager
def reading(cluster, topic):
    """Consumers to be added; at the end all that was handed out was its consumer's, as the owner nodes tell."""
    made = Readers(cluster, topic)
    history = OwnerHistory(cluster.zookeeper, topic, topic)
    try:
        yield made
        for consumer in list(made.consumers):
            made.remove(consumer)
    finally:
        history.close()
    handed = [*made.handed, *(each for process in made.processes for each in process.handed)]
    assert not_owned(history.election, handed) == []


@pytest.fixture
def readers(cluster, topic):
    """Of a topic in a cluster of three."""
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic(topic, 6, 3)
    cluster.wait_until_in_sync(topic, 3)
    with reading(cluster, topic) as made:
        yield made


@pytest.fixture
def readers_of_one(one_broker, topic):
    """Of a topic of a broker that is alone."""
    with barnabas.Admin(one_broker.bootstrap) as admin:
        admin.create_topic(topic, 6, 1)
    with reading(one_broker, topic) as made:
        yield made


@pytest.fixture(params=["readers", "readers_of_one"], ids=["ZooKeeper", "one broker"])
def any_readers(request):
    return request.getfixturevalue(request.param)


@pytest.fixture
def tree(any_readers):
    """A session of the test's own, open before anything is done to others."""
    with sessions(any_readers.cluster.zookeeper) as opened:
        yield opened.open()


def test_consumers_come_and_go_and_the_topic_grows(any_readers, tree):
    readers = any_readers
    readers.send()
    first, _ = readers.add(), readers.add()
    readers.until(3, 3)
    third = readers.add()
    readers.until(2, 2, 2)
    readers.send()
    readers.until_read()
    readers.remove(first)
    readers.until(3, 3)
    with barnabas.Admin(readers.cluster.bootstrap) as admin:
        admin.add_partitions(readers.name, 8)
    readers.until(4, 4)
    readers.send()
    readers.until_read()
    third.commit()
    assert len(readers.owners(tree)) == 8
    assert offsets.read_offsets(tree, readers.name).keys() >= third.assignment()
    tp = min(third.assignment())
    assert third.committed(tp) is not None


def test_partitions_of_a_killed_consumer_go_to_the_others_and_to_a_new_one(any_readers):
    readers = any_readers
    with readers.process() as process:
        readers.add()
        readers.add()
        readers.send()
        wait_until(lambda: [process.poll(), readers.counts(), process.assigned][1:] == [[2, 2], 2], "all have two")
        process.kill()
        readers.values |= process.values
        readers.add()
        readers.send()
        readers.until(2, 2, 2)
        readers.until_read()


def test_consumer_that_was_stopped_hands_out_nothing_that_another_owns(any_readers, tree):
    """It has fetched ahead, and its session is over before it goes on; nobody in its process knows that yet."""
    readers = any_readers
    with readers.process() as stopped:
        readers.add()
        wait_until(lambda: [stopped.poll(), readers.counts(), stopped.assigned][1:] == [[3], 3], "both have three")
        readers.send()
        wait_until(lambda: stopped.poll() and stopped.buffered_bytes(), "more is at hand than was handed out")
        stopped.stop()
        readers.until(6)
        owners = readers.owners(tree)
        assert len(owners) == 6
        assert stopped.consumer_id not in {each.data.decode() for each in owners.values()}
        stopped.go_on()
        assert stopped.poll() == set(), "all that it has at hand is another's"
        assert stopped.assigned == 0
        wait_until(lambda: [stopped.poll(), readers.counts(), stopped.assigned][1:] == [[3], 3], "both have three")
        readers.send()
        wait_until(lambda: stopped.poll() is not None and readers.has_read(stopped.values), "all records are read")


def test_consumer_that_is_cut_off_from_zookeeper_stops_before_another_begins(any_readers, tree):
    readers = any_readers
    hosts, _, chroot = readers.cluster.zookeeper.partition("/")
    with Link(int(hosts.rpartition(":")[2])) as link:
        cut_off = readers.add(coordination=f"zookeeper://127.0.0.1:{link.port}/{chroot}")
        other = readers.add()
        readers.until(3, 3)
        readers.send()
        readers.until_read()
        before = readers.owners(tree)
        link.stall()
        readers.until(0, 3)
        assert not cut_off.assignment()
        claimed = readers.owners(tree)
        assert {path: node.stat.created_at for path, node in claimed.items()} == {
            path: node.stat.created_at for path, node in before.items()
        }, "it has stopped while its nodes were still there"
        readers.send()
        wait_until(lambda: readers.counts() == [0, 6], "the other has all")
        assert len(other.assignment()) == 6
        readers.until_read()
        link.mend()
        readers.until(3, 3)
        readers.send()
        readers.until_read()
        readers.remove(cut_off)  # before its way to the servers is gone


def test_consumers_keep_their_partitions_through_a_restart_of_a_broker_that_is_alone(readers_of_one):
    """Their sessions are kept with its tree."""
    readers = readers_of_one
    for _ in range(2):
        readers.add(session_timeout_ms=60_000)  # a start may take long where others work too
    readers.until(3, 3)
    readers.send()
    readers.until_read()
    with sessions(readers.cluster.zookeeper) as opened:
        before = readers.owners(opened.open())
    for end in (BrokerProcess.kill, BrokerProcess.stop):
        end(readers.cluster.broker)
        readers.cluster.broker.start()
        readers.send()
        readers.until_read()
        assert readers.counts() == [3, 3]
    with sessions(readers.cluster.zookeeper) as opened:
        assert readers.owners(opened.open()) == before
    readers.consumers[0].commit()
    readers.remove(readers.consumers[0])
    readers.until(6)


def test_broker_that_goes_takes_no_partition_with_it(readers):
    readers.add()
    readers.add()
    readers.until(3, 3)
    readers.cluster.brokers[readers.cluster.leader_of(readers.name)].kill()
    readers.send()
    readers.until_read()


def test_offsets_may_be_kept_by_the_brokers(readers):
    consumer = readers.add(offsets_storage="kafka")
    readers.send()
    readers.until_read()
    consumer.commit()
    with barnabas.Admin(readers.cluster.bootstrap) as admin:
        found = admin.group_offsets(readers.name)
    assert sum(each.offset for each in found.values()) == readers.sent


def barnabas_command(readers, *arguments):
    command = [sys.executable, "-m", "barnabas.cli.main", *arguments, "-b", readers.cluster.bootstrap]
    done = subprocess.run(
        [*command, "--zookeeper", readers.cluster.zookeeper], capture_output=True, text=True, check=False
    )
    return done.stderr if done.returncode else done.stdout


def test_command_shows_and_resets_the_group(any_readers):
    readers = any_readers
    reset = ["group", "reset", readers.name, "--all-topics", "--to-earliest", "--execute"]
    consumer = readers.add()
    readers.send()
    readers.until_read()
    consumer.commit()
    described = json.loads(barnabas_command(readers, "group", "describe", readers.name, "--json"))
    assert (described["state"], described["coordination"], described["lag"]) == ("Stable", "zookeeper", 0)
    assert len(described["members"][0]["partitions"]) == 6
    listed = {each["group"]: each for each in json.loads(barnabas_command(readers, "group", "list", "--json"))}
    assert listed[readers.name]["state"] == "Stable"
    assert "has 1 member" in barnabas_command(readers, *reset)
    readers.remove(consumer)
    barnabas_command(readers, *reset)
    described = json.loads(barnabas_command(readers, "group", "describe", readers.name, "--json"))
    assert (described["state"], described["lag"]) == ("Empty", readers.sent)
    barnabas_command(readers, "group", "delete", readers.name, "-y")
    assert "no group" in barnabas_command(readers, "group", "describe", readers.name)


def test_message_streams_share_what_their_consumer_has(readers):
    """The paper's streams (section 3), each in a thread of its own; partitions come and go under them."""
    consumer = barnabas.Consumer(readers.cluster.bootstrap, group=readers.name, **readers.settings)
    streams = consumer.create_message_streams({readers.name: 2})[readers.name]
    seen = [set(), set()]

    def read(number):
        for record in streams[number]:
            seen[number].add((record.partition, int(record.value)))

    threads = [threading.Thread(target=read, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    try:
        readers.send()
        wait_until(lambda: len(seen[0] | seen[1]) == 300, "all records are read by the streams")
        assert not {partition for partition, _ in seen[0]} & {partition for partition, _ in seen[1]}
        readers.add()
        readers.until(3)
        wait_until(lambda: len(consumer.assignment()) == 3, "the streams have what is left")
        readers.send()
        wait_until(
            lambda: readers.has_read({value for _, value in seen[0] | seen[1]}), "all records are read by somebody"
        )
    finally:
        consumer.close()
        for thread in threads:
            thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    readers.until(6)


def test_poll_says_where_zookeeper_does_not_run(readers):
    nowhere = free_port()
    consumer = readers.add(coordination=f"zookeeper://127.0.0.1:{nowhere}", default_api_timeout_ms=2_000)
    with pytest.raises(barnabas.DisconnectedError, match=f"127.0.0.1:{nowhere}.*does ZooKeeper run there"):
        consumer.poll(timeout_s=100)


def test_asynchronous_consumer_does_the_same(readers):
    readers.send()

    async def read():
        async with barnabas.AsyncConsumer(
            readers.cluster.bootstrap, group=readers.name, **readers.settings
        ) as consumer:
            consumer.subscribe(readers.name)
            while readers.values != set(range(readers.sent)):
                records = await consumer.poll(timeout_s=1)
                readers.values.update(int(record.value) for record in records)
            await consumer.commit()
            return await consumer.committed(TopicPartition(readers.name, 0))

    assert asyncio.run(read()).offset == readers.sent / 6
