"""Clients at work while faults come and go, with all that they do and see in a history."""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import barnabas
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError, ErrorCode
from barnabas.laboratory.history import History, Outcome, RecordedConsumer, RecordedProducer
from barnabas.model import Acks
from barnabas.protocol.codec import decode_response
from barnabas.protocol.messages.produce import ProduceResponse
from barnabas.records import BatchBuilder
from tests.faults.foreign import ForeignConsumer, ForeignProducer, all_stopped
from tests.faults.telling import told, where
from tests.interop.test_raw_frames import RawConnection, produce_request
from tests.support.broker_process import BrokerProcess
from tests.support.direct_clients import BETWEEN_S, Direct
from tests.support.reading import wait_until

PARTITIONS = 3
IN_FLIGHT_MAX = 200
AT_ONCE = 10
PAUSE_S, PAUSE_LIGHT_S = 0.01, 0.04
"""After so many at once. What sends and reads takes the processors from brokers that start, or wait for a session."""
FOREIGN_PAUSE_S, FOREIGN_PAUSE_LIGHT_S = 0.1, 0.3
POLL_S = 0.1
END_S = 150.0
"""For the end of a client: longer than what it has sent may take."""


class Load:
    """Producers and consumers of a topic, each on a thread of its own.

    :param topic: has `PARTITIONS` partitions.
    :param folder: for what librdkafka's producer tells.
    :param is_light: whether they are to leave most of a machine to others.
    """

    def __init__(self, history: History, bootstrap: str, topic: str, folder: Path, *, is_light: bool = False) -> None:
        self._history = history
        self._bootstrap = bootstrap
        self._topic = topic
        self._pause_s = PAUSE_LIGHT_S if is_light else PAUSE_S
        self.places = [(topic, partition) for partition in range(PARTITIONS)]
        self._ends_sending, self._ends_reading = threading.Event(), threading.Event()
        self._failures: list[str] = []
        self._senders = [self._thread(self._send, f"producer {number}") for number in (1, 2)]
        self._readers = [self._thread(self._read_as_member, f"member {number}") for number in (1, 2)]
        self._readers.append(self._thread(self._read_alone, "reader"))
        pause_s = FOREIGN_PAUSE_LIGHT_S if is_light else FOREIGN_PAUSE_S
        self._foreign_producer = ForeignProducer(
            history, bootstrap, self.places, "librdkafka's producer",
            pause_s=pause_s, told=folder / "librdkafka-producer.log", socket_timeout_ms=5_000,
        ).start()  # fmt: skip
        self._foreign_consumers = [
            ForeignConsumer(history, bootstrap, self.places, "librdkafka's member", group="foreign").start(),
            ForeignConsumer(history, bootstrap, self.places, "librdkafka's reader").start(),
        ]

    def stop(self) -> None:
        """Stop; return when the outcome of everything is known."""
        self._ends_sending.set()
        all_stopped([self._foreign_producer])
        self._join(self._senders)
        self._ends_reading.set()
        all_stopped(self._foreign_consumers)
        self._join(self._readers)
        assert not self._failures, self._failures

    def left(self) -> list[str]:
        """Return which consumers of others did not come to their end: see `ForeignConsumer.is_left`."""
        return [each.process for each in self._foreign_consumers if each.is_left]

    def _join(self, threads: list[threading.Thread]) -> None:
        for thread in threads:
            thread.join(END_S)
            assert not thread.is_alive(), f"{thread.name} does not end: {where(thread)}"

    def _thread(self, work: Callable[[str], None], name: str) -> threading.Thread:
        def run() -> None:
            try:
                work(name)
            except Exception as error:  # noqa: BLE001 - it is told where the run ends
                self._failures.append(f"{name}: {told(error)}")

        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread

    def _send(self, process: str) -> None:
        producer = barnabas.Producer(
            self._bootstrap, acks="all", linger_ms=1, batch_size=1_000, retry_backoff_ms=20, request_timeout_ms=5_000
        )
        room = threading.Semaphore(IN_FLIGHT_MAX)
        with RecordedProducer(self._history, producer, process) as recorded:
            for number in itertools.count():
                if self._ends_sending.is_set():
                    break
                if not room.acquire(timeout=POLL_S):
                    continue
                delivery = recorded.send(self.places[number % PARTITIONS], f"{process}: {number}".encode())
                if delivery:
                    delivery.add_done_callback(lambda _: room.release())
                else:
                    room.release()
                if number % AT_ONCE == 0:
                    self._ends_sending.wait(self._pause_s)

    def _read_as_member(self, process: str) -> None:
        consumer = barnabas.Consumer(
            self._bootstrap, group="readers", auto_offset_reset="earliest", session_timeout_ms=3_000,
            heartbeat_interval_ms=500,
        )  # fmt: skip
        with RecordedConsumer(self._history, consumer, process) as recorded:
            recorded.subscribe([self._topic])
            self._poll(recorded)

    def _read_alone(self, process: str) -> None:
        consumer = barnabas.Consumer(self._bootstrap, auto_offset_reset="earliest")
        with RecordedConsumer(self._history, consumer, process) as recorded:
            recorded.assign(self.places)
            self._poll(recorded)

    def _poll(self, consumer: RecordedConsumer) -> None:
        while not self._ends_reading.is_set():
            try:
                consumer.poll(timeout_s=POLL_S)
            except BarnabasError:  # a fault of which it is told: it goes on
                self._ends_reading.wait(POLL_S)


class DirectWriter(Direct):
    """Sends to partition 0 at one broker, whoever leads: one value at a time, each once. Its doings are recorded.

    What is acknowledged at acks=1 may be lost, so it is recorded as sends of which nobody knows.

    :param acks: `Acks.ALL` or `Acks.LEADER`.
    :param name: tells its values from those of others that send to the same broker with the same `acks`.
    """

    def __init__(
        self, history: History, broker: BrokerProcess, topic: str, acks: int = Acks.ALL, name: str = "direct"
    ) -> None:
        self.answers: list[ErrorCode] = []
        self.sent: list[bytes] = []
        self.values: list[bytes] = []
        """What was acknowledged."""
        self._history = history
        self._acks = acks
        self._name = f"{name} to {broker.data.name}, acks {acks}"
        self._connection: RawConnection | None = None
        self._connections = itertools.count(1)
        self._numbers = itertools.count(1)
        super().__init__(broker, topic)

    def wait_for_progress(self, count: int = 20) -> None:
        """Wait until so many more are acknowledged."""
        before = len(self.values)
        wait_until(lambda: len(self.values) >= before + count, f"acknowledged: {self._name}")

    def wait_for_answer(self, *wanted: ErrorCode) -> None:
        """Wait until the broker gives one of these answers to what is sent from now on."""
        before = len(self.answers) + 1  # one may be on its way
        wait_until(lambda: set(self.answers[before:]) & set(wanted), f"{wanted}: {self._name}: {self.answers[-3:]}")

    def _ask(self, connection: RawConnection) -> bool:
        if connection is not self._connection:
            # What waits in the socket of one connection may come after what another has sent: two processes.
            self._connection = connection
            self._process = f"{self._name}, connection {next(self._connections)}"
        value = f"{self._name}: {next(self._numbers)}".encode()
        builder = BatchBuilder()
        builder.append(SYSTEM_CLOCK.time_ms(), None, value)
        send = self._history.send(self._process, (self._topic, 0), value)
        request = produce_request(bytes(builder.build()), self._acks, self._topic)
        connection.send(connection.frame(request, 9))
        self.sent.append(value)
        response = decode_response(ProduceResponse, 9, connection.receive())
        answer = response.responses[0].partition_responses[0]
        code = ErrorCode(answer.error_code)
        if not code and self._acks == Acks.ALL:
            send.ok(answer.base_offset)
        else:
            send.ended(Outcome.INFO, code.name)
        if not code:
            self.values.append(value)
        self.answers.append(code)
        self._ends.wait(BETWEEN_S)
        return not code


@contextlib.contextmanager
def direct_writers(
    history: History, brokers: dict[int, BrokerProcess], topic: str
) -> Iterator[dict[int, DirectWriter]]:
    """By broker: one that sends to it alone, at acks=all."""
    with contextlib.ExitStack() as stack:
        yield {number: stack.enter_context(DirectWriter(history, broker, topic)) for number, broker in brokers.items()}
