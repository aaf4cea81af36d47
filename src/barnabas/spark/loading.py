"""`load`: topics into Iceberg tables, each record once, going on where the last load ended (paper, section 4)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import get_args

from pyspark.sql import SparkSession

from barnabas.errors import ConfigurationError
from barnabas.model import TopicPartition
from barnabas.spark.errors import LoadsFailedError
from barnabas.spark.json_fields import ARROW_TYPES, ColumnType
from barnabas.spark.load_types import LoadResult, LoadSettings, ProgressCallback, TableLoad, ValueFormat
from barnabas.spark.session import local_session, stop_session
from barnabas.spark.table_load import TableLoader
from barnabas.spark.warehouse import Warehouse, tables_of_topics


def load(
    topics: str | Sequence[str],
    *,
    bootstrap: str,
    warehouse: str | Path | None = None,
    catalog: str | None = None,
    table: str | None = None,
    spark: SparkSession | None = None,
    format: ValueFormat = "raw",  # noqa: A002  # the name that Spark's users expect
    fields: Mapping[str, ColumnType] | None = None,
    starting_offsets: Mapping[TopicPartition, int] | None = None,
    fail_on_data_loss: bool = True,
    partitions_min: int | None = None,
    records_per_task_max: int = 1_000_000,
    client_options: Mapping[str, str] | None = None,
    on_progress: ProgressCallback | None = None,
) -> LoadResult:
    """Load what is new in topics into an Iceberg table, in one commit.

    :param topics: one or several; without `table`, each goes into a table named after it. What one of these tables
        ends with does not stop the others.
    :param bootstrap: `"host:port"` of one or several brokers.
    :param warehouse: folder of the embedded warehouse; or `catalog`: a catalog of pyiceberg's configuration.
    :param table: `"table"` or `"namespace.table"`.
    :param spark: the session to run in; None starts a local one and stops it at the end.
    :param format: `raw` keeps values as bytes; `json` decodes their top-level fields into columns.
    :param fields: the JSON fields and their types, for a table that is new; None finds out from the records.
    :param starting_offsets: where to start partitions of which the table knows nothing; else at the log's start.
        After a `HistoryExpiredError` they must name every partition of the topics.
    :param fail_on_data_loss: whether it is an error that records were deleted before they were loaded.
    :param partitions_min: at least about so many Spark tasks; None for as many as Spark runs at once.
    :param records_per_task_max: no task reads more.
    :param client_options: settings of the client under Kafka's dotted names.
    :raises LoadConflictError: somebody else changed the table meanwhile; nothing was kept.
    :raises DataLossError: records are gone from the log that were never loaded.
    :raises RecreatedTopicError: a topic was deleted and created again since the last load.
    :raises LoadsFailedError: of several tables some could not be loaded; it says which, and what was loaded.
    :raises LoadError: it could not be done; the table is as before.
    """
    names = [topics] if isinstance(topics, str) else list(dict.fromkeys(topics))
    if not names:
        raise ConfigurationError("name at least one topic to load")
    settings = LoadSettings(
        bootstrap=bootstrap,
        value_format=format,
        fields=fields,
        starting_offsets=starting_offsets or {},
        fail_on_data_loss=fail_on_data_loss,
        partitions_min=partitions_min,
        records_per_task_max=records_per_task_max,
        client_options=client_options or {},
    )
    _check(settings)
    groups = {table: names} if table else {name: [topic] for name, topic in tables_of_topics(names).items()}
    target = Warehouse.open(warehouse, catalog=catalog)
    session = spark or local_session("barnabas load")
    report = on_progress or (lambda progress: None)

    def load_table(name: str, group: list[str]) -> TableLoad:
        loader = TableLoader(session, target, name, settings, report)
        return loader.run(group, is_named_after=None if table else group[0])

    try:
        return load_each(groups, load_table)
    finally:
        if spark is None:
            stop_session(session)


def load_each(groups: Mapping[str, list[str]], load_table: Callable[[str, list[str]], TableLoad]) -> LoadResult:
    """Load each table, whatever the others end with.

    :raises LoadsFailedError: some of several failed. The failure of a single table is raised as it is.
    """
    done: list[TableLoad] = []
    failures: dict[str, Exception] = {}
    for name, group in groups.items():
        try:
            done.append(load_table(name, group))
        except Exception as error:  # whatever it is, it is told, and the other tables are loaded
            if len(groups) == 1:
                raise
            failures[name] = error
    result = LoadResult(tuple(done))
    if failures:
        raise LoadsFailedError(result, failures)
    return result


def _check(settings: LoadSettings) -> None:
    if settings.value_format not in get_args(ValueFormat):
        raise ConfigurationError(f"format {settings.value_format!r} is none of {', '.join(get_args(ValueFormat))}")
    for name, column_type in (settings.fields or {}).items():
        if column_type not in ARROW_TYPES:
            raise ConfigurationError(f"fields: {name!r} has type {column_type!r}; there are {', '.join(ARROW_TYPES)}")
    if settings.fields is not None and settings.value_format == "raw":
        raise ConfigurationError("fields (--fields) are for values that are decoded: format json (--format json)")
    for partition, offset in settings.starting_offsets.items():
        if offset < 0:
            raise ConfigurationError(f"starting_offsets: {offset} for {partition} is no offset")
