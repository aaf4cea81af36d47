"""The records of one run in the table, as the reports query them; and what a report is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType

from barnabas.spark import read_table
from demo.events import ID_HEADER

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class Report:
    """What is shown in the terminal, and where the picture is."""

    content: RenderableType
    picture: Path


@dataclass(frozen=True, slots=True)
class LoadedRun:
    """Where the records of a run are.

    :param where: a filter in the table's language that leaves out files of earlier runs.
    """

    folder: Path
    table: str
    run: str
    where: str

    def frame(self, spark: SparkSession) -> DataFrame:
        """Return the records of this run, told by their ids."""
        frame = read_table(spark, self.folder / "warehouse", self.table, where=self.where)
        return frame.where(
            f"exists(headers, h -> h.key = '{ID_HEADER}' AND startswith(h.value, CAST('{self.run}:' AS BINARY)))"
        )

    def picture(self, name: str) -> Path:
        """Return where a picture goes."""
        return self.folder / f"{name}.png"
