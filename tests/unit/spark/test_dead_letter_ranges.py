"""Whatever is loaded again, and wherever loads are killed: what a load found bad is in the dead-letter table once.

Random histories of topics, tables and kills, in both formats of tables.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.clock import SYSTEM_CLOCK
from barnabas.spark.dead_letter_table import DeadLetterTable
from barnabas.spark.table_formats import format_of
from barnabas.spark.table_load import TableLoader
from barnabas.spark.tables import scan_table
from tests.support.loads_without_spark import Lake
from tests.support.searches import examples

GOOD, BAD = b'{"a": 1}', b"?"
PLACES = ((DeadLetterTable, "commit"), (TableLoader, "_commit"), (TableLoader, "_result"))
Record = tuple[str, int, int]
"""A topic id, a partition, an offset."""
Step = tuple[str, int, int]


def steps() -> st.SearchStrategy[list[Step]]:
    """What happens: it, a number of a table or partition, and another number."""
    kinds = ["produce", "produce", "load", "load", "kill", "without", "roll back", "make again", "compact"]
    return st.lists(st.tuples(st.sampled_from(kinds), st.integers(0, 1), st.integers(0, 2)), min_size=3, max_size=9)


class History:
    """A topic of two partitions, two tables of it, and what is to be in their dead-letter table.

    A topic that is made again has tables of its own, as theirs refuse it.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._topics: dict[str, list[list[bytes]]] = {"one": [[], []], "two": [[], []]}
        self._snapshots: dict[str, list[int]] = {}
        self._make("one")
        self.expected: set[Record] = set()

    def _make(self, topic_id: str) -> None:
        self._lake.topic_id = topic_id
        self._lake.partitions = self._topics[topic_id]

    def do(self, step: Step) -> None:
        """Do one thing."""
        what, number, other = step
        table = f"{self._lake.topic_id}{number}"
        match what:
            case "produce":
                self._lake.partitions[number] += [BAD, GOOD, BAD][: other + 1]
            case "load" | "without":
                self._load(table, "bad" if what == "load" else None)
            case "kill":
                self._kill(
                    table, [(DeadLetterTable, "commit"), (TableLoader, "_commit"), (TableLoader, "_result")][other]
                )
            case "roll back":
                self._roll_back(table)
            case "make again":
                self._make("two" if self._lake.topic_id == "one" else "one")
            case "compact":
                if self._lake.open().current_table("bad").exists:
                    format_of(self._lake.place).maintainer(self._lake.open(), "bad", SYSTEM_CLOCK).compact()

    def _load(self, table: str, bad: str | None) -> None:
        done = self._lake.load(table, bad)
        if done.snapshot_id is not None:
            self._snapshots.setdefault(table, []).append(done.snapshot_id)
        if bad is not None:
            self.expected |= {
                (self._lake.topic_id, each.partition, offset)
                for each in done.ranges
                for offset in range(each.start_offset, each.end_offset)
                if self._lake.partitions[each.partition][offset] == BAD
            }

    def _kill(self, table: str, place: tuple[type, str]) -> None:
        """Load, and die on the way, where there is anything to load."""
        known = dict(self._ends(table))
        if any(len(values) > known.get(number, 0) for number, values in enumerate(self._lake.partitions)):
            self._lake.load_killed_before(*place, table)

    def _ends(self, table: str) -> Iterator[tuple[int, int]]:
        for loaded in self._lake.open().current_table(table).ledger().topics.values():
            yield from loaded.next_offsets.items()

    def _roll_back(self, table: str) -> None:
        snapshots = self._snapshots.get(table, [])
        if len(snapshots) > 1:
            snapshots.pop()
            stored = self._lake.open().begin(table).table
            if self._lake.place.table_format == "delta":
                stored.restore(snapshots[-1])
            else:
                stored.manage_snapshots().rollback_to_snapshot(snapshots[-1]).commit()

    def rows(self) -> list[Record]:
        """Return what is in the dead-letter table."""
        if not self._lake.open().current_table("bad").exists:
            return []
        columns = ["topic_id", "partition", "offset", "value"]
        found = scan_table(self._lake.folder, "bad", columns=columns, table_format=self._lake.place.table_format)
        rows = [row for batch in found for row in batch.to_pylist()]
        assert {row["value"] for row in rows} <= {BAD}
        return sorted((row["topic_id"], row["partition"], row["offset"]) for row in rows)


@pytest.mark.parametrize("table_format", ["iceberg", "delta"])
@settings(max_examples=examples(10))
@given(steps=steps())
def test_each_bad_record_of_a_load_is_there_once(table_format: Literal["iceberg", "delta"], steps: list[Step]) -> None:
    if table_format == "delta":
        pytest.importorskip("deltalake")
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        lake = Lake(Path(folder), table_format)
        lake.stand_in(patched)
        history = History(lake)
        for step in [*steps, ("load", 0, 0), ("load", 1, 0)]:
            history.do(step)
            rows = history.rows()
            assert len(rows) == len(set(rows))
            assert set(rows) >= history.expected
