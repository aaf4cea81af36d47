"""Rows of an older file as rows of the table as it is now: what it lacks is null, what was widened is cast. Pure.

By names: tables that loads have made drop no column, and say under which names renamed ones were before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc


def project(
    batch: pa.RecordBatch, schema: pa.Schema, former: Mapping[str, Sequence[str]] | None = None
) -> pa.RecordBatch:
    """Return a batch with the columns of a schema, in its order.

    :param former: names that columns may have instead.

    >>> project(pa.record_batch({"n": pa.array([1], pa.int32())}), pa.schema([("new", "string"), ("n", "int64")]))
    pyarrow.RecordBatch
    new: string
    n: int64
    ----
    new: [null]
    n: [1]
    """
    there = set(batch.schema.names)
    columns = []
    for field in schema:
        names = [name for name in (field.name, *(former or {}).get(field.name, ())) if name in there]
        columns.append(_conform(batch.column(names[0]), field.type) if names else pa.nulls(len(batch), field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema.remove_metadata())


def _conform(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted:
        return array
    if pa.types.is_struct(wanted):
        known = {field.name for field in array.type}
        # `flatten` knows the offset of a slice, and which structs are null.
        parts = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        children = [
            _conform(parts[field.name], field.type) if field.name in known else pa.nulls(len(array), field.type)
            for field in wanted
        ]
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())
    if pa.types.is_map(wanted):
        return array.cast(wanted)
    if pa.types.is_list(wanted) or pa.types.is_large_list(wanted):
        values = _conform(array.flatten(), wanted.value_type)
        lengths = array.value_lengths().fill_null(0)
        ends = pc.cumulative_sum(lengths).cast(pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        lists = pa.ListArray.from_arrays(offsets, values, type=pa.list_(wanted.value_field), mask=array.is_null())
        return lists.cast(wanted)
    return array.cast(wanted)
