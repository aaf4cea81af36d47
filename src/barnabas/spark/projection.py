"""The projection of rows from older files to the current schema of a table. Pure.

Missing columns become null, and values of widened columns are cast. Columns are matched by name. Loaded tables never
drop columns, and they store the earlier names of renamed columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.formats.field_aliases import Path

FormerNames = Mapping[Path, Sequence[str]]
"""The earlier names of renamed fields, by the path to the field with current names."""


def project(batch: pa.RecordBatch, schema: pa.Schema, former: FormerNames | None = None) -> pa.RecordBatch:
    """Return a batch with the columns of a schema, in the order of the schema.

    >>> project(pa.record_batch({"n": pa.array([1], pa.int32())}), pa.schema([("new", "string"), ("n", "int64")]))
    pyarrow.RecordBatch
    new: string
    n: int64
    ----
    new: [null]
    n: [1]
    """
    parts = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns = _fields(parts, schema, len(batch), (), former or {})
    return pa.RecordBatch.from_arrays(columns, schema=schema.remove_metadata())


def _fields(
    parts: Mapping[str, pa.Array], wanted: Iterable[pa.Field], count: int, path: Path, former: FormerNames
) -> list[pa.Array]:
    """Return the fields of the struct at a path."""
    columns = []
    for field in wanted:
        own = (*path, field.name)
        names = [name for name in (field.name, *former.get(own, ())) if name in parts]
        columns.append(_conform(parts[names[0]], field.type, own, former) if names else pa.nulls(count, field.type))
    return columns


def _conform(array: pa.Array, wanted: pa.DataType, path: Path, former: FormerNames) -> pa.Array:
    if array.type == wanted:
        return array
    if pa.types.is_struct(wanted):
        # `flatten` respects the offset of a slice and the null structs.
        parts = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
        children = _fields(parts, wanted, len(array), path, former)
        return pa.StructArray.from_arrays(children, fields=list(wanted), mask=array.is_null())
    if pa.types.is_map(wanted):
        keys = array.keys.cast(wanted.key_type)
        items = _conform(array.items, wanted.item_type, (*path, "value"), former)
        pairs = pa.StructArray.from_arrays([keys, items], fields=[wanted.key_field, wanted.item_field])
        return pa.Array.from_buffers(wanted, len(array), array.buffers()[:2], array.null_count, array.offset, [pairs])
    if pa.types.is_list(wanted) or pa.types.is_large_list(wanted):
        values = _conform(array.flatten(), wanted.value_type, (*path, "element"), former)
        lengths = array.value_lengths().fill_null(0)
        ends = pc.cumulative_sum(lengths).cast(pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
        lists = pa.ListArray.from_arrays(offsets, values, type=pa.list_(wanted.value_field), mask=array.is_null())
        return lists.cast(wanted)
    return array.cast(wanted)
