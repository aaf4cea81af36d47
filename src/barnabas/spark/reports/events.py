"""The rows of several loaded tables as one DataFrame of events."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import reduce
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from barnabas.errors import ConfigurationError
from barnabas.spark.errors import HistoryExpiredError, WarehouseError
from barnabas.spark.spark_catalogs import place_of
from barnabas.spark.table_formats import open_place
from barnabas.spark.table_names import table_name_of_topic
from barnabas.spark.table_place import ICEBERG
from barnabas.spark.table_store import StoredTable
from barnabas.spark.tables import read_table


def events_of_tables(
    spark: SparkSession,
    names: Sequence[str],
    warehouse: str | Path | None,
    catalog: str | None = None,
    where: str | None = None,
) -> DataFrame:
    """Return the rows of all tables. A column that a table lacks is null in its rows.

    :param names: Topics, or tables such as `web.clicks`.
    :param where: A SQL condition.
    :raises WarehouseError: A table does not exist.
    :raises ConfigurationError: A column has different types in the tables, or the condition is invalid.
    """
    frames = [_read(spark, name, warehouse, catalog) for name in names]
    try:
        events = reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), frames)
        _ = events.columns
    except AnalysisException as error:
        raise ConfigurationError(f"these tables cannot be combined: {_line(error)}") from error
    if where is None:
        return events
    try:
        chosen = events.where(where)
        _ = chosen.columns
    except AnalysisException as error:
        raise ConfigurationError(f"--where: {_line(error)}") from error
    return chosen


def _read(spark: SparkSession, name: str, warehouse: str | Path | None, catalog: str | None) -> DataFrame:
    """Return the rows of a topic's table. A name with a dot may also be a table in a namespace."""
    table = table_name_of_topic(name)
    try:
        if table != name:
            _check_is_of_topic(open_place(place_of(table, spark, warehouse, catalog, None, ICEBERG)).begin(table), name)
        return read_table(spark, warehouse, table, catalog=catalog)
    except WarehouseError:
        if "." not in name:
            raise
    return read_table(spark, warehouse, name, catalog=catalog)


def _check_is_of_topic(table: StoredTable, topic: str) -> None:
    """Check that a table was loaded from a topic: `web.views` and `web-views` have the same default table.

    :raises WarehouseError: The table was loaded from other topics.
    """
    with suppress(HistoryExpiredError):
        others = table.ledger().topics if table.exists else {}
        if others and topic not in others:
            raise WarehouseError(
                f"topic {topic!r} has no table: table {table.name} has records of "
                f"{', '.join(map(repr, sorted(others)))}"
            )


def _line(error: AnalysisException) -> str:
    return " ".join(str(error).partition("\n")[0].split())
