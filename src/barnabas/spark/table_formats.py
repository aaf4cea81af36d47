"""The registry of table formats. The module of a format is imported on first use."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.spark.extras import require
from barnabas.spark.table_place import DELTA, ICEBERG, TablePlace

if TYPE_CHECKING:
    from barnabas.spark.table_store import TableFormat, TableStore

_MODULES: Mapping[str, str] = {
    ICEBERG: "barnabas.spark.iceberg_format",
    DELTA: "barnabas.spark.delta_format",
}


def format_of(place: TablePlace) -> TableFormat:
    """Return the functions for tables of the format at `place`.

    :raises MissingExtraError: A package of the format's extra is not installed.
    """
    found: TableFormat = require(_MODULES[place.table_format]).FORMAT
    return found


def open_place(place: TablePlace) -> TableStore:
    """Open the tables at a location.

    :raises ConfigurationError: The catalog does not exist.
    :raises WarehouseError: The tables cannot be opened.
    """
    return format_of(place).open(place)
