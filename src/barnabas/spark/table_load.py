"""One load of one table, step by step: data and offsets in one commit (paper, section 4).

The steps, and the state after a kill in each:

1. *Clean up* after dead loads (load_folder.py).
2. *Plan*: the table's last snapshot has the start offsets, the brokers have the end offsets.
3. *Infer* the fields of decoded values, for a new table. Nothing is written yet. Lines are read completely; other
   formats are inferred from a sample. If the tasks of step 4 find a field that the sample lacks, the load infers from
   all records and writes again.
   For a state table (`upsert`), all records are read.
4. *Write*: tasks on the executors read ranges and write Parquet files to this load's data directory. After a kill no
   snapshot references these files; readers do not see them, and the next load removes them. The load merges small files
   of the same partition if there are many (small_file_merge.py). With an audit, the load publishes its counts before
   the commit (load_audit.py); without a commit they are ignored. The rows of bad records are committed to the
   dead-letter table, if there is one (dead_letter_table.py).
   For a state table, the tasks write changes, and this process merges them into the files of the table
   (state_merge.py). Deleted keys are committed to a side table first (deleted_keys.py).
5. *Commit* one snapshot with the files, their offset ranges and the next offsets: all of it or nothing. The commit
   fails if another writer has committed since step 2.
6. *Release* the data directory. A kill before this step leaves a lock file, which the next load removes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice
from typing import TypeVar

from barnabas.audit.account import Account
from barnabas.audit.watermark import AUDIT, AuditState
from barnabas.client.admin import Admin
from barnabas.client.admin.topics import check_visible, require
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.errors import ApiError, ConfigurationError, ErrorCode
from barnabas.formats.column_names import column_names
from barnabas.formats.column_types import merge_fields, settled, stored_type
from barnabas.formats.event_time import RECORD, EventTime
from barnabas.formats.field_aliases import NO_ALIASES, Aliases, Renaming, kept_beside
from barnabas.formats.further_columns import added_counts, is_further
from barnabas.formats.json_fields import JsonRules
from barnabas.formats.line_patterns import TIME_GROUP
from barnabas.formats.upsert_rules import CHANGE_ORDER
from barnabas.formats.value_format import JSON, LINES, RAW
from barnabas.model import TopicPartition
from barnabas.serialization.value_decoders import AVRO, PROTOBUF
from barnabas.spark.bad_records import BadRecords
from barnabas.spark.change_files import ChangeFiles, MergeColumns
from barnabas.spark.completeness import CLOCK_DIFFERENCE_MAX_MS, COMPLETE, Completeness
from barnabas.spark.data_files import TARGET_BYTES, DataFile
from barnabas.spark.dead_letter_files import DeadLetterSettings
from barnabas.spark.dead_letter_table import DeadLetterTable
from barnabas.spark.deleted_keys import DeletedKeys
from barnabas.spark.errors import (
    DataLossError,
    HistoryExpiredError,
    LoadError,
    SourceUnavailableError,
    TooManyPartitionsError,
    UnknownTopicError,
    WarehouseError,
    WarehouseUnavailableError,
)
from barnabas.spark.jobs import is_local, parallelism, run_here, run_tasks
from barnabas.spark.ledger import (
    BAD_RECORDS,
    MISSING,
    RECORDS,
    Ledger,
    backfill_properties,
    ends_of_rows,
    snapshot_properties,
)
from barnabas.spark.library_errors import library_errors
from barnabas.spark.load_audit import LoadAudit, wants_audit
from barnabas.spark.load_bounds import (
    check_has_no_rows,
    check_starts_after_rows,
    limited,
    plan_backfill,
    resolve,
)
from barnabas.spark.load_checks import (
    check_bad_records,
    check_event_field,
    check_layout,
    check_partitions,
    check_upsert,
    missing_event_field,
    with_state_fields,
)
from barnabas.spark.load_folder import Folder, claim_folder, remove_leftovers
from barnabas.spark.load_plan import (
    RECORDS_WORTH_A_TASK,
    TopicLoadPlan,
    TopicState,
    check_all_starts_given,
    check_nothing_missing,
    check_nothing_twice,
    check_table_is_of_topic,
    plan_tasks,
    plan_topic,
    sampled,
)
from barnabas.spark.load_tasks import (
    FailureKind,
    ReadSettings,
    TaskFailed,
    TaskInferred,
    TaskWritten,
    WriteSettings,
    infer_ranges,
    write_ranges,
)
from barnabas.spark.load_types import LoadProgress, LoadSettings, ProgressCallback, Step, TableLoad
from barnabas.spark.object_files import remove_file
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.range_reading import open_admin
from barnabas.spark.run_ids import RUN_FILES, RUN_ID, CommittedRun
from barnabas.spark.session import Sessions
from barnabas.spark.small_file_merge import FileGroup, MergeSettings, merge_files, small_file_groups
from barnabas.spark.state_merge import STATE_FILE_BYTES, Merged, MergeTarget, StateMerge
from barnabas.spark.table_layout import layout_of_terms
from barnabas.spark.table_schema import FIELDS_MAX
from barnabas.spark.table_shape import TableShape
from barnabas.spark.table_snapshots import loaded_offsets
from barnabas.spark.table_store import Location, StoredTable, TableStore

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
Share = tuple[OffsetRange, ...]
"""The offset ranges that one task reads."""

CHANGES_WORTH_TASKS = 1_000_000
"""The number of changes from which on the write tasks of a local Spark session save time. Changes cost less than rows
of a history, because a task folds them before it writes them, and the start of a session costs as much as a million.
"""
_GUESSED = frozenset({JSON, AVRO, PROTOBUF})
_ERRORS: Mapping[FailureKind, type[LoadError]] = {
    "data loss": DataLossError,
    "source unavailable": SourceUnavailableError,
    "storage": WarehouseError,
    "storage unavailable": WarehouseUnavailableError,
    "partitions": TooManyPartitionsError,
    "other": LoadError,
}
NEW_PARTITIONS_MAX = 10_000
"""The maximum number of partitions that a load into a new table may write. It detects a wrong choice of partitions."""


@dataclass(frozen=True, slots=True)
class _Outcome:
    """The results of the write tasks, and the shape of their rows."""

    shape: TableShape
    written: Sequence[TaskWritten]
    gathered: Sequence[DataFile] = ()
    """The files to commit: small files are merged."""
    not_renamed: Mapping[str, str] = field(default_factory=dict)
    merged: Merged | None = None
    """The files of a state table that replace other files, and the deleted keys; None for other tables."""

    @property
    def records(self) -> int:
        return sum(task.records for task in self.written)

    @property
    def bad(self) -> BadRecords:
        return BadRecords.merged(task.bad for task in self.written)

    @property
    def files(self) -> Sequence[DataFile]:
        """The files that the tasks wrote, before small files are merged."""
        return [file for task in self.written for file in task.files]

    @property
    def dead_letter_files(self) -> Sequence[DataFile]:
        return [file for task in self.written for file in task.dead_letter_files]

    @property
    def partitions(self) -> int:
        """The number of the table's partitions that the files are in."""
        return len({file.partition for file in self.files})

    @property
    def account(self) -> Account:
        return Account.together(task.account for task in self.written)


class TableLoader:
    """One load of one table."""

    def __init__(
        self,
        sessions: Sessions,
        store: TableStore,
        table_name: str,
        settings: LoadSettings,
        report: ProgressCallback,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._sessions = sessions
        self._store = store
        self._table_name = table_name
        self._settings = settings
        self._report = report
        self._clock = clock
        self._load_id = uuid.uuid4().hex
        self._target_file_bytes = TARGET_BYTES
        self._runs_here = False
        self._partitions_max: int | None = None
        self._reading = ReadSettings(settings.bootstrap, dict(settings.client_options), settings.registry)

    def run(self, topics: Sequence[str], *, is_named_after: str | None = None) -> TableLoad:
        """Run all steps of the load.

        :param is_named_after: The topic that the table is named after by default; None if the caller named the table.
        """
        self._step("planning")
        base = self._store.begin(self._table_name)
        self._check_format(base)
        self._set_bounds(base)
        location = base.location()
        removed = self._clean_up(location)
        earlier = None if self._settings.run_id is None else base.find_run(self._settings.run_id)
        if earlier is not None:
            return _result_of_run(base.name, earlier, removed)
        ledger = self._ledger(base)
        if ledger is not None and is_named_after is not None:
            check_table_is_of_topic(base.name, is_named_after, ledger)
        planned_at_ms = self._clock.time_ms()
        audit = self._begin_audit(base, topics)
        topic_ids, plan = self._plan(base, topics, ledger)
        audit_width_ms = None if audit is None else audit.planned(topic_ids, plan, planned_at_ms)
        shares = self._shares(plan)
        if not shares and not (plan.lost and base.exists and self._settings.backfill is None):
            until_ms = None if audit is None else audit.complete_until_ms(Account())
            return TableLoad(
                base.name, None, 0, (), missing=plan.missing, leftovers_removed=removed, complete_until_ms=until_ms
            )
        shape = self._shape(base, shares)
        dead = self._dead_letter_table()
        deleted = self._deleted_keys(base, shape)
        folder = claim_folder(location, self._load_id, self._table_name)
        try:
            rows_to = None if dead is None else dead.claim(topic_ids, plan.ranges)
            outcome = self._write(location, shares, shape, planned_at_ms, audit_width_ms, rows_to)
            if outcome is None:
                shape = self._shape(base, shares, guesses=False)
                outcome = self._write(location, shares, shape, planned_at_ms, audit_width_ms, rows_to)
                assert outcome is not None, "the second shape is not inferred from a sample"
            missing_field = self._check(base, outcome)
            outcome = self._with_files(base, location, outcome, deleted)
            folder.keep_only(file.path for file in outcome.gathered)
            properties = self._properties(base, outcome, ledger, topic_ids, plan, planned_at_ms)
            if audit is not None:
                properties[AUDIT] = audit.report(outcome.account)
            dead_rows = self._commit_dead_letters(dead, rows_to, outcome, topic_ids, plan)
            if deleted is not None and outcome.merged is not None:
                deleted.commit(outcome.merged.deletions, outcome.shape, properties)
        except BaseException:
            folder.discard()
            if dead is not None:
                dead.discard()
            raise
        snapshot_id = self._commit(base, folder, outcome, properties)
        until_ms = None if audit is None else audit.committed()
        done = self._result(base, snapshot_id, plan, shape, outcome, removed, until_ms)
        return replace(done, dead_letter_rows=dead_rows, missing_event_field=missing_field)

    def _commit(self, base: StoredTable, folder: Folder, outcome: _Outcome, properties: dict[str, str]) -> int:
        self._step("committing", outcome.records, outcome.records)
        replaced = () if outcome.merged is None else outcome.merged.replaced
        try:
            snapshot_id = base.commit(outcome.gathered, properties, outcome.shape, replaced)
        except BaseException as error:
            folder.give_up_after(error)
            raise
        folder.release()
        return snapshot_id

    def _set_bounds(self, base: StoredTable) -> None:
        self._target_file_bytes = self._settings.target_file_bytes or base.target_file_bytes
        if not base.exists and self._settings.partition_by is not None:
            self._partitions_max = NEW_PARTITIONS_MAX

    def _deleted_keys(self, base: StoredTable, shape: TableShape) -> DeletedKeys | None:
        rules, memory = self._settings.upsert, self._settings.delete_memory
        if rules is None or not rules.deletes_at_all or not memory:
            return None
        return DeletedKeys(self._store, self._table_name, base, shape, memory, self._load_id, self._clock)

    def _commit_dead_letters(
        self,
        dead: DeadLetterTable | None,
        rows_to: DeadLetterSettings | None,
        outcome: _Outcome,
        topic_ids: Mapping[str, str],
        plan: TopicLoadPlan,
    ) -> int:
        """Commit the rows of the dead-letter table, if there is one; return their number."""
        if dead is None or rows_to is None:
            return 0
        merging = MergeSettings(rows_to.folder, rows_to.io_properties, rows_to.layout, rows_to.target_file_bytes)
        return dead.commit(self._gathered(merging, outcome.dead_letter_files), outcome.bad, topic_ids, plan.ranges)

    def _with_files(
        self, base: StoredTable, location: Location, outcome: _Outcome, deleted: DeletedKeys | None
    ) -> _Outcome:
        """Return the outcome with the files to commit."""
        if outcome.shape.upsert is None:
            return replace(outcome, gathered=self._gathered(self._gathering(location, outcome), outcome.files))
        self._step("merging", outcome.records, outcome.records)
        properties = dict(location.properties)
        target = MergeTarget(
            base,
            MergeColumns.of(outcome.shape),
            self._folder(location),
            properties,
            min(self._target_file_bytes, STATE_FILE_BYTES),
            None if deleted is None else deleted.remembered,
        )
        with library_errors(f"table {self._table_name} is unchanged: cannot merge the changes"):
            merged = StateMerge(target, ChangeFiles(outcome.files, properties)).run()
        return replace(outcome, gathered=merged.files, merged=merged)

    def _check(self, base: StoredTable, outcome: _Outcome) -> str | None:
        """Check that the results may be committed; return the event-time field if no record has a value in it."""
        check_bad_records(base.name, outcome.bad, outcome.records, self._settings.max_bad_records)
        check_partitions(base.name, outcome.shape.table_layout, outcome.partitions, self._partitions_max)
        readable = sum(task.readable for task in outcome.written)
        with_field = sum(task.with_event_field for task in outcome.written)
        missing = missing_event_field(outcome.shape, readable, with_field)
        check_event_field(base.name, outcome.shape, missing, is_new=not base.exists, is_strict=self._settings.strict)
        return missing

    def _step(self, step: Step, done: int = 0, total: int = 0) -> None:
        self._report(LoadProgress(self._table_name, step, done, total))

    def _begin_audit(self, base: StoredTable, topics: Sequence[str]) -> LoadAudit | None:
        """Start the audit of this load; return None if the load publishes no audit events."""
        bootstrap, options = self._settings.bootstrap, self._settings.client_options
        if self._settings.backfill is not None:
            return None  # the audit follows the ledger, and a backfill does not move it
        if not wants_audit(self._settings.audit, bootstrap, options):
            return None
        audit = LoadAudit(bootstrap, options, base.name, self._load_id, base.last_load)
        audit.read(topics)
        return audit

    def _check_format(self, base: StoredTable) -> None:
        """Check that the settings match the table. Settings without a value get the value of the table."""
        base.check_accepts_loads()
        shape, wanted = base.shape(self._settings.value_format), self._settings
        if shape is None:
            return
        check_upsert(base, shape, wanted.upsert)
        if shape.value_format != wanted.value_format:
            raise ConfigurationError(
                f"table {base.name} was loaded with format {shape.value_format}: use the same format, or choose "
                "another table"
            )
        event_time = replace(shape.event_time, zone=None)
        if wanted.event_time is not None and wanted.event_time.renamed(shape.aliases) != event_time:
            raise ConfigurationError(
                f"table {base.name} takes its event times from {shape.event_time}, not from {wanted.event_time}: use "
                "the same event time, or choose another table"
            )
        if wanted.timezone not in (None, shape.event_time.zone or "UTC"):
            raise ConfigurationError(
                f"table {base.name} uses the time zone {shape.event_time.zone or 'UTC'} for event times without a "
                f"zone, not {wanted.timezone}: omit the time zone, or choose another table"
            )
        if wanted.rules not in (JsonRules(), shape.rules):
            raise ConfigurationError(
                f"table {base.name} was created with other values of nested and decimals (--nested, --decimals): omit "
                "them, or choose another table"
            )
        check_layout(base.name, shape, wanted.partition_by, wanted.sort_by)

    def _clean_up(self, location: Location) -> int:
        folder = location.local_folder
        if folder is None:
            return 0
        return len(remove_leftovers(folder, partial(self._store.committed_loads, self._table_name)))

    def _ledger(self, base: StoredTable) -> Ledger | None:
        """Return the ledger of the table; None if it has expired and the caller passed start offsets."""
        try:
            return base.ledger()
        except HistoryExpiredError:
            if self._settings.backfill is not None:
                return None
            if not self._settings.starting_offsets:
                raise
            check_nothing_twice(self._settings.starting_offsets, base.next_offsets_of_rows())
            return None

    def _plan(
        self, base: StoredTable, topics: Sequence[str], ledger: Ledger | None
    ) -> tuple[dict[str, str], TopicLoadPlan]:
        """Return the topic ids, and the plan for all topics."""
        wanted = self._settings
        with open_admin(wanted.bootstrap, wanted.client_options) as admin:
            states = _describe(admin, topics)
            if wanted.dead_letter is not None:
                _prepare_dead_letter(admin, wanted.dead_letter)
            bounds = [] if wanted.backfill is None else [wanted.backfill.start, wanted.backfill.end]
            if wanted.until is not None:
                bounds.append(wanted.until)
            ends = [resolve(bound, states, admin) for bound in bounds]
        if wanted.backfill is None:
            plan = self._plan_load(base, states, ledger)
            plan = limited(plan, ends[0]) if ends else plan
        else:
            plan = self._plan_backfill(base, states, ledger, *ends)
        if wanted.fail_on_data_loss:
            check_nothing_missing(plan.lost)
        return {now.name: now.topic_id for now in states}, plan

    def _plan_load(self, base: StoredTable, states: Sequence[TopicState], ledger: Ledger | None) -> TopicLoadPlan:
        """Return the plan of a load from the ledger to the end of the log."""
        starts = self._settings.starting_offsets
        if ledger is None:
            check_all_starts_given(states, starts)
        loaded = ledger.topics if ledger else {}
        for now in states:
            if ledger is not None and now.name not in loaded and self._may_add_again(base):
                rows = base.rows_of(now.name, 0, ("topic", "partition", "offset"))
                check_starts_after_rows(base.name, now.name, starts, ends_of_rows(rows))
        return TopicLoadPlan.merged([plan_topic(now, loaded.get(now.name), starts) for now in states])

    def _may_add_again(self, base: StoredTable) -> bool:
        """Return whether a second load of a record adds a second row. A state table has one row for each key."""
        return base.exists and self._settings.upsert is None

    def _plan_backfill(
        self,
        base: StoredTable,
        states: Sequence[TopicState],
        ledger: Ledger | None,
        starts: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> TopicLoadPlan:
        """Return the plan of a backfill, whose offsets have no rows in the table."""
        plan = TopicLoadPlan.merged([plan_backfill(now, ledger, starts, ends) for now in states])
        for now in states:
            wanted = [each for each in plan.ranges if each.topic == now.name]
            if self._may_add_again(base) and wanted:
                first = min(each.start_offset for each in wanted)
                check_has_no_rows(base.name, wanted, base.rows_of(now.name, first, ("partition", "offset")))
        return plan

    def _shares(self, plan: TopicLoadPlan) -> list[Share]:
        ranges = tuple(wanted for wanted in plan.ranges if wanted.count)
        if not ranges:
            return []  # there is nothing to load, so do not start a Spark session
        few = RECORDS_WORTH_A_TASK if self._settings.upsert is None else CHANGES_WORTH_TASKS
        if _count(ranges) <= few and getattr(self._sessions, "is_this_machine", False):
            self._runs_here = (
                True  # a single Spark task would do the same work on this machine, but its start takes seconds
            )
            return [ranges]
        tasks = self._settings.partitions_min or parallelism(self._sessions())
        return plan_tasks(ranges, tasks, self._settings.records_per_task_max)

    def _shape(self, base: StoredTable, shares: Sequence[Share], *, guesses: bool = True) -> TableShape:
        """Return the shape of the rows: that of the table, or for a new table the settings plus inferred fields.

        :param guesses: False infers the fields from all records, not from a sample.
        """
        wanted = self._settings
        known = base.shape(wanted.value_format)
        if known is not None:
            own = {
                name: kind
                for name, kind in (known.fields or {}).items()
                if not is_further(name) and (name != CHANGE_ORDER or known.upsert is None)
            }
            if wanted.fields is not None and dict(wanted.fields) != own:
                raise ConfigurationError(
                    f"table {base.name} has other fields, which cannot be changed: "
                    f"{json.dumps(own, ensure_ascii=False)}; omit fields (--fields), or choose another table"
                )
            return known
        takes_new = wanted.fields is None if wanted.takes_new_fields is None else wanted.takes_new_fields
        shape = TableShape(
            wanted.value_format,
            event_time=wanted.event_time or EventTime(RECORD),
            rules=wanted.rules,
            takes_new_fields=takes_new,
            widens_types=base.widens_types,
            upsert=wanted.upsert,
            table_id="" if wanted.upsert is None else self._load_id,
        )
        if wanted.value_format == RAW:
            return self._laid_out(base, replace(shape, event_time=shape.event_time.in_zone(wanted.timezone)))
        fields = wanted.fields
        if shape.upsert is not None:
            return self._state_shape(shares, shape)
        if fields is None:
            renaming, is_guess = self._infer(shares, shape, guesses=guesses and self._may_guess)
            fields = {name: settled(column_type) for name, column_type in islice(renaming.found.items(), FIELDS_MAX)}
            event_time = shape.event_time.renamed(renaming.aliases)
            shape = replace(shape, aliases=renaming.aliases, event_time=event_time, is_guess=is_guess)
        if wanted.event_time is None and wanted.value_format.startswith(LINES) and TIME_GROUP in fields:
            shape = replace(shape, event_time=EventTime(TIME_GROUP))
        event_time = shape.event_time.in_zone(wanted.timezone)
        shape = replace(shape, fields=fields, columns=column_names(fields), event_time=event_time)
        try:
            return self._laid_out(base, shape)
        except ConfigurationError:
            if not shape.is_guess:
                raise
            return self._shape(base, shares, guesses=False)  # the sample may lack a column of the layout

    def _laid_out(self, base: StoredTable, shape: TableShape) -> TableShape:
        """Return the shape of a new table with the layout that the caller chose."""
        wanted = self._settings
        if wanted.partition_by is None and wanted.sort_by is None:
            return shape
        partition = () if wanted.partition_by is None and shape.upsert is not None else wanted.partition_by
        layout = layout_of_terms(partition, wanted.sort_by or (), shape.column_types(), shape.time_column)
        layout = base.check_layout(layout, shape)
        columns = set(shape.columns.values())
        taken = tuple(field.name for field in layout.partition if field.name not in columns)
        return replace(shape, layout=layout, taken=taken)

    def _state_shape(self, shares: Sequence[Share], shape: TableShape) -> TableShape:
        """Return the shape of a new state table. The fields are inferred from all records."""
        is_quick = sum(map(_count, shares)) <= RECORDS_WORTH_A_TASK and (self._runs_here or is_local(self._sessions()))
        parts = self._run("inferring", shares, partial(_infer, self._reading, shape), _count, is_here=is_quick)
        return with_state_fields(shape, merge_fields(part.fields for part in parts), self._settings.fields)

    @property
    def _may_guess(self) -> bool:
        """True if the load may infer fields from a sample. Tasks detect a wrong guess before they send dead letters."""
        return self._settings.value_format in _GUESSED and self._settings.dead_letter is None

    def _infer(self, shares: Sequence[Share], shape: TableShape, *, guesses: bool) -> tuple[Renaming, bool]:
        """Return the fields of the records, and True if only a sample was read."""
        chosen = sampled(shares, self._settings.records_per_task_max) if guesses else shares
        # With so few records, starting a Spark job takes longer than inferring the fields.
        is_quick = sum(map(_count, chosen)) <= RECORDS_WORTH_A_TASK and (self._runs_here or is_local(self._sessions()))
        parts = self._run("inferring", chosen, partial(_infer, self._reading, shape), _count, is_here=is_quick)
        renames = Aliases.together(part.renames for part in parts)
        fields = merge_fields(part.fields for part in parts)
        is_guess = sum(map(_count, chosen)) < sum(map(_count, shares))
        if is_guess and (renames or len(fields) > FIELDS_MAX or any(settled(kind) != kind for kind in fields.values())):
            # Fields that are null in the sample may have a type in other records. Renamed fields have old names there.
            return self._infer(shares, shape, guesses=False)
        return Renaming.of({}, fields, renames, NO_ALIASES, FIELDS_MAX), is_guess

    def _dead_letter_table(self) -> DeadLetterTable | None:
        name = self._settings.dead_letter_table
        return None if name is None else DeadLetterTable(self._store, name, self._load_id)

    def _write(
        self,
        location: Location,
        shares: Sequence[Share],
        shape: TableShape,
        planned_at_ms: int,
        audit_width_ms: int | None,
        rows_to: DeadLetterSettings | None,
    ) -> _Outcome | None:
        """Write the data files. If records have fields without a column, add the columns and repeat those tasks.

        :return: The results. None if the sample of a new table lacked fields; the files are removed then.
        """
        writing = WriteSettings(
            self._folder(location),
            dict(location.properties),
            shape,
            self._settings.dead_letter,
            planned_at_ms + CLOCK_DIFFERENCE_MAX_MS,
            audit_width_ms,
            rows_to,
            self._target_file_bytes,
            self._settings.keep_values,
            self._partitions_max,
        )
        written = self._run("writing", shares, partial(_write, self._reading, writing), _count)
        if shape.is_guess and not all(shape.has_room_for(task.found, task.renames) for task in written):
            self._remove_files(location, written)
            return None
        renames = Aliases.together(task.renames for task in written)
        grown = shape.grown_by(merge_fields(task.found for task in written), renames)
        if grown is shape:
            return _Outcome(shape, written)
        # Only the tasks with records for the new columns run again; files without a column read as null. If a column is
        # renamed, all tasks run again, because no file of this commit may have the old name.
        has_renamed = bool(shape.columns_renamed_in(grown))
        again = [
            number
            for number, task in enumerate(written)
            if has_renamed or not shape.has_room_for(task.found, task.renames)
        ]
        self._remove_files(location, [written[number] for number in again])
        write = partial(_write, self._reading, replace(writing, shape=grown))
        redone = self._run("writing", [shares[number] for number in again], write, _count)
        for number, task in zip(again, redone, strict=True):
            written[number] = task
        return _Outcome(grown, written, not_renamed=kept_beside(grown.fields or {}, renames, grown.aliases))

    def _gathering(self, location: Location, outcome: _Outcome) -> MergeSettings:
        folder, layout = self._folder(location), outcome.shape.table_layout
        return MergeSettings(folder, dict(location.properties), layout, self._target_file_bytes)

    def _gathered(self, gathering: MergeSettings, files: Sequence[DataFile]) -> Sequence[DataFile]:
        """Return the files to commit, after small files are merged if there are enough of them."""
        bundles, left = small_file_groups(files, gathering.target_file_bytes)
        if not bundles:
            return files
        made = self._run("gathering", bundles, partial(merge_files, gathering), _records)
        return [*left, *(file for part in made for file in part)]

    def _folder(self, location: Location) -> str:
        return f"{location.uri}/data/{self._load_id}"

    def _remove_files(self, location: Location, written: Sequence[TaskWritten]) -> None:
        """Remove the files of tasks that run again, to free disk space."""
        for task in written:
            for file in (*task.files, *task.dead_letter_files):
                with suppress(OSError):  # ignore the error: `keep_only` removes the file before the commit
                    remove_file(location.properties, file.path)

    def _run(
        self,
        step: Step,
        items: Sequence[ItemT],
        work: Callable[[ItemT, int], ResultT | TaskFailed],
        weight: Callable[[ItemT], int],
        *,
        is_here: bool = False,
    ) -> list[ResultT]:
        """Run the tasks of a step on the executors, or in this process with `is_here`, and raise the first failure."""
        if not items:
            return []
        total = sum(map(weight, items))
        self._step(step, 0, total)
        run = run_here if is_here or self._runs_here else partial(run_tasks, self._sessions())
        results = run(items, work, weight=weight, on_done=lambda done: self._step(step, done, total))
        good = []
        for result in results:
            if isinstance(result, TaskFailed):
                raise _ERRORS[result.kind](f"table {self._table_name} is unchanged: {result.message}")
            good.append(result)
        self._step(step, total, total)
        return good

    def _properties(
        self,
        base: StoredTable,
        outcome: _Outcome,
        ledger: Ledger | None,
        topic_ids: Mapping[str, str],
        plan: TopicLoadPlan,
        planned_at_ms: int,
    ) -> dict[str, str]:
        """Return the properties of the commit. A backfill keeps the ledger and the completeness of the last load."""
        last, counts = base.last_load, (plan.ranges, outcome.records, plan.missing)
        if self._settings.backfill is None:
            advanced = (ledger or Ledger()).advanced(topic_ids, plan.ranges)
            before = Completeness.parse(last.get(COMPLETE))
            # A load with an end has not read all that was in the log when it was planned.
            at_ms = planned_at_ms if self._settings.until is None else before.at_ms
            complete = before.advanced(at_ms, (task.event_times_ms for task in outcome.written))
            properties = {**snapshot_properties(self._load_id, advanced, *counts), COMPLETE: complete.dump()}
        else:
            kept = {name: last[name] for name in (COMPLETE, AUDIT) if name in last}
            properties = {**backfill_properties(self._load_id, ledger, *counts), **kept}
        properties[BAD_RECORDS] = json.dumps(outcome.bad.reasons, ensure_ascii=False)
        if self._settings.run_id is not None:
            properties |= {RUN_ID: self._settings.run_id, RUN_FILES: str(len(outcome.gathered))}
        return properties

    def _result(
        self,
        base: StoredTable,
        snapshot_id: int,
        plan: TopicLoadPlan,
        before: TableShape,
        outcome: _Outcome,
        removed: int,
        complete_until_ms: int | None,
    ) -> TableLoad:
        self._step("done", outcome.records, outcome.records)
        known, after = before.fields or {}, outcome.shape.fields or {}
        counted = added_counts(task.counts for task in outcome.written)
        return TableLoad(
            table=base.name,
            snapshot_id=snapshot_id,
            records=outcome.records,
            ranges=tuple(wanted for wanted in plan.ranges if wanted.count),
            files=len(outcome.gathered),
            partitions=outcome.partitions,
            kept_values=sum(task.kept_values for task in outcome.written),
            lost_values=sum(task.lost_values for task in outcome.written),
            further_columns={name: counts for name, counts in counted.items() if any(list(counts.values())[1:])},
            missing=plan.missing,
            leftovers_removed=removed,
            bad=outcome.bad,
            dead_letters=outcome.bad.count if self._settings.dead_letter else 0,
            without_time=sum(task.without_time for task in outcome.written),
            new_fields={
                outcome.shape.columns[name] if is_further(name) else name: stored_type(column_type)
                for name, column_type in after.items()
                if known.get(name) != column_type
            },
            complete_until_ms=complete_until_ms,
            not_renamed=outcome.not_renamed,
            audited_windows=len(outcome.account),
            upserts=0 if outcome.merged is None else outcome.merged.upserts,
            deletes=0 if outcome.merged is None else outcome.merged.deletions.num_rows,
            outdated=0 if outcome.merged is None else outcome.merged.outdated,
            keys_of_records=() if outcome.shape.upsert is None else outcome.shape.upsert.keys_of_records,
            rewritten_files=0 if outcome.merged is None else len(outcome.merged.replaced),
            keys_in_several_partitions=0 if outcome.merged is None else outcome.merged.in_several_partitions,
        )


def _result_of_run(table: str, run: CommittedRun, removed: int) -> TableLoad:
    """Return the result of an earlier load with the same run id. An expired commit has no ranges."""
    properties = run.properties
    audit = properties.get(AUDIT)
    missing: dict[str, dict[str, list[int]]] = json.loads(properties.get(MISSING, "{}"))
    return TableLoad(
        table=table,
        snapshot_id=run.snapshot_id,
        records=int(properties.get(RECORDS, 0)),
        ranges=tuple(
            OffsetRange(topic, partition, *ends)
            for topic, partitions in sorted(loaded_offsets(properties).items())
            for partition, ends in sorted(partitions.items())
        ),
        files=int(properties.get(RUN_FILES, 0)),
        missing=tuple(
            OffsetRange(topic, int(partition), *ends)
            for topic, partitions in sorted(missing.items())
            for partition, ends in sorted(partitions.items())
        ),
        leftovers_removed=removed,
        bad=BadRecords(json.loads(properties.get(BAD_RECORDS, "{}"))),
        complete_until_ms=None if audit is None else AuditState.parse(audit).complete_until_ms,
        is_repeated=True,
    )


# Functions instead of methods: Spark pickles the functions for the executors, and a TableLoader cannot be pickled.


def _infer(reading: ReadSettings, shape: TableShape, wanted: Share, _attempt_id: int) -> TaskInferred | TaskFailed:
    return infer_ranges(wanted, reading, shape)


def _write(reading: ReadSettings, writing: WriteSettings, wanted: Share, attempt_id: int) -> TaskWritten | TaskFailed:
    return write_ranges(wanted, reading, writing, attempt_id)


def _count(wanted: Share) -> int:
    return sum(each.count for each in wanted)


def _records(bundle: FileGroup) -> int:
    return bundle.records


def _prepare_dead_letter(admin: Admin, topic: str) -> None:
    """Create the topic if it does not exist, without time retention: timestamps of dead letters may be old."""
    if topic not in admin.list_topics():
        try:
            admin.create_topic(topic, config={"retention.ms": "-1"})
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise


def _describe(admin: Admin, topics: Sequence[str]) -> list[TopicState]:
    known = {topic.name: topic for topic in admin.describe_topics()}
    unknown = [name for name in topics if name not in known]
    if unknown:
        check_visible(admin, unknown)
        raise UnknownTopicError(f"topic {unknown[0]!r} does not exist: see `barnabas topic list`")
    require(known[name] for name in topics)
    partitions = [TopicPartition(name, part.partition) for name in topics for part in known[name].partitions]
    first, last = admin.beginning_offsets(partitions), admin.end_offsets(partitions)
    return [
        TopicState(
            name=name,
            topic_id=str(known[name].id or ""),
            first_offsets={tp.partition: first[tp] for tp in partitions if tp.topic == name},
            end_offsets={tp.partition: last[tp] for tp in partitions if tp.topic == name},
        )
        for name in topics
    ]
