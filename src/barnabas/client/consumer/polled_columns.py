"""Conversions of polled columns: to data frames of optional libraries, and from Avro values to columns."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from barnabas.errors import ConfigurationError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

    from barnabas.serialization.avro import AvroDeserializer


COLUMNS_MAX = 100_000
"""The default maximum number of records in one poll for columns."""

FIELDS, ERRORS = "value_fields", "value_error"


def check_schema(value_schema: object) -> None:
    """Check the type of `value_schema` before the poll takes any record.

    :raises TypeError: `value_schema` is not an AvroDeserializer.
    """
    from barnabas.serialization.avro import AvroDeserializer  # noqa: PLC0415  not every program has schemas

    if not isinstance(value_schema, AvroDeserializer):
        raise TypeError(f"value_schema must be an AvroDeserializer, not {value_schema!r}")


def with_fields(batch: pyarrow.RecordBatch, value_schema: AvroDeserializer) -> pyarrow.RecordBatch:
    """Return the batch with two more columns: a struct of the fields of each value, and the error of an invalid value.

    :raises TimedOutError: the schema registry does not respond.
    """
    import pyarrow as pa  # noqa: PLC0415

    from barnabas.serialization.avro_columns import decode_avro  # noqa: PLC0415  not every program reads columns

    decoded = decode_avro(batch.column("value"), value_schema.registry, value_schema.schema)
    fields = decoded.batch
    # Without a schema there are no fields. `to_struct_array` would return no rows then.
    structs = fields.to_struct_array() if fields.num_columns else pa.nulls(batch.num_rows, pa.struct([]))
    return batch.append_column(FIELDS, structs).append_column(ERRORS, decoded.reasons)


def import_for_frames(package: str) -> Any:
    """Return the module of that name.

    :raises ConfigurationError: the package is not installed; the message names the command that installs it.

    >>> import_for_frames("no_such_package")
    Traceback (most recent call last):
    barnabas.errors.ConfigurationError: data frames of no_such_package need that package: pip install no_such_package
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ConfigurationError(f"data frames of {package} need that package: pip install {package}") from None


def to_polars(columns: pyarrow.RecordBatch) -> polars.DataFrame:
    """Return the columns as a `polars.DataFrame`, without a copy where possible."""
    frame: polars.DataFrame = import_for_frames("polars").from_arrow(columns)
    return frame


def to_pandas(columns: pyarrow.RecordBatch) -> pandas.DataFrame:
    """Return the columns as a `pandas.DataFrame`; keys, values and headers become Python objects."""
    import_for_frames("pandas")
    frame: pandas.DataFrame = columns.to_pandas()
    return frame
