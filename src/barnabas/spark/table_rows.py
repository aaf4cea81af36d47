"""The conversion of records to rows of a table: Kafka's columns, decoded columns and the event time. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.formats.column_types import Fields
from barnabas.formats.decoding import LOST, TOMBSTONE, Decoded, KeepValues, ValueDecoder
from barnabas.formats.decoding import VALUE as KEPT
from barnabas.formats.event_time import LINE, times_in_json, times_in_lines, times_of_column
from barnabas.formats.further_columns import further_counts
from barnabas.formats.times import TIME_TYPE
from barnabas.formats.value_format import JSON
from barnabas.serialization.value_decoders import AVRO, PROTOBUF
from barnabas.spark.table_schema import EVENT_TIME, KAFKA_COLUMNS, VALUE_FORM, kafka_arrow_columns
from barnabas.spark.table_shape import TableShape

VALUE = KAFKA_COLUMNS.index("value")
TIMESTAMP = KAFKA_COLUMNS.index("timestamp")


@dataclass(frozen=True, slots=True)
class TableRows:
    """A batch of rows in the columns of the table."""

    batch: pa.RecordBatch
    reasons: pa.Array
    """The reason why each record is bad; null for good records."""
    kept_values: int = 0
    """The number of values kept whole in the column `value` beside decoded columns."""
    found: Fields | None = None
    """Fields of the records that no column of the table can hold."""
    with_event_field: int = 0
    """The number of values that have the event-time field."""
    lost_values: int = 0
    """The number of values that the columns cannot reproduce and that are not kept."""
    counts: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The number of values per column, for each field with further columns."""


def to_rows(
    records: pa.RecordBatch, shape: TableShape, decoder: ValueDecoder | None, keep_values: KeepValues = "bad"
) -> TableRows:
    """Convert records to rows of a table.

    :param records: Records in the columns of the Spark source.
    :param decoder: The decoder of the shape.
    :param keep_values: The decoded values that stay whole in the column `value`.
    """
    arrays, names = kafka_arrow_columns(records), list(KAFKA_COLUMNS)
    values, near = arrays[VALUE], arrays[TIMESTAMP]
    with_field = len(values)
    decoded = None if decoder is None else decoder.decode(values, shape.fields or {})
    if shape.has_event_time:
        times, with_field = event_times(values, near, shape, decoded)
        arrays.append(times)
        names.append(EVENT_TIME)
    if decoded is None:
        reasons = pa.nulls(len(values), pa.string())
        return TableRows(pa.RecordBatch.from_arrays(arrays, names=names), reasons, with_event_field=with_field)
    forms = decoded.forms
    if keep_values == "all":
        forms = pc.if_else(pc.equal(forms, TOMBSTONE), forms, KEPT)
    elif keep_values == "none":
        forms = pc.if_else(pc.equal(forms, KEPT), LOST, forms)
    for column in _never_empty(shape, decoded):
        forms = pc.if_else(pc.equal(column, "").fill_null(False), KEPT if keep_values != "none" else LOST, forms)
    is_kept = pc.equal(forms, KEPT)
    arrays[VALUE] = pc.if_else(is_kept, values, pa.scalar(None, values.type))
    names += [VALUE_FORM, *(shape.columns[name] for name in shape.fields or ())]
    rows = pa.RecordBatch.from_arrays([*arrays, forms, *shape.stored(decoded.columns)], names=names)
    return TableRows(
        rows,
        decoded.reasons,
        is_kept.true_count,
        decoded.found,
        with_field,
        pc.equal(forms, LOST).true_count,
        further_counts(dict(zip(shape.fields or {}, decoded.columns, strict=True)), shape.columns),
    )


def _never_empty(shape: TableShape, decoded: Decoded) -> list[pa.Array]:
    """Return the decoded columns whose empty texts become null, because Delta has no empty text in a partition."""
    only = shape.table_layout.only_in_partition
    named = zip((shape.columns[name] for name in shape.fields or {}), decoded.columns, strict=True)
    return [column for name, column in named if name in only and pa.types.is_string(column.type)]


def event_times(values: pa.Array, near: pa.Array, shape: TableShape, decoded: Decoded | None) -> tuple[pa.Array, int]:
    """Return the event times of values; null for values without one.

    :returns: The event times, and the number of values that have the event-time field. If the source is no field, the
        number of all values.
    """
    event_time = shape.event_time
    if event_time.source == LINE:
        return times_in_lines(values, near, event_time.zone), len(values)
    columns = []
    if decoded is not None:
        columns = event_time.in_columns(dict(zip(shape.fields or {}, decoded.columns, strict=True)))
    if not columns:
        if shape.value_format in (AVRO, PROTOBUF):
            return pa.nulls(len(values), TIME_TYPE), 0
        return times_in_json(values, event_time, near)
    assert decoded is not None, "columns come from decoded values"
    times, has_field = pa.nulls(len(values), TIME_TYPE), pa.repeat(pa.scalar(False), len(values))
    for column in columns:
        if column.null_count < len(column):
            own = times_of_column(column, near, event_time.unit, event_time.zone)
            times = pc.if_else(has_field, times, own)
            has_field = pc.or_(has_field, column.is_valid())
    # Do not take the field from its column alone, because the column may be null although the record has a value. For
    # example, a column of numbers cannot hold a text, and a field may be nested in some records and a dotted name in
    # others.
    is_elsewhere = pc.invert(has_field) if len(event_time.path) > 1 else pa.repeat(pa.scalar(False), len(values))
    left = pc.and_(pc.is_null(times), pc.or_(pc.equal(decoded.forms, KEPT), is_elsewhere))
    if shape.value_format != JSON or not left.true_count:
        return times, has_field.true_count
    found, count = times_in_json(values.filter(left), event_time, near.filter(left))
    return pc.replace_with_mask(times, left, found), count + pc.and_not(has_field, left).true_count
