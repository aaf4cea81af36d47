"""Apicurio Registry keeps its schemas in a topic of ours; it is killed, and a new one knows them from there.

Its storage "kafkasql" replays a topic at each start, into a database in memory. That topic is a compacted one here;
all keys in it differ, so that compaction may take nothing away. A producer and a consumer use the registry as any
program does, by Apicurio's serialisers for Avro.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import barnabas
from tests.interop.conftest import COMPACTS_SOON
from tests.interop.java import maven
from tests.interop.java.program import Program, Run
from tests.support.broker_process import BrokerProcess
from tests.support.ports import free_port
from tests.support.xdist_groups import JAVA

pytestmark = [pytest.mark.xdist_group(JAVA), pytest.mark.timeout(maven.TEST_TIMEOUT_S)]

VERSION = "3.0.9"
"""The last that runs on Java 17."""
REGISTRY = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
CLIENT = ["io.apicurio:apicurio-registry-serdes-avro-serde:2.6.13.Final", "org.apache.kafka:kafka-clients:4.3.0"]
SOURCE = Path(__file__).parent / "java" / "Schemas.java"
HTTP_TIMEOUT_S = 30
JOURNAL = "kafkasql-journal"
SUBJECTS = 30
RECORDS = 20


class Registry:
    """A registry process, and the part of its REST interface that it shares with Confluent's."""

    def __init__(self, run_java: Run, archive: Path, folder: Path, bootstrap: str) -> None:
        port, management_port = free_port(), free_port()
        self.url = f"http://127.0.0.1:{port}"
        settings = {
            "apicurio.storage.kind": "kafkasql",
            "apicurio.kafkasql.bootstrap.servers": bootstrap,
            "apicurio.kafkasql.consumer.poll.timeout": 1000,  # how long it looks for a snapshot when it starts
            "apicurio.storage.snapshot.location": str(folder),
            "quarkus.http.host": "127.0.0.1",
            "quarkus.http.port": port,
            "quarkus.management.host": "127.0.0.1",
            "quarkus.management.port": management_port,
        }
        (program,) = archive.glob("*-runner.jar")
        self.program: Program = run_java(
            [*(f"-D{name}={value}" for name, value in settings.items()), "-jar", str(program)]
        )
        self.program.wait_until(self._serves, "it serves")

    def call(self, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            f"{self.url}/apis/ccompat/v7{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/vnd.schemaregistry.v1+json"},
        )
        with urllib.request.urlopen(request, timeout=HTTP_TIMEOUT_S) as answer:
            return json.load(answer)

    def known(self) -> dict[str, Any]:
        """Return the latest version of each subject, as the registry describes it."""
        return {subject: self.call(f"/subjects/{subject}/versions/latest") for subject in self.call("/subjects")}

    def _serves(self) -> bool:
        try:
            self.call("/subjects")
        except urllib.error.HTTPError as error:
            if error.code != http.client.SERVICE_UNAVAILABLE:
                raise
            return False
        except urllib.error.URLError:
            return False
        return True


@pytest.fixture
def start(run_java: Run, tmp_path: Path) -> Callable[[BrokerProcess], Registry]:
    """Start a registry whose storage is a broker, and wait until it serves."""
    archive = maven.unpacked(f"apicurio-registry-{VERSION}", REGISTRY)
    return lambda broker: Registry(run_java, archive, tmp_path, broker.bootstrap)


@pytest.fixture
def client(run_java: Run) -> Callable[[BrokerProcess, Registry, str], Program]:
    """Run the program that writes or reads records with schemas, until it ends."""
    libraries = maven.jars("apicurio-serdes-2.6.13-kafka-4.3.0", *CLIENT, "org.slf4j:slf4j-simple:1.7.36")
    class_path = f"{maven.classes(SOURCE, libraries)}:{libraries}/*"

    def run(broker: BrokerProcess, registry: Registry, what: str) -> Program:
        url = f"{registry.url}/apis/registry/v2"
        program = run_java(["-cp", class_path, "Schemas", broker.bootstrap, url, what, str(RECORDS)])
        assert program.wait() == 0, program.said()
        return program

    return run


def test_a_new_registry_knows_all_schemas(
    make_broker: Callable[..., BrokerProcess],
    start: Callable[[BrokerProcess], Registry],
    client: Callable[[BrokerProcess, Registry, str], Program],
) -> None:
    broker = make_broker(**COMPACTS_SOON)
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic(JOURNAL, config={"cleanup.policy": "compact"})
    first = start(broker)
    for number in range(SUBJECTS):
        schema = {"type": "record", "name": f"Event{number}", "fields": [{"name": "number", "type": "int"}]}
        first.call(f"/subjects/event-{number}/versions", {"schema": json.dumps(schema)})
    client(broker, first, "write")
    known = first.known()
    assert len(known) == SUBJECTS + 1  # and that of the records, which their producer registered
    first.program.kill()
    broker.kill()
    broker.restart()

    second = start(broker)
    # It serves before it has read all of the topic.
    second.program.wait_until(lambda: second.known() == known, "it knows the same schemas")
    expected = [{"page": f"page-{number % 3}", "number": number} for number in range(RECORDS)]
    said = client(broker, second, "read").said().splitlines()
    assert [json.loads(line.removeprefix("read ")) for line in said if line.startswith("read ")] == expected
