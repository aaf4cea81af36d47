"""Apache Kafka: the newest release on Maven, with one or three nodes, each of which is broker and controller (KRaft).

The settings come from Kafka's own files (`config/server.properties`, and the JVM options in `bin/kafka-run-class.sh`).
None of these settings slows Kafka down, and Kafka's documentation recommends no further settings for throughput on one
node.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from bench.downloads import NEWEST, UnavailableError, jar_version, java, java_version, maven_jars
from bench.peers.server import KafkaServer, free_port, listens
from bench.processes import ServerProcess

COORDINATES = (f"org.apache.kafka:kafka-tools:{NEWEST}", "org.apache.kafka:kafka_2.13")
JVM_OPTIONS = (
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)
FORMAT_LIMIT_S = 120
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
NODES = (1, 2, 3)
PROPERTIES = """\
process.roles=broker,controller
node.id={node}
{quorum}
listeners={protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners={protocol}://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={data}
offsets.topic.replication.factor={replicas}
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor={replicas}
share.coordinator.state.topic.min.isr=1
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
socket.receive.buffer.bytes=102400
"""


class Kafka(KafkaServer):
    name = "kafka"
    title = "Apache Kafka"
    settings = "KRaft, one node, Kafka's default settings and JVM options (heap 1 GB)"
    heap = "1G"
    security_protocol = "PLAINTEXT"

    def more_properties(self) -> str:
        """Return further lines of the settings file."""
        return ""

    def format_options(self) -> Sequence[str]:
        """Return further options of the command that formats the log directory."""
        return ()

    def launch(self) -> ServerProcess:
        controller = free_port()
        quorum = f"controller.quorum.bootstrap.servers=127.0.0.1:{controller}"
        return self.launch_node(1, self.port, controller, quorum, "--standalone")

    def launch_node(self, node: int, port: int, controller: int, quorum: str, *format_options: str) -> ServerProcess:
        """Format the log directory of a node, and start the node.

        :param quorum: the setting that names the controllers.
        :raises UnavailableError: if the log directory cannot be formatted.
        """
        properties = self.folder / f"node-{node}.properties"
        data = self.folder / f"data-{node}"
        properties.write_text(
            PROPERTIES.format(
                node=node,
                port=port,
                controller=controller,
                quorum=quorum,
                data=data,
                replicas=self.replication_factor,
                protocol=self.security_protocol,
            )
            + self.more_properties()
        )
        command = [
            java(),
            "-cp",
            class_path(),
            "kafka.tools.StorageTool",
            "format",
            *format_options,
            *self.format_options(),
        ]
        command += ["-t", CLUSTER_ID, "-c", str(properties)]
        result = subprocess.run(command, capture_output=True, text=True, timeout=FORMAT_LIMIT_S, check=False)
        if result.returncode:
            raise UnavailableError(f"Apache Kafka could not format its folder: {result.stderr.strip()[-300:]}")
        return ServerProcess([*self.program(), "kafka.Kafka", str(properties)], self.folder / f"log-{node}")

    def program(self) -> list[str]:
        """Return the command before the class name."""
        return [java(), f"-Xms{self.heap}", f"-Xmx{self.heap}", *JVM_OPTIONS, "-cp", class_path()]

    def version(self) -> str:
        return f"{jar_version(jars(), 'kafka_2.13')}, Java {java_version(java())}"

    def data_folders(self, topic: str) -> list[Path]:
        return list(self.folder.glob(f"data-*/{topic}-*"))


class KafkaCluster(Kafka):
    """Apache Kafka with three nodes on this machine. Each is broker and controller."""

    name = "kafka-cluster"
    title = "Apache Kafka, 3 nodes"
    settings = (
        "KRaft, three nodes that are brokers and controllers, each with a third of the heap; otherwise as one node"
    )
    heap = "341M"
    replication_factor = 3

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._ports = [self.port, *(free_port() for _ in NODES[1:])]
        self._controllers = [free_port() for _ in NODES]
        self._nodes: list[ServerProcess] = []

    @property
    def address(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports)

    @property
    def process(self) -> ServerProcess:
        """The process to check: a node that has ended, if there is one, because the cluster is then incomplete."""
        return next((each for each in self._nodes if not each.is_running), self._nodes[0])

    @property
    def pids(self) -> list[int]:
        return [each.pid for each in self._nodes]

    def launch(self) -> ServerProcess:
        voters = ",".join(f"{node}@127.0.0.1:{port}" for node, port in zip(NODES, self._controllers, strict=True))
        for node, port, controller in zip(NODES, self._ports, self._controllers, strict=True):
            self._nodes.append(self.launch_node(node, port, controller, f"controller.quorum.voters={voters}"))
        return self._nodes[0]

    def serves(self) -> bool:
        return all(map(listens, self._ports))

    def stop(self) -> None:
        for node in self._nodes:
            node.kill()  # after a stop signal, the last nodes would wait for the stopped controllers


def jars() -> Path:
    """Return the folder of Kafka's jars.

    :raises UnavailableError: if the jars are not available.
    """
    return maven_jars("kafka", COORDINATES)


def class_path() -> str:
    """Return the class path of broker and tools."""
    return f"{jars()}/*"
