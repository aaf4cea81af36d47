"""Clients of others under faults, recorded: librdkafka's producer and consumer, each on a thread of its own.

They know nothing of this project: a mistake that a broker and a client of ours made alike, they would not make. What
they do is written into a `History`, as `RecordedProducer` and `RecordedConsumer` do it for our own.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import confluent_kafka

from barnabas.errors import ApiError
from barnabas.laboratory.history import History, Outcome, Send, outcome_of
from tests.faults.telling import where

Place = tuple[str, int]

PATIENT_S = 120.0
"""For clients that end while brokers are slow, on a machine that is slow."""
CLOSE_S = 60.0
"""For the end of a consumer. In librdkafka 2.16.0 some never end whose connections were lost again and again:
`rd_kafka_consumer_close` waits for an answer that its own threads do not give. One broker, a link that is cut or loses
every fifth chunk, and sixteen readers at a time showed it three times in 617 ends; a link that is whole again does not
help. With `metadata.recovery.strategy=none` none of 1,675 did so: it seems to be its beginning anew with the bootstrap
servers. The default stays, since it is what applications have."""
SENT_AT_ONCE = 100
ON_THEIR_WAY_MAX = 1_000
BATCH_BYTES_MAX = 8_000
"""Below the segments of all scenarios. A batch that no segment takes is refused for good; librdkafka then begins a new
epoch for all partitions, and sends in it once more what other brokers may have taken in the old one."""
POLL_S = 0.05
RECORDS_PER_POLL = 500
SETTINGS = {
    "retry.backoff.ms": 20,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 500,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "broker.address.ttl": 0,
    "log_level": 0,
}
"""Quick to try again: what is tested is whether they come back, not their patience."""


class ForeignClient:
    """A client that works on its own thread until `stop`; what went wrong there is raised by that.

    :param places: topics and partitions.
    :param own: settings of librdkafka that a kind of client has.
    :param settings: of librdkafka, before all others; with `_` for each dot.
    """

    def __init__(
        self,
        history: History,
        bootstrap: str,
        places: Sequence[Place],
        process: str,
        own: Mapping[str, Any],
        settings: Mapping[str, Any],
    ) -> None:
        self.history = history
        self.process = process
        self._places = places
        self._settings = {
            **SETTINGS,
            "bootstrap.servers": bootstrap,
            "error_cb": self._note,
            **own,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
        self.errors: Counter[str] = Counter()
        """What the client was told of errors, by name. Under faults there are some."""
        self._ends = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=process, daemon=True)

    def start(self) -> Self:
        """Begin to work."""
        self._thread.start()
        return self

    def stop(self) -> None:
        """Come to an end, close the client and wait for it. May be called again."""
        self._ends.set()
        self._thread.join(2 * PATIENT_S)
        assert not self._thread.is_alive(), f"{self.process} does not end: {where(self._thread)}"
        if self._failure:
            failure, self._failure = self._failure, None
            raise failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as failure:  # noqa: BLE001 - it is raised where the test sees it
            self._failure = failure

    def _work(self) -> None:
        raise NotImplementedError

    def _note(self, error: confluent_kafka.KafkaError) -> None:
        self.errors[error.name()] += 1


class ForeignProducer(ForeignClient):
    """Sends numbered values to some places in turn, idempotently, with acks=all.

    After an error that is the end of an idempotent producer it goes on with another one, as applications do.

    :param pause_s: how long it waits after each hundred records; it never has more than a thousand on their way.
    :param told: a file for what librdkafka tells of its batches, their sequences and its epochs.
    """

    def __init__(
        self,
        history: History,
        bootstrap: str,
        places: Sequence[Place],
        process: str,
        *,
        pause_s: float = 0.01,
        told: Path | None = None,
        **settings: Any,
    ) -> None:
        own = {
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 2,
            "queue.buffering.max.messages": ON_THEIR_WAY_MAX,
            "batch.size": BATCH_BYTES_MAX,
            **({} if told is None else {"debug": "eos,msg", "log_level": 7, "logger": _logger(history, told)}),
        }
        super().__init__(history, bootstrap, places, process, own, settings)
        self._pause_s = pause_s
        self._is_dead = False

    def _work(self) -> None:
        numbers = itertools.count()
        while not self._ends.is_set():
            self._is_dead = False
            producer = confluent_kafka.Producer(self._settings)
            while not self._ends.is_set() and not self._is_dead:
                for number in itertools.islice(numbers, SENT_AT_ONCE):
                    self._send(producer, number)
                producer.poll(0)
                self._ends.wait(self._pause_s)
            self._end(producer)

    def _end(self, producer: confluent_kafka.Producer) -> None:
        """Wait for what is on its way; what is then left has an outcome that nobody knows."""
        if self._is_dead or producer.flush(PATIENT_S):
            producer.purge()
            producer.flush(PATIENT_S)

    def _send(self, producer: confluent_kafka.Producer, number: int) -> None:
        place = self._places[number % len(self._places)]
        value = f"{self.process}: {number}".encode()
        send = self.history.send(self.process, place, value)
        told = partial(self._told, send)
        while not (self._is_dead or self._ends.is_set()):
            try:
                producer.produce(place[0], value, partition=place[1], on_delivery=told)
            except BufferError:
                producer.poll(POLL_S)
            except confluent_kafka.KafkaException as error:
                self._look_at(error.args[0])
                send.ended(Outcome.FAIL, str(error))  # it never left the producer
                return
            else:
                return
        send.ended(Outcome.FAIL, "it was not handed to the producer any more")

    def _told(self, send: Send, error: confluent_kafka.KafkaError | None, message: confluent_kafka.Message) -> None:
        if error is None:
            send.ok(message.offset())
        else:
            self._look_at(error)
            send.ended(outcome_of_foreign(error), error.str())

    def _look_at(self, error: confluent_kafka.KafkaError) -> None:
        self._note(error)
        if error.fatal() or error.code() == confluent_kafka.KafkaError._FATAL:
            if not self._is_dead:
                self.history.event(f"{self.process} cannot go on and is made anew: {error.str()}")
            self._is_dead = True


class ForeignConsumer(ForeignClient):
    """Reads: as a member of a group, or, without one, all of some places from their beginning.

    Of the places of a group's member only the topics count.

    :param group: the group's name.
    """

    def __init__(
        self,
        history: History,
        bootstrap: str,
        places: Sequence[Place],
        process: str,
        group: str | None = None,
        **settings: Any,
    ) -> None:
        own = {
            "group.id": group or "none",
            "enable.auto.commit": group is not None,
            "auto.commit.interval.ms": 500,
            "auto.offset.reset": "earliest",
            "check.crcs": True,
            "fetch.wait.max.ms": 100,
            "fetch.error.backoff.ms": 50,
            **({"session.timeout.ms": 6_000, "heartbeat.interval.ms": 200} if group else {}),
        }
        super().__init__(history, bootstrap, places, process, own, settings)
        self._group = group
        self._records: list[tuple[Place, int, bytes]] = []
        self._started = 0.0
        self.read_count = 0
        """How many records it has read that are written down."""
        self.is_left = False
        """Whether a consumer did not come to its end and was left. What it has read is written down all the same."""

    def _work(self) -> None:
        while not self._ends.is_set():
            consumer = confluent_kafka.Consumer(self._settings)
            try:
                self._begin(consumer)
                while not self._ends.is_set() and self._poll(consumer):
                    pass
            finally:
                self._close(consumer)
                self._moved()

    def _close(self, consumer: confluent_kafka.Consumer) -> None:
        """Close a consumer, or leave it: how a client of others ends is no matter of the broker."""
        failures: list[BaseException] = []

        def close() -> None:
            try:
                consumer.close()
            except BaseException as failure:  # noqa: BLE001 - it is raised below
                failures.append(failure)

        closing = threading.Thread(target=close, name=f"the end of {self.process}", daemon=True)
        closing.start()
        closing.join(CLOSE_S)
        if closing.is_alive():
            self.is_left = True
            self.history.event(f"{self.process} does not close, and is left")
        if failures:
            raise failures[0]

    def _begin(self, consumer: confluent_kafka.Consumer) -> None:
        if self._group:
            told = {f"on_{what}": self._moved for what in ("assign", "revoke", "lost")}
            consumer.subscribe(sorted({topic for topic, _ in self._places}), **told)
        else:
            beginning = confluent_kafka.OFFSET_BEGINNING
            consumer.assign([confluent_kafka.TopicPartition(*place, beginning) for place in self._places])

    def _poll(self, consumer: confluent_kafka.Consumer) -> bool:
        """Read for a while; return whether this consumer can go on.

        Records come one by one, since between any two of them the group may have given others to read, and
        `Consumer.consume` tells of that only before or after all.
        """
        self._started = self.history.now()
        message = consumer.poll(POLL_S)
        while message is not None:
            error = message.error()
            if error is None:
                self._records.append(((message.topic(), message.partition()), message.offset(), message.value()))
            else:
                self._note(error)
                if error.fatal():
                    self.history.event(f"{self.process} cannot go on and is made anew: {error.str()}")
                    return False
            message = consumer.poll(0) if len(self._records) < RECORDS_PER_POLL else None
        self._write_down()
        return True

    def _moved(self, *_: object) -> None:
        self._write_down()
        self.history.moved(self.process)

    def _write_down(self) -> None:
        if self._records:
            self.history.poll(self.process, self._started, self._records)
            self.read_count += len(self._records)
            self._records.clear()
            self._started = self.history.now()


class _Told(logging.FileHandler):
    """Writes down what librdkafka tells, with the seconds since the history began at which it was fetched."""

    def __init__(self, history: History, path: Path) -> None:
        super().__init__(path, delay=True)
        self._history = history

    def format(self, record: logging.LogRecord) -> str:
        return f"{self._history.now():9.3f} {record.getMessage()}"


def _logger(history: History, path: Path) -> logging.Logger:
    logger = logging.Logger(str(path))
    logger.addHandler(_Told(history, path))
    return logger


def outcome_of_foreign(error: confluent_kafka.KafkaError) -> Outcome:
    """Return what is known of a send that librdkafka has given up.

    Its own errors are negative, such as that of a message that was not acknowledged in time: it may have been sent
    before, so nobody knows. A broker's refusal is what it is for our producer.
    """
    return outcome_of(ApiError(error.code(), error.str())) if error.code() > 0 else Outcome.INFO


def all_stopped(clients: Sequence[ForeignClient]) -> None:
    """Stop clients side by side, and raise what went wrong in the first that failed."""
    failures: list[BaseException] = []

    def stop(client: ForeignClient) -> None:
        try:
            client.stop()
        except BaseException as failure:  # noqa: BLE001 - it is raised below
            failures.append(failure)

    threads = [threading.Thread(target=stop, args=(client,)) for client in clients]
    _each(threads, threading.Thread.start)
    _each(threads, threading.Thread.join)
    if failures:
        raise failures[0]


def _each(threads: Sequence[threading.Thread], act: Callable[[threading.Thread], None]) -> None:
    for thread in threads:
        act(thread)
