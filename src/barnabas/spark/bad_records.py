"""Bad records of a load: counts by reason, examples, and copies in a dead-letter topic.

A bad record is a record whose value could not be decoded. The table contains it with the whole value. If the load has a
dead-letter table (dead_letter_files.py), that table gets a row. If it has a dead-letter topic, that topic gets a copy
of key, value, timestamp and headers, with these additional headers:

    barnabas.reason       the reason
    barnabas.topic, barnabas.partition, barnabas.offset     the position of the record

Copies are acknowledged before the load commits. If the load then fails, the next load sends them again; duplicates have
the same topic, partition and offset.
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
from barnabas.client.config import Bootstrap
from barnabas.errors import ApiError, ConfigurationError, ErrorCode
from barnabas.model import Header
from barnabas.spark.dead_letter_files import DeadLetterFiles

REASONS_MAX = 50
"""The maximum number of reasons counted separately. Reasons contain field names, which may be data."""
OTHER_REASONS = "other reasons"
EXAMPLES_MAX = 3
EXAMPLE_BYTES_MAX = 120
HELD_BYTES_MAX = 32 * 1024 * 1024
SEND_TIMEOUT_S = 120.0
OWN_HEADERS = "barnabas."
_OF_ONE_RECORD = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_TIMESTAMP})
"""The error codes for a record that a dead-letter topic rejects although the source topic accepted it."""
_LIMIT = re.compile(r"(\d{1,18})|(\d{1,3}(?:\.\d{1,9})?)%", re.ASCII)


@dataclass(frozen=True, slots=True)
class BadRecord:
    """An example of a bad record: its position, the reason, and the beginning of its value."""

    place: str
    reason: str
    value: bytes

    def __str__(self) -> str:
        return f"{self.place}: {self.reason}: {self.value!r}"


@dataclass(frozen=True, slots=True)
class BadRecords:
    """The number of bad records by reason, and some examples."""

    reasons: Mapping[str, int] = field(default_factory=dict)
    examples: tuple[BadRecord, ...] = ()

    @property
    def count(self) -> int:
        return sum(self.reasons.values())

    @classmethod
    def merged(cls, parts: Iterable[BadRecords]) -> BadRecords:
        """Add up the bad records of several tasks.

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
    """The maximum number of bad records of a load: `count`, or `percent` of all its records."""

    count: int | None = None
    percent: Decimal | None = None

    @classmethod
    def parse(cls, given: int | str) -> BadRecordLimit:
        """Parse a count, or a share such as `0.5%`.

        :raises ConfigurationError: The value is neither.

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
        """Return whether a load has more bad records than allowed."""
        if self.count is not None:
            return bad > self.count
        assert self.percent is not None, "count or percent is set"
        return bad * 100 > self.percent * records


class BadRecordCollector:
    """Collects the bad records of a task. Not thread-safe.

    The collector holds copies back until `send`, because the load may have to repeat the task. It sends them earlier if
    they exceed `HELD_BYTES_MAX`.

    :param topic: The dead-letter topic; None sends no copies.
    :param rows: Collects the rows for a dead-letter table.
    """

    def __init__(self, bootstrap: Bootstrap, topic: str | None, rows: DeadLetterFiles | None = None) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._rows = rows
        self._producer: Producer | None = None
        self._held: list[pa.RecordBatch] = []
        self._held_bytes = 0
        self._reasons: dict[str, int] = {}
        self._examples: list[BadRecord] = []

    def add(self, batch: pa.RecordBatch, reasons: pa.Array) -> None:
        """Collect the records of a batch that have a reason.

        :param batch: Records in the columns of the Spark source, with headers.
        :param reasons: The reason of each bad record, else null.
        :raises BarnabasError: The records could not be sent.
        """
        if reasons.null_count == len(reasons):
            return
        is_bad = reasons.is_valid()
        bad = batch.filter(is_bad).append_column("reason", reasons.filter(is_bad))
        for counted in pc.value_counts(bad.column("reason")).to_pylist():
            _count(self._reasons, counted["values"], counted["counts"])
        for row in bad.slice(0, EXAMPLES_MAX - len(self._examples)).to_pylist():
            place = f"{row['topic']}-{row['partition']} offset {row['offset']}"
            value = row["value"] or b""  # a tombstone with an unusable key is bad in a state table
            self._examples.append(BadRecord(place, row["reason"], value[:EXAMPLE_BYTES_MAX]))
        if self._rows is not None:
            self._rows.add(bad)
        if self._topic is not None:
            self._held.append(bad)
            self._held_bytes += bad.nbytes
            if self._held_bytes > HELD_BYTES_MAX:
                self.send()

    def send(self) -> None:
        """Send the held copies, and wait until the brokers have acknowledged them.

        :raises BarnabasError: A copy was not acknowledged.
        """
        if not self._held or self._topic is None:
            return
        if self._producer is None:
            self._producer = Producer(self._bootstrap)
        for batch in self._held:
            self._send_rows(self._producer, batch.to_pylist())
        self._held, self._held_bytes = [], 0

    def _send_rows(self, producer: Producer, rows: list[dict[str, Any]]) -> None:
        assert self._topic is not None, "only called with a dead-letter topic"
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
        """Send one record. If the topic rejects it, send it without key and value, and with the current time."""
        headers = _headers(row)
        try:
            sent = producer.send(topic, row["value"], key=row["key"], timestamp_ms=row["sent_ms"], headers=headers)
            sent.result(SEND_TIMEOUT_S)
        except ApiError as error:
            if error.code not in _OF_ONE_RECORD:
                raise
            own = [header for header in headers if header[0].startswith(OWN_HEADERS)]
            size = (
                f"{OWN_HEADERS}left-out",
                f"value of {len(row['value'] or b'')} bytes, key, headers: {error}".encode(),
            )
            producer.send(topic, None, headers=[*own, size]).result(SEND_TIMEOUT_S)

    def close(self) -> None:
        """Discard the held copies, and close the producer."""
        self._held = []
        if self._producer is not None:
            self._producer.close()

    def counts(self) -> BadRecords:
        """Return the counts and the examples."""
        return BadRecords(self._reasons, tuple(self._examples))


def _headers(row: Mapping[str, object]) -> list[Header]:
    pairs = row["headers"] or []
    assert isinstance(pairs, list), "headers are a list column"
    own = [(pair["key"], pair["value"]) for pair in pairs]
    added = {
        "reason": row["reason"],
        "topic": row["topic"],
        "partition": row["partition"],
        "offset": row["offset"],
    }
    return [*own, *((OWN_HEADERS + name, str(value).encode()) for name, value in added.items())]
