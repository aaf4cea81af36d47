"""The records of one run in the table, as the reports read them, and the result of a report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from rich.console import RenderableType

from barnabas.spark import scan_table
from demo.events import ID_HEADER


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a report: the content for the terminal, and the file of the picture."""

    content: RenderableType
    picture: Path


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """The location of a run's records.

    :param where: a table filter that excludes records from before the run.
    """

    folder: Path
    table: str
    run: str
    where: str

    def scan(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Yield the records of this run, identified by their ids."""
        wanted = [*columns, "headers"]
        for batch in scan_table(self.folder / "warehouse", self.table, columns=wanted, where=self.where):
            yield batch.take(rows_with_id_of(batch.column("headers"), self.run)).select(list(columns))

    def picture(self, name: str) -> Path:
        """Return the path of a picture."""
        return self.folder / f"{name}.png"


def rows_with_id_of(headers: pa.ListArray, run: str) -> pa.Array:
    """Return the indexes of the rows whose id belongs to the run."""
    pairs = headers.flatten()
    is_id = pc.equal(pairs.field("key"), ID_HEADER)
    is_of_run = pc.starts_with(pairs.field("value"), pattern=f"{run}:")
    return pc.unique(pc.list_parent_indices(headers).filter(pc.and_kleene(is_id, is_of_run)))
