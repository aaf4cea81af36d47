"""The conversion between Avro's physical types and column types (avro_types.py), in both directions.

Neither direction raises an error for a value. A value that the target type cannot represent becomes null, and codecs
write a forbidden null as zero. Callers therefore compare the converted value with the original value to detect a loss.
"""

from __future__ import annotations

from decimal import Decimal
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.formats import times
from barnabas.formats.column_types import ColumnType, arrow_type
from barnabas.formats.times import TimeUnit
from barnabas.serialization.avro_types import AvroType
from barnabas.serialization.column_casts import exactly, widened, with_items

_DAY_MIN, _DAY_MAX = -719_162 + 365, 2_932_896 - 365
"""The first and last day of the years 2 to 9998, in days since 1970-01-01. Conversions of timestamps have the same
limits.
"""
_UNITS: dict[str, TimeUnit] = {"millis": "ms", "micros": "us", "nanos": "ns"}
_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_LONG_MAX = 2**63 - 1
_DECIMAL_BYTES = 16


def physical_to_column(tree: AvroType, array: pa.Array, wanted: ColumnType) -> pa.Array:
    """Convert a column to a column type. A value that does not fit becomes null.

    :param array: values of the physical type.
    """
    if isinstance(wanted, dict):
        return _to_struct(tree, array, wanted)
    if isinstance(wanted, list):
        return _to_list(tree, array, wanted)
    own = tree.column()
    if not isinstance(own, str):
        return pa.nulls(len(array), arrow_type(wanted))
    return widened(_to_plain(tree, array), wanted)


def _to_struct(tree: AvroType, array: pa.Array, wanted: dict[str, ColumnType]) -> pa.Array:
    kind = cast("pa.StructType", arrow_type(wanted))
    if tree.kind not in ("record", "union"):
        return pa.nulls(len(array), kind)
    children = [
        physical_to_column(tree.inner[name], array.field(name), inner)
        if name in tree.inner
        else pa.nulls(len(array), arrow_type(inner))
        for name, inner in wanted.items()
    ]
    return pa.StructArray.from_arrays(children, fields=list(kind), mask=array.is_null() if array.null_count else None)


def _to_list(tree: AvroType, array: pa.Array, wanted: list[ColumnType]) -> pa.Array:
    kind = arrow_type(wanted)
    if tree.kind != ("map" if len(wanted) == 2 else "array") or (tree.kind == "map" and wanted[0] != "string"):
        return pa.nulls(len(array), kind)
    inner = next(iter(tree.inner.values()))
    items = physical_to_column(inner, array.items if tree.kind == "map" else array.values, wanted[-1])
    return with_items(array, items, kind)


def _to_plain(tree: AvroType, array: pa.Array) -> pa.Array:
    """Convert a column of a primitive or logical type to the column type of the table."""
    if tree.decimal:
        return _decimals(array, *tree.decimal)
    if tree.kind == "int" and tree.logical == "date":
        fits = pc.and_(pc.greater_equal(array, _DAY_MIN), pc.less_equal(array, _DAY_MAX))
        return pc.if_else(fits, array, pa.scalar(None, array.type)).cast(pa.date32())
    unit = _unit(tree)
    if unit is not None:
        found = times.from_numbers(array, _UNITS[unit])
        return found.cast(pa.timestamp("us")) if tree.logical.startswith("local-") else found
    return array


def _unit(tree: AvroType) -> str | None:
    local = tree.logical.removeprefix("local-")
    unit = local.removeprefix("timestamp-")
    return unit if tree.kind == "long" and unit != local and unit in _UNITS else None


def _decimals(array: pa.Array, precision: int, scale: int) -> pa.Array:
    """Decode big-endian two's complement integers to decimals."""
    bound = 10**precision
    unscaled: list[Decimal | None] = []
    for each in array.to_pylist():
        number = None if each is None or len(each) > _DECIMAL_BYTES else int.from_bytes(each, "big", signed=True)
        unscaled.append(None if number is None or not -bound < number < bound else _scaled(number, scale))
    return pa.array(unscaled, pa.decimal128(precision, scale))


def _scaled(number: int, scale: int) -> Decimal:
    # Construct the decimal from its digits, because arithmetic would round it to the precision of the decimal context.
    return Decimal((int(number < 0), tuple(map(int, str(abs(number)))), -scale))


def column_to_physical(tree: AvroType, array: pa.Array | None, count: int) -> pa.Array:
    """Convert a column to Avro's physical type. A value that cannot be converted becomes null.

    :param array: a column of any type; None if the column does not exist.
    :returns: an array of the physical type.
    """
    kind = tree.physical()
    if array is None:
        return pa.nulls(count, kind)
    if tree.kind in ("record", "union"):
        return _of_struct(tree, array, kind)
    if tree.kind in ("array", "map"):
        return _of_list(tree, array, kind)
    if tree.kind in ("null", "again") or pa.types.is_nested(array.type):
        return pa.nulls(count, kind)
    return _of_plain(tree, array, kind)


def _of_struct(tree: AvroType, array: pa.Array, kind: pa.DataType) -> pa.Array:
    if not pa.types.is_struct(array.type):
        return pa.nulls(len(array), kind)
    if not tree.inner:  # a struct array without children would lose its length
        return pa.array([{} if is_there else None for is_there in array.is_valid().to_pylist()], kind)
    parts = dict(zip((field.name for field in array.type), array.flatten(), strict=True))
    children = [column_to_physical(each, parts.get(name), len(array)) for name, each in tree.inner.items()]
    mask = array.is_null() if array.null_count else None
    return pa.StructArray.from_arrays(children, fields=list(cast("pa.StructType", kind)), mask=mask)


def _of_list(tree: AvroType, array: pa.Array, kind: pa.DataType) -> pa.Array:
    is_map = tree.kind == "map"
    if not (pa.types.is_map(array.type) if is_map else pa.types.is_list(array.type)):
        return pa.nulls(len(array), kind)
    items = array.items if is_map else array.values
    inner = next(iter(tree.inner.values()))
    return with_items(array, column_to_physical(inner, items, len(items)), kind)


def _of_plain(tree: AvroType, array: pa.Array, kind: pa.DataType) -> pa.Array:
    if tree.decimal:
        return _of_decimals(tree, array)
    unit = _unit(tree)
    if unit is not None and pa.types.is_timestamp(array.type):
        return _of_times(array, unit)
    if tree.logical == "date" and pa.types.is_date32(array.type):
        return array.cast(pa.int32())
    return _of_same(tree, array, kind)


def _of_same(tree: AvroType, array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Convert a column whose type is the physical type or a wider type."""
    if tree.kind == "enum" and pa.types.is_string(array.type):
        known = pc.is_in(array, pa.array(tree.symbols, pa.string()))
        return array if pc.all(known).as_py() else pc.if_else(known, array, pa.scalar(None, array.type))
    own = tree.column()
    is_text = pa.types.is_string(array.type) and kind != pa.string() and kind != pa.binary()
    if not isinstance(own, str) or is_text or not arrow_type(own).equals(kind):
        return pa.nulls(len(array), kind)
    made = widened(array, own)
    if tree.kind == "fixed":
        return _where(pc.equal(pc.binary_length(made), tree.size), made)
    return made


def _of_times(array: pa.Array, unit: str) -> pa.Array:
    """Convert times to integers of a unit. Fractions of the unit are truncated; a value beyond 64 bits becomes null."""
    numbers = array.cast(pa.int64())
    given, wanted = _PER_SECOND[array.type.unit], _PER_SECOND[_UNITS[unit]]
    if given <= wanted:
        factor = wanted // given
        bound = _LONG_MAX // factor
        fits = pc.and_(pc.less_equal(numbers, bound), pc.greater_equal(numbers, -bound))
        return pc.multiply(_where(fits, numbers), factor)
    return pc.divide(numbers, given // wanted)


def _where(condition: pa.Array, array: pa.Array) -> pa.Array:
    return pc.if_else(condition, array, pa.scalar(None, array.type))


def _of_decimals(tree: AvroType, array: pa.Array) -> pa.Array:
    assert tree.decimal is not None, "the caller checks that the type is a decimal"
    kept = exactly(array, pa.decimal128(*tree.decimal)) if pa.types.is_decimal(array.type) else None
    if kept is None:
        return pa.nulls(len(array), pa.binary())
    scale = tree.decimal[1]
    return pa.array([_complement(each, scale, tree.size) for each in kept.to_pylist()], pa.binary())


def _complement(number: Decimal | None, scale: int, size: int) -> bytes | None:
    if number is None:
        return None
    sign, digits, exponent = number.as_tuple()
    assert isinstance(exponent, int), "Arrow has no infinite decimals"
    unscaled: int = int("".join(map(str, digits)) or "0") * 10 ** (scale + exponent) * (-1 if sign else 1)
    length = size or (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    if (unscaled if unscaled >= 0 else ~unscaled).bit_length() >= 8 * length:
        return None
    return unscaled.to_bytes(length, "big", signed=True)
