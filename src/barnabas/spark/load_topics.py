"""The function `load`: loads topics into tables, each record once, from the end of the last load (paper, section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ConfigurationError
from barnabas.formats.column_types import ColumnType, check_type
from barnabas.formats.decoding import KEEP_VALUES, KeepValues
from barnabas.formats.event_time import EventTime
from barnabas.formats.json_fields import JsonRules
from barnabas.formats.line_times import LineTimes
from barnabas.formats.times import checked_zone
from barnabas.formats.upsert_rules import UpsertRules
from barnabas.formats.value_format import JSON, LINES, RAW
from barnabas.model import TopicPartition
from barnabas.serialization.registry_settings import RegistrySettings
from barnabas.serialization.value_decoders import AVRO, PROTOBUF, value_decoder
from barnabas.spark.bad_records import BadRecordLimit
from barnabas.spark.errors import LoadsFailedError
from barnabas.spark.layout_syntax import parse_partition, parse_sort
from barnabas.spark.load_bounds import check_bounds
from barnabas.spark.load_types import DELETE_MEMORY, Bound, LoadResult, LoadSettings, ProgressCallback, TableLoad
from barnabas.spark.range_reading import check_client_settings, check_reachable
from barnabas.spark.run_ids import check_run_id
from barnabas.spark.session import LocalSessions, Sessions
from barnabas.spark.spark_catalogs import place_of
from barnabas.spark.table_formats import open_place
from barnabas.spark.table_load import TableLoader
from barnabas.spark.table_names import parse_table_name, tables_of_topics
from barnabas.spark.table_place import ICEBERG, UNNAMED_CATALOG, TablePlace
from barnabas.spark.table_store import TableStore

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider


def load(
    topics: str | Sequence[str],
    *,
    bootstrap: str,
    warehouse: str | Path | None = None,
    catalog: str | None = None,
    catalog_properties: Mapping[str, str] | None = None,
    table_format: str = ICEBERG,
    table: str | None = None,
    spark: SparkSession | Sessions | None = None,
    format: str = RAW,  # noqa: A002  # the name that Spark's users expect
    fields: Mapping[str, ColumnType] | None = None,
    nested: bool = False,
    decimals: bool = False,
    event_time: str | None = None,
    timezone: str | None = None,
    new_fields: bool | None = None,
    dead_letter: str | None = None,
    dead_letter_table: str | None = None,
    audit: bool | None = None,
    registry: str | None = None,
    registry_options: Mapping[str, str] | None = None,
    partition_by: str | Sequence[str] | None = None,
    sort_by: str | Sequence[str] | None = None,
    keep_values: KeepValues = "bad",
    upsert: str | Sequence[str] | None = None,
    op: str | None = None,
    order_by: str | None = None,
    delete: str | None = None,
    envelope: str | None = None,
    delete_memory: timedelta | None = None,
    max_bad_records: int | str | None = None,
    strict: bool = False,
    target_file_bytes: int | None = None,
    starting_offsets: Mapping[TopicPartition, int] | None = None,
    fail_on_data_loss: bool = True,
    run_id: str | None = None,
    until: Bound | None = None,
    backfill_from: Bound | None = None,
    backfill_to: Bound | None = None,
    partitions_min: int | None = None,
    records_per_task_max: int = 1_000_000,
    client_options: Mapping[str, str] | None = None,
    on_progress: ProgressCallback | None = None,
    tracer_provider: TracerProvider | None = None,
    check_source: Callable[[], object] | None = None,
) -> LoadResult:
    """Load the new records of topics into tables, in one commit per table.

    A load starts at the offsets that the last commit to the table recorded. Data and offsets are committed together, so
    a load that fails can be repeated.

        result = barnabas.spark.load("clicks", bootstrap="localhost:9092", warehouse="./warehouse", format="json")
        print(result.records)

    :param topics: The name of a topic, or a list of names. Without `table`, each topic is loaded into a table named
        after the topic, and a failure of one table does not stop the loads of the others.
    :param bootstrap: `"host:port"` of one or more brokers, separated by commas.
    :param warehouse: The directory of the embedded warehouse. With `catalog`, the location of new tables.
    :param catalog: The name of a catalog in pyiceberg's configuration.
    :param catalog_properties: Properties of the catalog (`uri`, `s3.endpoint`, ...; pyiceberg defines them). They
        override pyiceberg's configuration.
    :param table_format: `iceberg` or `delta`. Delta tables need no catalog, and their `warehouse` may be in S3.
    :param table: `"table"` or `"namespace.table"`. `"catalog.namespace.table"` replaces `warehouse`, `catalog` and
        `catalog_properties`; the catalog is configured in pyiceberg or in Spark (`spark.sql.catalog.*`).
    :param spark: The Spark session, or a function that returns one when the load needs it. None starts a local session
        and stops it afterwards; a load with work for a single task runs in this process, without Spark.
    :param format: `raw` keeps values as bytes. `json`, `avro` and `protobuf` decode the fields of values into columns.
        `lines:PATTERN` matches lines with a named pattern (`common`, `syslog`, ...) or a regular expression.
    :param fields: For a new table: column types by field name. None infers them from the records.
    :param nested: For a new table: True turns JSON objects and arrays into structs and lists.
    :param decimals: For a new table: True turns numbers with a fraction into decimals.
    :param event_time: For a new table: the source of event times. `record`, `line`, a field, a path to a nested field
        (`source.ts_ms`), or `FIELD:UNIT` with the unit s, ms, us or ns. None uses the group `time` of a pattern, or
        the record's timestamp if there is no such group.
    :param timezone: For a new table: the time zone of event times without a zone, `Europe/Berlin` or `+02:00`. None is
        UTC.
    :param new_fields: For a new table: True adds a column for each field that appears in a later load. None means True
        unless `fields` is given.
    :param dead_letter: The topic that gets copies of bad records; created if it does not exist.
    :param dead_letter_table: The table that gets a row per bad record; created if it does not exist.
    :param audit: True publishes audit events about the loaded records (docs/how-to/audit.md). None publishes them if
        the topic has audit events of other clients.
    :param registry: The URL of the schema registry, for avro, protobuf, and JSON with schema ids. Executors query it,
        too.
    :param registry_options: Credentials and certificates for the registry: `username`, `password`, `token`,
        `ssl_cafile`, `ssl_certfile`, `ssl_keyfile` and `ssl_password`. A secret may name its source, such as
        `${file:PATH}`, which each executor then reads.
    :param partition_by: For a new table: the partitions, such as `"hour(event_time), bucket(16, user_id)"`, or a list.
        An empty one creates a table without partitions. None uses the UTC day of the event time.
    :param sort_by: For a new table: the order of the rows in each file, such as `"user_id, event_time desc"`.
    :param keep_values: The values that are also kept whole in the column `value`: `bad` keeps values that the columns
        cannot reproduce, `all` keeps every value, `none` keeps no value.
    :param upsert: The key columns of a state table, which has only the last change of each key: `"id"`, or a list. None
        for a table with a row for each record.
    :param op: With `upsert`: the field with the operation.
    :param order_by: With `upsert`: the order of the changes of a key: `offset` (the default), `ts` for the records'
        timestamps, or a field such as `updated_at` or `source.ts_ms`.
    :param delete: With `upsert`: the records that delete a row: `tombstone` (the default), `op=d` for a value of the
        field `op`, both with a comma, or `never`.
    :param envelope: With `upsert`: the change events around the rows: `none`, `debezium` or `maxwell`.
    :param delete_memory: With `upsert`: the time for which the table `NAME__deleted` remembers deleted keys, so that an
        older change that arrives late does not restore the row. None is 7 days, zero no memory.
    :param max_bad_records: The maximum number of bad records, as a count or a share such as `"0.5%"`. None if there is
        no limit. A load with more bad records commits nothing.
    :param strict: True raises an error if no record has the event-time field. A load into a new table always raises it.
    :param target_file_bytes: The approximate size of large data files, in bytes. None uses the property of the table.
    :param starting_offsets: The first offset of each partition without a recorded offset; by default the log start
        offset. After a `HistoryExpiredError` it must name every partition of the topics.
    :param fail_on_data_loss: True raises `DataLossError` if the log lost records that no load has read.
    :param run_id: An id for this run. A table that a load with this id has committed to gets nothing; the result is
        that of the earlier load.
    :param until: The end of the load: offsets of partitions, or a time in ms since 1970. None is the end of the log.
    :param backfill_from: The start of a backfill, with `backfill_to`: offsets, or a time in ms. A backfill loads a
        range once, and leaves the offsets at which loads continue unchanged.
    :param backfill_to: The end of a backfill.
    :param partitions_min: The approximate number of tasks. None uses the number of tasks that Spark runs at a time.
    :param records_per_task_max: The maximum number of records per task.
    :param client_options: Client settings under Kafka's dotted names.
    :param on_progress: A function that is called with a `LoadProgress`, possibly from another thread.
    :param tracer_provider: Creates an OpenTelemetry span per load, with links to the spans of the producers. None
        creates no spans.
    :param check_source: A function that is called once, after all checks of arguments and before the first access to a
        topic or table. It raises an exception to end the load. None checks that a broker answers.
    :return: The records, files and offsets that the load added to each table.
    :raises LoadsFailedError: Some of several tables failed. The exception has the failures and the loaded tables.
    :raises LoadError: The load of the only table failed; the table is unchanged. `barnabas.spark.errors` has the
        subclasses.
    :raises ConfigurationError: An argument is invalid.
    :raises TimedOutError: No broker answers at the `bootstrap` addresses.
    """
    names = [topics] if isinstance(topics, str) else list(dict.fromkeys(topics))
    settings = LoadSettings(
        bootstrap=bootstrap,
        value_format=format,
        fields=fields,
        starting_offsets=starting_offsets or {},
        fail_on_data_loss=fail_on_data_loss,
        partitions_min=partitions_min,
        records_per_task_max=records_per_task_max,
        client_options=client_options or {},
        rules=JsonRules(nested, decimals),
        event_time=None if event_time is None else EventTime.parse(event_time),
        timezone=None if timezone is None else checked_zone(timezone),
        takes_new_fields=new_fields,
        dead_letter=dead_letter,
        audit=audit,
        registry=_registry(registry, registry_options),
        dead_letter_table=dead_letter_table,
        target_file_bytes=target_file_bytes,
        max_bad_records=None if max_bad_records is None else BadRecordLimit.parse(max_bad_records),
        strict=strict,
        keep_values=keep_values,
        partition_by=None if partition_by is None else parse_partition(partition_by),
        sort_by=None if sort_by is None else parse_sort(sort_by),
        run_id=None if run_id is None else check_run_id(run_id),
        until=until,
        backfill=check_bounds(until, backfill_from, backfill_to, names, SYSTEM_CLOCK.time_ms()),
        upsert=_upsert(upsert, op, order_by, delete, envelope),
        delete_memory=DELETE_MEMORY if delete_memory is None else delete_memory,
    )
    _check(settings, names)
    session = None if callable(spark) else spark
    place = place_of(table, session, warehouse, catalog, catalog_properties, table_format)
    groups = {table: names} if table else {name: [topic] for name, topic in tables_of_topics(names).items()}
    _check_table_names(groups, dead_letter_table, place)
    # All arguments are checked before the first connection to a broker: a caller must not retry a wrong argument. Only
    # opening a catalog checks its name; opening a directory creates it, which a load without brokers must not do.
    target = open_place(place) if place.has_catalog else None
    if check_source is None:
        check_reachable(settings.bootstrap, settings.client_options)
    else:
        check_source()
    target = target or open_place(place)
    report = on_progress or (lambda progress: None)
    return _load_groups(groups, bool(table), target, settings, report, spark, tracer_provider)


def _upsert(
    keys: str | Sequence[str] | None, op: str | None, order_by: str | None, delete: str | None, envelope: str | None
) -> UpsertRules | None:
    """Return the rules of a state table.

    :raises ConfigurationError: a rule is invalid, or there are no keys.
    """
    if keys is not None:
        return UpsertRules.of(keys, op, order_by, delete, envelope)
    given = {"op": op, "order_by": order_by, "delete": delete, "envelope": envelope}
    name = next((name for name, value in given.items() if value is not None), None)
    if name is not None:
        raise ConfigurationError(
            f"{name} (--{name.replace('_', '-')}) needs the key columns of a state table: upsert (--upsert)"
        )
    return None


def _registry(url: str | None, options: Mapping[str, str] | None) -> RegistrySettings | None:
    """Return the settings of the registry.

    :raises ConfigurationError: a setting is not valid, or there is no URL.
    """
    if url is None:
        if options:
            raise ConfigurationError("registry_options need the URL of a schema registry (registry)")
        return None
    return RegistrySettings.of(url, options or {})


def _load_groups(
    groups: Mapping[str, list[str]],
    is_named: bool,
    target: TableStore,
    settings: LoadSettings,
    report: ProgressCallback,
    given: SparkSession | Sessions | None,
    tracer_provider: TracerProvider | None,
) -> LoadResult:
    """Load the topics of each table in the given session, or in a new session that is stopped afterwards.

    :param groups: The topics of each table.
    :param is_named: True if the caller named the table.
    """
    with _sessions(given) as sessions:

        def load_table(name: str, group: list[str]) -> TableLoad:
            loader = TableLoader(sessions, target, name, settings, report)
            run = partial(loader.run, group, is_named_after=None if is_named else group[0])
            if tracer_provider is None:
                return run()
            # A caller with a tracer provider has OpenTelemetry; the import is not optional here.
            from barnabas.spark.load_tracing import traced  # noqa: PLC0415

            return traced(run, group, settings, tracer_provider)

        return load_each(groups, load_table)


@contextmanager
def _sessions(given: SparkSession | Sessions | None) -> Iterator[Sessions]:
    """Yield a function that returns the session. A session that this function starts is stopped at the end."""
    if given is not None:
        # isinstance(given, SparkSession) does not identify a Spark Connect session: its class is another one.
        yield given if callable(given) else lambda: given
        return
    own = LocalSessions("barnabas load")
    try:
        yield own
    finally:
        own.close()


def load_each(groups: Mapping[str, list[str]], load_table: Callable[[str, list[str]], TableLoad]) -> LoadResult:
    """Load each table, and continue with the next table after a failure.

    :raises LoadsFailedError: Some of several tables failed. The failure of a single table is raised unchanged.
    """
    done: list[TableLoad] = []
    failures: dict[str, Exception] = {}
    for name, group in groups.items():
        try:
            done.append(load_table(name, group))
        except Exception as error:  # any failure: LoadsFailedError reports it after the other tables are loaded
            if len(groups) == 1:
                raise
            failures[name] = error
    result = LoadResult(tuple(done))
    if failures:
        raise LoadsFailedError(result, failures)
    return result


def _check(settings: LoadSettings, topics: Sequence[str]) -> None:
    """Check the settings before anything is opened or started.

    :raises ConfigurationError: A setting is invalid.
    """
    if not topics:
        raise ConfigurationError("name at least one topic to load")
    _check_format(settings)
    if settings.keep_values not in KEEP_VALUES:
        raise ConfigurationError(
            f"keep_values (--keep-values): unknown value {settings.keep_values!r}; use {', '.join(KEEP_VALUES)}"
        )
    if settings.keep_values == "none" and settings.value_format == RAW:
        raise ConfigurationError(
            "keep_values none (--keep-values none) needs decoded values, and the format is raw; choose another format"
        )
    if settings.upsert is not None:
        _check_upsert(settings)
    for partition, offset in settings.starting_offsets.items():
        if offset < 0:
            raise ConfigurationError(f"starting_offsets: invalid offset {offset} of {partition}; use 0 or more")
    if settings.backfill is not None and settings.starting_offsets:
        raise ConfigurationError("a backfill has its own start, backfill_from (--from): omit starting_offsets")
    if settings.backfill is not None and settings.audit:
        raise ConfigurationError("a backfill is not reported to the audit: omit audit (--audit)")
    if settings.target_file_bytes is not None and settings.target_file_bytes < 1:
        raise ConfigurationError(f"target_file_bytes: invalid size {settings.target_file_bytes}; use 1 or more")
    if settings.dead_letter in topics:
        raise ConfigurationError(
            f"dead_letter (--dead-letter): {settings.dead_letter!r} is one of the loaded topics; use another topic"
        )
    check_client_settings(settings.bootstrap, settings.client_options)


def _check_format(settings: LoadSettings) -> None:
    """Check the format of the values, the given fields and the source of event times.

    :raises ConfigurationError: A setting is invalid, or does not match the format.
    """
    value_decoder(settings.value_format, settings.rules, settings.registry)
    if settings.event_time is not None and settings.value_format.startswith(f"{LINES}:"):
        LineTimes.of(settings.value_format, str(settings.event_time))
    for name, column_type in (settings.fields or {}).items():
        check_type(name, column_type)
    if settings.fields is not None and settings.value_format == RAW:
        raise ConfigurationError("fields (--fields) need decoded values, and the format is raw; use --format json")


def _check_table_names(names: Iterable[str], dead_letter_table: str | None, place: TablePlace) -> None:
    """Check the names of tables before their catalog is opened.

    :raises ConfigurationError: A name is invalid at this location, or the table for bad records is a loaded table.
    """
    catalog = place.catalog or UNNAMED_CATALOG if place.has_catalog else None
    loaded = {parse_table_name(name, catalog) for name in names}
    if dead_letter_table and parse_table_name(dead_letter_table, catalog) in loaded:
        raise ConfigurationError(
            f"dead_letter_table (--dead-letter-table): {dead_letter_table} is the loaded table itself; choose another "
            "table"
        )


def _check_upsert(settings: LoadSettings) -> None:
    """Check the settings of a state table.

    :raises ConfigurationError: A setting needs a table with a row for each record.
    """
    if settings.value_format not in (JSON, AVRO, PROTOBUF):
        raise ConfigurationError(
            f"upsert (--upsert) needs rows with columns, and the format is {settings.value_format}; use --format json, "
            "avro or protobuf"
        )
    if settings.event_time is not None or settings.timezone is not None:
        raise ConfigurationError(
            "event_time and timezone (--event-time, --timezone): a state table (--upsert) has no event days"
        )
    if settings.partition_by is not None or settings.sort_by is not None:
        raise ConfigurationError(
            "partition_by and sort_by (--partition-by, --sort-by): the files of a state table (--upsert) are sorted by "
            "key, without partitions"
        )
    if settings.keep_values != "bad":
        raise ConfigurationError(
            "keep_values (--keep-values): a state table (--upsert) has no whole values; load the history into another "
            "table"
        )
    if settings.delete_memory < timedelta(0):
        raise ConfigurationError("delete_memory (--delete-memory) is negative; use 0 or more")
