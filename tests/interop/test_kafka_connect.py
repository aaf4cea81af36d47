"""Kafka Connect with two workers carries a file into a topic and from there into another file; one worker is killed.

Connect keeps all that it knows in three compacted topics: connectors and their settings, how far each source was
read, and how each task stands. It promises that every line arrives at least once.
"""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import barnabas
from tests.interop.conftest import COMPACTS_SOON
from tests.interop.java import maven
from tests.interop.java.program import Program, Run
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.reading import gaps, wait_until
from tests.support.xdist_groups import JAVA

pytestmark = [pytest.mark.xdist_group(JAVA), pytest.mark.timeout(maven.TEST_TIMEOUT_S)]

VERSION = "4.3.0"
ARTIFACTS = [f"org.apache.kafka:{name}:{VERSION}" for name in ("connect-runtime", "connect-file")]
HTTP_TIMEOUT_S = 30
NOT_READY = {404, 409, 500, 503}
"""What a worker answers while it starts, or while the workers agree on who does what."""
INTERNAL = ["connect-configs", "connect-offsets", "connect-status"]
LINES = 1000
"""So many in each part of the test."""
SOURCE = {"connector.class": "FileStreamSource", "batch.size": str(10 * LINES)}
"""What is left over of a batch, Connect's file source keeps until the file grows again: it must never be full."""

WORKER = """
bootstrap.servers={bootstrap}
group.id=connect
listeners=http://127.0.0.1:{port}
rest.advertised.host.name=127.0.0.1
key.converter=org.apache.kafka.connect.storage.StringConverter
value.converter=org.apache.kafka.connect.storage.StringConverter
config.storage.topic=connect-configs
config.storage.replication.factor=1
offset.storage.topic=connect-offsets
offset.storage.partitions=3
offset.storage.replication.factor=1
status.storage.topic=connect-status
status.storage.partitions=2
status.storage.replication.factor=1
offset.flush.interval.ms=500
session.timeout.ms=3000
heartbeat.interval.ms=300
scheduled.rebalance.max.delay.ms=500
plugin.discovery=service_load
consumer.auto.offset.reset=earliest
consumer.metadata.max.age.ms=1000
consumer.session.timeout.ms=3000
consumer.heartbeat.interval.ms=300
"""


class Worker:
    """A worker process, and its REST interface."""

    def __init__(self, run_java: Run, libraries: Path, folder: Path, bootstrap: str) -> None:
        port = free_port()
        self.id = f"127.0.0.1:{port}"
        settings = folder / f"worker-{port}.properties"
        settings.write_text(WORKER.format(bootstrap=bootstrap, port=port), encoding="utf-8")
        self.program: Program = run_java(
            ["-cp", f"{libraries}/*", "org.apache.kafka.connect.cli.ConnectDistributed", str(settings)]
        )

    def call(self, method: str, path: str, body: object = None) -> Any:
        """Call the REST interface; return its answer, or nothing if it cannot answer now."""
        request = urllib.request.Request(
            f"http://{self.id}{path}",
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            if error.code not in NOT_READY:
                raise
            return None
        except urllib.error.URLError:
            return None  # does not listen yet

    def create(self, name: str, **settings: str) -> None:
        """Create a connector, with one task."""
        path, body = f"/connectors/{name}/config", {"name": name, "tasks.max": "1", **settings}
        self.program.wait_until(lambda: self.call("PUT", path, body), f"it creates {name}")

    def home_of(self, connector: str) -> str | None:
        """Return the id of the worker where a connector's task runs, if it does."""
        status = self.call("GET", f"/connectors/{connector}/status")
        running = [task for task in status["tasks"] if task["state"] == "RUNNING"] if status else []
        return running[0]["worker_id"] if running else None

    def wait_for(self, connector: str, homes: set[str]) -> str:
        """Wait until a connector's task runs on one of some workers; return which."""
        self.program.wait_until(lambda: self.home_of(connector) in homes, f"{connector} runs on one of {homes}")
        home = self.home_of(connector)
        assert home
        return home


@pytest.fixture(scope="module")
def libraries() -> Path:
    """The folder with the jars of Kafka Connect."""
    return maven.jars(f"kafka-connect-{VERSION}", *ARTIFACTS, "org.slf4j:slf4j-simple:1.7.36")


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return make_broker(**COMPACTS_SOON, group_min_session_timeout_ms="500")


@pytest.fixture
def make_worker(run_java: Run, libraries: Path, tmp_path: Path, broker: BrokerProcess) -> Callable[[], Worker]:
    return lambda: Worker(run_java, libraries, tmp_path, broker.bootstrap)


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[barnabas.Admin]:
    with barnabas.Admin(broker.bootstrap) as admin:
        yield admin


def lines(part: int) -> list[str]:
    return [f"line {number:06}" for number in range(part * LINES, (part + 1) * LINES)]


def append(path: Path, part: int) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines(part))


def written(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def whereabouts(admin: barnabas.Admin, sink: Path) -> str:
    """Describe how far the lines have come, for whoever looks into a failure."""
    group = admin.describe_group("connect-sink")
    arrived = sorted(set(written(sink)))
    return (
        f"the other worker carries on: {len(arrived)} lines in the sink, the last {arrived[-1:]}; "
        f"in the topic {admin.end_offsets([('lines', 0)])}; committed {admin.group_offsets('connect-sink')}; {group}"
    )


def test_nothing_is_lost_when_a_worker_is_killed(
    broker: BrokerProcess, make_worker: Callable[[], Worker], admin: barnabas.Admin, tmp_path: Path
) -> None:
    source, sink = tmp_path / "source", tmp_path / "sink"
    append(source, 0)
    first, second = make_worker(), make_worker()
    workers = {first.id: first, second.id: second}
    first.create("source", file=str(source), topic="lines", **SOURCE)
    first.create("sink", **{"connector.class": "FileStreamSink", "file": str(sink), "topics": "lines"})
    killed = workers.pop(first.wait_for("source", set(workers)))
    (left,) = workers.values()
    left.wait_for("sink", {killed.id, left.id})
    left.program.wait_until(lambda: set(lines(0)) <= set(written(sink)), "the first lines arrive")

    append(source, 1)
    killed.program.kill()
    append(source, 2)
    left.wait_for("source", {left.id})
    left.wait_for("sink", {left.id})
    expected = {line for part in range(3) for line in lines(part)}
    left.program.wait_until(lambda: expected <= set(written(sink)), lambda: whereabouts(admin, sink))
    assert set(written(sink)) == expected  # lines may come twice, but whole
    # How far the source was read is stored now and then, and at the end: twice at least, so that one is old.
    stored = [("connect-offsets", partition) for partition in range(3)]
    left.program.wait_until(lambda: any(admin.end_offsets(stored).values()), "it stores how far it has read")
    append(source, 3)
    left.program.wait_until(lambda: set(lines(3)) <= set(written(sink)), "it reads on")
    assert left.program.stop() == 143  # as asked by SIGTERM

    for topic in INTERNAL:
        assert admin.describe_config(topic)["cleanup.policy"].value == "compact"
    wait_until(lambda: gaps(broker.bootstrap, "connect-offsets"), "what is known of the source is compacted")
    wait_until(lambda: gaps(broker.bootstrap, "connect-status"), "what is known of the tasks is compacted")
    broker.kill()
    broker.restart()
    place = ("lines", 0)
    (carried,) = admin.end_offsets([place]).values()
    append(source, 4)
    last = make_worker()
    last.program.wait_until(lambda: set(lines(4)) <= set(written(sink)), "a new worker knows the connectors")
    (end,) = admin.end_offsets([place]).values()
    assert end == carried + LINES  # and how far the source was read: nothing comes twice after a clean stop
    assert last.program.stop() == 143
    wait_until(lambda: not admin.describe_group("connect").members, "the workers have left")
