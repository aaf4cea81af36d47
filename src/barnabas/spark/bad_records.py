"""Bad records of a task: counted by reason, a few of them shown, and all of them sent on where somebody asks for it.

A bad record is one whose value could not be decoded as it should be. It is in the table all the same, whole. Where
somebody asks for it, a row goes to a dead-letter table (dead_letter_files.py), and a copy to a dead-letter topic: key,
value, timestamp and headers as they were, and behind them

    barnabas.reason       why
    barnabas.topic, barnabas.partition, barnabas.offset     where it was

It is sent, and acknowledged, before the load commits. So a load that fails after that leaves copies that the next
load sends again; topic, partition and offset tell them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from barnabas import Producer
from barnabas.errors import ApiError, ConfigurationError, ErrorCode
from barnabas.model import Header
from barnabas.spark.dead_letter_files import DeadLetterFiles

REASONS_MAX = 50
"""Distinct reasons that are counted; names of fields are in them, and may be data."""
OTHER_REASONS = "other reasons"
EXAMPLES_MAX = 3
EXAMPLE_BYTES_MAX = 120
HELD_BYTES_MAX = 32 * 1024 * 1024
SEND_TIMEOUT_S = 120.0
OWN_HEADERS = "barnabas."
_OF_ONE_RECORD = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP})
"""Why a topic may refuse a record that another one took."""
_LIMIT = re.compile(r"(\d{1,18})|(\d{1,3}(?:\.\d{1,9})?)%", re.ASCII)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """An example to show: where it is, why it is bad, how its value begins."""

    place: str
    reason: str
    value: bytes

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}: {self.value!r}"


@dataclass(frozen=True, slots=True)
class BadRecords:
    """How many bad records there were, by reason, and some of them."""

    reasons: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[BadRecord, ...] = ()

    @property
    def count(self) -> int:
        return sum(self.reasons.values())

    @classmethod
    def merged(cls, parts: Iterable[BadRecords]) -> BadRecords:
        """Return the bad records of several tasks.

        >>> BadRecords.merged([BadRecords({"empty": 1}), BadRecords({"empty": 2})]).reasons
        {'empty': 3}
        """
        reasons: dict[str, int] = {}
        examples: list[BadRecord] = []
        for part in parts:
            for reason, count in part.reasons.items():
                _count(reasons, reason, count)
            examples += part.examples
        return cls(reasons, tuple(examples[:EXAMPLES_MAX]))


def _count(reasons: dict[str, int], reason: str, count: int) -> None:
    known = reason if reason in reasons or len(reasons) < REASONS_MAX else OTHER_REASONS
    reasons[known] = reasons.get(known, 0) + count


@dataclass(frozen=True, slots=True)
class BadRecordLimit:
    """How many records of a load may be bad: `count` of them, or `percent` of all its records."""

    count: int | None = None
    percent: Decimal | None = None

    @classmethod
    def parse(cls, given: int | str) -> BadRecordLimit:
        """Read a count, or a share as `0.5%`.

        :raises ConfigurationError: it is neither.

        >>> BadRecordLimit.parse("0.5%").is_exceeded(1, 200), BadRecordLimit.parse(0).is_exceeded(1, 200)
        (False, True)
        """
        found = _LIMIT.fullmatch(str(given).strip())
        if found is None or (found[2] and Decimal(found[2]) > 100):
            raise ConfigurationError(
                f"max_bad_records (--max-bad-records): {given!r} is neither a count, as 100, nor a share, as 0.5%"
            )
        return cls(int(found[1])) if found[1] else cls(None, Decimal(found[2]))

    def __str__(self) -> str:
        return f"{self.count}" if self.percent is None else f"{self.percent}%"

    def is_exceeded(self, bad: int, records: int) -> bool:
        """Whether a load has more bad records than it may have."""
        if self.count is not None:
            return bad > self.count
        assert self.percent is not None, "one of the two is given"
        return bad * 100 > self.percent * records


class BadRecordCollector:
    """Takes the bad records of a task. Not thread-safe.

    It holds copies back until it is told to send them, as the task may have to be done again; where they are too
    many to be held, it sends.

    :param topic: where copies go; None for nowhere. `rows`: takes the bad records for a table.
    """

    def __init__(self, bootstrap: str, topic: str | None, rows: DeadLetterFiles | None = None) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._rows = rows
        self._producer: Producer | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._reasons: dict[str, int] = {}
        self._examples: list[BadRecord] = []

    def add(self, batch: pa.RecordBatch, reasons: pa.Array) -> None:
        """Take those records of a batch (Spark's columns, with headers) that have a reason.

        :raises BarnabasError: they could not be sent.
        """
        if reasons.null_count == len(reasons):
            return
        is_bad = reasons.is_valid()
        bad = batch.filter(is_bad).append_column("reason", reasons.filter(is_bad))
        for counted in pc.value_counts(bad.column("reason")).to_pylist():
            _count(self._reasons, counted["values"], counted["counts"])
        for row in bad.slice(0, EXAMPLES_MAX - len(self._examples)).to_pylist():
            place = f"{row['topic']}-{row['partition']} offset {row['offset']}"
            self._examples.append(BadRecord(place, row["reason"], row["value"][:EXAMPLE_BYTES_MAX]))
        if self._rows is not None:
            self._rows.add(bad)
        if self._topic is not None:
            self._held.append(bad)
            self._held_bytes += bad.nbytes
            if self._held_bytes > HELD_BYTES_MAX:
                self.send()

    def send(self) -> None:
        """Send what is held, and wait until the brokers have it.

        :raises BarnabasError: they have not.
        """
        if not self._held or self._topic is None:
            return
        if self._producer is None:
            self._producer = Producer(self._bootstrap)
        for batch in self._held:
            self._send_rows(self._producer, batch.to_pylist())
        self._held, self._held_bytes = [], 0

    def _send_rows(self, producer: Producer, rows: list[dict[str, Any]]) -> None:
        assert self._topic is not None, "something is sent"
        try:
            producer.send_many(
                self._topic,
                [row["value"] for row in rows],
                keys=[row["key"] for row in rows],
                timestamps_ms=[row["sent_ms"] for row in rows],
                headers=[_headers(row) for row in rows],
            ).result(SEND_TIMEOUT_S)
        except ApiError as error:
            if error.code not in _OF_ONE_RECORD:
                raise
            for row in rows:
                self._send_row(producer, self._topic, row)

    def _send_row(self, producer: Producer, topic: str, row: dict[str, Any]) -> None:
        """Send one record; where the topic does not take it as it is, without its value and with the time of now."""
        headers = _headers(row)
        try:
            sent = producer.send(topic, row["value"], key=row["key"], timestamp_ms=row["sent_ms"], headers=headers)
            sent.result(SEND_TIMEOUT_S)
        except ApiError as error:
            if error.code not in _OF_ONE_RECORD:
                raise
            own = [header for header in headers if header[0].startswith(OWN_HEADERS)]
            size = (f"{OWN_HEADERS}left-out", f"value of {len(row['value'])} bytes, key, headers: {error}".encode())
            producer.send(topic, None, headers=[*own, size]).result(SEND_TIMEOUT_S)

    def close(self) -> None:
        """Give up what is held, and the connection."""
        self._held = []
        if self._producer is not None:
            self._producer.close()

    def counts(self) -> BadRecords:
        """Return what there was."""
        return BadRecords(self._reasons, tuple(self._examples))


def _headers(row: Mapping[str, object]) -> list[Header]:
    pairs = row["headers"] or []
    assert isinstance(pairs, list), "a list column"
    own = [(pair["key"], pair["value"]) for pair in pairs]
    told = {
        "reason": row["reason"],
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["offset"],
    }
    return [*own, *((OWN_HEADERS + name, str(value).encode()) for name, value in told.items())]
