"""A broker that serves its own tree: sessions, restarts and recipes of kazoo, as other processes find them."""

from __future__ import annotations

import itertools
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.recipe.counter import Counter
from kazoo.recipe.election import Election
from kazoo.recipe.lock import Lock
from kazoo.recipe.party import Party
from kazoo.recipe.queue import LockingQueue

from barnabas.coordination.zookeeper.config import ZooKeeperConfig
from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore
from barnabas.coordination.zookeeper.server.jute import string
from tests.interop.java.maven import java
from tests.interop.java.program import OPTIONS
from tests.support import zookeeper_protocol as zk
from tests.support.broker_process import BrokerProcess
from tests.support.links import Link
from tests.support.ports import free_port
from tests.support.reading import wait_until

pytestmark = pytest.mark.timeout(300)

_numbers = itertools.count(1)


def new_path() -> str:
    return f"/served-{next(_numbers)}"


def port_of(broker: BrokerProcess) -> int:
    return int(broker.settings["zookeeper_listener"])


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker for all tests, some of which start it anew."""
    made = BrokerProcess(tmp_path_factory.mktemp("broker") / "data", {"zookeeper_listener": str(free_port())})
    made.start()
    yield made
    made.close()


@pytest.fixture
def kazoo(broker: BrokerProcess) -> Iterator[Callable[[], KazooClient]]:
    """Starts clients."""
    clients: list[KazooClient] = []

    def start() -> KazooClient:
        client = KazooClient(f"127.0.0.1:{port_of(broker)}", timeout=20)
        client.start(60)
        clients.append(client)
        return client

    yield start
    for client in clients:
        client.stop()
        client.close()


@pytest.mark.parametrize("end", [BrokerProcess.stop, BrokerProcess.kill], ids=["stopped", "killed"])
def test_sessions_outlive_a_restart_of_the_broker(
    broker: BrokerProcess, end: Callable[[BrokerProcess], object]
) -> None:
    client, other = zk.RawClient(port_of(broker)), zk.RawClient(port_of(broker))
    path = new_path()
    client.ask(zk.CREATE, zk.create(path, flags=1))
    other.ask(zk.EXISTS, zk.read(path, watch=True))
    end(broker)
    broker.start()
    client, other = zk.RawClient(port_of(broker), client.session), zk.RawClient(port_of(broker), other.session)
    (stat,) = zk.understand(zk.EXISTS, client.ask(zk.EXISTS, zk.read(path)).body)
    assert stat.owner == client.session_id
    other.ask(zk.SET_WATCHES, zk.set_watches(stat.czxid, [path], [], []))
    client.ask(zk.CLOSE)
    assert other.ask(zk.SYNC, string("/")).error == 0
    assert [(kind, where) for kind, _, where in other.events] == [(2, path)]
    other.cut()


def test_tree_of_kazoo_goes_on_through_a_restart(broker: BrokerProcess) -> None:
    tree = ZooKeeperMetadataStore(ZooKeeperConfig(f"127.0.0.1:{port_of(broker)}", session_timeout_s=30))
    path = new_path()
    seen = threading.Event()
    tree.create(path, ephemeral=True)
    tree.exists(path, lambda _: seen.set())
    broker.kill()
    broker.start()
    tree.set(path, b"1")
    assert seen.wait(60)
    assert tree.get(path).stat.owner == tree.session_id
    tree.close()


def test_session_of_a_client_that_is_gone_is_over_after_its_timeout(broker: BrokerProcess) -> None:
    client, other = zk.RawClient(port_of(broker), timeout_ms=1_000), zk.RawClient(port_of(broker))
    path = new_path()
    client.ask(zk.CREATE, zk.create(path, flags=1))
    (stat,) = zk.understand(zk.EXISTS, other.ask(zk.EXISTS, zk.read(path, watch=True)).body)
    client.cut()
    wait_until(lambda: other.ask(zk.PING, xid=-2) and other.events, "the node is gone")
    assert stat.owner == client.session_id
    assert other.events == [(2, 3, path)]
    assert zk.RawClient(port_of(broker), client.session).session_id == 0
    other.cut()


def test_who_asks_for_much_at_once_gets_all_of_it_in_order(broker: BrokerProcess) -> None:
    client, path = zk.RawClient(port_of(broker)), new_path()
    client.ask(zk.CREATE, zk.create(path, bytes(700_000)))
    answers = client.ask_at_once(100, zk.GET_DATA, zk.read(path))
    assert {(each.error, len(each.body) > 700_000) for each in answers} == {(0, True)}
    client.ask(zk.CLOSE)


def test_connection_before_hears_nothing_more_when_its_session_has_moved(broker: BrokerProcess) -> None:
    before = zk.RawClient(port_of(broker))
    after = zk.RawClient(port_of(broker), before.session)
    assert after.session == before.session
    with pytest.raises(ConnectionError):
        before.ask(zk.PING)
    assert after.ask(zk.PING, xid=-2).error == 0
    after.cut()


def test_who_has_seen_what_is_not_there_any_more_has_to_look_anew(broker: BrokerProcess) -> None:
    """As after a loss of power, which may take back the last changes."""
    client = zk.RawClient(port_of(broker))
    client.cut()
    from_the_future = zk.RawClient(port_of(broker), client.session, last_zxid=1 << 40)
    assert (from_the_future.timeout_ms, from_the_future.session_id) == (0, 0)
    new = zk.RawClient(port_of(broker), last_zxid=1 << 40)
    assert new.session_id
    new.cut()


@pytest.mark.parametrize(
    "sent",
    [struct.pack(">i", -1), struct.pack(">i", 2**20) + b"x", b"GET / HTTP/1.1\r\n\r\n", struct.pack(">i", 3) + b"abc"],
    ids=["negative size", "more than jute.maxbuffer", "another protocol", "no request to connect"],
)
def test_connection_that_brings_something_else_is_ended_alone(broker: BrokerProcess, sent: bytes) -> None:
    client, other = zk.RawClient(port_of(broker)), zk.RawClient(port_of(broker), connects=False)
    other.send_bytes(sent)
    with pytest.raises(ConnectionError):
        other.ask(zk.PING)
    assert client.ask(zk.PING, xid=-2).error == 0
    client.cut()


def test_node_of_nearly_a_megabyte_comes_and_goes(broker: BrokerProcess) -> None:
    client = zk.RawClient(port_of(broker))
    path, data = new_path(), bytes(1_000_000)
    assert client.ask(zk.CREATE, zk.create(path, data)).error == 0
    assert zk.understand(zk.GET_DATA, client.ask(zk.GET_DATA, zk.read(path)).body)[0] == data
    client.ask(zk.DELETE, zk.versioned(path))
    client.cut()


# -- kazoo's recipes -----------------------------------------------------------------------------------------


def test_lock_is_had_by_one_at_a_time(kazoo: Callable[[], KazooClient]) -> None:
    path = new_path()
    inside, most, turns = [0], [0], [0]

    def work(client: KazooClient) -> None:
        for _ in range(10):
            with Lock(client, path):
                inside[0] += 1
                most[0] = max(most[0], inside[0])
                turns[0] += 1
                inside[0] -= 1

    threads = [threading.Thread(target=work, args=(kazoo(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert (most[0], turns[0]) == (1, 30)


def test_election_is_won_by_the_next_when_the_leader_goes(kazoo: Callable[[], KazooClient]) -> None:
    path = new_path()
    first, second = kazoo(), kazoo()
    leads = [threading.Event(), threading.Event()]
    ends = threading.Event()

    def lead(number: int) -> None:
        leads[number].set()
        ends.wait(120)

    elections = [Election(client, path, name) for client, name in ((first, "first"), (second, "second"))]
    threads = [threading.Thread(target=elections[number].run, args=(lead, number)) for number in range(2)]
    threads[0].start()
    assert leads[0].wait(60)
    threads[1].start()
    wait_until(lambda: elections[1].contenders() == ["first", "second"], "both are there")
    assert not leads[1].is_set()
    ends.set()
    assert leads[1].wait(60)
    for thread in threads:
        thread.join(60)


def test_counter_party_and_queue(kazoo: Callable[[], KazooClient]) -> None:
    first, second = kazoo(), kazoo()
    counters = [Counter(client, path) for path in [new_path()] for client in (first, second)]
    for counter in counters * 5:
        counter += 1  # noqa: PLW2901 - a counter counts in place
    assert counters[0].value == 10
    path = new_path()
    parties = [Party(client, path, name) for client, name in ((first, "a"), (second, "b"))]
    for party in parties:
        party.join()
    assert sorted(parties[0]) == ["a", "b"]
    second.stop()
    wait_until(lambda: sorted(parties[0]) == ["a"], "who stops leaves")
    queue = LockingQueue(first, new_path())
    queue.put_all([b"1", b"2"])
    taken = []
    for _ in range(2):
        taken.append(queue.get(60))
        queue.consume()
    assert taken == [b"1", b"2"]


def test_link_that_is_cut_costs_no_session(broker: BrokerProcess) -> None:
    with Link(port_of(broker)) as link:
        tree = ZooKeeperMetadataStore(ZooKeeperConfig(f"127.0.0.1:{link.port}", session_timeout_s=30))
        path = new_path()
        tree.create(path, ephemeral=True)
        for number in range(3):
            link.cut()
            link.mend()
            assert tree.set(path, b"%d" % number).version == number + 1
        assert tree.get(path).stat.owner == tree.session_id
        tree.close()


def test_command_line_of_zookeeper_itself(broker: BrokerProcess) -> None:
    """It asks with Java's client."""
    jars = Path(pytest.importorskip("pyspark").__file__).parent / "jars"
    path = new_path()
    commands = [f"create -e {path} hello", f"set {path} again", f"get -s {path}", f"getAcl {path}", f"delete {path}"]
    program = [java(), *OPTIONS, "-cp", f"{jars}/*", "org.apache.zookeeper.ZooKeeperMain"]
    done = subprocess.run(
        [*program, "-server", f"127.0.0.1:{port_of(broker)}"],
        input="\n".join([*commands, "ls /", "quit", ""]),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    for said in (
        f"Created {path}",
        "again",
        "dataVersion = 1",
        "'world,'anyone",
        ": cdrwa",
        "[admin, brokers, cluster",
    ):
        assert said in done.stdout


# -- the setting ---------------------------------------------------------------------------------------------


def test_address_in_use_is_told_before_anything_is_touched(broker: BrokerProcess, tmp_path) -> None:
    command = [sys.executable, "-m", "barnabas.cli.main", "up", "--port", "0", "--data", str(tmp_path / "data")]
    done = subprocess.run(
        [*command, "--zookeeper-listener", str(port_of(broker))], capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert f"cannot listen on 127.0.0.1:{port_of(broker)}" in done.stderr
    assert not (tmp_path / "data" / "tree.sqlite").exists()


def test_broker_cannot_join_one_that_is_alone(broker: BrokerProcess, tmp_path) -> None:
    command = [sys.executable, "-m", "barnabas.cli.main", "up", "--port", "0", "--data", str(tmp_path / "data")]
    done = subprocess.run(
        [*command, "--id", "7", "--zookeeper", f"127.0.0.1:{port_of(broker)}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode != 0
    assert "/brokers/ids/7" in done.stderr
