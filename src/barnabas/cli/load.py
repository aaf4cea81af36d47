"""`barnabas load`: loads topics into warehouse tables with Spark, committing records and offsets in one snapshot."""

from __future__ import annotations

import json
import math
import re
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.connection import Connection
from barnabas.cli.error_messages import unknown_topic
from barnabas.cli.http_options import HttpPages, http_and_metrics_port_options
from barnabas.cli.load_report import (
    CommandFailedError,
    LoadCommand,
    current_report,
    exit_code_of_tables,
    exit_code_without_failures,
    message_of,
    nothing_new,
)
from barnabas.cli.name_completion import complete_topics
from barnabas.cli.options import (
    check_registry_url,
    connect,
    connection_options,
)
from barnabas.cli.signals import end_on_sigterm
from barnabas.cli.table_output import Row, show_json, show_table
from barnabas.cli.terminal_text import with_noun
from barnabas.cli.times import parse_time_ms, show_time_ms
from barnabas.cli.warehouse_options import place_options
from barnabas.clock import SYSTEM_CLOCK
from barnabas.exit_codes import EXIT_FAILED
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas.formats.column_types import ColumnType
    from barnabas.spark.load_types import Bound, LoadProgress, LoadResult, ProgressCallback, TableLoad
    from barnabas.spark.table_place import TablePlace
    from barnabas.spark.table_store import Maintained

PATTERN_NAMES = ("common", "combined", "syslog", "syslog5424", "nginx-error", "apache-error")
"""The pattern names of line_patterns.py, copied because importing that module requires pyarrow."""

MAINTAIN_EVERY_S = 3600.0

FORMATS_WITH_SCHEMAS = ("avro", "protobuf")
PARTITIONS_USUAL = 1_000
"""With more partitions, a load prints a warning."""


def _fields(_context: click.Context, _option: click.Parameter, given: str | None) -> dict[str, ColumnType] | None:
    """Return the fields and types of `--fields`; the load itself checks the types."""
    if given is None:
        return None
    try:
        fields = json.loads(given)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise click.UsageError("""--fields: give JSON, as in '{"page": "string", "ms": "long"}'""")
    return fields


def _offsets(_context: click.Context, _option: click.Parameter, given: str | None) -> dict[TopicPartition, int] | None:
    if given is None:
        return None
    from barnabas.spark.options import parse_offsets

    return parse_offsets("--starting-offsets", given)


def _bound(_context: click.Context, option: click.Parameter, given: str | None) -> Bound | None:
    """Return the offsets (JSON) or the time in ms of `--until`, `--from` or `--to`."""
    if given is None:
        return None
    name = option.opts[-1]
    if given.lstrip().startswith("{"):
        from barnabas.spark.options import parse_offsets

        return parse_offsets(name, given)
    try:
        return parse_time_ms(given)
    except ValueError as error:
        raise click.UsageError(f'{name}: {error}, or offsets: \'{{"clicks": {{"0": 23}}}}\'') from None


def _interval(_context: click.Context, _option: click.Parameter, given: str | None) -> float | None:
    if given is None:
        return None
    from barnabas.cli.times import parse_interval_s

    try:
        return parse_interval_s(given)
    except ValueError as error:
        raise click.UsageError(f"{_option.opts[-1]}: {error}") from None


def _maintenance_interval(context: click.Context, option: click.Parameter, given: str | None) -> float | None:
    if given == "never":
        return math.inf
    try:
        return _interval(context, option, given)
    except click.UsageError as error:
        raise click.UsageError(f"{error.message}; or never") from None


def _delete_memory(_context: click.Context, _option: click.Parameter, given: str | None) -> timedelta | None:
    if given is None:
        return None
    found = re.fullmatch(r"(\d{1,5})([smhd]?)", given)
    if found is None or (int(found[1]) and not found[2]):
        raise click.UsageError(f"--delete-memory: {given!r} is not a time; use for example 12h, 7d, or 0 for no memory")
    unit = {"s": "seconds", "m": "minutes", "h": "hours"}.get(found[2], "days")
    return timedelta(**{unit: int(found[1])})


def _until(_context: click.Context, _option: click.Parameter, given: str | None) -> int | None:
    if given is None:
        return None
    from barnabas.cli.load_until import parse_until_ms

    try:
        return parse_until_ms(given, SYSTEM_CLOCK.time_ms())
    except ValueError as error:
        raise click.UsageError(f"--until-complete: {error}") from None


@click.command(cls=LoadCommand)
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@place_options
@click.option("--table", metavar="[NAMESPACE.]NAME", help="One table for all topics.  [default: one table per topic]")
@click.option(
    "--format",
    metavar="FORMAT",
    default="raw",
    show_default=True,
    help="raw: values as bytes; json: fields as columns; avro, protobuf: the same, with schemas from --registry; "
    f"lines:PATTERN: groups of a pattern as columns: {', '.join(PATTERN_NAMES)}, or a regular expression with named "
    "groups.",
)
@click.option(
    "--registry",
    metavar="URL",
    callback=check_registry_url,
    help="Schema registry for avro, protobuf, and json with schema ids: https://HOST:PORT; separate several with "
    "commas. Give credentials with a profile or -X schema.registry.username=NAME.  [default: from the profile]",
)
@click.option(
    "--fields",
    metavar="JSON",
    callback=_fields,
    help="Fields and types of a new table: "
    """'{"page": "string", "ms": "long"}'.  [default: inferred from the records]""",
)
@click.option("--nested", is_flag=True, help="Store JSON objects and arrays of a new table as structs and lists.")
@click.option("--decimals", is_flag=True, help="Store fractional JSON numbers of a new table as decimals.")
@click.option(
    "--event-time",
    metavar="WHERE",
    help="Source of a new table's event times: record, line, a field, a path within objects (source.ts_ms), or "
    "FIELD:UNIT (s, ms, us, ns).  [default: record; for a pattern, the group `time`]",
)
@click.option(
    "--timezone",
    metavar="ZONE",
    help="Time zone of event times without one in a new table, such as Europe/Berlin or +02:00.  [default: UTC]",
)
@click.option(
    "--new-fields/--no-new-fields",
    default=None,
    help="Add columns to a new table for fields that appear later.  [default: unless --fields is given]",
)
@click.option(
    "--partition-by",
    metavar="COLUMNS",
    help="Partitions of a new table, such as 'hour(event_time), bucket(16, user_id)': columns, or year, month, day, "
    "hour, bucket(N, column) or truncate(W, column); '' for none.  [default: day(event_time)]",
)
@click.option(
    "--sort-by", metavar="COLUMNS", help="Order of the rows in each file of a new table: 'user_id, event_time desc'."
)
@click.option(
    "--dead-letter", metavar="TOPIC", help="Send copies of bad records to this topic, with the reason in headers."
)
@click.option(
    "--dead-letter-table",
    metavar="[NAMESPACE.]NAME",
    help="Also write each bad record with the reason to this table, which is created if necessary.",
)
@click.option(
    "--keep-values",
    type=click.Choice(["bad", "all", "none"]),
    default="bad",
    show_default=True,
    help="Keep whole values in addition to columns: those that the columns cannot restore, all, or none.",
)
@click.option(
    "--upsert",
    metavar="COLUMN[,COLUMN]",
    help="Load into a state table: only the last change of each key. Give the key columns.",
)
@click.option("--op", metavar="FIELD", help="With --upsert: field with the operation, such as __op.")
@click.option(
    "--order-by",
    metavar="FIELD|ts|offset",
    help="With --upsert: order of the changes of a key: a field (updated_at, source.ts_ms), the record timestamps, or "
    "the offsets.  [default: offset]",
)
@click.option(
    "--delete",
    metavar="RULE[,RULE]",
    help="With --upsert: records that delete a row: tombstone (null value), op=VALUE, or never.  [default: tombstone, "
    "with --op also op=d]",
)
@click.option(
    "--envelope",
    type=click.Choice(["none", "debezium", "maxwell"]),
    help="With --upsert: change events around the rows.  [default: none]",
)
@click.option(
    "--delete-memory",
    metavar="INTERVAL",
    callback=_delete_memory,
    help="With --upsert: time for which the table NAME__deleted remembers deleted keys (12h, 7d; 0 for none).  "
    "[default: 7d]",
)
@click.option(
    "--max-bad-records",
    metavar="N|N%",
    help="Commit nothing and exit with code 6 if a load has more bad records.  [default: no limit]",
)
@click.option("--strict", is_flag=True, help="Fail if no record of a load has the event-time field.")
@click.option(
    "--audit/--no-audit",
    default=None,
    help="Report loaded records for `barnabas audit`.  [default: if any producer reports]",
)
@click.option(
    "--starting-offsets",
    metavar="JSON",
    callback=_offsets,
    help="Start offsets of partitions that the table has not loaded: "
    """'{"clicks": {"0": 23}}'.  [default: the log start offset]""",
)
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss",
    default=True,
    show_default=True,
    help="Fail if records were deleted from the log after the last load.",
)
@click.option(
    "--run-id",
    metavar="ID",
    help="Id of this run. If a load with this id has committed, report its result and load nothing.",
)
@click.option(
    "--until",
    metavar="TIME|OFFSETS",
    callback=_bound,
    help="Load only records before this time or these offsets "
    """('{"clicks": {"0": 23}}').  [default: the end of the log]""",
)
@click.option(
    "--from",
    "backfill_from",
    metavar="TIME|OFFSETS",
    callback=_bound,
    help="With --to: load this range of the log once, and continue later loads where they were.",
)
@click.option("--to", "backfill_to", metavar="TIME|OFFSETS", callback=_bound, help="The end of the range of --from.")
@click.option("--fail-when-empty", is_flag=True, help="Exit with code 3 if no topic has new records.")
@click.option("--master", metavar="URL", default="local[*]", show_default=True, help="Spark master.")
@click.option(
    "--every",
    metavar="INTERVAL",
    callback=_interval,
    help="Repeat the load at this interval (30s, 1m, 2h) until Ctrl-C, SIGTERM or SIGHUP; failed loads are retried.",
)
@click.option(
    "--until-complete",
    "until_ms",
    metavar="TIME",
    callback=_until,
    help="Repeat the load until the tables have all records that audited producers sent before this time: HH:MM (UTC, "
    "today) or ISO 8601. The interval is 10 s, or that of --every.",
)
@click.option("--within", metavar="INTERVAL", callback=_interval, help="With --until-complete: time limit.")
@click.option(
    "--maintain-every",
    metavar="INTERVAL|never",
    callback=_maintenance_interval,
    help="With --every: interval of maintenance as in `table maintain`: merge small files, expire old data; or never.  "
    "[default: 1h]",
)
@click.option("--no-maintain", is_flag=True, help="With --every: the same as --maintain-every never.")
@click.option(
    "--target-file-mb",
    type=click.IntRange(1, 4096),
    help="Approximate target size of data files.  [default: the table's setting]",
)
@http_and_metrics_port_options
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON document, also about a failure; with --every, one object per line.",
)
@connection_options
def load(
    topics: tuple[str, ...],
    master: str,
    as_json: bool,
    every: float | None,
    until_ms: int | None,
    within: float | None,
    maintain_every: float | None,
    no_maintain: bool,
    target_file_mb: int | None,
    fail_when_empty: bool,
    http: HttpPages | None,
    connection: Connection,
    place: TablePlace,
    **asked: Any,
) -> None:
    """Load the new records of TOPICs into Iceberg or Delta tables.

    Each load starts where the last one ended. A killed load leaves the table unchanged. The failure of one table does
    not stop the others. Exit codes: 4 and 5 are worth a retry (another load, no answer), 1, 2 and 6 are not.

    \b
    barnabas load clicks --warehouse ./warehouse --format json
    barnabas load clicks --warehouse ./warehouse --format json --every 1m
    barnabas load clicks --warehouse ./warehouse --format json --until-complete 14:00 --within 30m
    """
    if within is not None and until_ms is None:
        raise click.UsageError("--within requires --until-complete TIME")
    maintain_every_s = _maintain_every_s(
        maintain_every, is_off=no_maintain, is_repeated=every is not None and until_ms is None
    )
    single = {"--fail-when-empty": fail_when_empty or None, "--run-id": asked["run_id"], "--until": asked["until"]}
    single |= {"--from": asked["backfill_from"], "--to": asked["backfill_to"]}
    _check_repetition(every, until_ms, {"--http": http}, single)
    target_file_bytes = None if target_file_mb is None else target_file_mb * 1024 * 1024
    asked |= {"bootstrap": connection.bootstrap, "client_options": connection.properties}
    asked |= {"target_file_bytes": target_file_bytes, **place.as_arguments()}
    if asked["registry"] is None and asked["format"] in FORMATS_WITH_SCHEMAS:
        asked["registry"] = connection.registry.get("url")
    if asked["registry"] is not None:
        asked["registry_options"] = connection.registry_options
    asked["tracer_provider"] = _tracer_provider()
    loads = _Loads(topics, master, place, asked)
    if until_ms is not None:
        _load_until(loads, until_ms, every, within, as_json)
        return
    if every is not None:
        _load_every(loads, every, maintain_every_s, http, connection, as_json)
        return
    end_on_sigterm()
    with _progress() as on_progress:
        try:
            result, failures = loads.run(on_progress, lambda: _check_source(connection, topics))
        finally:
            loads.close()
    code = (
        exit_code_of_tables(failures)
        if failures
        else exit_code_without_failures(result.tables, fail_when_empty=fail_when_empty)
    )
    if as_json:
        report = current_report()
        show_json(report.partly_failed(result.tables, failures) if failures else report.succeeded(result.tables, code))
    _show(result, failures, with_table=not as_json)
    if code:
        raise click.exceptions.Exit(code)


def _check_source(connection: Connection, topics: Collection[str]) -> None:
    """Check that a broker responds, and that at least one topic exists.

    :raises NoBrokerError: No broker responds.
    :raises UnknownTopicError: All topics are missing.
    :raises ApiError: The user may not describe a missing topic.
    """
    from barnabas.client.admin.topics import check_visible
    from barnabas.spark import UnknownTopicError

    with connect(connection) as admin:
        known = admin.list_topics(include_internal=True)
        if not set(topics).isdisjoint(known):
            return
        check_visible(admin, topics)
    raise UnknownTopicError(unknown_topic(next(iter(topics)), known).message)


def _maintain_every_s(given_s: float | None, *, is_off: bool, is_repeated: bool) -> float:
    """Return the interval of maintenance in seconds; infinite if there is none.

    :raises click.UsageError: The options contradict each other.
    """
    if (given_s is not None or is_off) and not is_repeated:
        option = "--no-maintain" if is_off else "--maintain-every"
        raise click.UsageError(f"{option} requires a repeated load: --every INTERVAL")
    if given_s is not None and is_off:
        raise click.UsageError("--no-maintain contradicts --maintain-every: give one of them")
    return math.inf if is_off else MAINTAIN_EVERY_S if given_s is None else given_s


def _check_repetition(
    every: float | None, until_ms: int | None, repeated: Mapping[str, object], single: Mapping[str, object]
) -> None:
    """Check the options that need `--every`, and those that a repeated load cannot have.

    :param repeated: the values of the options that need `--every`; None for an option that is not given.
    :param single: the values of the options of a single load.
    """
    if every is None or until_ms is not None:
        for option, value in repeated.items():
            if value is not None:
                raise click.UsageError(f"{option} requires a repeated load: --every INTERVAL")
    if every is not None or until_ms is not None:
        for option, value in single.items():
            if value is not None:
                raise click.UsageError(f"{option} is for a single load, without --every and --until-complete")


def _tracer_provider() -> object | None:
    """Return the tracer provider of this process; None if no OpenTelemetry SDK is loaded.

    `opentelemetry-instrument barnabas load ...` loads the SDK before the command begins.
    """
    if "opentelemetry.sdk.trace" not in sys.modules:
        return None
    from barnabas.client.tracing import provider_of_process

    provider: object = provider_of_process()
    return provider


def _load_every(
    loads: _Loads,
    interval_s: float,
    maintain_every_s: float,
    http: HttpPages | None,
    connection: Connection,
    as_json: bool,
) -> None:
    """Repeat the load until Ctrl-C, SIGTERM or SIGHUP, which abort a running load and leave its table unchanged."""
    from barnabas.cli.load_rounds import LoadRounds, as_line
    from barnabas.cli.maintenance_rounds import MaintenanceRounds
    from barnabas.net.status_server import serving_status

    def show(event: Mapping[str, object]) -> None:
        click.echo(json.dumps(event, ensure_ascii=False) if as_json else as_line(event))

    end_on_sigterm()
    maintenance = MaintenanceRounds(loads.maintain, maintain_every_s, SYSTEM_CLOCK)
    rounds = LoadRounds(loads.run, interval_s, show, SYSTEM_CLOCK, threading.Event().wait, maintenance)
    try:
        address, prove = (None, None) if http is None else (http.http, http.prover(connection.admin_settings))
        with serving_status(address, rounds.metrics.collect, rounds.metrics.not_ready, prove=prove):
            rounds.run()
    finally:
        loads.close()


def _load_until(loads: _Loads, until_ms: int, every_s: float | None, within_s: float | None, as_json: bool) -> None:
    """Repeat the load until the tables are complete; exit with code 1 if the time limit is reached first."""
    from barnabas.cli.load_until import INTERVAL_S, LoadUntil

    end_on_sigterm()
    commits: list[TableLoad] = []
    last: list[TableLoad] = []

    def show(result: LoadResult, failures: Mapping[str, Exception]) -> None:
        _show(result, failures, with_table=not as_json)
        commits.extend(load for load in result.tables if load.snapshot_id is not None)
        last[:] = [load for load in result.tables if load.snapshot_id is None]

    rounds = LoadUntil(
        loads.run,
        until_ms,
        INTERVAL_S if every_s is None else every_s,
        within_s,
        show,
        lambda line: click.echo(line, err=True),
        SYSTEM_CLOCK,
        threading.Event().wait,
    )
    try:
        is_complete = rounds.run()
    finally:
        loads.close()
    failure = (
        None if is_complete else CommandFailedError("the tables are not complete within the time limit", EXIT_FAILED)
    )
    if as_json:
        tables = [*commits, *last]
        report = current_report()
        show_json(report.succeeded(tables) if failure is None else report.failed(failure, tables))
    if failure is not None:
        raise click.exceptions.Exit(failure.exit_code)


class _Loads:
    """Runs loads in one Spark session, and starts a new session if the old one has ended."""

    def __init__(self, topics: tuple[str, ...], master: str, place: TablePlace, asked: Mapping[str, Any]) -> None:
        from barnabas.cli.spark_sessions import silence_py4j_log
        from barnabas.spark import LocalSessions

        silence_py4j_log()
        self._place = place
        self._topics = topics
        self._asked = asked
        self._sessions = LocalSessions("barnabas load", master)

    def run(
        self, on_progress: ProgressCallback | None = None, check_source: Callable[[], None] | None = None
    ) -> tuple[LoadResult, Mapping[str, Exception]]:
        """Load the new records of all topics.

        :param check_source: checks the brokers and the topics before the load; None for the default check of `load`.
        """
        from barnabas.spark import LoadsFailedError
        from barnabas.spark import load as load_topics

        try:
            return load_topics(
                self._topics,
                spark=self._sessions,
                on_progress=on_progress,
                check_source=check_source,
                **self._asked,
            ), {}
        except LoadsFailedError as error:
            return error.result, error.failures

    def maintain(self) -> Iterator[tuple[str, Maintained | Exception]]:
        """Run maintenance on the existing tables, one after the other."""
        from barnabas.cli.maintenance_rounds import maintained
        from barnabas.spark.table_names import DELETED_KEYS_SUFFIX, tables_of_topics

        table, dead = self._asked["table"], self._asked["dead_letter_table"]
        names = [table] if table else tables_of_topics(self._topics)
        if self._asked.get("upsert"):
            names = [*names, *(f"{name}{DELETED_KEYS_SUFFIX}" for name in names)]
        yield from maintained(self._place, [*names, *([dead] if dead else [])])

    def close(self) -> None:
        self._sessions.close()


def _show(result: LoadResult, failures: Mapping[str, Exception], *, with_table: bool) -> None:
    """Print the results: the table to standard output, and the remarks to standard error."""
    if with_table:
        rows: list[Row] = [
            [table.table, table.records, table.files, table.snapshot_id and str(table.snapshot_id)]
            for table in result.tables
        ]
        if rows:
            show_table(["table", "loaded", "files", "snapshot"], rows)
        if nothing_new(result.tables) and not failures:
            click.echo("there were no new records", err=True)
    for table in result.tables:
        if table.is_repeated:
            click.echo(f"{table.table}: an earlier load with this run id has loaded these records", err=True)
        for gap in table.missing:
            was_lost = f"{gap} ({with_noun(gap.count, 'offset')}), deleted before they were loaded"
            click.echo(f"{table.table}: missing: {was_lost}", err=True)
        for line in (*_remarks(table), *_warnings(table)):
            click.echo(f"{table.table}: {line}", err=True)
    for name, error in failures.items():
        click.echo(f"barnabas: {name} was not loaded: {message_of(error)}", err=True)


def _remarks(table: TableLoad) -> Iterator[str]:
    """Yield further output lines about the load of a table, after the line with its counts."""
    if table.new_fields:
        yield f"new columns: {', '.join(table.new_fields)}"
    yield from _keys_of_state_table(table)
    if table.not_renamed:
        beside = ", ".join(f"{old} is kept in addition to {new}" for old, new in table.not_renamed.items())
        yield f"not renamed: {beside}, its new name in the schema"
    for name, counts in table.further_columns.items():
        places = ", ".join(f"{with_noun(count, 'value')} in {column}" for column, count in counts.items())
        yield f"field {name!r} has additional columns for values of other types: {places}"
    if table.kept_values:
        yield f"kept whole in `value`: {with_noun(table.kept_values, 'value')} of {table.records:,} (--keep-values)"
    if table.lost_values:
        lost = with_noun(table.lost_values, "value")
        is_state = table.upserts or table.deletes or table.outdated
        why = "state tables keep no values" if is_state else "--keep-values none"
        yield f"not kept, and not restorable from the columns: {lost} ({why})"
    if table.bad.count:
        reasons = ", ".join(f"{reason} ({count:,})" for reason, count in table.bad.reasons.items())
        yield f"{with_noun(table.bad.count, 'bad record')}: {reasons}"
        for example in table.bad.examples:
            yield f"  {example}"
    if table.dead_letters:
        yield f"sent to the dead-letter topic: {with_noun(table.dead_letters, 'bad record')}"
    if table.dead_letter_rows:
        yield f"written to the dead-letter table: {with_noun(table.dead_letter_rows, 'bad record')}"
    if table.without_time:
        yield f"without event time: {with_noun(table.without_time, 'record')}"
    if table.complete_until_ms is not None:
        yield f"complete until {show_time_ms(table.complete_until_ms)}: all records produced before are loaded"


def _warnings(table: TableLoad) -> Iterator[str]:
    if table.partitions > PARTITIONS_USUAL:
        yield (
            f"warning: {with_noun(table.partitions, 'partition')} got {with_noun(table.files, 'file')}; tables with "
            "larger partitions (--partition-by) are faster to read"
        )
    if table.missing_event_field is not None:
        yield (
            f"warning: no record of this load has the event-time field {table.missing_event_field!r} "
            "(--strict makes this an error)"
        )
    if table.keys_in_several_partitions:
        yield (
            f"warning: {with_noun(table.keys_in_several_partitions, 'key')} with changes in several partitions, whose "
            "offsets have no common order: load into a new table with --order-by ts, or with a field"
        )


def _keys_of_state_table(table: TableLoad) -> Iterator[str]:
    if table.upserts or table.deletes or table.outdated:
        counts = f"{table.upserts:,} upserted, {table.deletes:,} deleted, {table.outdated:,} unchanged"
        if table.keys_of_records:
            yield f"no row has {', '.join(table.keys_of_records)}: the load takes it from the records' keys"
        yield f"keys of the load: {counts}; {with_noun(table.rewritten_files, 'file')} rewritten"


@contextmanager
def _progress() -> Iterator[ProgressCallback]:
    """Show the current step of the load, with a progress bar while records are counted."""
    if not sys.stderr.isatty():
        yield lambda _progress: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("starting Spark", total=None)

        def show(progress: LoadProgress) -> None:
            bar.update(
                task,
                description=f"{progress.table}: {progress.step}",
                completed=progress.records_done,
                total=progress.records_total or None,
            )

        yield show
