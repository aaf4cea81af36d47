"""The formats of tables, each a module that is imported when its tables are asked for."""

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
    """Return what there is to do with tables of the place's format.

    :raises MissingExtraError: a package of its extra is not installed.
    """
    found: TableFormat = require(_MODULES[place.table_format]).FORMAT
    return found


def open_place(place: TablePlace) -> TableStore:
    """Open what is there.

    :raises ConfigurationError: there is no such catalog.
    :raises WarehouseError: it cannot be opened.
    """
    return format_of(place).open(place)
