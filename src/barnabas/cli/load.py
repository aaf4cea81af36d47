"""`barnabas load`: topics into warehouse tables with Spark, data and offsets in one commit."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.error_messages import exit_code_of, explain
from barnabas.cli.name_completion import complete_topics
from barnabas.cli.options import (
    bootstrap_option,
    connect,
    http_address,
    http_and_metrics_port_options,
    properties_option,
    require_topics,
)
from barnabas.cli.signals import end_on_sigterm
from barnabas.cli.table_output import Row, show_json, show_table
from barnabas.cli.terminal_text import with_noun
from barnabas.cli.times import show_time_ms
from barnabas.cli.warehouse_options import place_options
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError
from barnabas.exit_codes import EXIT_FAILED
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas.formats.column_types import ColumnType
    from barnabas.spark.load_types import LoadProgress, LoadResult, ProgressCallback, TableLoad
    from barnabas.spark.offset_ranges import OffsetRange
    from barnabas.spark.table_place import TablePlace
    from barnabas.spark.table_store import Maintained

PATTERN_NAMES = ("common", "combined", "syslog", "syslog5424", "nginx-error", "apache-error")
"""Those of line_patterns.py, which needs pyarrow; the help does not."""


def _fields(_context: click.Context, _option: click.Parameter, given: str | None) -> dict[str, ColumnType] | None:
    """Return what --fields names; the load checks the types."""
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


def _interval(_context: click.Context, _option: click.Parameter, given: str | None) -> float | None:
    if given is None:
        return None
    from barnabas.cli.times import parse_interval_s

    try:
        return parse_interval_s(given)
    except ValueError as error:
        raise click.UsageError(f"{_option.opts[-1]}: {error}") from None


def _until(_context: click.Context, _option: click.Parameter, given: str | None) -> int | None:
    if given is None:
        return None
    from barnabas.cli.load_until import parse_until_ms

    try:
        return parse_until_ms(given, SYSTEM_CLOCK.time_ms())
    except ValueError as error:
        raise click.UsageError(f"--until-complete: {error}") from None


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@place_options
@click.option("--table", metavar="[NAMESPACE.]NAME", help="One table for all; else one for each topic.")
@click.option(
    "--format",
    metavar="FORMAT",
    default="raw",
    show_default=True,
    help="raw: values as bytes; json: their fields as columns; avro, protobuf: the same, by the schemas in --registry; "
    f"lines:PATTERN: the groups of a pattern as columns, one of {', '.join(PATTERN_NAMES)}, or a regular expression "
    "with named groups.",
)
@click.option(
    "--registry",
    metavar="URL",
    help="The schema registry, for avro, protobuf, and json with schema ids: http://[USER:PASSWORD@]HOST:PORT; several "
    "with commas.",
)
@click.option(
    "--fields",
    metavar="JSON",
    callback=_fields,
    help="The fields and their types, for a new table: "
    """'{"page": "string", "ms": "long"}'; else the records tell.""",
)
@click.option("--nested", is_flag=True, help="Objects and arrays of JSON as structs and lists, for a new table.")
@click.option("--decimals", is_flag=True, help="Numbers of JSON with a fraction as decimals, for a new table.")
@click.option(
    "--event-time",
    metavar="WHERE",
    help="Where a new table's event times come from: record, line, a field, a path within objects (source.ts_ms), or "
    "FIELD:UNIT (s, ms, us, ns).  [default: record; the group `time` of a pattern]",
)
@click.option(
    "--timezone",
    metavar="ZONE",
    help="The zone of a new table's event times that name none, as Europe/Berlin or +02:00.  [default: UTC]",
)
@click.option(
    "--new-fields/--no-new-fields",
    default=None,
    help="Whether fields that appear later become columns of a new table too.  [default: unless --fields is given]",
)
@click.option("--dead-letter", metavar="TOPIC", help="Send copies of bad records there, with the reason in headers.")
@click.option(
    "--dead-letter-table",
    metavar="[NAMESPACE.]NAME",
    help="Put bad records into this table too, each once, with the reason; it is made where there is none.",
)
@click.option(
    "--keep-values",
    type=click.Choice(["bad", "all", "none"]),
    default="bad",
    show_default=True,
    help="Which values stay whole beside their columns: those that the columns do not give back, all, or none.",
)
@click.option(
    "--max-bad-records",
    metavar="N|N%",
    help="Commit nothing and exit with 6 where more records of a load are bad.  [default: any number may be]",
)
@click.option("--strict", is_flag=True, help="Fail where no record of a load has the field of the event time.")
@click.option(
    "--audit/--no-audit",
    default=None,
    help="Whether to tell what is loaded, for `barnabas audit`.  [default: if anybody tells]",
)
@click.option(
    "--starting-offsets",
    metavar="JSON",
    callback=_offsets,
    help="Where to start partitions that the table knows nothing of: "
    """'{"clicks": {"0": 23}}'; else at the log's start.""",
)
@click.option(
    "--fail-on-data-loss/--no-fail-on-data-loss",
    default=True,
    show_default=True,
    help="Whether it is an error that records were deleted from the log after the last load.",
)
@click.option("--master", metavar="URL", default="local[*]", show_default=True, help="Where Spark runs.")
@click.option(
    "--every",
    metavar="INTERVAL",
    callback=_interval,
    help="Load again and again, as in 30s, 1m or 2h, until Ctrl-C, SIGTERM or SIGHUP; failed loads are tried again.",
)
@click.option(
    "--until-complete",
    "until_ms",
    metavar="TIME",
    callback=_until,
    help="Load until all that audited producers sent before is there: HH:MM (UTC, today) or ISO 8601. Rounds are 10 s "
    "apart, or --every INTERVAL.",
)
@click.option("--within", metavar="INTERVAL", callback=_interval, help="With --until-complete: give up after so long.")
@click.option(
    "--maintain-every",
    metavar="INTERVAL",
    callback=_interval,
    help="With --every: put small files together and expire what is old, as `table maintain` does, so often (1h).",
)
@click.option(
    "--target-file-mb",
    type=click.IntRange(1, 4096),
    help="About how large files become.  [default: as the table says]",
)
@http_and_metrics_port_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table; with --every, an object a line.")
@properties_option
@bootstrap_option
def load(
    topics: tuple[str, ...],
    master: str,
    as_json: bool,
    every: float | None,
    until_ms: int | None,
    within: float | None,
    maintain_every: float | None,
    target_file_mb: int | None,
    http: str | None,
    metrics_port: int | None,
    properties: dict[str, str],
    place: TablePlace,
    **asked: Any,
) -> None:
    """Load what is new in TOPICs into Iceberg or Delta tables.

    Each load goes on where the last one ended; a load that is killed leaves the table as it was. What one table
    ends with does not stop the others; the exit code is 1 where one was not loaded.

    \b
    barnabas load clicks --warehouse ./warehouse --format json
    barnabas load clicks --warehouse ./warehouse --format json --every 1m
    barnabas load clicks --warehouse ./warehouse --format json --until-complete 14:00 --within 30m
    """
    if within is not None and until_ms is None:
        raise click.UsageError("--within is for a load that waits: --until-complete TIME")
    http = http_address(http, metrics_port)
    if http is not None and (every is None or until_ms is not None):
        raise click.UsageError("--http is for a load that goes on: --every INTERVAL")
    if maintain_every is not None and (every is None or until_ms is not None):
        raise click.UsageError("--maintain-every is for a load that goes on: --every INTERVAL")
    target_file_bytes = None if target_file_mb is None else target_file_mb * 1024 * 1024
    asked |= {"client_options": properties, "target_file_bytes": target_file_bytes, **place.as_arguments()}
    asked["tracer_provider"] = _tracer_provider()
    loads = _Loads(topics, master, place, asked)
    if until_ms is not None:
        _load_until(loads, until_ms, every, within, as_json)
        return
    if every is not None:
        _load_every(loads, every, maintain_every, http, as_json)
        return
    with connect(asked["bootstrap"]) as admin:
        known = admin.list_topics()
        if not any(topic in known for topic in topics):
            require_topics(admin, topics)
    with _progress() as on_progress:
        try:
            result, failures = loads.run(on_progress)
        finally:
            loads.close()
    _show(result, failures, as_json)
    if failures:
        raise click.exceptions.Exit(_exit_code_of(failures))


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
    loads: _Loads, interval_s: float, maintain_every_s: float | None, http: str | None, as_json: bool
) -> None:
    """Load until Ctrl-C, SIGTERM or SIGHUP, which leave the tables as they were before the load that is running."""
    from barnabas.cli.load_rounds import LoadRounds, as_line
    from barnabas.cli.maintenance_rounds import MaintenanceRounds
    from barnabas.net.status_server import serving_status

    def tell(event: Mapping[str, object]) -> None:
        click.echo(json.dumps(event, ensure_ascii=False) if as_json else as_line(event))

    end_on_sigterm()
    maintenance = None
    if maintain_every_s is not None:
        maintenance = MaintenanceRounds(loads.maintain, maintain_every_s, SYSTEM_CLOCK)
    rounds = LoadRounds(loads.run, interval_s, tell, SYSTEM_CLOCK, threading.Event().wait, maintenance)
    try:
        with serving_status(http, rounds.metrics.collect, rounds.metrics.not_ready):
            rounds.run()
    finally:
        loads.close()


def _load_until(loads: _Loads, until_ms: int, every_s: float | None, within_s: float | None, as_json: bool) -> None:
    """Load until the tables are complete; the exit code is 1 where time was up."""
    from barnabas.cli.load_until import INTERVAL_S, LoadUntil

    end_on_sigterm()
    rounds = LoadUntil(
        loads.run,
        until_ms,
        INTERVAL_S if every_s is None else every_s,
        within_s,
        lambda result, failures: _show(result, failures, as_json),
        lambda line: click.echo(line, err=True),
        SYSTEM_CLOCK,
        threading.Event().wait,
    )
    try:
        is_complete = rounds.run()
    finally:
        loads.close()
    if not is_complete:
        raise click.exceptions.Exit(EXIT_FAILED)


class _Loads:
    """Loads in one Spark session, which is started anew where it has died."""

    def __init__(self, topics: tuple[str, ...], master: str, place: TablePlace, asked: Mapping[str, Any]) -> None:
        from barnabas.cli.spark_sessions import silence_py4j_log
        from barnabas.spark import LocalSessions

        silence_py4j_log()
        self._place = place
        self._topics = topics
        self._asked = asked
        self._sessions = LocalSessions("barnabas load", master)

    def run(self, on_progress: ProgressCallback | None = None) -> tuple[LoadResult, Mapping[str, Exception]]:
        """Load what is new."""
        from barnabas.spark import LoadsFailedError
        from barnabas.spark import load as load_topics

        try:
            return load_topics(self._topics, spark=self._sessions, on_progress=on_progress, **self._asked), {}
        except LoadsFailedError as error:
            return error.result, error.failures

    def maintain(self) -> Iterator[tuple[str, Maintained | Exception]]:
        """Maintain the tables that there are, one after the other."""
        from barnabas.cli.maintenance_rounds import maintained
        from barnabas.spark.table_names import tables_of_topics

        table, dead = self._asked["table"], self._asked["dead_letter_table"]
        names = [table] if table else tables_of_topics(self._topics)
        yield from maintained(self._place, [*names, *([dead] if dead else [])])

    def close(self) -> None:
        """Stop Spark."""
        self._sessions.close()


def _show(result: LoadResult, failures: Mapping[str, Exception], as_json: bool) -> None:
    told = {table: _told(error) for table, error in failures.items()}
    if as_json:
        loaded = [_as_json(table) for table in result.tables]
        show_json([*loaded, *({"table": table, "error": text} for table, text in told.items())])
    else:
        rows: list[Row] = [
            [table.table, table.records, table.files, table.snapshot_id and str(table.snapshot_id)]
            for table in result.tables
        ]
        if rows:
            show_table(["table", "loaded", "files", "snapshot"], rows)
        if not result.records and not failures:
            click.echo("there was nothing new", err=True)
    for table in result.tables:
        for gap in table.missing:
            was_lost = f"{gap} ({with_noun(gap.count, 'offset')}), deleted before they were loaded"
            click.echo(f"{table.table}: missing: {was_lost}", err=True)
        for line in _remarks(table):
            click.echo(f"{table.table}: {line}", err=True)
    for name, text in told.items():
        click.echo(f"barnabas: {name} was not loaded: {text}", err=True)


def _remarks(table: TableLoad) -> Iterator[str]:
    """Yield what is worth a line beside the counts."""
    if table.new_fields:
        yield f"new columns: {', '.join(table.new_fields)}"
    if table.not_renamed:
        beside = ", ".join(f"{old} stays beside {new}" for old, new in table.not_renamed.items())
        yield f"not renamed: {beside}, its new name by a schema"
    for name, counts in table.further_columns.items():
        places = ", ".join(f"{with_noun(count, 'value')} in {column}" for column, count in counts.items())
        yield f"field {name!r} has further columns for values of other types: {places}"
    if table.kept_values:
        yield f"kept whole in `value`: {with_noun(table.kept_values, 'value')} of {table.records:,} (--keep-values)"
    if table.lost_values:
        lost = with_noun(table.lost_values, "value")
        yield f"not kept, and not given back by the columns: {lost} (--keep-values none)"
    if table.bad.count:
        reasons = ", ".join(f"{reason} ({count:,})" for reason, count in table.bad.reasons.items())
        yield f"{with_noun(table.bad.count, 'bad record')}: {reasons}"
        for example in table.bad.examples:
            yield f"  {example}"
    if table.dead_letters:
        yield f"sent to the dead-letter topic: {with_noun(table.dead_letters, 'bad record')}"
    if table.dead_letter_rows:
        yield f"put into the dead-letter table: {with_noun(table.dead_letter_rows, 'bad record')}"
    if table.missing_event_field is not None:
        yield (
            f"warning: no record of this load has the field {table.missing_event_field!r} of the event time "
            "(--strict makes this an error)"
        )
    if table.without_time:
        yield f"without event time: {with_noun(table.without_time, 'record')}"
    if table.complete_until_ms is not None:
        yield f"all that was produced is there until {show_time_ms(table.complete_until_ms)}"


def _exit_code_of(failures: Mapping[str, Exception]) -> int:
    """Return the exit code that all failures have; where they have several, that of failures in general."""
    codes = {
        exit_code_of(error) if isinstance(error, BarnabasError | OSError) else EXIT_FAILED
        for error in failures.values()
    }
    return codes.pop() if len(codes) == 1 else EXIT_FAILED


def _told(error: Exception) -> str:
    return explain(error) if isinstance(error, BarnabasError | OSError) else f"{type(error).__name__}: {error}"


def _as_json(table: TableLoad) -> dict[str, object]:
    return {
        "table": table.table,
        "records": table.records,
        "files": table.files,
        "snapshot_id": table.snapshot_id,
        "kept_values": table.kept_values,
        "lost_values": table.lost_values,
        "further_columns": {name: dict(counts) for name, counts in table.further_columns.items()},
        "bad_records": dict(table.bad.reasons),
        "dead_letters": table.dead_letters,
        "dead_letter_rows": table.dead_letter_rows,
        "without_event_time": table.without_time,
        "missing_event_field": table.missing_event_field,
        "new_fields": dict(table.new_fields),
        "not_renamed": dict(table.not_renamed),
        "complete_until_ms": table.complete_until_ms,
        "ranges": [_range_as_json(loaded) for loaded in table.ranges],
        "missing": [_range_as_json(gap) for gap in table.missing],
    }


def _range_as_json(offsets: OffsetRange) -> dict[str, object]:
    return {
        "topic": offsets.topic,
        "partition": offsets.partition,
        "start_offset": offsets.start_offset,
        "end_offset": offsets.end_offset,
    }


@contextmanager
def _progress() -> Iterator[ProgressCallback]:
    """Show the step that the load is in, and a bar where the records are counted."""
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
