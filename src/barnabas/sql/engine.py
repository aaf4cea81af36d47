"""What carries out queries: DuckDB in this process (`duckdb_engine.py`), or Spark (`spark_engine.py`)."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Result:
    """What a query gives: its columns, and its rows as they come. To be gone through once, or closed."""

    schema: pa.Schema
    batches: Generator[pa.RecordBatch]


class Engine(Protocol):
    """Carries out queries, one after the other."""

    def split(self, text: str) -> list[str]:
        """Return the queries that a text has, separated by semicolons.

        :raises SqlError: there is one that is none.
        """
        ...

    def run(self, query: str) -> Result:
        """Begin a query; its rows may raise what this raises.

        :raises SqlError: it names a topic or a column that does not exist, and others.
        :raises BarnabasError: no broker answers.
        """
        ...
