"""The seam between loads and formats of values: what a decoder does, whatever the format.

A load knows no format. It asks a `ValueDecoder` which fields values have, and for columns; raw values have no
decoder. To add a format, write a decoder and name it in `value_format.py`; one that asks a schema registry is named in
`barnabas.serialization.value_decoders`, as this package stands below everything that has connections.

`GuardedDecoder` keeps the promise that no value makes a decoder raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, TypeVar, get_args

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import BarnabasError, SerializationError
from barnabas.formats.column_types import ColumnType, Fields, arrow_type, merge_fields
from barnabas.formats.field_aliases import NO_ALIASES, Aliases

T = TypeVar("T")

TOMBSTONE = "tombstone"
"""The form of a value that is null."""
VALUE = "value"
"""The form of a value that the columns do not give back: it is kept as it came."""
LOST = "lost"
"""The form of a value that the columns do not give back, and that is not kept, as a load was asked for."""
REASON_LETTERS_MAX = 200

KeepValues = Literal["bad", "all", "none"]
"""Which values a load keeps whole beside their columns: those that the columns do not give back, all, or none."""
KEEP_VALUES: tuple[KeepValues, ...] = get_args(KeepValues)


@dataclass(frozen=True, slots=True)
class Decoded:
    """What came of a batch of values.

    `columns`: one for each field, in the order of the fields that were asked for.
    `forms`: a string for each value: how to get it back, TOMBSTONE, VALUE, or as the format says.
    `reasons`: a string for each value that is a bad record: why it could not be decoded as it should be; else null.
    `found`: fields of these values that have no column or one that is too narrow, with their types.
    """

    columns: list[pa.Array]
    forms: pa.Array
    reasons: pa.Array
    found: Fields


class ValueDecoder(Protocol):
    """Decodes values of one format. Each task has its own; it holds no connection open."""

    def infer(self, values: pa.Array) -> Fields:
        """Return the fields that values (binary, null for tombstones) have, in the order in which they appear."""
        ...

    def renames(self, values: pa.Array) -> Aliases:
        """Return the fields that have another name by now, as the schemas of these values say: old names and new."""
        ...

    def decode(self, values: pa.Array, fields: Mapping[str, ColumnType]) -> Decoded:
        """Decode values (binary, null for tombstones) into columns.

        No value makes it raise: what cannot be decoded is kept, with a reason. Where the decoder asks a registry
        and none answers, that is no fault of a value.

        :raises BarnabasError: a registry does not answer, or refuses.
        """
        ...

    def restore(self, values: pa.Array, forms: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
        """Return the values as they were produced, from a table's columns.

        :param values: the column `value`; `forms`: the column `value_form`.
        :param columns: the decoded columns by the names of their fields, in the table's order.
        """
        ...


@dataclass(frozen=True, slots=True)
class GuardedDecoder:
    """Decodes by another decoder, and keeps each value whole on which that one fails: one record stops no others.

    A decoder finds the bad values that its author foresaw. A schema or value that nobody foresaw raises an error in a
    library. The guard then halves the batch until it has the value; the reason names the error.
    """

    inner: ValueDecoder

    def infer(self, values: pa.Array) -> Fields:
        return merge_fields(piecewise(values, self.inner.infer, lambda _part, _error: {}))

    def renames(self, values: pa.Array) -> Aliases:
        parts = piecewise(values, self.inner.renames, lambda _part, _error: NO_ALIASES)
        return parts[0] if len(parts) == 1 else Aliases.together(parts)

    def decode(self, values: pa.Array, fields: Mapping[str, ColumnType]) -> Decoded:
        return joined(
            piecewise(
                values,
                lambda part: self.inner.decode(part, fields),
                lambda part, error: _undecoded(part, fields, error),
            )
        )

    def restore(self, values: pa.Array, forms: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
        return self.inner.restore(values, forms, columns)


def piecewise(values: pa.Array, make: Callable[[pa.Array], T], give_up: Callable[[pa.Array, Exception], T]) -> list[T]:
    """Return what `make` returns for values, in several parts where it raises for some of them.

    :param give_up: makes the part of a single value for which `make` raises.
    :raises BarnabasError: `make` raised one that is not about a value, such as a registry that does not answer.
    """
    try:
        return [make(values)]
    except Exception as error:
        if isinstance(error, BarnabasError) and not isinstance(error, SerializationError):
            raise
        if len(values) <= 1:
            return [give_up(values, error)]
    middle = len(values) // 2
    return [part for half in (values[:middle], values[middle:]) for part in piecewise(half, make, give_up)]


def joined(parts: Sequence[Decoded]) -> Decoded:
    """Return parts, one after the other, as one."""
    if len(parts) == 1:
        return parts[0]
    columns = [pa.concat_arrays(chunks) for chunks in zip(*(part.columns for part in parts), strict=True)]
    forms, reasons = (
        pa.concat_arrays([getattr(part, name).cast(pa.string()) for part in parts]) for name in ("forms", "reasons")
    )
    return Decoded(columns, forms, reasons, merge_fields(part.found for part in parts))


def _undecoded(values: pa.Array, fields: Mapping[str, ColumnType], error: Exception) -> Decoded:
    count = len(values)
    reason = f"not decoded: {type(error).__name__}: {str(error).partition(chr(10))[0]}"[:REASON_LETTERS_MAX]
    return Decoded(
        [pa.nulls(count, arrow_type(kind)) for kind in fields.values()],
        pc.if_else(values.is_null(), TOMBSTONE, VALUE),
        pc.if_else(values.is_null(), pa.scalar(None, pa.string()), reason),
        {},
    )
