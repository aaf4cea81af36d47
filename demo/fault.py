"""`make demo FAULT=lose|double|late`: one record is lost, duplicated or late in the table, and the audit must find it.

The demo changes files of the table, or sends a record late. Barnabas itself has no code that loses records.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from demo.loaded_run import rows_with_id_of

Fault = Literal["lose", "double", "late"]
FAULTS: tuple[Fault, ...] = ("lose", "double", "late")


def change_a_row(warehouse: Path, run: str, fault: Fault) -> None:
    """Delete one row of a run from the table's files, or duplicate it, without a commit."""
    path, rows, at = _a_row_of(warehouse, run)
    with_it, without_it = rows, pa.concat_tables([rows.slice(0, at), rows.slice(at + 1)])
    changed = without_it if fault == "lose" else pa.concat_tables([with_it, rows.slice(at, 1)])
    pq.write_table(changed, path)


def _a_row_of(warehouse: Path, run: str) -> tuple[Path, pa.Table, int]:
    """Return a file that contains a record of the run, the rows of the file, and the index of the record."""
    newest_first = sorted(warehouse.rglob("data/**/*.parquet"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in newest_first:
        rows = pq.ParquetFile(path).read()
        places = rows_with_id_of(rows.column("headers").combine_chunks(), run)
        if len(places):
            return path, rows, pc.max(places).as_py()
    raise FileNotFoundError(f"{warehouse} has no records of run {run}")
