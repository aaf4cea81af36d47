"""The seam between loads and formats of values: what a decoder does, whatever the format.

A load knows no format. It asks a `ValueDecoder` which fields values have, and for columns; raw values have no
decoder. To add a format, write a decoder and name it in `value_format.py`; one that asks a schema registry is named in
`barnabas.spark.value_decoders`, as this package stands below everything that has connections.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, get_args

import pyarrow as pa

from barnabas.formats.column_types import ColumnType, Fields
from barnabas.formats.field_aliases import Aliases

TOMBSTONE = "tombstone"
"""The form of a value that is null."""
VALUE = "value"
"""The form of a value that the columns do not give back: it is kept as it came."""
LOST = "lost"
"""The form of a value that the columns do not give back, and that is not kept, as a load was asked for."""

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
