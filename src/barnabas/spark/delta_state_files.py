"""The files of a state table in Delta: their list with bounds, and the actions that add and remove them."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import deltalake.transaction
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from barnabas.errors import ConfigurationError
from barnabas.spark.data_files import DataFile
from barnabas.spark.object_files import file_system_of
from barnabas.spark.table_store import StoredFile

ADDED_ROWS, DELETED_ROWS = "barnabas.added-rows", "barnabas.deleted-rows"
ADDED_FILES, REMOVED_FILES = "barnabas.added-files", "barnabas.removed-files"
"""Properties of the version of a load, which has no metrics of delta-rs."""
_BOUND_TEXT_MAX = 64
"""The maximum length of a text that is a bound of a file."""
_MILLISECOND = timedelta(milliseconds=1)
_LATEST = datetime.max.replace(tzinfo=UTC) - _MILLISECOND


def stored_files(table: DeltaTable, table_uri: str, columns: Collection[str]) -> list[StoredFile]:
    """Return the files of a table.

    :param columns: The columns whose bounds the caller needs.
    """
    return [
        StoredFile(
            f"{table_uri}/{row['path']}",
            row["num_records"] or 0,
            row["size_bytes"],
            {
                name: (row[f"min.{name}"], _upper_bound(row[f"max.{name}"]))
                for name in columns
                if row.get(f"min.{name}") is not None and row.get(f"max.{name}") is not None
            },
            row["path"],
        )
        for row in pa.table(table.get_add_actions(flatten=True)).to_pylist()
    ]


def counts_of(added: Collection[DataFile], removed: Collection[StoredFile]) -> dict[str, str]:
    """Return the properties with the counts of a version."""
    return {
        ADDED_ROWS: str(sum(file.records for file in added)),
        DELETED_ROWS: str(sum(file.records for file in removed)),
        ADDED_FILES: str(len(added)),
        REMOVED_FILES: str(len(removed)),
    }


def _upper_bound(value: Any) -> Any:
    """Return the upper bound of a column. Delta's log truncates times to milliseconds."""
    if not isinstance(value, datetime):
        return value
    return min(value, _LATEST.replace(tzinfo=value.tzinfo)) + _MILLISECOND


def remove_actions(files: Iterable[StoredFile], now_ms: int) -> list[Any]:
    """Return the actions that remove files from a table.

    :raises ConfigurationError: The installed deltalake cannot commit these actions.
    """
    removed = list(files)
    action = getattr(deltalake.transaction, "RemoveAction", None)
    if removed and action is None:
        raise ConfigurationError(
            "upsert (--upsert) into Delta tables needs deltalake 1.6.6 or newer: upgrade deltalake"
        )
    assert action is not None or not removed
    return [action(file.handle, True, now_ms, file.size_bytes, {}) for file in removed]  # type: ignore[misc]


def statistics_of(path: str, records: int, columns: Collection[str], properties: Mapping[str, str]) -> str:
    """Return a file's statistics for Delta's log: the row count, and the bounds of columns from the file's footer.

    A column has no bounds if its values are no whole numbers, times with a zone or short texts.
    """
    if not columns:
        return json.dumps({"numRecords": records})
    lower: dict[str, int | str] = {}
    upper: dict[str, int | str] = {}
    nulls: dict[str, int] = {}
    system, inner = file_system_of(properties, path)
    with pq.ParquetFile(inner, filesystem=system) as file:
        metadata, schema = file.metadata, file.schema_arrow
    for name in columns:
        bounds = _bounds(metadata, schema, name)
        if bounds is not None:
            lower[name], upper[name], nulls[name] = bounds
    return json.dumps(
        {"numRecords": records, "minValues": lower, "maxValues": upper, "nullCount": nulls}, ensure_ascii=False
    )


def _bounds(metadata: pq.FileMetaData, schema: pa.Schema, name: str) -> tuple[int | str, int | str, int] | None:
    kind = schema.field(name).type
    is_time = pa.types.is_timestamp(kind) and kind.tz is not None
    if not (pa.types.is_integer(kind) or pa.types.is_string(kind) or is_time):
        return None
    paths = [metadata.schema.column(number).path for number in range(metadata.num_columns)]
    index = paths.index(name)
    found = [metadata.row_group(group).column(index).statistics for group in range(metadata.num_row_groups)]
    if not found or any(each is None or not each.has_min_max or not each.has_null_count for each in found):
        return None
    try:
        least, greatest = min(each.min for each in found), max(each.max for each in found)
    except (ValueError, OverflowError):  # Python has no times before the year 1 and after 9999
        return None
    if is_time:
        least, greatest = _time_text(least), _time_text(greatest)
    if isinstance(least, str) and max(len(least), len(greatest)) > _BOUND_TEXT_MAX:
        return None
    return least, greatest, sum(each.null_count for each in found)


def _time_text(time: datetime) -> str:
    """Return a time as text for Delta's log, which has milliseconds."""
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="milliseconds") + "Z"
