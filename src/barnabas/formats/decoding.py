"""The interface between loads and the formats of values.

Loads do not depend on a format. A load gets the fields and columns of values from a `ValueDecoder`; raw values have no
decoder. To add a format, write a decoder and register it in `value_format.py`. A decoder that needs a schema registry
is registered in `barnabas.serialization.value_decoders`, because this package must not open connections.

`GuardedDecoder` ensures that a single value cannot make a decoder fail.
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
"""The form of a null value. (A form describes how to restore a value from its columns.)"""
VALUE = "value"
"""The form of a value that the columns cannot restore. The table keeps the original bytes."""
LOST = "lost"
"""The form of a value that the columns cannot restore, and that the table does not keep because of the user's settings.
"""
REASON_LETTERS_MAX = 200

KeepValues = Literal["bad", "all", "none"]
"""The original values that a load keeps in addition to their columns: the values that the columns cannot restore
(`bad`), all values, or none.
"""
KEEP_VALUES: tuple[KeepValues, ...] = get_args(KeepValues)


@dataclass(frozen=True, slots=True)
class Decoded:
    """The decoded values of a batch.

    :param columns: one column per requested field, in the same order.
    :param forms: for each value, a string that describes how to restore it: TOMBSTONE, VALUE, or a form defined by the
        format.
    :param reasons: for each bad record, the reason as a string; null for all other records.
    :param found: the fields of these values whose column is missing or too narrow, with their types.
    """

    columns: list[pa.Array]
    forms: pa.Array
    reasons: pa.Array
    found: Fields


class ValueDecoder(Protocol):
    """A decoder for values of one format. Each task has its own decoder. A decoder keeps no connection open."""

    def infer(self, values: pa.Array) -> Fields:
        """Return the fields of binary values, in the order of their first appearance. Tombstones are null."""
        ...

    def renames(self, values: pa.Array) -> Aliases:
        """Return the field aliases that the schemas of these values declare."""
        ...

    def decode(self, values: pa.Array, fields: Mapping[str, ColumnType]) -> Decoded:
        """Decode binary values to columns. Tombstones are null.

        A bad value does not raise an error: the result contains it with a reason. But if a registry does not respond,
        the values are not at fault, and the method raises an error.

        :raises BarnabasError: if a registry does not respond, or rejects the request.
        """
        ...

    def restore(self, values: pa.Array, forms: pa.Array, columns: Mapping[str, pa.Array]) -> pa.Array:
        """Return the values as they were produced.

        :param values: the table's column `value`.
        :param forms: the table's column `value_form`.
        :param columns: the decoded columns by field name, in the order of the table.
        """
        ...


@dataclass(frozen=True, slots=True)
class GuardedDecoder:
    """A wrapper of a decoder. If the decoder fails for a value, the wrapper keeps the original value, so one record
    cannot stop a load.

    A decoder itself reports the bad values that it expects. An unexpected schema or value can raise an error in a
    library. The wrapper then bisects the batch to find the value, and reports it as bad with the error as the reason.
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
    """Apply `make` to values. If `make` raises an error, bisect the values, and return the results of the parts.

    :param give_up: returns the result for a single value for which `make` fails.
    :raises BarnabasError: if the error is not caused by a value, for example if a registry does not respond.
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
    """Concatenate the results of consecutive parts."""
    if len(parts) == 1:
        return parts[0]
    columns = [pa.concat_arrays(chunks) for chunks in zip(*(part.columns for part in parts), strict=True)]
    forms, reasons = (
        pa.concat_arrays([getattr(part, name).cast(pa.string()) for part in parts]) for name in ("forms", "reasons")
    )
    return Decoded(columns, forms, reasons, merge_fields(part.found for part in parts))


def _undecoded(values: pa.Array, fields: Mapping[str, ColumnType], error: Exception) -> Decoded:
    count = len(values)
    reason = f"cannot be decoded: {type(error).__name__}: {str(error).partition(chr(10))[0]}"[:REASON_LETTERS_MAX]
    return Decoded(
        [pa.nulls(count, arrow_type(kind)) for kind in fields.values()],
        pc.if_else(values.is_null(), TOMBSTONE, VALUE),
        pc.if_else(values.is_null(), pa.scalar(None, pa.string()), reason),
        {},
    )
