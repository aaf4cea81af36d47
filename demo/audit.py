"""The books: five counts of one run, each taken at its own place, and what is lost or twice by id."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.model import TopicPartition
from demo.events import ID_HEADER

Rows = np.ndarray[tuple[int], np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Audit:
    """The counts of one run.

    `produced`: acknowledgements that the producer got. `stored`: by how much the ends of the broker's logs have
    moved. `consumed`: records that the group saw. `loaded`: rows of the table. `lost`: rows of the input that
    the table has not; `duplicated`: rows of the table beyond the first of their id.
    """

    expected: int
    produced: int
    stored: int
    consumed: int
    loaded: int
    lost: int
    duplicated: int

    @property
    def balances(self) -> bool:
        """Whether every event of the input came through every place, once."""
        counts = (self.produced, self.stored, self.consumed, self.loaded)
        return all(count == self.expected for count in counts) and not self.lost and not self.duplicated

    def line(self) -> str:
        """Return the last line of the demo.

        >>> Audit(3, 3, 3, 3, 3, 0, 0).line()
        'audit: produced=3 stored=3 consumed=3 loaded=3 lost=0 duplicated=0'
        """
        return (
            f"audit: produced={self.produced} stored={self.stored} consumed={self.consumed} loaded={self.loaded} "
            f"lost={self.lost} duplicated={self.duplicated}"
        )


@dataclass(frozen=True, slots=True)
class TableCount:
    """What a table has of one run."""

    rows: int
    lost: int
    duplicated: int


def stored_between(before: Mapping[TopicPartition, int], after: Mapping[TopicPartition, int]) -> int:
    """Return how many records the broker has stored between two looks at where its logs end."""
    return sum(end - before.get(partition, 0) for partition, end in after.items())


def since(before: Mapping[TopicPartition, int]) -> str:
    """Return the filter of a table for what was stored after a look at where the logs end.

    It saves reading the files of earlier runs. Which records are of this run is decided by their ids.
    """
    return " or ".join(
        f"(partition = {partition.partition} and offset >= {offset})" for partition, offset in before.items()
    )


def count_in_table(headers: Iterable[pa.ListArray], run: str, expected: int) -> TableCount:
    """Look for the id of each row of the run's input in a table's column of headers."""
    found = np.zeros(expected, dtype=np.int64)
    for column in headers:
        found += np.bincount(rows_of_run(column, run), minlength=expected)[:expected]
    return TableCount(rows=int(found.sum()), lost=int((found == 0).sum()), duplicated=int((found[found > 1] - 1).sum()))


def rows_of_run(headers: pa.ListArray, run: str) -> Rows:
    """Return the input rows that the ids in a column of headers name, for one run."""
    pairs = headers.flatten()
    ids = pairs.field("value").filter(pc.equal(pairs.field("key"), ID_HEADER)).cast(pa.string())
    prefix = f"{run}:"
    of_run = ids.filter(pc.starts_with(ids, prefix))
    rows: Rows = pc.utf8_slice_codeunits(of_run, len(prefix)).cast(pa.int64()).to_numpy(zero_copy_only=False)
    return rows
