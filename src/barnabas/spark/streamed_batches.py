"""What `append_batch` knows of tables: which batches of streams they have, whatever format they have. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from barnabas.spark.table_store import Location

if TYPE_CHECKING:
    import pyarrow as pa

QUERY_ID, EPOCH_ID = "spark.sql.streaming.queryId", "spark.sql.streaming.epochId"
"""In a commit: whose batch it is, and its number. The names are those that Iceberg's own sink for streams writes."""


@dataclass(frozen=True, slots=True)
class BatchFile:
    """A file of rows that a task has written; `path` as the table names it."""

    path: str
    size_bytes: int
    records: int


class BatchTable(Protocol):
    """A table as it was when it was looked at; `append` succeeds only while it still is like that."""

    columns: pa.Schema

    @property
    def name(self) -> str: ...

    def location(self) -> Location: ...

    def arrow_schema(self) -> pa.Schema: ...

    def has_batch(self, query_id: str, batch_id: int, /) -> bool: ...

    def append(self, files: Sequence[BatchFile], load_id: str, query_id: str, batch_id: int, /) -> int: ...
