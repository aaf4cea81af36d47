"""Records as rows of a table: Kafka's columns, the decoded ones, the event time. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.formats.column_types import Fields
from barnabas.formats.decoding import VALUE as KEPT
from barnabas.formats.decoding import Decoded, ValueDecoder
from barnabas.formats.event_time import LINE, times_in_json, times_in_lines, times_of_column
from barnabas.formats.times import TIME_TYPE
from barnabas.formats.value_format import JSON
from barnabas.spark.table_schema import EVENT_TIME, KAFKA_COLUMNS, VALUE_FORM, kafka_arrow_columns
from barnabas.spark.table_shape import TableShape
from barnabas.spark.value_decoders import AVRO, PROTOBUF

VALUE = KAFKA_COLUMNS.index("value")
TIMESTAMP = KAFKA_COLUMNS.index("timestamp")


@dataclass(frozen=True, slots=True)
class Rows:
    """A batch with the table's columns.

    `kept_values`: how many values are kept beside decoded columns; `reasons`: why a record is bad, else null; `found`:
    fields without a column that takes them.
    """

    batch: pa.RecordBatch
    reasons: pa.Array
    kept_values: int = 0
    found: Fields | None = None


def to_rows(records: pa.RecordBatch, shape: TableShape, decoder: ValueDecoder | None) -> Rows:
    """Return records (in Spark's columns) as rows of a table.

    :param decoder: that of the shape.
    """
    arrays, names = kafka_arrow_columns(records), list(KAFKA_COLUMNS)
    values, near = arrays[VALUE], arrays[TIMESTAMP]
    decoded = None if decoder is None else decoder.decode(values, shape.fields or {})
    if shape.has_event_time:
        arrays.append(event_times(values, near, shape, decoded))
        names.append(EVENT_TIME)
    if decoded is None:
        return Rows(pa.RecordBatch.from_arrays(arrays, names=names), pa.nulls(len(values), pa.string()))
    is_kept = pc.equal(decoded.forms, KEPT)
    arrays[VALUE] = pc.if_else(is_kept, values, pa.scalar(None, values.type))
    names += [VALUE_FORM, *(shape.columns[name] for name in shape.fields or ())]
    rows = pa.RecordBatch.from_arrays([*arrays, decoded.forms, *decoded.columns], names=names)
    return Rows(rows, decoded.reasons, is_kept.true_count, decoded.found)


def event_times(values: pa.Array, near: pa.Array, shape: TableShape, decoded: Decoded | None) -> pa.Array:
    """Return the event times of values, null where they do not say."""
    source, unit, zone = shape.event_time.source, shape.event_time.unit, shape.event_time.zone
    if source == LINE:
        return times_in_lines(values, near, zone)
    fields = list(shape.fields or ())
    if decoded is None or source not in fields:
        may_be_json = shape.value_format not in (AVRO, PROTOBUF)
        return times_in_json(values, source, near, unit, zone) if may_be_json else pa.nulls(len(values), TIME_TYPE)
    column = decoded.columns[fields.index(source)]
    if column.null_count == len(column):
        times = pa.nulls(len(column), TIME_TYPE)
    else:
        times = times_of_column(column, near, unit, zone)
    # The field may hold what its column does not: text in a column of numbers.
    left = pc.and_(pc.is_null(times), pc.equal(decoded.forms, KEPT))
    if shape.value_format != JSON or not left.true_count:
        return times
    found = times_in_json(values.filter(left), source, near.filter(left), unit, zone)
    return pc.replace_with_mask(times, left, found)
