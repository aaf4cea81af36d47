"""One task of a load on an executor: reads offset ranges from the brokers, writes Parquet files by partition.

A task returns a value even after a failure. Spark would wrap an exception in two pages of Java stack traces, and a full
disk or a deleted range needs one line.
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
from barnabas.formats.decoding import KeepValues
from barnabas.formats.field_aliases import NO_ALIASES, Aliases
from barnabas.formats.further_columns import Counts, added_counts
from barnabas.model import TopicPartition, in_file_name
from barnabas.serialization.registry_settings import RegistryTarget
from barnabas.spark.bad_records import BadRecordCollector, BadRecords
from barnabas.spark.change_files import ChangeFileWriter, to_change_rows
from barnabas.spark.columns import to_record_batches
from barnabas.spark.data_files import TARGET_BYTES, DataFile, PartitionedFiles, create_file
from barnabas.spark.dead_letter_files import DeadLetterFiles, DeadLetterSettings
from barnabas.spark.errors import DataLossError, is_source_unavailable
from barnabas.spark.load_audit_counts import LoadAuditCounter
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.range_reading import RangeConnections, read_range, settings_of_client
from barnabas.spark.table_layout import PartitionLimitError
from barnabas.spark.table_rows import TableRows, to_rows
from barnabas.spark.table_shape import TableShape
from barnabas.spark.unavailable_servers import is_without_answer


@dataclass(frozen=True, slots=True)
class ReadSettings:
    """The connection settings of tasks, for the brokers and the schema registry."""

    bootstrap: str
    client_options: Mapping[str, str]
    registry: RegistryTarget | None = None


@dataclass(frozen=True, slots=True)
class WriteSettings:
    """The destination and the format of the files that tasks write."""

    folder: str
    io_properties: Mapping[str, str]
    shape: TableShape
    dead_letter: str | None = None
    """The topic that gets copies of bad records; None for no copies."""
    event_time_max_ms: int = 2**62
    """The largest plausible event time. Later times come from wrong clocks and do not count for completeness."""
    audit_width_ms: int | None = None
    """The width of the windows that the audit counts in; None without an audit."""
    dead_letter_table: DeadLetterSettings | None = None
    """The destination of dead-letter rows; None for no rows."""
    target_file_bytes: int = TARGET_BYTES
    """The size at which a task starts another file for a partition."""
    keep_values: KeepValues = "bad"
    partitions_max: int | None = None
    """The maximum number of partitions in the records that a task buffers; None for no limit."""


@dataclass(frozen=True, slots=True)
class TaskWritten:
    """The result of a completed task."""

    records: int
    kept_values: int
    """The number of values kept whole in the column `value` beside decoded columns."""
    files: tuple[DataFile, ...]
    bad: BadRecords = field(default_factory=BadRecords)
    without_time: int = 0
    """The number of records without an event time."""
    found: Fields = field(default_factory=dict)
    """Fields for which the shape has no column. The load then adds the columns and runs the task again. The task has
    sent no dead letters yet.
    """
    event_times_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The latest event time of each partition."""
    account: Account = field(default_factory=Account)
    """The counts for the audit; empty without an audit."""
    renames: Aliases = NO_ALIASES
    """Fields that have been renamed: new name by old name."""
    dead_letter_files: tuple[DataFile, ...] = ()
    """The files with rows for the dead-letter table."""
    readable: int = 0
    """The number of records with a value that is not bad."""
    with_event_field: int = 0
    """The number of records that have the event-time field."""
    lost_values: int = 0
    """The number of values that the columns cannot reproduce and that are not kept."""
    counts: Counts = field(default_factory=dict)
    """The number of values per column, for each field with further columns."""


@dataclass(frozen=True, slots=True)
class TaskInferred:
    """The fields of the records, and renamed fields: new name by old name."""

    fields: Fields
    renames: Aliases


FailureKind = Literal["data loss", "source unavailable", "storage", "storage unavailable", "partitions", "other"]


@dataclass(frozen=True, slots=True)
class TaskFailed:
    """The failure of a task, as a value."""

    kind: FailureKind
    message: str


def write_ranges(
    wanted: Sequence[OffsetRange], reading: ReadSettings, writing: WriteSettings, attempt_id: int
) -> TaskWritten | TaskFailed:
    """Write the records of offset ranges to new files.

    :param attempt_id: Unique to this attempt of the task, so that an attempt never overwrites files of another one.
    """
    first = current = wanted[0]
    name = f"{in_file_name(first.topic)}-{first.partition}-{first.start_offset}-{attempt_id}"
    create = partial(create_file, writing.io_properties)
    files: PartitionedFiles | ChangeFileWriter
    if writing.shape.upsert is None:
        files = PartitionedFiles(
            f"{writing.folder}/{name}",
            create,
            writing.shape.table_layout,
            partitions_max=writing.partitions_max,
            target_bytes=writing.target_file_bytes,
        )
    else:
        files = ChangeFileWriter(f"{writing.folder}/{name}", create, writing.shape)
    dead = None if writing.dead_letter_table is None else DeadLetterFiles(writing.dead_letter_table, name)
    bin_ = BadRecordCollector(settings_of_client(reading.bootstrap, reading.client_options), writing.dead_letter, dead)
    try:
        with closing(bin_), closing(RangeConnections()) as connections:
            task = _Task(writing, files, bin_, reading.registry)
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
    """The state of a running write task."""

    def __init__(
        self,
        writing: WriteSettings,
        files: PartitionedFiles | ChangeFileWriter,
        bad: BadRecordCollector,
        registry: RegistryTarget | None,
    ) -> None:
        self._writing = writing
        is_state = writing.shape.upsert is not None
        self._decoder = None if is_state else writing.shape.decoder(registry)
        self._changes = writing.shape.change_decoder(registry) if is_state else None
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
        """Called with the fetched batches before `take` gets their records; None without an audit."""

    def take(self, partition: TopicPartition, part: pa.RecordBatch) -> None:
        """Write the records of one fetch response."""
        sent_ms = part.column("timestamp").cast(pa.int64())
        for number, batch in enumerate(_batches(part)):
            if self._changes is not None:
                rows = to_change_rows(batch, self._writing.shape, self._changes)
            else:
                rows = to_rows(batch, self._writing.shape, self._decoder, self._writing.keep_values)
            if (rows.found or self._writing.shape.is_guess) and self._decoder is not None:
                self._renames = Aliases.together([self._renames, self._decoder.renames(batch.column("value"))])
            self._files.add(rows.batch)
            times = rows.batch if self._changes is None else batch
            self._count(partition, rows, times.column(self._writing.shape.time_column))
            self._readable += pc.and_(batch.column("value").is_valid(), rows.reasons.is_null()).true_count
            if rows.reasons.null_count < len(rows.reasons):
                sent = sent_ms.slice(number * BATCH_RECORDS, batch.num_rows)
                self._bad.add(batch.append_column("sent_ms", sent), rows.reasons)
        if self._audit is not None:
            self._audit.add(partition, part)

    def _count(self, partition: TopicPartition, rows: TableRows, times: pa.Array) -> None:
        self._records += len(rows.reasons)
        self._kept_values += rows.kept_values
        self._lost_values += rows.lost_values
        self._counts = added_counts([self._counts, rows.counts])
        self._with_event_field += rows.with_event_field
        if rows.found:
            self._found = merge_fields([self._found, rows.found])
        self._without_time += times.null_count
        milliseconds = pc.divide(times.cast(pa.int64()), 1_000)
        latest = pc.max(milliseconds).as_py()
        if latest is not None and latest > self._writing.event_time_max_ms:
            latest = pc.max(milliseconds.filter(pc.less_equal(milliseconds, self._writing.event_time_max_ms))).as_py()
        if latest is not None:
            self._event_times_ms[partition] = max(latest, self._event_times_ms.get(partition, latest))

    def finish(self) -> TaskWritten:
        """Write the buffered rows, send the dead letters, and return the result."""
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
    """Return the fields of the records in offset ranges.

    :param shape: The shape of the table; its value format determines the decoder.
    """
    current = wanted[0]
    found: Fields = {}
    renames = NO_ALIASES
    try:
        decoder = None if shape.upsert is not None else shape.decoder(reading.registry)
        changes = None if shape.upsert is None else shape.change_decoder(reading.registry)
        with closing(RangeConnections()) as connections:
            for current in wanted:
                parts = read_range(
                    current, reading.bootstrap, reading.client_options, include_headers=False, connections=connections
                )
                for part in parts:
                    values = part.column("value")
                    if changes is not None:
                        found = merge_fields([found, changes.infer(values, part.column("key"))])
                    elif decoder is not None:
                        found = merge_fields([found, decoder.infer(values)])
                        renames = Aliases.together([renames, decoder.renames(values)])
    except (BarnabasError, OSError) as error:
        return _failed(current, error)
    return TaskInferred(found, renames)


def _failed(wanted: OffsetRange, error: BarnabasError | OSError) -> TaskFailed:
    if isinstance(error, ApiError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return TaskFailed("data loss", f"{wanted}: deleted from the log during the read: {error}")
    if isinstance(error, DataLossError):
        return TaskFailed("data loss", str(error))
    if isinstance(error, PartitionLimitError):
        return TaskFailed("partitions", str(error))
    if isinstance(error, OSError) and not isinstance(error, BarnabasError):
        kind: FailureKind = "storage unavailable" if is_without_answer(error) else "storage"
        return TaskFailed(kind, f"{wanted}: cannot write: {error}")
    return TaskFailed("source unavailable" if is_source_unavailable(error) else "other", f"{wanted}: {error}")
