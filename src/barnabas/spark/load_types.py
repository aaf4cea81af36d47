"""What a load is told, what it tells while it runs, and what it has done."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from barnabas.formats.column_types import ColumnType
from barnabas.formats.decoding import KeepValues
from barnabas.formats.event_time import EventTime
from barnabas.formats.further_columns import Counts
from barnabas.formats.json_fields import JsonRules
from barnabas.model import TopicPartition
from barnabas.spark.bad_records import BadRecordLimit, BadRecords
from barnabas.spark.offset_ranges import OffsetRange

Step = Literal["planning", "inferring", "writing", "gathering", "committing", "done"]


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

    `kept_values`: how many values are whole in `value` beside decoded columns: as a rule those that these do not give
    back.
    `lost_values`: how many are nowhere, although the columns do not give them back, as the load was asked for.
    `bad`: records that could not be decoded as they should be, by reason; they are in `value` too.
    `dead_letters`: how many copies of these were sent to the dead-letter topic; `dead_letter_rows`: how many rows the
    dead-letter table got.
    `further_columns`: for each field with values in a further column, of a type that its first one does not take: how
    many values of this load are in each of its columns. Fields within structs have a dot before their names.
    `without_time`: how many records have no event time.
    `missing_event_field`: the field of the event time, where no record of the load has a value in it.
    `new_fields`: the fields that got a column with this load, or a wider one, with the types that they have now.
    `not_renamed`: where the columns changed, fields that a schema calls otherwise now, and that stay beside the new
    ones: old names and new, with a dot before what is within a field.
    `missing`: what had been deleted from the log before it could be loaded: before the first load of a partition,
    and (with fail_on_data_loss=False) since the last one.
    `audited_windows`: the windows that the load reported to the audit; 0 without audit.
    `complete_until_ms`: the event time up to which producers and table agree (docs/how-to/audit.md); None where that
    is not
    known.
    """

    table: str
    snapshot_id: int | None
    records: int
    ranges: tuple[OffsetRange, ...]
    files: int = 0
    kept_values: int = 0
    missing: tuple[OffsetRange, ...] = ()
    leftovers_removed: int = 0
    bad: BadRecords = field(default_factory=BadRecords)
    dead_letters: int = 0
    without_time: int = 0
    new_fields: Mapping[str, ColumnType] = field(default_factory=dict)
    complete_until_ms: int | None = None
    dead_letter_rows: int = 0
    missing_event_field: str | None = None
    lost_values: int = 0
    further_columns: Counts = field(default_factory=dict)
    not_renamed: Mapping[str, str] = field(default_factory=dict)
    audited_windows: int = 0


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
    value_format: str
    fields: Mapping[str, ColumnType] | None
    starting_offsets: Mapping[TopicPartition, int]
    fail_on_data_loss: bool
    partitions_min: int | None
    records_per_task_max: int
    client_options: Mapping[str, str]
    rules: JsonRules = field(default_factory=JsonRules)
    event_time: EventTime | None = None
    timezone: str | None = None
    takes_new_fields: bool | None = None
    dead_letter: str | None = None
    target_file_bytes: int | None = None
    audit: bool | None = None
    registry: str | None = None
    dead_letter_table: str | None = None
    max_bad_records: BadRecordLimit | None = None
    strict: bool = False
    keep_values: KeepValues = "bad"
