"""Apache Kafka: the newest release on Maven, one node that is broker and controller (KRaft).

Settings are those of the files that Kafka ships (`config/server.properties`, and the options of the JVM in
`bin/kafka-run-class.sh`): no setting slows it, and none of its documentation for throughput on one node goes beyond.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

from bench.downloads import NEWEST, UnavailableError, jar_version, java, java_version, maven_jars
from bench.peers.server import KafkaServer, free_port
from bench.processes import ServerProcess

COORDINATES = (f"org.apache.kafka:kafka-tools:{NEWEST}", "org.apache.kafka:kafka_2.13")
JVM_OPTIONS = (
    "-Xms1G",
    "-Xmx1G",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
FORMAT_LIMIT_S = 120
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
PROPERTIES = """\
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
"""


class Kafka(KafkaServer):
    """Apache Kafka, one node."""

    name = "kafka"
    title = "Apache Kafka"
    settings = "KRaft, one node, the settings and JVM options that it ships (heap 1 GB)"

    def launch(self) -> ServerProcess:
        data = self.folder / "data"
        properties = self.folder / "server.properties"
        properties.write_text(PROPERTIES.format(port=self.port, controller=free_port(), data=data))
        program = [java(), "-cp", class_path()]
        command = [
            *program,
            "kafka.tools.StorageTool",
            "format",
            "--standalone",
            "-t",
            CLUSTER_ID,
            "-c",
            str(properties),
        ]
        result = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_LIMIT_S, check=False)
        if result.returncode:
            raise UnavailableError(f"Apache Kafka could not format its folder: {result.stderr.strip()[-300:]}")
        return ServerProcess([*self.program(), "kafka.Kafka", str(properties)], self.folder / "log")

    def program(self) -> list[str]:
        """Return what stands before the name of the class."""
        return [java(), *JVM_OPTIONS, "-cp", class_path()]

    def version(self) -> str:
        return f"{jar_version(jars(), 'kafka_2.13')}, Java {java_version(java())}"

    def data_folders(self, topic: str) -> list[Path]:
        return list((self.folder / "data").glob(f"{topic}-*"))


def jars() -> Path:
    """Return the folder of Kafka's jars.

    :raises UnavailableError: they cannot be had.
    """
    return maven_jars("kafka", COORDINATES)


def class_path() -> str:
    """Return the class path of broker and tools."""
    return f"{jars()}/*"
