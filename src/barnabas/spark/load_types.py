"""What a load is told, what it tells while it runs, and what it has done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from barnabas.model import TopicPartition
from barnabas.spark.json_fields import ColumnType
from barnabas.spark.planning import OffsetRange

ValueFormat = Literal["raw", "json"]
Step = Literal["planning", "inferring", "writing", "committing", "done"]


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """How far a load is. Counts are those of the step; a callback may be called from another thread."""

    table: str
    step: Step
    records_done: int = 0
    records_total: int = 0


ProgressCallback = Callable[[LoadProgress], None]


@dataclass(frozen=True, slots=True)
class TableLoad:
    """What was added to one table. `snapshot_id` is None where there was nothing new.

    `kept_values`: with format json, how many values the columns do not give back; they are in `value`.
    `missing`: what had been deleted from the log before it could be loaded: before the first load of a partition,
    and (with fail_on_data_loss=False) since the last one.
    """

    table: str
    snapshot_id: int | None
    records: int
    ranges: tuple[OffsetRange, ...]
    files: int = 0
    kept_values: int = 0
    missing: tuple[OffsetRange, ...] = ()
    leftovers_removed: int = 0


@dataclass(frozen=True, slots=True)
class LoadResult:
    """What a load did, table by table."""

    tables: tuple[TableLoad, ...]

    @property
    def records(self) -> int:
        return sum(table.records for table in self.tables)


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """How a load is done; the arguments of `load`."""

    bootstrap: str
    value_format: ValueFormat
    fields: Mapping[str, ColumnType] | None
    starting_offsets: Mapping[TopicPartition, int]
    fail_on_data_loss: bool
    partitions_min: int | None
    records_per_task_max: int
    client_options: Mapping[str, str]
