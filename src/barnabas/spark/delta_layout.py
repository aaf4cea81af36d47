"""The layout of Delta tables (table_layout.py): partition columns, and their values in the table's log. Pure.

Delta has no transforms. The day, month, year or hour of a time is a partition column of its own, and its values are in
the log only. Other partition columns are columns of the rows; delta-rs expects that the files lack them. The metadata
of the column `topic` (delta_schema.py) has the layout in the syntax of `--partition-by`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import date
from itertools import count

from barnabas.errors import ConfigurationError
from barnabas.formats.column_types import ColumnType
from barnabas.spark.layout_syntax import parse_partition
from barnabas.spark.partition_transforms import TIME_KINDS, Kind, PartitionValue, Transform
from barnabas.spark.table_layout import Partition, PartitionField, TableLayout
from barnabas.spark.table_schema import EVENT_DAY

PARTITION_BY = "barnabas.partition-by"
TIME_COLUMN_TYPES: Mapping[Kind, ColumnType] = {"year": "int", "month": "string", "day": "date", "hour": "string"}
"""The types of partition columns of times. Months and hours have the form of Iceberg: 2026-11, 2026-11-28-13."""
_WHOLE = frozenset({"int", "long", "string", "date", "boolean"})
_NEVER: Mapping[Kind, str] = {"year": "1", "month": "0001-01", "day": "0001-01-01", "hour": "0001-01-01-00"}
"""Partitions that are always empty, because event times start in year 2."""


def check_delta_layout(layout: TableLayout, columns: Mapping[str, ColumnType]) -> None:
    """Check that a Delta table can have a layout.

    :raises ConfigurationError: It cannot.
    """
    option = "partition_by (--partition-by)"
    if layout.sort:
        raise ConfigurationError(
            "sort_by (--sort-by): Delta tables record no sort order, and merging files would lose it; omit it, or use "
            "Iceberg (--table-format iceberg)"
        )
    if all(columns.get(".".join(field.path)) == "boolean" for field in layout.partition):
        raise ConfigurationError(
            f"{option}: a Delta table needs a partition column that is not a boolean; add one, such as year(event_time)"
        )
    for field in layout.partition:
        if field.transform.kind not in (*TIME_KINDS, "identity"):
            raise ConfigurationError(
                f"{option}: Delta tables have no {field.transform.kind} partitions ({field}); use a column, or year, "
                "month, day or hour of a time, or Iceberg (--table-format iceberg)"
            )
        kind = columns.get(field.path[0]) if len(field.path) == 1 else None
        if field.transform.kind == "identity" and not (isinstance(kind, str) and kind in _WHOLE):
            raise ConfigurationError(
                f"{option}: a Delta table cannot be partitioned by {field}, which is {kind or 'a nested field'}; use a "
                "column of text, whole numbers, dates or booleans"
            )


def obstacle_of_delta_layout(layout: TableLayout, columns: Mapping[str, ColumnType]) -> str | None:
    """Return the reason why loads cannot write to a table of another tool, with the remedy; else None."""
    try:
        check_delta_layout(layout, columns)
    except ConfigurationError:
        return f"is partitioned by {layout}, which loads cannot write: use other partition columns"
    return None


def layout_of_delta(partition_columns: Sequence[str], stored: str | None, time_column: str) -> TableLayout:
    """Return the layout of a table.

    :param stored: The layout that a load has stored; None for the default, and for tables of other tools.
    """
    terms = parse_partition(stored or "")
    if len(terms) != len(partition_columns):
        terms = ()
    fields = [
        PartitionField(column, terms[number].transform, terms[number].path) if terms else _field_of(column, time_column)
        for number, column in enumerate(partition_columns)
    ]
    whole = [field.name for field in fields if field.transform.kind == "identity"]
    return TableLayout(tuple(fields), only_in_partition=tuple(whole))


def _field_of(column: str, time_column: str) -> PartitionField:
    if column == EVENT_DAY:
        return PartitionField(EVENT_DAY, Transform("day"), (time_column,))
    return PartitionField(column, Transform("identity"), (column,))


def stored_layout(layout: TableLayout) -> str:
    """Return the layout in the syntax of `--partition-by`, with quoted names."""
    return ", ".join(field.transform.of(f"`{field.path[0]}`") for field in layout.partition)


def time_columns(layout: TableLayout) -> dict[str, ColumnType]:
    """Return the partition columns of times, which are no columns of the rows, with their types."""
    times = [field for field in layout.partition if field.transform.kind in TIME_KINDS]
    return {field.name: TIME_COLUMN_TYPES[field.transform.kind] for field in times}


def partition_values(layout: TableLayout, partition: Partition, dates: Collection[str] = ()) -> dict[str, str | None]:
    """Return the values of the partition columns of a file, as Delta's log has them.

    :param dates: The columns of the rows with dates.

    >>> partition_values(TableLayout.by_day("timestamp"), (0,))
    {'event_day': '1970-01-01'}
    """
    return {
        field.name: _text(field.name in dates, field.transform, value)
        for field, value in zip(layout.partition, partition, strict=True)
    }


def _text(is_date: bool, transform: Transform, value: PartitionValue) -> str | None:
    if value is None or value == "":  # Delta has no empty text in a partition
        return None
    if transform.kind in TIME_KINDS:
        return transform.label(value)
    if is_date:
        return Transform("day").label(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def empty_partition(
    layout: TableLayout, columns: Mapping[str, ColumnType], used: Mapping[str, Collection[object]]
) -> tuple[str, str]:
    """Return a partition column, and a value of it that no file has.

    :param columns: The types of the columns of the rows.
    :param used: The values of each partition column.
    """
    for field in layout.partition:
        if field.transform.kind in _NEVER:
            return field.name, _NEVER[field.transform.kind]
    name = next(field.name for field in layout.partition if columns[field.name] != "boolean")
    values = {value for value in used.get(name, ()) if value is not None}
    if columns[name] == "date":
        return name, next(day.isoformat() for day in map(date.fromordinal, count(1)) if day not in values)
    if columns[name] == "string":
        return name, "-" * (1 + max((len(str(value)) for value in values), default=0))
    return name, str(next(number for number in count() if number not in values))
