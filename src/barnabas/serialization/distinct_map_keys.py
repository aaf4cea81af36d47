"""The removal of repeated map keys. DuckDB and other readers reject a map with a repeated key."""

from __future__ import annotations

from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.serialization.column_casts import with_items


def with_distinct_keys(array: pa.Array) -> pa.Array:
    """Return a column whose maps, at any depth, have distinct keys. If a key is repeated, its last entry is kept.

    >>> kind = pa.list_(pa.map_(pa.string(), pa.int32()))
    >>> with_distinct_keys(pa.array([[[("a", 1), ("b", 2), ("a", 3)]], None], kind)).to_pylist()
    [[[('b', 2), ('a', 3)]], None]
    """
    kind = array.type
    if not _has_map(kind):
        return array
    if pa.types.is_struct(kind):
        children = [with_distinct_keys(array.field(number)) for number in range(kind.num_fields)]
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    if pa.types.is_list(kind):
        return with_items(array, with_distinct_keys(array.values), kind)
    return _distinct(with_items(array, with_distinct_keys(array.items), kind))


def _has_map(kind: pa.DataType) -> bool:
    return bool(pa.types.is_map(kind)) or any(_has_map(kind.field(number).type) for number in range(kind.num_fields))


def _distinct(array: pa.MapArray) -> pa.Array:
    kind = array.type
    pairs = pa.StructArray.from_arrays([array.keys, array.items], fields=[kind.key_field, kind.item_field])
    lists = pa.Array.from_buffers(
        pa.list_(pairs.type), len(array), array.buffers()[:2], array.null_count, array.offset, [pairs]
    )
    entries, parents = lists.flatten(), pc.list_parent_indices(lists)
    table = pa.table(
        {"parent": parents, "key": entries.field("key"), "place": pa.array(range(len(parents)), pa.int64())}
    )
    last = table.group_by(["parent", "key"], use_threads=False).aggregate([("place", "max")])
    if last.num_rows == len(parents):
        return array
    places = last.column("place_max").combine_chunks().sort()
    counts = dict.fromkeys(range(len(array)), 0)
    counts.update({each["values"]: each["counts"] for each in pc.value_counts(parents.take(places)).to_pylist()})
    kept = entries.take(places)
    offsets = list(accumulate(counts.values(), initial=0))
    nulls = array.is_null().to_pylist()
    starts = [None if row < len(nulls) and nulls[row] else start for row, start in enumerate(offsets)]
    return pa.MapArray.from_arrays(pa.array(starts, pa.int32()), kept.field("key"), kept.field("value"), kind)
