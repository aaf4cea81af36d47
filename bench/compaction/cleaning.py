"""One run of a broker's cleaner: the run fills a topic and then has it compacted while another client sends
requests."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from confluent_kafka.admin import (  # type: ignore[attr-defined]  # documented, but not in its __all__
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic

from bench.compaction.accounts import Account, of_barnabas, of_kafka, together
from bench.compaction.records import Kind
from bench.compaction.watch import Watch
from bench.downloads import jar_version, java, maven_jars
from bench.peers.barnabas import Barnabas
from bench.peers.kafka import JVM_OPTIONS, Kafka, class_path, jars
from bench.peers.server import ADMIN_LIMIT_S, LOG_ERRORS, KafkaServer
from bench.processes import memory_mib_max
from bench.stalls.connection import Connection, Deadline
from bench.stalls.pinger import Pinger
from bench.stalls.pings import Pings
from bench.stalls.produce_frames import produce_request

LIMIT_S = 300.0
LOOK_S = 0.02
IDLE_S = 1.5
LEAD_S = 0.3
END_LIMIT_S = 10.0
BACKOFF_MS = 1_000
"""The pause of an idle cleaner, in milliseconds. The default is 15 s."""
PIPELINED = 500
LOGGED = "org.apache.kafka.storage.internals.log"
"""The Java package of Kafka's cleaner."""


class LoggingKafka(Kafka):
    """Apache Kafka with a cleaner that logs its reports to standard output. By default, Kafka logs them to a file."""

    def program(self) -> list[str]:
        version = jar_version(jars(), "slf4j-api")
        logger = maven_jars(f"slf4j-simple-{version}", (f"org.slf4j:slf4j-simple:{version}",))
        options = [f"-Dorg.slf4j.simpleLogger.{each}" for each in ("defaultLogLevel=warn", f"log.{LOGGED}=info")]
        return [java(), *JVM_OPTIONS, "-Duser.language=en", *options, "-cp", f"{class_path()}:{logger}/*"]


class Contender(NamedTuple):
    """A broker, and the function that parses its reports."""

    server: type[KafkaServer]
    accounts: Callable[[str, str], list[Account]]


CONTENDERS = {"kafka": Contender(LoggingKafka, of_kafka), "barnabas": Contender(Barnabas, of_barnabas)}


class Work(NamedTuple):
    """The work for a cleaner: the records of the topic."""

    kind: Kind
    batches: Sequence[bytes]
    segment_bytes: int


@dataclass(frozen=True, slots=True)
class Run:
    """One run.

    :param account: the broker's own report.
    :param cleaner_cpu_s: the CPU time of the cleaner's process or thread. Garbage collection threads are not included.
    :param cpu_s: the CPU time of broker and cleaner together during the cleaning.
    :param cleaner_peak_mib: the memory peak of the cleaner's process; 0 if the cleaner is a thread.
    :param broker_peak_mib: the memory peak of the broker's process during the cleaning.
    :param pings: the pings of an unrelated client during the cleaning.
    :param idle: the pings of the same client before the cleaning.
    """

    account: Account
    megabytes_per_s: float
    cleaner_cpu_s: float
    cpu_s: float
    cleaner_peak_mib: float
    broker_peak_mib: float
    pings: Pings
    idle: Pings


class Cleaned:
    """A broker whose cleaner is measured repeatedly.

    :param server: the server, which the caller has started and will stop.
    """

    def __init__(self, server: KafkaServer, accounts: Callable[[str, str], list[Account]]) -> None:
        self._server = server
        self._accounts = accounts
        admin = self._admin()
        (broker_id,) = admin.list_topics(timeout=ADMIN_LIMIT_S).brokers
        self._alter(ResourceType.BROKER, str(broker_id), log_cleaner_backoff_ms=str(BACKOFF_MS))

    def _admin(self) -> AdminClient:
        """Return a new client for each call, because an old client would log errors after the broker has stopped."""
        return AdminClient({"bootstrap.servers": self._server.address, "log_level": LOG_ERRORS})

    def measure(self, topic: str, work: Work) -> Run:
        """Fill a topic, and measure one cleaning of it."""
        server, deadline = self._server, Deadline(LIMIT_S)
        self._create(topic, work.segment_bytes)
        self._fill(topic, work.batches, deadline)
        (folder,) = server.data_folders(topic)
        end_offset = max(int(path.stem) for path in folder.glob("*.log"))
        server.reset_memory_peak()
        idle = pings_for(server.port, IDLE_S)
        watch, cpu_before_s = Watch(server.process.pid), server.cpu_s()
        with Pinger(server.port) as pinger:
            time.sleep(LEAD_S)
            self._alter(ResourceType.TOPIC, topic, cleanup_policy="compact")
            account = self._wait(f"{topic}-0", end_offset, watch, deadline)
            pings = pinger.finish()
        cpu_s = server.cpu_s() - cpu_before_s
        _wait_until_ended(watch)
        server.delete_topic(topic)
        return Run(
            account,
            account.megabytes_per_s,
            watch.cpu_s,
            cpu_s,
            watch.peak_mib,
            memory_mib_max(server.process.pid),
            pings,
            idle,
        )

    def _create(self, topic: str, segment_bytes: int) -> None:
        # Enable compaction only after the topic is filled.
        config = {"segment.bytes": str(segment_bytes)}
        admin = self._admin()
        for future in admin.create_topics([NewTopic(topic, 1, 1, config=config)]).values():
            future.result(ADMIN_LIMIT_S)

    def _fill(self, topic: str, batches: Sequence[bytes], deadline: Deadline) -> None:
        """Send all batches. The broker acknowledges the last batch when all batches are flushed, so no flush disturbs
        the measurement."""
        connection = Connection(self._server.port, deadline)
        requests = [produce_request([(0, batch)], topic) for batch in batches]
        for first in range(0, len(requests) - 1, PIPELINED):
            some = requests[first : min(first + PIPELINED, len(requests) - 1)]
            connection.pipeline(b"".join(some), len(some))
        self._alter(ResourceType.TOPIC, topic, flush_messages="1")
        connection.pipeline(requests[-1], 1)
        connection.close()

    def _alter(self, kind: ResourceType, name: str, **settings: str) -> None:
        entries = [
            ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
            for key, value in settings.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        admin = self._admin()
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(ADMIN_LIMIT_S)

    def _wait(self, log: str, end_offset: int, watch: Watch, deadline: Deadline) -> Account:
        """Watch the cleaner until the log is clean up to an offset."""
        output = self._server.process.log
        size = 0
        while True:
            deadline.left_s()
            watch.look()
            if (now_size := output.stat().st_size) != size:
                size = now_size
                reports = self._accounts(output.read_text(errors="replace"), log)
                if reports and reports[-1].end_offset >= end_offset:
                    watch.look()
                    return together(reports)
            time.sleep(LOOK_S)


def pings_for(port: int, seconds: float) -> Pings:
    """Send pings to a broker for some seconds."""
    with Pinger(port) as pinger:
        time.sleep(seconds)
        return pinger.finish()


def _wait_until_ended(watch: Watch) -> None:
    """Wait until the cleaner's process has ended, so that its memory is not counted as memory of the broker."""
    limit_s = time.monotonic() + END_LIMIT_S
    while not watch.has_ended and time.monotonic() < limit_s:
        time.sleep(LOOK_S)


def start(name: str, folder: Path) -> KafkaServer:
    """Start a broker.

    :raises UnavailableError: if the broker is not available, or does not start.
    """
    server = CONTENDERS[name].server(folder)
    try:
        server.start()
    except BaseException:
        server.stop()
        raise
    return server
