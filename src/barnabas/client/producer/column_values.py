"""Values made of the columns of a table, before its rows are sent."""

from __future__ import annotations

from typing import Any, Protocol

from barnabas.errors import ConfigurationError
from barnabas.records.arrow import arrow_table

VALUES = "value"


class ColumnSerializer(Protocol):
    """Makes a value of each row of a table, as `AvroSerializer` does."""

    def serialize_columns(self, table: Any, topic: str) -> Any:
        """Return values (an Arrow array of bytes), as many as there are rows."""
        ...


def with_values(batch: Any, topic: str, schema: ColumnSerializer, value: str | None) -> tuple[Any, str]:
    """Return a table with the values as one more column, and the name of that.

    :raises ConfigurationError: a column of values is named as well, or pyarrow is not installed.
    """
    if value is not None:
        raise ConfigurationError(
            "send_arrow: give either value, a column, or value_schema, which makes values of columns"
        )
    if not hasattr(schema, "serialize_columns"):
        raise TypeError(f"value_schema must be an AvroSerializer, not {schema!r}")
    table = arrow_table(batch)
    name = VALUES
    while name in table.column_names:
        name = f"_{name}"
    return table.append_column(name, schema.serialize_columns(table, topic)), name
