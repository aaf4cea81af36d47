"""What one task of a load does on an executor: read a range from the brokers, write Parquet files by event day.

A task answers with a value whatever happens: Spark would wrap an exception in two pages of Java, and a full
disk or a deleted range deserves one line.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.spark.columns import to_record_batches
from barnabas.spark.day_files import DataFile, DayFiles, create_file
from barnabas.spark.json_fields import ColumnType, Fields, decode, infer_fields, merge_fields
from barnabas.spark.json_text import VALUE as KEPT
from barnabas.spark.json_text import value_forms
from barnabas.spark.planning import OffsetRange
from barnabas.spark.reading import read_range
from barnabas.spark.table_schema import KAFKA_COLUMNS, VALUE_FORM, kafka_arrow_columns

VALUE = KAFKA_COLUMNS.index("value")


@dataclass(frozen=True, slots=True)
class Reading:
    """How tasks reach the brokers."""

    bootstrap: str
    client_options: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Writing:
    """Where tasks write, and what.

    `fields`: the JSON fields to decode, None to keep values as they are; `column_names`: their columns.
    """

    folder: str
    io_properties: Mapping[str, str]
    fields: Mapping[str, ColumnType] | None
    column_names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Written:
    """A task that is done. `kept_values` counts values that the decoded columns do not give back."""

    records: int
    kept_values: int
    files: tuple[DataFile, ...]


@dataclass(frozen=True, slots=True)
class Failed:
    """A task that could not do its work."""

    kind: Literal["data loss", "storage", "other"]
    message: str


def write_range(wanted: OffsetRange, reading: Reading, writing: Writing, attempt_id: int) -> Written | Failed:
    """Write the records of a range into new files.

    :param attempt_id: unique to this attempt of this task: what an earlier attempt wrote is not touched.
    """
    prefix = f"{writing.folder}/{wanted.topic}-{wanted.partition}-{wanted.start_offset}-{attempt_id}"
    files = DayFiles(prefix, partial(create_file, writing.io_properties))
    records = kept_values = 0
    try:
        for part in read_range(wanted, reading.bootstrap, reading.client_options):
            for batch in to_record_batches(part, include_headers=True, include_raw_timestamp=True):
                row_group, kept = _table_batch(batch, writing)
                files.add(row_group)
                records += batch.num_rows
                kept_values += kept
        return Written(records, kept_values, tuple(files.finish()))
    except (BarnabasError, OSError) as error:
        return _failed(wanted, error)


def infer_range(wanted: OffsetRange, reading: Reading) -> Fields | Failed:
    """Return the JSON fields of the records of a range."""
    try:
        parts = read_range(wanted, reading.bootstrap, reading.client_options, include_headers=False)
        return merge_fields(infer_fields(part.column("value").to_pylist()) for part in parts)
    except (BarnabasError, OSError) as error:
        return _failed(wanted, error)


def _table_batch(batch: pa.RecordBatch, writing: Writing) -> tuple[pa.RecordBatch, int]:
    """Return a batch with the table's columns, and how many of its values are kept beside decoded columns."""
    arrays, names = kafka_arrow_columns(batch), list(KAFKA_COLUMNS)
    if writing.fields is None:
        return pa.RecordBatch.from_arrays(arrays, names=names), 0
    values = arrays[VALUE]
    decoded, whole = decode(values.to_pylist(), writing.fields)
    forms = value_forms(values, whole, dict(zip(writing.fields, decoded, strict=True)))
    is_kept = pc.equal(forms, KEPT)
    arrays[VALUE] = pc.if_else(is_kept, values, pa.scalar(None, values.type))
    names += [VALUE_FORM, *(writing.column_names[name] for name in writing.fields)]
    return pa.RecordBatch.from_arrays([*arrays, forms, *decoded], names=names), is_kept.true_count


def _failed(wanted: OffsetRange, error: BarnabasError | OSError) -> Failed:
    if isinstance(error, KafkaError) and error.code is ErrorCode.OFFSET_OUT_OF_RANGE:
        return Failed("data loss", f"{wanted}: deleted from the log while it was read: {error}")
    if isinstance(error, OSError) and not isinstance(error, BarnabasError):
        return Failed("storage", f"{wanted}: cannot write: {error}")
    return Failed("other", f"{wanted}: {error}")
