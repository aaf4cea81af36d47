"""The transforms of Iceberg's partition specs and sort orders, on Arrow columns. Pure.

pyiceberg applies a transform to one Python value at a time, and its Arrow versions need the package pyiceberg-core. The
results here are in Iceberg's own representation: days, months, years and hours since 1970, microseconds for times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

import mmh3
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.formats.column_types import ColumnType, decimal_parts

Kind = Literal["identity", "year", "month", "day", "hour", "bucket", "truncate", "void"]
PartitionValue = bool | int | str | bytes | Decimal | None
TIME_KINDS: tuple[Kind, ...] = ("year", "month", "day", "hour")
"""From the coarsest to the finest."""
_TIMES = frozenset({"timestamp", "timestamp_ntz"})
_HASHED = frozenset({"int", "long", "string", "binary", "date", *_TIMES})
_ACCEPTED: Mapping[Kind, frozenset[str]] = {
    "identity": frozenset({"boolean", *_HASHED}),
    "year": frozenset({"date", *_TIMES}),
    "month": frozenset({"date", *_TIMES}),
    "day": frozenset({"date", *_TIMES}),
    "hour": _TIMES,
    "bucket": _HASHED,
    "truncate": frozenset({"int", "long", "string", "binary"}),
}
_OF_DECIMALS: frozenset[Kind] = frozenset({"identity", "bucket", "truncate"})
_MICROSECONDS_PER_HOUR = 3_600_000_000
_POSITIVE_INT = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform; `width` is the number of buckets, or the width of a truncation."""

    kind: Kind
    width: int | None = None

    def of(self, column: str) -> str:
        """Return the transform of a column in the syntax of `--partition-by`.

        >>> Transform("bucket", 16).of("user_id"), Transform("identity").of("country")
        ('bucket(16, user_id)', 'country')
        """
        if self.kind == "identity":
            return column
        return f"{self.kind}({column})" if self.width is None else f"{self.kind}({self.width}, {column})"

    def accepts(self, column_type: ColumnType | None) -> bool:
        """Return whether the transform applies to columns of a type.

        `identity` does not accept floating-point numbers: NaN and minus zero have no agreed partition.
        """
        if self.kind == "void":
            return True
        if not isinstance(column_type, str):
            return False
        return column_type in _ACCEPTED[self.kind] or (self.kind in _OF_DECIMALS and bool(decimal_parts(column_type)))

    def applied(self, column: pa.Array) -> pa.Array:
        """Return the transformed values; null for null."""
        if self.kind == "void" or pa.types.is_null(column.type):
            return pa.nulls(len(column), pa.int32())
        if self.kind == "identity":
            return _as_numbers(column)
        if self.kind in TIME_KINDS:
            return _since_1970(self.kind, column)
        assert self.width is not None, "buckets and truncations have a width"
        return _buckets(self.width, column) if self.kind == "bucket" else _truncated(self.width, column)

    def label(self, value: PartitionValue) -> str:
        """Return a partition value as text, with times as Iceberg shows them.

        >>> Transform("hour").label(-1), Transform("month").label(0), Transform("day").label(None)
        ('1969-12-31-23', '1970-01', 'no-day')
        """
        if value is None:
            return f"no-{self.kind}" if self.kind in TIME_KINDS else "null"
        if self.kind in TIME_KINDS:
            assert isinstance(value, int), "times are numbers"
            return str(np.datetime64(value, _UNITS[self.kind])).replace("T", "-")
        return value.hex() if isinstance(value, bytes) else str(value)


_UNITS: Mapping[Kind, Literal["Y", "M", "D", "h"]] = {"year": "Y", "month": "M", "day": "D", "hour": "h"}


def _as_numbers(column: pa.Array) -> pa.Array:
    """Return dates and times as numbers, and other columns unchanged."""
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.int64())
    return column.cast(pa.int32()) if pa.types.is_date32(column.type) else column


def _since_1970(kind: Kind, column: pa.Array) -> pa.Array:
    if kind == "hour":
        return _by_number(column.cast(pa.int64()), lambda values: values // _MICROSECONDS_PER_HOUR).cast(pa.int32())
    if kind == "day":
        return column.cast(pa.date32()).cast(pa.int32())  # the cast to date rounds down, also for times before 1970
    years = pc.subtract(pc.year(column), 1970)
    if kind == "year":
        return years.cast(pa.int32())
    return pc.add(pc.multiply(years, 12), pc.subtract(pc.month(column), 1)).cast(pa.int32())


def _by_number(column: pa.Array, function: Callable[[np.ndarray], np.ndarray]) -> pa.Array:
    """Apply a function of numpy arrays to a column of integers. numpy's `//` and `%` round down, as Iceberg does."""
    values = function(column.fill_null(0).to_numpy(zero_copy_only=False))
    mask = column.is_null().to_numpy(zero_copy_only=False) if column.null_count else None
    return pa.array(values, pa.from_numpy_dtype(values.dtype), mask=mask)


def _by_distinct_value(
    column: pa.Array, result: pa.DataType, function: Callable[[pa.Array], list[PartitionValue]]
) -> pa.Array:
    """Apply a function to the distinct values of a column."""
    encoded = column.dictionary_encode()
    return pa.array(function(encoded.dictionary), result).take(encoded.indices)


def _buckets(count: int, column: pa.Array) -> pa.Array:
    def hashed(distinct: pa.Array) -> list[PartitionValue]:
        return [(mmh3.hash(value) & _POSITIVE_INT) % count for value in _hashed_bytes(distinct)]

    return _by_distinct_value(_as_numbers(column), pa.int32(), hashed)


def _hashed_bytes(distinct: pa.Array) -> list[str] | list[bytes]:
    """Return the bytes of values that Iceberg hashes: 8 bytes for numbers and times, the digits of decimals."""
    if pa.types.is_decimal(distinct.type):
        numbers = [_unscaled(value) for value in distinct.to_pylist()]
        return [number.to_bytes(_bytes_of(number), "big", signed=True) for number in numbers]
    if pa.types.is_integer(distinct.type):
        raw: list[bytes] = distinct.cast(pa.int64()).to_numpy().astype("<i8").view("V8").tolist()
        return raw
    values: list[str] | list[bytes] = distinct.to_pylist()
    return values


def _unscaled(value: Decimal) -> int:
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number


def _bytes_of(number: int) -> int:
    """Return the smallest number of bytes of a two's complement."""
    return (number if number >= 0 else ~number).bit_length() // 8 + 1


def _truncated(width: int, column: pa.Array) -> pa.Array:
    if pa.types.is_decimal(column.type):
        scale = column.type.scale

        def rounded(distinct: pa.Array) -> list[PartitionValue]:
            numbers = [_unscaled(value) for value in distinct.to_pylist()]
            return [Decimal(number - number % width).scaleb(-scale) for number in numbers]

        # The truncated value may have one more digit than the column's precision allows.
        return _by_distinct_value(column, pa.decimal256(column.type.precision + 1, scale), rounded)
    if pa.types.is_integer(column.type):
        return _by_number(column, lambda values: _rounded_down(values, width))
    if pa.types.is_string(column.type):
        return pc.utf8_slice_codeunits(column, 0, width)
    return pc.binary_slice(column, 0, width)


def _rounded_down(values: np.ndarray, width: int) -> np.ndarray:
    """Return the multiples of a width at or below the values. Below the smallest integer they wrap around, as in Java.

    >>> _rounded_down(np.array([-1, 25]), 10).tolist()
    [-10, 20]
    """
    with np.errstate(over="ignore"):
        rounded: np.ndarray = values - values % values.dtype.type(width)
    return rounded
