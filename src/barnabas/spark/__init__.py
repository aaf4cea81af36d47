"""The Spark pipeline: the data source `barnabas` for queries and streams, and loads of topics into tables.

Requires the extra: `pip install 'barnabas[spark]'`. This module imports PySpark, pyiceberg and pyarrow on first use.

    import barnabas.spark

    barnabas.spark.register(spark)                      # then: spark.read.format("barnabas"), readStream, write
    barnabas.spark.load("clicks", bootstrap="localhost:9092", warehouse="./warehouse")
    barnabas.spark.read_table(spark, "./warehouse", "clicks").show()
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.errors import MissingExtraError
from barnabas.spark.errors import (
    CommitUnknownError,
    DataLossError,
    HistoryExpiredError,
    JavaNotFoundError,
    LoadConflictError,
    LoadError,
    LoadsFailedError,
    RecreatedTopicError,
    SourceUnavailableError,
    SparkFailedError,
    UnknownTopicError,
    WarehouseAccessError,
    WarehouseError,
    WarehouseLockedError,
    WarehouseUnavailableError,
)
from barnabas.spark.extras import require

if TYPE_CHECKING:
    from barnabas.spark.audit_frame import audit
    from barnabas.spark.batch_append import append_batch
    from barnabas.spark.load_topics import load
    from barnabas.spark.load_types import LoadProgress, LoadResult, TableLoad
    from barnabas.spark.session import LocalSessions, is_alive, local_session, stop_session
    from barnabas.spark.source import BarnabasDataSource, register
    from barnabas.spark.stream_lag import OffsetsBehind, offsets_behind
    from barnabas.spark.tables import open_table, read_table, scan_table

__all__ = [
    "BarnabasDataSource",
    "CommitUnknownError",
    "DataLossError",
    "HistoryExpiredError",
    "JavaNotFoundError",
    "LoadConflictError",
    "LoadError",
    "LoadProgress",
    "LoadResult",
    "LoadsFailedError",
    "LocalSessions",
    "MissingExtraError",
    "OffsetsBehind",
    "RecreatedTopicError",
    "SourceUnavailableError",
    "SparkFailedError",
    "TableLoad",
    "UnknownTopicError",
    "WarehouseAccessError",
    "WarehouseError",
    "WarehouseLockedError",
    "WarehouseUnavailableError",
    "append_batch",
    "audit",
    "is_alive",
    "load",
    "local_session",
    "offsets_behind",
    "open_table",
    "read_table",
    "register",
    "scan_table",
    "stop_session",
]

_HOMES = {
    "BarnabasDataSource": "barnabas.spark.source",
    "LoadProgress": "barnabas.spark.load_types",
    "LoadResult": "barnabas.spark.load_types",
    "LocalSessions": "barnabas.spark.session",
    "OffsetsBehind": "barnabas.spark.stream_lag",
    "TableLoad": "barnabas.spark.load_types",
    "audit": "barnabas.spark.audit_frame",
    "is_alive": "barnabas.spark.session",
    "append_batch": "barnabas.spark.batch_append",
    "load": "barnabas.spark.load_topics",
    "local_session": "barnabas.spark.session",
    "offsets_behind": "barnabas.spark.stream_lag",
    "open_table": "barnabas.spark.tables",
    "read_table": "barnabas.spark.tables",
    "register": "barnabas.spark.source",
    "scan_table": "barnabas.spark.tables",
    "stop_session": "barnabas.spark.session",
}


def __getattr__(name: str) -> Any:
    """Import the module that defines a public name when the name is first used."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(require(_HOMES[name]), name)
