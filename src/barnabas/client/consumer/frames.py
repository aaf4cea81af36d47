"""Columns as the data frames of other libraries, each of which is optional."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from barnabas.errors import ConfigurationError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow


def import_for_frames(package: str) -> Any:
    """Return the module of that name.

    :raises ConfigurationError: it is not installed; says how to install it.

    >>> import_for_frames("no_such_package")
    Traceback (most recent call last):
    barnabas.errors.ConfigurationError: data frames of no_such_package need that package: pip install no_such_package
    """
    try:
        return importlib.import_module(package)
    except ImportError:
        raise ConfigurationError(f"data frames of {package} need that package: pip install {package}") from None


def to_polars(columns: pyarrow.RecordBatch) -> polars.DataFrame:
    """Return a `polars.DataFrame` of the same columns, which takes them over without a copy where it can."""
    frame: polars.DataFrame = import_for_frames("polars").from_arrow(columns)
    return frame


def to_pandas(columns: pyarrow.RecordBatch) -> pandas.DataFrame:
    """Return a `pandas.DataFrame` of the same columns; keys, values and headers become Python objects."""
    import_for_frames("pandas")
    frame: pandas.DataFrame = columns.to_pandas()
    return frame
