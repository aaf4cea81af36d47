"""The measured clients, by the names that the workloads use."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Literal

from bench.downloads import UnavailableError, java
from bench.drivers.barnabas_perf import BarnabasPerf
from bench.drivers.driver import Driver, ProgramDriver
from bench.drivers.java_program import JavaProgram
from bench.drivers.job import Job
from bench.drivers.kafka_tools import KafkaTools
from bench.drivers.rabbitmq_perftest import RabbitPerfTest
from bench.peers import activemq, kafka
from bench.peers.activemq import ActiveMq
from bench.peers.server import Server


class PythonProgram(ProgramDriver):
    """A client in Python.

    :param module: a module of `bench.clients`.
    :param package: the package that it needs.
    """

    def __init__(
        self,
        name: str,
        protocol: Literal["kafka", "amqp", "jms"],
        module: str,
        package: str,
        mode: str = "",
        settings: str = "",
    ) -> None:
        super().__init__(name, protocol, [sys.executable, "-m", f"bench.clients.{module}"], mode, settings)
        self._package = package

    def check(self) -> None:
        if find_spec(self._package) is None:
            raise UnavailableError(f"the package {self._package} is not installed")


class StompProgram(PythonProgram):
    """The stomp.py client. ActiveMQ has a second listener for STOMP."""

    def command(self, server: Server, job: Job, only: Sequence[int] | None = None) -> list[str]:
        assert isinstance(server, ActiveMq)
        command = super().command(server, job, only)
        command[command.index("--bootstrap") + 1] = f"127.0.0.1:{server.stomp_port}"
        return command


def _newest_java() -> str:
    return java()


def _oldest_java() -> str:
    return java(newest=False)


_CONFLUENT = (
    "`queue.buffering.max.messages` of a million; `fetch.queue.backoff.ms=1`, because the default of one second "
    "pauses the consumer whenever its queue is full; `linger.ms=5`, or 0 for latency"
)
DRIVERS: dict[str, Driver] = {
    "send": BarnabasPerf("Barnabas `send`", "send"),
    "many": BarnabasPerf("Barnabas `send_many`", "many"),
    "arrow-send": BarnabasPerf("Barnabas `send_arrow`", "arrow"),
    "requests": BarnabasPerf("Barnabas, pipelined requests"),
    "records": BarnabasPerf("Barnabas, records", "records"),
    "poll": BarnabasPerf("Barnabas, `poll`", "poll"),
    "arrow": BarnabasPerf("Barnabas, Arrow", "arrow"),
    "barnabas": BarnabasPerf("Barnabas"),
    "confluent": PythonProgram("confluent-kafka", "kafka", "confluent", "confluent_kafka", settings=_CONFLUENT),
    "confluent-batch": PythonProgram(
        "confluent-kafka `produce_batch`", "kafka", "confluent", "confluent_kafka", "many", settings="as above"
    ),
    "confluent-default": PythonProgram(
        "confluent-kafka, defaults", "kafka", "confluent", "confluent_kafka", "default", settings="defaults (consumers)"
    ),
    "confluent-linger": PythonProgram(
        "confluent-kafka, `linger.ms=5`", "kafka", "confluent", "confluent_kafka", "default", settings="as above"
    ),
    "kafka-python": PythonProgram(
        "kafka-python", "kafka", "kafka_python", "kafka", settings="`linger_ms=5 batch_size=131072`"
    ),
    "aiokafka": PythonProgram(
        "aiokafka", "kafka", "aio_kafka", "aiokafka", settings="`linger_ms=5 max_batch_size=131072`"
    ),
    "kafka-tools": KafkaTools(),
    "kafka-java": JavaProgram(
        "Kafka's Java client",
        "kafka",
        "KafkaPerf",
        _newest_java,
        kafka.class_path,
        "`batch.size=131072 linger.ms=10 buffer.memory=67108864`; `linger.ms=0` for latency",
    ),
    "perftest": RabbitPerfTest(),
    "pika": PythonProgram("pika", "amqp", "rabbit_pika", "pika", settings="persistent, no confirms, automatic acks"),
    "activemq-java": JavaProgram(
        "ActiveMQ's Java client",
        "jms",
        "ActiveMqPerf",
        _oldest_java,
        activemq.class_path,
        "persistent, `useAsyncSend`, prefetch 1000 (`optimizeAcknowledge` causes stalls of half a minute)",
    ),
    "stomp": StompProgram(
        "stomp.py", "jms", "activemq_stomp", "stomp", settings="persistent, no receipts, automatic acks, prefetch 1000"
    ),
}

__all__ = ["DRIVERS", "Driver"]
