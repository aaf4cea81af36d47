"""One load of one table, step by step: data and offsets in one commit (paper, section 4).

The steps, and what a kill after each leaves:

1. *clean up* after loads that died (leftovers.py).
2. *plan*: the table's last snapshot says where to start, the brokers where the logs end now.
3. *infer*, only for the first load of JSON: which fields there are. Nothing written so far.
4. *write*: tasks on the executors read ranges and write Parquet files into this load's own folder. A kill
   leaves files that no snapshot names: no reader sees them, the next load removes them.
5. *commit*: one snapshot with the files, their offset ranges, and where to go on. Data and offsets together or
   neither; refused if anybody else has committed since step 2.
6. *release* the folder. A kill before it leaves a lock file, which the next load removes.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import TypeVar

from pyspark.sql import SparkSession

from barnabas.client.admin import Admin
from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition
from barnabas.spark.errors import CommitUnknownError, DataLossError, HistoryExpiredError, LoadError, WarehouseError
from barnabas.spark.jobs import run_tasks
from barnabas.spark.json_fields import ColumnType, Fields, merge_fields
from barnabas.spark.ledger import Ledger, snapshot_properties
from barnabas.spark.leftovers import LoadFolder, RemoteFolder, remove_leftovers
from barnabas.spark.load_plan import (
    TopicNow,
    TopicPlan,
    check_all_starts_given,
    check_nothing_missing,
    check_nothing_twice,
    check_table_is_of_topic,
    plan_topic,
)
from barnabas.spark.load_types import LoadProgress, LoadSettings, ProgressCallback, Step, TableLoad
from barnabas.spark.planning import OffsetRange, split_ranges
from barnabas.spark.reading import open_admin
from barnabas.spark.table_schema import FIELDS_MAX, column_names
from barnabas.spark.tasks import Failed, Reading, Writing, Written, infer_range, write_range
from barnabas.spark.warehouse import Location, TableBase, Warehouse

ResultT = TypeVar("ResultT")

_ERRORS: Mapping[str, type[LoadError]] = {"data loss": DataLossError, "storage": WarehouseError, "other": LoadError}


class TableLoader:
    """One load of one table."""

    def __init__(
        self,
        spark: SparkSession,
        warehouse: Warehouse,
        table_name: str,
        settings: LoadSettings,
        report: ProgressCallback,
    ) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._table_name = table_name
        self._settings = settings
        self._report = report
        self._load_id = uuid.uuid4().hex
        self._reading = Reading(settings.bootstrap, dict(settings.client_options))

    def run(self, topics: Sequence[str], *, is_named_after: str | None = None) -> TableLoad:
        """Do all steps.

        :param is_named_after: the topic, where the table's name comes from it and nobody chose the table.
        """
        self._step("planning")
        base = self._warehouse.begin(self._table_name)
        self._check_format(base)
        location = base.location()
        removed = self._clean_up(location)
        ledger = self._ledger(base)
        if ledger is not None and is_named_after is not None:
            check_table_is_of_topic(base.name, is_named_after, ledger)
        topic_ids, plan = self._plan(topics, ledger)
        pieces = self._pieces(plan)
        if not pieces and not (plan.lost and base.exists):
            return TableLoad(base.name, None, 0, (), missing=plan.missing, leftovers_removed=removed)
        fields = self._fields(base, pieces)
        folder = self._claim(location)
        try:
            written = self._write(base, location, pieces, fields)
            advanced = (ledger or Ledger()).advanced(topic_ids, plan.ranges)
            snapshot_id = self._commit(base, written, fields, advanced, plan)
        except CommitUnknownError:
            folder.abandon()
            raise
        except BaseException:
            folder.discard()
            raise
        folder.release()
        return self._result(base, snapshot_id, plan, written, removed)

    def _step(self, step: Step, done: int = 0, total: int = 0) -> None:
        self._report(LoadProgress(self._table_name, step, done, total))

    def _check_format(self, base: TableBase) -> None:
        if base.format not in (None, self._settings.value_format):
            raise ConfigurationError(
                f"table {base.name} was loaded with format {base.format}: go on with that, or choose another table"
            )

    def _clean_up(self, location: Location) -> int:
        folder = location.local_folder
        if folder is None:
            return 0
        return len(remove_leftovers(folder, partial(self._warehouse.committed_loads, self._table_name)))

    def _ledger(self, base: TableBase) -> Ledger | None:
        """Return how far the table is loaded; None if nobody knows, and offsets to start from are given instead."""
        try:
            return base.ledger()
        except HistoryExpiredError:
            if not self._settings.starting_offsets:
                raise
            check_nothing_twice(self._settings.starting_offsets, base.next_offsets_of_rows())
            return None

    def _plan(self, topics: Sequence[str], ledger: Ledger | None) -> tuple[dict[str, str], TopicPlan]:
        """Return the topics' ids, and what to read of them all."""
        with open_admin(self._settings.bootstrap, self._settings.client_options) as admin:
            states = _describe(admin, topics)
        if ledger is None:
            check_all_starts_given(states, self._settings.starting_offsets)
        loaded = ledger.topics if ledger else {}
        starts = self._settings.starting_offsets
        plan = TopicPlan.together([plan_topic(now, loaded.get(now.name), starts) for now in states])
        if self._settings.fail_on_data_loss:
            check_nothing_missing(plan.lost)
        return {now.name: now.topic_id for now in states}, plan

    def _pieces(self, plan: TopicPlan) -> list[OffsetRange]:
        return split_ranges(
            plan.ranges,
            partitions_min=self._settings.partitions_min or self._spark.sparkContext.defaultParallelism,
            records_max=self._settings.records_per_task_max,
        )

    def _fields(self, base: TableBase, pieces: Sequence[OffsetRange]) -> Mapping[str, ColumnType] | None:
        """Return the fields to decode: the table's, for a new one those given, else those of the records."""
        if self._settings.value_format == "raw":
            return None
        if base.exists:
            self._check_fields(base)
            return base.fields
        if self._settings.fields is not None:
            return self._settings.fields
        found = self._run("inferring", pieces, partial(_infer, self._reading))
        named = islice(merge_fields(found).items(), FIELDS_MAX)
        return {name: column_type or "string" for name, column_type in named}

    def _check_fields(self, base: TableBase) -> None:
        wanted = self._settings.fields
        if wanted is not None and dict(wanted) != base.fields:
            raise ConfigurationError(
                f"table {base.name} has other fields than those given, and they stay: "
                f"{json.dumps(base.fields, ensure_ascii=False)}; give none (fields, --fields), or another table"
            )

    def _claim(self, location: Location) -> LoadFolder | RemoteFolder:
        """Return this load's own folder."""
        folder = location.local_folder
        if folder is None:
            return RemoteFolder()
        try:
            return LoadFolder.claim(folder, self._load_id)
        except OSError as error:
            raise WarehouseError(f"table {self._table_name} is as before: cannot write: {error}") from error

    def _write(
        self,
        base: TableBase,
        location: Location,
        pieces: Sequence[OffsetRange],
        fields: Mapping[str, ColumnType] | None,
    ) -> list[Written]:
        columns = base.column_names if base.exists else column_names(fields or ())
        writing = Writing(f"{location.uri}/data/{self._load_id}", dict(location.properties), fields, columns)
        return self._run("writing", pieces, partial(_write, self._reading, writing))

    def _run(
        self, step: Step, pieces: Sequence[OffsetRange], work: Callable[[OffsetRange, int], ResultT | Failed]
    ) -> list[ResultT]:
        """Run a step on the executors, and raise the first failure."""
        if not pieces:
            return []
        total = sum(piece.count for piece in pieces)
        self._step(step, 0, total)
        results = run_tasks(
            self._spark, pieces, work, weight=_count, on_done=lambda done: self._step(step, done, total)
        )
        good = []
        for result in results:
            if isinstance(result, Failed):
                raise _ERRORS[result.kind](f"table {self._table_name} is as before: {result.message}")
            good.append(result)
        self._step(step, total, total)
        return good

    def _commit(
        self,
        base: TableBase,
        written: Sequence[Written],
        fields: Mapping[str, ColumnType] | None,
        ledger: Ledger,
        plan: TopicPlan,
    ) -> int:
        files = [file.path for task in written for file in task.files]
        records = sum(task.records for task in written)
        self._step("committing", records, records)
        properties = snapshot_properties(self._load_id, ledger, plan.ranges, records, plan.missing)
        return base.commit(files, properties, fields)

    def _result(
        self, base: TableBase, snapshot_id: int, plan: TopicPlan, written: Sequence[Written], removed: int
    ) -> TableLoad:
        records = sum(task.records for task in written)
        self._step("done", records, records)
        return TableLoad(
            table=base.name,
            snapshot_id=snapshot_id,
            records=records,
            ranges=tuple(wanted for wanted in plan.ranges if wanted.count),
            files=sum(len(task.files) for task in written),
            kept_values=sum(task.kept_values for task in written),
            missing=plan.missing,
            leftovers_removed=removed,
        )


# Functions of the module, not methods: they are sent to the executors, and a loader cannot be.


def _infer(reading: Reading, wanted: OffsetRange, _attempt_id: int) -> Fields | Failed:
    return infer_range(wanted, reading)


def _write(reading: Reading, writing: Writing, wanted: OffsetRange, attempt_id: int) -> Written | Failed:
    return write_range(wanted, reading, writing, attempt_id)


def _count(wanted: OffsetRange) -> int:
    return wanted.count


def _describe(admin: Admin, topics: Sequence[str]) -> list[TopicNow]:
    known = {topic.name: topic for topic in admin.describe_topics()}
    unknown = [name for name in topics if name not in known]
    if unknown:
        raise ConfigurationError(f"topic {unknown[0]!r} does not exist: see `barnabas topic list`")
    partitions = [TopicPartition(name, part.partition) for name in topics for part in known[name].partitions]
    first, last = admin.beginning_offsets(partitions), admin.end_offsets(partitions)
    return [
        TopicNow(
            name=name,
            topic_id=str(known[name].id or ""),
            first_offsets={tp.partition: first[tp] for tp in partitions if tp.topic == name},
            end_offsets={tp.partition: last[tp] for tp in partitions if tp.topic == name},
        )
        for name in topics
    ]
