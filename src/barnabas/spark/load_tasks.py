"""One task of a load on an executor: reads ranges from the brokers, writes Parquet files by event day.

A task answers with a value whatever happens: Spark would wrap an exception in two pages of Java, and a full
disk or a deleted range deserves one line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.audit.account import Account
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.formats.column_types import Fields, merge_fields
from barnabas.formats.decoding import KeepValues, ValueDecoder
from barnabas.formats.field_aliases import NO_ALIASES, Aliases
from barnabas.formats.further_columns import Counts, added_counts
from barnabas.model import TopicPartition, in_file_name
from barnabas.spark.bad_records import BadRecordCollector, BadRecords
from barnabas.spark.columns import to_record_batches
from barnabas.spark.day_files import TARGET_BYTES, DataFile, DayFiles, create_file
from barnabas.spark.dead_letter_files import DeadLetterFiles, DeadLetterSettings
from barnabas.spark.errors import DataLossError
from barnabas.spark.load_audit_counts import LoadAuditCounter
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.range_reading import RangeConnections, read_range
from barnabas.spark.table_rows import TableRows, to_rows
from barnabas.spark.table_shape import TableShape


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """How tasks reach the brokers and the schema registry."""

    bootstrap: str
    client_options: Mapping[str, str]
    registry: str | None = None


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """Where tasks write, and what.

    `dead_letter`: the topic that gets copies of bad records; `dead_letter_table`: where rows of them go. None for none.
    `event_time_max_ms`: later times are of clocks that are wrong, and say nothing about how far a load is.
    `audit_width_ms`: of the windows in which the audit counts; None where it does not.
    `target_file_bytes`: how large a file becomes, before the next one of its day begins.
    """

    folder: str
    io_properties: Mapping[str, str]
    shape: TableShape
    dead_letter: str | None = None
    event_time_max_ms: int = 2**62
    audit_width_ms: int | None = None
    dead_letter_table: DeadLetterSettings | None = None
    target_file_bytes: int = TARGET_BYTES
    keep_values: KeepValues = "bad"


@dataclass(frozen=True, slots=True)
class TaskWritten:
    """A task that is done.

    `kept_values` counts values that are whole in `value` beside decoded columns, `lost_values` those that are not and
    that the columns do not give back, `without_time` records without an event time,
    `readable` those that have a value which is not bad, `with_event_field` those that have the field of the event time.
    `counts`: how many values are in each column of the fields that have further ones.
    `found`: fields that need other columns than the shape has, `renames`: those that have another name by now; where
    the shape would grow by them, the task has sent no bad records, and is to be done again.
    `event_times_ms`: the latest event time of each partition.
    `account`: what the audit counts; empty where it does not.
    `dead_letter_files`: those of rows for the dead-letter table.
    """

    records: int
    kept_values: int
    files: tuple[DataFile, ...]
    bad: BadRecords = field(default_factory=BadRecords)
    without_time: int = 0
    found: Fields = field(default_factory=dict)
    event_times_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    account: Account = field(default_factory=Account)
    renames: Aliases = NO_ALIASES
    dead_letter_files: tuple[DataFile, ...] = ()
    readable: int = 0
    with_event_field: int = 0
    lost_values: int = 0
    counts: Counts = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskInferred:
    """The fields of records, and those that have another name by now: old names and new."""

    fields: Fields
    renames: Aliases


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """A task that could not do its work."""

    kind: Literal["data loss", "storage", "other"]
    message: str


def write_ranges(
    wanted: Sequence[OffsetRange], reading: ReadSettings, writing: WriteSettings, attempt_id: int
) -> TaskWritten | TaskFailed:
    """Write the records of ranges into new files.

    :param attempt_id: unique to this attempt of this task: what an earlier attempt wrote is not touched.
    """
    first = current = wanted[0]
    name = f"{in_file_name(first.topic)}-{first.partition}-{first.start_offset}-{attempt_id}"
    files = DayFiles(
        f"{writing.folder}/{name}",
        partial(create_file, writing.io_properties),
        time_column=writing.shape.time_column,
        target_bytes=writing.target_file_bytes,
    )
    dead = None if writing.dead_letter_table is None else DeadLetterFiles(writing.dead_letter_table, name)
    bin_ = BadRecordCollector(reading.bootstrap, writing.dead_letter, dead)
    try:
        with closing(bin_), closing(RangeConnections()) as connections:
            task = _Task(writing, files, bin_, writing.shape.decoder(reading.registry))
            for current in wanted:
                parts = read_range(
                    current,
                    reading.bootstrap,
                    reading.client_options,
                    on_batches=task.on_batches,
                    connections=connections,
                )
                for part in parts:
                    task.take(current.topic_partition, part)
            return replace(task.finish(), dead_letter_files=() if dead is None else dead.finish())
    except (BarnabasError, OSError) as error:
        return _failed(current, error)


class _Task:
    """What a task has done so far."""

    def __init__(
        self, writing: WriteSettings, files: DayFiles, bad: BadRecordCollector, decoder: ValueDecoder | None
    ) -> None:
        self._writing = writing
        self._decoder = decoder
        self._files = files
        self._bad = bad
        self._records = self._kept_values = self._without_time = self._readable = self._with_event_field = 0
        self._lost_values = 0
        self._counts: Counts = {}
        self._found: Fields = {}
        self._renames = NO_ALIASES
        self._event_times_ms: dict[TopicPartition, int] = {}
        self._audit = None if writing.audit_width_ms is None else LoadAuditCounter(writing.audit_width_ms)
        self.on_batches = None if self._audit is None else self._audit.saw
        """To be called with the batches of an answer before `take`."""

    def take(self, partition: TopicPartition, part: pa.RecordBatch) -> None:
        """Write what a broker answered."""
        sent_ms = part.column("timestamp").cast(pa.int64())
        for number, batch in enumerate(_batches(part)):
            rows = to_rows(batch, self._writing.shape, self._decoder, self._writing.keep_values)
            if (rows.found or self._writing.shape.is_guess) and self._decoder is not None:
                self._renames = Aliases.together([self._renames, self._decoder.renames(batch.column("value"))])
            self._files.add(rows.batch)
            self._count(partition, rows)
            self._readable += pc.and_(batch.column("value").is_valid(), rows.reasons.is_null()).true_count
            if rows.reasons.null_count < len(rows.reasons):
                sent = sent_ms.slice(number * BATCH_RECORDS, batch.num_rows)
                self._bad.add(batch.append_column("sent_ms", sent), rows.reasons)
        if self._audit is not None:
            self._audit.add(partition, part)

    def _count(self, partition: TopicPartition, rows: TableRows) -> None:
        self._records += rows.batch.num_rows
        self._kept_values += rows.kept_values
        self._lost_values += rows.lost_values
        self._counts = added_counts([self._counts, rows.counts])
        self._with_event_field += rows.with_event_field
        if rows.found:
            self._found = merge_fields([self._found, rows.found])
        times = rows.batch.column(self._writing.shape.time_column)
        self._without_time += times.null_count
        milliseconds = pc.divide(times.cast(pa.int64()), 1_000)
        latest = pc.max(milliseconds).as_py()
        if latest is not None and latest > self._writing.event_time_max_ms:
            latest = pc.max(milliseconds.filter(pc.less_equal(milliseconds, self._writing.event_time_max_ms))).as_py()
        if latest is not None:
            self._event_times_ms[partition] = max(latest, self._event_times_ms.get(partition, latest))

    def finish(self) -> TaskWritten:
        """Write and send what is left."""
        shape = self._writing.shape
        files = tuple(self._files.finish())
        if shape.has_room_for(self._found, self._renames):
            self._bad.send()
        return TaskWritten(
            self._records,
            self._kept_values,
            files,
            self._bad.counts(),
            self._without_time,
            self._found,
            self._event_times_ms,
            Account() if self._audit is None else self._audit.account,
            self._renames,
            readable=self._readable,
            with_event_field=self._with_event_field,
            lost_values=self._lost_values,
            counts=self._counts,
        )


BATCH_RECORDS = 65_536


def _batches(part: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    return to_record_batches(part, include_headers=True, include_raw_timestamp=True, records_max=BATCH_RECORDS)


def infer_ranges(wanted: Sequence[OffsetRange], reading: ReadSettings, shape: TableShape) -> TaskInferred | TaskFailed:
    """Return the fields of the records of ranges.

    :param shape: says which format the values have.
    """
    current = wanted[0]
    found: Fields = {}
    renames = NO_ALIASES
    try:
        decoder = shape.decoder(reading.registry)
        with closing(RangeConnections()) as connections:
            for current in wanted:
                parts = read_range(
                    current, reading.bootstrap, reading.client_options, include_headers=False, connections=connections
                )
                for part in parts:
                    if decoder is not None:
                        values = part.column("value")
                        found = merge_fields([found, decoder.infer(values)])
                        renames = Aliases.together([renames, decoder.renames(values)])
    except (BarnabasError, OSError) as error:
        return _failed(current, error)
    return TaskInferred(found, renames)


def _failed(wanted: OffsetRange, error: BarnabasError | OSError) -> TaskFailed:
    if isinstance(error, ApiError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return TaskFailed("data loss", f"{wanted}: deleted from the log while it was read: {error}")
    if isinstance(error, DataLossError):
        return TaskFailed("data loss", str(error))
    if isinstance(error, OSError) and not isinstance(error, BarnabasError):
        return TaskFailed("storage", f"{wanted}: cannot write: {error}")
    return TaskFailed("other", f"{wanted}: {error}")
