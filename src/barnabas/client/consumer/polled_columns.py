"""Conversions of polled columns to Polars and pandas data frames, and of Avro values to columns."""

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
"""The default maximum number of records that one poll returns as columns."""

FIELDS, ERRORS = "value_fields", "value_error"


def check_schema(value_schema: object) -> None:
    """Check the type of `value_schema` before the poll takes any record.

    :raises TypeError: `value_schema` is not an AvroDeserializer.
    """
    from barnabas.serialization.avro import AvroDeserializer  # noqa: PLC0415  most programs have no schemas

    if not isinstance(value_schema, AvroDeserializer):
        raise TypeError(f"value_schema must be an AvroDeserializer, not {value_schema!r}")


def with_fields(batch: pyarrow.RecordBatch, value_schema: AvroDeserializer) -> pyarrow.RecordBatch:
    """Return the batch with two more columns: `value_fields`, a struct of the fields of each value, and `value_error`,
    the error of an invalid value.

    :raises TimedOutError: the schema registry does not respond.
    """
    import pyarrow as pa  # noqa: PLC0415

    from barnabas.serialization.avro_columns import decode_avro  # noqa: PLC0415  pyarrow is optional

    decoded = decode_avro(batch.column("value"), value_schema.registry, value_schema.schema)
    fields = decoded.batch
    # A schema without fields: `to_struct_array` would return an array without rows.
    structs = fields.to_struct_array() if fields.num_columns else pa.nulls(batch.num_rows, pa.struct([]))
    return batch.append_column(FIELDS, structs).append_column(ERRORS, decoded.reasons)


def import_for_frames(package: str) -> Any:
    """Import the package `library` and return its module.

    :raises ConfigurationError: the package is not installed; the message contains the command to install it.

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
