"""The settings, the progress and the result of a load."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Literal

from barnabas.formats.column_types import ColumnType
from barnabas.formats.decoding import KeepValues
from barnabas.formats.event_time import EventTime
from barnabas.formats.further_columns import Counts
from barnabas.formats.json_fields import JsonRules
from barnabas.formats.upsert_rules import UpsertRules
from barnabas.model import TopicPartition
from barnabas.serialization.registry_settings import RegistryTarget
from barnabas.spark.bad_records import BadRecordLimit, BadRecords
from barnabas.spark.layout_syntax import Term
from barnabas.spark.offset_ranges import OffsetRange

Step = Literal["planning", "inferring", "writing", "gathering", "merging", "committing", "done"]


DELETE_MEMORY = timedelta(days=7)
"""The time for which a state table remembers deleted keys."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """The progress of a load. The record counts are those of the current step."""

    table: str
    step: Step
    records_done: int = 0
    records_total: int = 0


ProgressCallback = Callable[[LoadProgress], None]


@dataclass(frozen=True, slots=True)
class TableLoad:
    """The records, files and offsets that a load added to one table."""

    table: str
    snapshot_id: int | None
    """The committed snapshot; None if the topics had no new records."""
    records: int
    ranges: tuple[OffsetRange, ...]
    """The loaded offsets of each partition."""
    files: int = 0
    kept_values: int = 0
    """The number of values kept whole in the column `value` beside decoded columns."""
    missing: tuple[OffsetRange, ...] = ()
    """The offsets deleted from the log before a load read them. With `fail_on_data_loss=True`, only offsets before the
    first load of a partition."""
    leftovers_removed: int = 0
    """The number of earlier failed loads whose files this load removed."""
    bad: BadRecords = field(default_factory=BadRecords)
    """The records that could not be decoded, by reason. Their values are kept in the column `value`."""
    dead_letters: int = 0
    """The number of bad records copied to the dead-letter topic."""
    without_time: int = 0
    """The number of records without an event time."""
    new_fields: Mapping[str, ColumnType] = field(default_factory=dict)
    """The fields that got a new or wider column in this load, with the current column types."""
    complete_until_ms: int | None = None
    """The event time, in ms since the epoch, up to which the table has all records that producers reported to the audit
    (docs/how-to/audit.md); None if unknown."""
    dead_letter_rows: int = 0
    """The number of rows added to the dead-letter table."""
    missing_event_field: str | None = None
    """The event-time field if no record of the load has a value in it; else None."""
    lost_values: int = 0
    """The number of values that the columns cannot reproduce and that `keep_values="none"` did not keep."""
    further_columns: Counts = field(default_factory=dict)
    """The number of loaded values per column, for each field with further columns. A name with a dot is a field of a
    struct.
    """
    not_renamed: Mapping[str, str] = field(default_factory=dict)
    """Fields that the schema renamed but the table did not: new name by old name. The table has a column for each. A
    dotted name is a field of a struct."""
    partitions: int = 0
    """The number of partitions of the table that got files."""
    is_repeated: bool = False
    """True if an earlier load with the same run id had committed this. This load has added nothing."""
    audited_windows: int = 0
    """The number of windows whose counts the load reported to the audit; 0 without audit."""
    upserts: int = 0
    """The number of keys that got a new row in a state table (`upsert`)."""
    deletes: int = 0
    """The number of keys that changes of this load deleted from a state table."""
    outdated: int = 0
    """The number of keys whose changes in this load are older than the state table's row, or than its deletion."""
    keys_of_records: tuple[str, ...] = ()
    """The key columns of a state table that no row has; the load takes them from the records' keys."""
    rewritten_files: int = 0
    """The number of files of a state table that new files replace."""
    keys_in_several_partitions: int = 0
    """The number of keys of a state table whose changes are in several partitions, although their offsets order them
    (`order_by="offset"`). The row of such a key may not be that of its last change."""


@dataclass(frozen=True, slots=True)
class LoadResult:
    """The result of a load for each table."""

    tables: tuple[TableLoad, ...]

    @property
    def records(self) -> int:
        return sum(table.records for table in self.tables)


Bound = int | Mapping[TopicPartition, int]
"""A time in ms since 1970, or offsets of partitions."""


@dataclass(frozen=True, slots=True)
class Backfill:
    """The range of a backfill: from a bound up to, not including, another one."""

    start: Bound
    end: Bound


@dataclass(frozen=True, slots=True)
class LoadSettings:
    """The arguments of `load`, parsed."""

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
    registry: RegistryTarget | None = None
    dead_letter_table: str | None = None
    max_bad_records: BadRecordLimit | None = None
    strict: bool = False
    keep_values: KeepValues = "bad"
    partition_by: tuple[Term, ...] | None = None
    """The partitions of a new table; None for the day of the event time."""
    sort_by: tuple[Term, ...] | None = None
    """The sort order of a new table; None for the order of the records."""
    run_id: str | None = None
    until: Bound | None = None
    backfill: Backfill | None = None
    upsert: UpsertRules | None = None
    delete_memory: timedelta = DELETE_MEMORY
