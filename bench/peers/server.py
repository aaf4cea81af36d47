"""The interface of measured servers, and the common part of servers that speak Kafka's protocol."""

from __future__ import annotations

import contextlib
import socket
import stat
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from bench import processes
from bench.downloads import NotStartedError
from bench.processes import ClientError, ServerProcess

START_LIMIT_S = 90.0
ADMIN_LIMIT_S = 30.0
LOG_ERRORS = 3
"""The syslog level of errors, because librdkafka uses syslog levels."""
NO_SETTINGS: Mapping[str, str] = MappingProxyType({})
PORT_TRIES = 100
BLOCK_BYTES = 512
"""The unit of st_blocks (stat(2))."""


class Server(ABC):
    """A broker in a separate process.

    :param folder: an empty directory for the configuration and data of the broker.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    protocol: ClassVar[str]
    """The protocol of its clients: kafka, amqp or jms (ActiveMQ's own protocol and STOMP)."""
    settings: ClassVar[str]
    """The setup of the broker, as a sentence for docs/benchmarks.md."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self._process: ServerProcess | None = None

    @property
    def address(self) -> str:
        """The address of the listener."""
        return f"127.0.0.1:{self.port}"

    @property
    def process(self) -> ServerProcess:
        """The process, after the start."""
        assert self._process, f"{self.title} is not started"
        return self._process

    @abstractmethod
    def launch(self) -> ServerProcess:
        """Start the process.

        :raises UnavailableError: if the broker is not available.
        """

    @abstractmethod
    def version(self) -> str:
        """Return the release of the broker and of its runtime."""

    @abstractmethod
    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        """Create a topic or a queue.

        :param settings: settings of the topic. Servers without Kafka's protocol ignore them.
        """

    @abstractmethod
    def delete_topic(self, topic: str) -> None:
        """Delete the topic with its data."""

    @abstractmethod
    def data_folders(self, topic: str) -> list[Path]:
        """Return the directories that contain the data of a topic; empty for a broker that stores data only in
        memory."""

    def start(self) -> None:
        """Start the broker, and wait until it accepts connections.

        :raises UnavailableError: if it is not available, or does not start.
        """
        self._process = self.launch()
        self.wait_until_it_listens()

    def stop(self) -> None:
        """Stop the broker if it is running."""
        if self._process:
            self._process.stop()

    def serves(self) -> bool:
        """Return whether clients can connect."""
        return listens(self.port)

    def wait_until_it_listens(self) -> None:
        """Wait until clients can connect.

        :raises NotStartedError: if the broker ends, or takes too long.
        """
        limit_s = time.monotonic() + START_LIMIT_S
        while not self.serves():
            if not self.process.is_running:
                raise NotStartedError(f"{self.title} ended at its start: {self.process.last_lines()}")
            if time.monotonic() > limit_s:
                raise NotStartedError(f"{self.title} did not listen after {START_LIMIT_S:.0f} s")
            time.sleep(0.05)

    def stored_bytes(self, topic: str) -> int:
        """Return the size of a topic's files. Holes in preallocated files are not counted."""
        return sum(folder_bytes(folder) for folder in self.data_folders(topic))

    def record_count(self, topic: str) -> int | None:
        """Return the number of records of a topic; None if the server does not report it."""
        del topic
        return None

    @property
    def pids(self) -> list[int]:
        """The processes of the server. Child processes of these processes are measured as well."""
        return [self.process.pid]

    def cpu_s(self) -> float:
        """Return the CPU time used so far."""
        return sum(map(processes.cpu_s, self.pids))

    def memory_mib_max(self) -> float:
        """Return the memory peak since `reset_memory_peak`."""
        return sum(map(processes.memory_mib_max, self.pids))

    def reset_memory_peak(self) -> None:
        """Reset the memory peak."""
        for pid in self.pids:
            processes.reset_memory_peak(pid)


class KafkaServer(Server):
    """A broker that speaks Kafka's protocol. librdkafka creates and deletes its topics."""

    protocol = "kafka"
    replication_factor: ClassVar[int] = 1

    @property
    def _settings(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.address, "log_level": LOG_ERRORS}

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        admin = AdminClient(self._settings)
        new = NewTopic(topic, partitions, self.replication_factor, config=dict(settings))
        for future in admin.create_topics([new]).values():
            future.result(ADMIN_LIMIT_S)
        if self.replication_factor > 1:
            self._wait_for_replicas(admin, topic)

    def _wait_for_replicas(self, admin: AdminClient, topic: str) -> None:
        """Wait until all replicas of a topic are in sync, so that a run starts with all replicas.

        :raises ClientError: if the time limit is exceeded.
        """
        limit_s = time.monotonic() + ADMIN_LIMIT_S
        while True:
            partitions = admin.list_topics(topic, ADMIN_LIMIT_S).topics[topic].partitions.values()
            if partitions and all(len(each.isrs) == self.replication_factor for each in partitions):
                return
            if time.monotonic() > limit_s:
                raise ClientError(f"the replicas of {topic} are not in sync after {ADMIN_LIMIT_S:.0f} s")
            time.sleep(0.05)

    def delete_topic(self, topic: str) -> None:
        admin = AdminClient(self._settings)
        for future in admin.delete_topics([topic]).values():
            with contextlib.suppress(KafkaException):  # not every peer can delete topics, and each run uses a new name
                future.result(ADMIN_LIMIT_S)

    def record_count(self, topic: str) -> int | None:
        consumer = Consumer({**self._settings, "group.id": "bench"})
        try:
            numbers = consumer.list_topics(topic, ADMIN_LIMIT_S).topics[topic].partitions
            bounds = [consumer.get_watermark_offsets(TopicPartition(topic, each), ADMIN_LIMIT_S) for each in numbers]
        finally:
            consumer.close()
        return sum(end - begin for begin, end in bounds)


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def free_ports(count: int) -> int:
    """Return the first of several free ports in a row.

    :raises NotStartedError: if no such ports are found.
    """
    for _ in range(PORT_TRIES):
        first = free_port()
        with contextlib.ExitStack() as probes, contextlib.suppress(OSError, OverflowError):
            for port in range(first, first + count):
                probes.enter_context(socket.socket()).bind(("127.0.0.1", port))
            return first
    raise NotStartedError(f"there are no {count} free ports in a row")


def folder_bytes(folder: Path, pattern: str = "*") -> int:
    """Return the total allocated size of all files below a directory. Files may disappear during the call."""
    total = 0
    for path in folder.rglob(pattern):
        with contextlib.suppress(FileNotFoundError):
            status = path.stat()
            if stat.S_ISREG(status.st_mode):
                total += min(status.st_size, status.st_blocks * BLOCK_BYTES)
    return total


def listens(port: int) -> bool:
    """Return whether a port accepts connections."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
