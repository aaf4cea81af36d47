"""The produce workload: a `Producer` sends one record, one list or one Arrow array per call.

The clock runs from the first call until `flush` returns: all records are acknowledged or, with acks=0, sent.
"""

from __future__ import annotations

import contextlib
import enum
import itertools
import logging
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.client.producer.delivery import Deliveries, Delivery
from barnabas.client.producer.producer import Producer
from barnabas.extras import require
from barnabas.laboratory.perf.meter import Measured, Meter
from barnabas.laboratory.perf.payloads import PayloadSpec, list_length, lists_of
from barnabas.laboratory.perf.run_control import RunControl

CALL_RECORDS_MAX = 10_000
"""The maximum number of records in one call of `send_many` or `send_arrow`."""


@contextlib.contextmanager
def loss_warnings_disabled() -> Iterator[None]:
    """Suppress the warning about each lost batch. The run checks the deliveries itself and fails."""
    log = logging.getLogger("barnabas.client.producer")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


class SendMode(enum.StrEnum):
    """The way in which records are passed to the producer."""

    SEND = "send"
    MANY = "many"
    ARROW = "arrow"


@dataclass(frozen=True, slots=True)
class ProduceJob:
    """The job of one producer.

    :param settings: the producer's settings under Kafka's names.
    :param records: the number of records; None to stop after `seconds`.
    :param warm_up: the number of records to send before the clock starts.
    """

    settings: Mapping[str, Any] = field(repr=False)
    topic: str
    mode: SendMode = SendMode.SEND
    payload: PayloadSpec = field(default_factory=PayloadSpec)
    records: int | None = None
    seconds: float | None = None
    warm_up: int = 0


Stretch = tuple[Any, int, int]
"""The values of one send call (a list or an array), the number of records, and the total size of the values in
bytes."""

Send = Callable[[Any], object]


def produce(job: ProduceJob, meter: Meter, control: RunControl) -> Measured:
    """Produce until all records are sent, or until the meter or the control stops the workload.

    :raises BarnabasError: if a record was not delivered.
    :raises ConfigurationError: if a package for the send mode is missing.
    """
    values = job.payload.values()
    length = list_length(values, CALL_RECORDS_MAX)
    outcomes = _Outcomes()
    try:
        with Producer(dict(job.settings)) as producer:
            producer.partitions_for(job.topic)
            send = _sender(job.mode, producer, job.topic)
            for chunk, _, _ in _stretches(values, length, job.warm_up, job.mode):
                outcomes.add(send(chunk))
            producer.flush()
            control.await_go()
            stretches = _stretches(values, length, job.records, job.mode)
            meter.begin()
            for chunk, count, size in stretches:
                if not meter.is_running or control.stopped.is_set():
                    break
                outcomes.add(send(chunk))
                meter.add(count, size)
            producer.flush()
            meter.end()
            outcomes.check()
    finally:
        measured = meter.end()
    return measured


def _sender(mode: SendMode, producer: Producer, topic: str) -> Send:
    if mode is SendMode.MANY:
        return lambda values: producer.send_many(topic, values)
    if mode is SendMode.ARROW:
        return lambda array: producer.send_arrow(topic, array)
    send = producer.send

    def send_each(values: Sequence[bytes]) -> Delivery | None:
        delivery = None
        for value in values:
            delivery = send(topic, value)
        return delivery

    return send_each


def _stretches(values: list[bytes], length: int, records: int | None, mode: SendMode) -> Iterator[Stretch]:
    """Yield the values of each send call, `records` values in total (None: without a limit), by cycling through the
    pool."""
    wrap = _arrow_array if mode is SendMode.ARROW else list
    whole = [(wrap(each), length, sum(map(len, each))) for each in lists_of(values, length)]
    if records is None:
        return itertools.cycle(whole)
    turns, rest = divmod(records, length)
    first = lists_of(values, length)[0][:rest]
    last = [(wrap(first), rest, sum(map(len, first)))] if rest else []
    return itertools.chain(itertools.islice(itertools.cycle(whole), turns), last)


def _arrow_array(values: Sequence[bytes]) -> Any:
    pyarrow = require("pyarrow", "arrow")
    return pyarrow.array(values, pyarrow.binary())


class _Outcomes:
    """Checks the last delivery of each send call, so that a failed run ends with the reason.

    The check does not cover every record. At the end of the run, the log end offsets show whether all records are
    stored.
    """

    def __init__(self) -> None:
        self._open: deque[Delivery] = deque()

    def add(self, outcome: object) -> None:
        if isinstance(outcome, Delivery):
            self._open.append(outcome)
        elif isinstance(outcome, Deliveries) and len(outcome):
            self._open.append(outcome[-1])
        while self._open and self._open[0].done():
            self._look_at(self._open.popleft())

    def check(self) -> None:
        """Wait for the remaining deliveries and check them."""
        while self._open:
            self._look_at(self._open.popleft())

    def _look_at(self, delivery: Delivery) -> None:
        error = delivery.exception()
        if error is not None:
            raise error
