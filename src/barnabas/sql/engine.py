"""The interface of query engines: DuckDB in this process (`duckdb_engine.py`), or Spark (`spark_engine.py`)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a query: its columns, and a generator of its rows. Iterate once, or close the generator."""

    schema: pa.Schema
    batches: Generator[pa.RecordBatch]


class Engine(Protocol):
    """Runs queries, one after the other."""

    def split(self, text: str) -> list[str]:
        """Return the queries in a text, separated by semicolons.

        :raises SqlError: A statement is not a query.
        """
        ...

    def run(self, query: str) -> Result:
        """Start a query. The generator of its rows may raise the same errors.

        :raises SqlError: The query is invalid, or names a topic or column that does not exist.
        :raises BarnabasError: No broker answers.
        """
        ...
