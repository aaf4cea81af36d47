"""Clients that ask one broker, whoever leads: what this one broker says is what a test wants to know."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable
from typing import Self

import barnabas
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.protocol.messages.produce import ProduceResponse
from tests.interop.test_raw_frames import RawConnection, batch_of, produce_request
from tests.support.broker_process import BrokerProcess
from tests.support.reading import POLL_S, TIMEOUT_S, wait_until

PAUSE_S = 0.02
"""After a refusal, or a connection that has ended."""

BETWEEN_S = 0.005
"""Between two that are sent: brokers that start beside need the processors."""


class Direct:
    """Asks one broker about partition 0 of a topic, on a thread, again and again, until it is closed."""

    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self._port = broker.port
        self._topic = topic
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"{type(self).__name__} {broker.data.name}", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End. May be called again."""
        self._ends.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), self._thread.name

    def _ask(self, connection: RawConnection) -> bool:
        """Ask once; return whether the broker has done what it was asked."""
        raise NotImplementedError

    def _run(self) -> None:
        while not self._ends.is_set():
            # A connection that the broker closes is an AssertionError.
            with contextlib.suppress(OSError, AssertionError):
                connection = RawConnection(self._port)
                with contextlib.closing(connection.sock):
                    while not self._ends.is_set():
                        if not self._ask(connection):
                            self._ends.wait(PAUSE_S)
            self._ends.wait(PAUSE_S)


class DirectSender(Direct):
    """Sends values that no other sender has, one at a time, each once.

    :param name: is in the values.
    """

    def __init__(self, broker: BrokerProcess, topic: str, acks: int, name: str) -> None:
        self.acknowledged: dict[int, bytes] = {}
        """By offset, as this broker says."""
        self.answers: list[ErrorCode] = []
        self._acks = acks
        self._name = name
        self._sent = 0
        super().__init__(broker, topic)

    @property
    def end(self) -> int:
        """The offset behind the last one that was acknowledged."""
        return max(self.acknowledged.copy(), default=-1) + 1

    def wait_for_progress(self, count: int = 20) -> None:
        """Wait until so many more are acknowledged."""
        before = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) >= before + count, f"broker acknowledges: {self._thread.name}")

    def wait_for_answer(self, *wanted: ErrorCode) -> None:
        """Wait until the broker gives one of these answers to what is sent from now on."""
        before = len(self.answers) + 1  # one may be on its way
        wait_until(lambda: set(self.answers[before:]) & set(wanted), f"{wanted}: {self._thread.name}")

    def _ask(self, connection: RawConnection) -> bool:
        value = b"%s-%d" % (self._name.encode(), self._sent)
        self._sent += 1
        response = connection.call(produce_request(batch_of(value), self._acks, self._topic), 9, ProduceResponse)
        answer = response.responses[0].partition_responses[0]
        if not answer.error_code:
            self.acknowledged[answer.base_offset] = value
        self.answers.append(ErrorCode(answer.error_code))
        self._ends.wait(BETWEEN_S)
        return not answer.error_code


class Told:
    """Where clients were told that a partition ends, or begins: nobody is to be told less, whoever leads.

    :param senders: at acks=all: what is acknowledged to them can be read, so that no end lies before it.
    """

    def __init__(self, senders: Iterable[DirectSender] = ()) -> None:
        self.greatest = 0
        self.steps_back: list[str] = []
        self._senders = tuple(senders)
        self._lock = threading.Lock()

    def least(self) -> int:
        """Return the least that a broker may answer from now on."""
        return max([self.greatest, *(sender.end for sender in self._senders)])

    def note(self, offset: int, least: int, broker: str) -> None:
        """Note an answer to a question that was asked when it had to be `least` or more."""
        with self._lock:
            self.greatest = max(self.greatest, offset)
            if offset < least:
                self.steps_back.append(f"{broker} says {offset}, after {least}")


class DirectReader(Direct):
    """Asks where the partition ends that can be read (the high watermark), or where it begins.

    :param timestamp: `LATEST_TIMESTAMP` or `EARLIEST_TIMESTAMP`.
    """

    def __init__(self, broker: BrokerProcess, topic: str, timestamp: int, told: Told) -> None:
        self._timestamp = timestamp
        self._told = told
        super().__init__(broker, topic)

    def _ask(self, connection: RawConnection) -> bool:
        wanted = ListOffsetsPartition(partition_index=0, timestamp=self._timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=self._topic, partitions=[wanted])])
        least = self._told.least()
        answer = connection.call(request, 5, ListOffsetsResponse).topics[0].partitions[0]
        if not answer.error_code:
            self._told.note(answer.offset, least, self._thread.name)
        self._ends.wait(PAUSE_S)
        return True


def values_by_offset(bootstrap: str, topic: str) -> dict[int, bytes | None]:
    """Read all that partition 0 has, with a fresh consumer; each offset once."""
    with barnabas.Admin(bootstrap) as admin:
        (end,) = admin.end_offsets([(topic, 0)]).values()
    found: dict[int, bytes | None] = {}
    with barnabas.Consumer(bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])

        def is_read() -> bool:
            for record in consumer.poll(timeout_s=POLL_S):
                assert record.offset not in found, f"offset {record.offset} was read twice"
                found[record.offset] = record.value
            return consumer.position((topic, 0)) >= end

        wait_until(is_read, f"{topic} is read up to offset {end}")
    return found
