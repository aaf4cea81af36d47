"""`load`: loads topics into tables, each record once, from the end of the last load (paper, section 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from barnabas.errors import ConfigurationError
from barnabas.formats.column_types import ColumnType, check_type
from barnabas.formats.decoding import KEEP_VALUES, KeepValues
from barnabas.formats.event_time import EventTime
from barnabas.formats.json_fields import JsonRules
from barnabas.formats.times import checked_zone
from barnabas.formats.value_format import RAW
from barnabas.model import TopicPartition
from barnabas.serialization.value_decoders import value_decoder
from barnabas.spark.bad_records import BadRecordLimit
from barnabas.spark.errors import LoadsFailedError
from barnabas.spark.load_types import LoadResult, LoadSettings, ProgressCallback, TableLoad
from barnabas.spark.range_reading import check_reachable
from barnabas.spark.session import LocalSessions, Sessions
from barnabas.spark.spark_catalogs import place_of
from barnabas.spark.table_formats import open_place
from barnabas.spark.table_load import TableLoader
from barnabas.spark.table_names import tables_of_topics
from barnabas.spark.table_place import ICEBERG
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
    keep_values: KeepValues = "bad",
    max_bad_records: int | str | None = None,
    strict: bool = False,
    target_file_bytes: int | None = None,
    starting_offsets: Mapping[TopicPartition, int] | None = None,
    fail_on_data_loss: bool = True,
    partitions_min: int | None = None,
    records_per_task_max: int = 1_000_000,
    client_options: Mapping[str, str] | None = None,
    on_progress: ProgressCallback | None = None,
    tracer_provider: TracerProvider | None = None,
) -> LoadResult:
    """Load what is new in topics into a table, in one commit.

    :param topics: one or several; without `table`, each goes into a table named after it. What one of these tables
        ends with does not stop the others.
    :param bootstrap: `"host:port"` of one or several brokers; `client_options`: settings under Kafka's dotted names.
    :param warehouse: folder of the embedded warehouse; or `catalog`: a catalog of pyiceberg's configuration.
        `catalog_properties` (`uri`, `s3.endpoint`, ...; pyiceberg names them) go before those of its configuration.
        With a catalog `warehouse` is where it puts new tables. `table`: `"table"` or `"namespace.table"`; without these
        three `"catalog.namespace.table"`, where Spark's settings (`spark.sql.catalog.*`) may have the catalog too.
    :param table_format: `iceberg`; or `delta`, which needs no catalog, and whose `warehouse` may be in S3.
    :param spark: the session to run in, or what gives one when it is needed; None: a local one that is stopped again,
        and which is not even started where there is work for one task only: this process does it.
    :param format: `raw` keeps values as bytes; `json`, `avro` and `protobuf` decode their fields into columns,
        `lines:PATTERN` the groups of a pattern: a named one (`common`, `syslog`, ...) or a regular expression.
    :param fields: the fields and their types, for a table that is new; None finds out from the records.
    :param nested: for a new table: objects and arrays of JSON are structs and lists. `decimals`: numbers with a
        fraction are decimals. `new_fields`: fields that appear later get a column; None: unless `fields` are given.
    :param event_time: for a new table, where its event times come from: `record`, `line`, a field, a path to a field
        within objects (`source.ts_ms`), or `FIELD:UNIT` (s, ms, us, ns). None for the group `time` of a pattern, else
        the record's timestamp.
    :param timezone: for a new table, the zone of event times that name none, `Europe/Berlin` or `+02:00`; None is UTC.
    :param dead_letter: a topic for copies of bad records, `dead_letter_table`: a table for them; made if need be.
    :param audit: whether the audit is told what is loaded (docs/how-to/audit.md); None: if anybody tells it anything.
    :param registry: url of the schema registry, for avro, protobuf, and JSON with schema ids; executors ask it too.
    :param keep_values: which values stay whole in the column `value` where they are decoded: `bad`, those that the
        columns do not give back by value; `all`; `none`, so that what the columns do not give back is not in the table.
    :param max_bad_records: how many records may be bad: a count, or a share as `"0.5%"`; None: any number. A load that
        has more commits nothing.
    :param strict: raise where no record of the load has the field of the event time. For a new table that is an error
        in any case.
    :param target_file_bytes: about how large files become; None: as the table says.
    :param starting_offsets: where to start partitions of which the table knows nothing; else at the log's start.
        After a `HistoryExpiredError` they must name every partition of the topics.
    :param fail_on_data_loss: whether it is an error that records were deleted before they were loaded.
    :param tracer_provider: makes a span of each load, with links to those that sent its records; None: there are none.
    :param partitions_min: about so many tasks, None for as many as run at once; `records_per_task_max`: of one task.
    :raises LoadsFailedError: of several tables some could not be loaded; it says which, and what was loaded.
    :raises LoadError: it could not be done; the table is as before. errors.py has the kinds of it.
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
        registry=registry,
        dead_letter_table=dead_letter_table,
        target_file_bytes=target_file_bytes,
        max_bad_records=None if max_bad_records is None else BadRecordLimit.parse(max_bad_records),
        strict=strict,
        keep_values=keep_values,
    )
    _check(settings, names)
    session = None if callable(spark) else spark
    place = place_of(table, session, warehouse, catalog, catalog_properties, table_format)
    target = open_place(place)
    report = on_progress or (lambda progress: None)
    return _load_groups(names, table, target, settings, report, spark, tracer_provider)


def _load_groups(
    topics: list[str],
    table: str | None,
    target: TableStore,
    settings: LoadSettings,
    report: ProgressCallback,
    given: SparkSession | Sessions | None,
    tracer_provider: TracerProvider | None,
) -> LoadResult:
    """Load the topics of each table in the given session, or in one of its own that is stopped afterwards."""
    groups = {table: topics} if table else {name: [topic] for name, topic in tables_of_topics(topics).items()}
    with _sessions(given) as sessions:

        def load_table(name: str, group: list[str]) -> TableLoad:
            loader = TableLoader(sessions, target, name, settings, report)
            run = partial(loader.run, group, is_named_after=None if table else group[0])
            if tracer_provider is None:
                return run()
            # OpenTelemetry is there, or nobody could pass a provider.
            from barnabas.spark.load_tracing import traced  # noqa: PLC0415

            return traced(run, group, settings, tracer_provider)

        return load_each(groups, load_table)


@contextmanager
def _sessions(given: SparkSession | Sessions | None) -> Iterator[Sessions]:
    """Yield what gives the session; one that was started here is stopped at the end."""
    if given is not None:
        # A session of Spark Connect is of another class than others.
        yield given if callable(given) else lambda: given
        return
    own = LocalSessions("barnabas load")
    try:
        yield own
    finally:
        own.close()


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


def _check(settings: LoadSettings, topics: Sequence[str]) -> None:
    """Raise what is wrong before anything is opened or started.

    :raises TimedOutError: nobody listens at the brokers' addresses.
    """
    if not topics:
        raise ConfigurationError("name at least one topic to load")
    value_decoder(settings.value_format, settings.rules, settings.registry)
    for name, column_type in (settings.fields or {}).items():
        check_type(name, column_type)
    if settings.keep_values not in KEEP_VALUES:
        raise ConfigurationError(
            f"keep_values (--keep-values): {settings.keep_values!r} is not there: give {', '.join(KEEP_VALUES)}"
        )
    if settings.keep_values == "none" and settings.value_format == RAW:
        raise ConfigurationError("keep_values none (--keep-values none) is for values that are decoded; these are raw")
    if settings.fields is not None and settings.value_format == RAW:
        raise ConfigurationError("fields (--fields) are for values that are decoded: format json (--format json)")
    for partition, offset in settings.starting_offsets.items():
        if offset < 0:
            raise ConfigurationError(f"starting_offsets: {offset} for {partition} is no offset")
    if settings.target_file_bytes is not None and settings.target_file_bytes < 1:
        raise ConfigurationError(f"target_file_bytes: {settings.target_file_bytes} is no size of a file")
    if settings.dead_letter in topics:
        raise ConfigurationError(
            f"dead_letter (--dead-letter): {settings.dead_letter!r} is what is loaded; name another"
        )
    check_reachable(settings.bootstrap, settings.client_options)
