"""`barnabas sql`: queries topics in DuckDB or Spark. The statements come from an argument, from standard input, or from
a prompt."""

from __future__ import annotations

import io
import shutil
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click

from barnabas.cli.connection import Connection
from barnabas.cli.options import check_registry_url, connect, connection_options
from barnabas.cli.signals import end_on_sigterm
from barnabas.cli.standard_output import ending_with_reader
from barnabas.clock import SYSTEM_CLOCK
from barnabas.extras import require_installed

if TYPE_CHECKING:
    from barnabas.cli.sql_output import MakeWriter
    from barnabas.sql.engine import Engine
    from barnabas.sql.topics import Topics

WATCH_S = 2.0
STATEMENTS_BYTES_MAX = 1024 * 1024
SCREEN_BEGINNING = "\x1b[H\x1b[J"


@click.command()
@click.argument("statement", required=False, metavar="[STATEMENT]")
@click.option(
    "--watch",
    "watch_s",
    type=click.FloatRange(min=0.1),
    is_flag=False,
    flag_value=str(WATCH_S),
    metavar="[SECONDS]",
    help=f"Repeat the query at this interval, replacing the last result.  [{WATCH_S:g} without a number]",
)
@click.option(
    "--engine",
    "engine_name",
    type=click.Choice(["duckdb", "spark"]),
    default="duckdb",
    show_default=True,
    help="Query engine: DuckDB in this process, or Spark for data too large for one process.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per row.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@click.option(
    "--format",
    "value_format",
    metavar="FORMAT",
    default="auto",
    show_default=True,
    help="Format of values: json, raw, avro, protobuf (with --registry) or lines:PATTERN, as for load; auto: detect.",
)
@click.option("--nested", is_flag=True, help="Read JSON objects and arrays as structs and lists instead of text.")
@click.option(
    "--registry",
    "registry_url",
    metavar="URL",
    envvar="BARNABAS_REGISTRY",
    show_envvar=True,
    callback=check_registry_url,
    help="Schema registry for Avro, Protobuf, and JSON with schema ids.  [default: from the profile]",
)
@click.option("--memory", default="1GB", show_default=True, help="Memory limit of DuckDB; it spills to disk beyond.")
@click.option("--master", metavar="URL", default="local[*]", show_default=True, help="Spark master.")
@connection_options
def sql(
    statement: str | None,
    watch_s: float | None,
    as_json: bool,
    as_csv: bool,
    connection: Connection,
    **asked: Any,
) -> None:
    """Query topics with SQL: each topic is a table.

    A table has the columns topic, partition, offset, timestamp, key and value, and one column per field of the values.
    Quote names with characters other than letters, and quote "offset". Without a STATEMENT, the command shows a prompt,
    or reads statements from standard input.

    \b
    barnabas sql "select page, count(*) from clicks group by page order by 2 desc limit 10"
    barnabas sql "select * from clicks where timestamp > now() - interval 5 minutes" --json
    barnabas sql "select status, count(*) from access group by all" --watch 5
    """
    if as_json and as_csv:
        raise click.UsageError("give only one of --json and --csv")
    if watch_s is not None and statement is None:
        raise click.UsageError('--watch needs a statement: barnabas sql "select ..." --watch')
    end_on_sigterm()
    text = statement
    if text is None and not sys.stdin.isatty():
        text = sys.stdin.read(STATEMENTS_BYTES_MAX + 1)
        if len(text) > STATEMENTS_BYTES_MAX:
            raise click.UsageError(f"the statements are too long; the maximum is {STATEMENTS_BYTES_MAX:,} characters")
    with ending_with_reader(), _engine(connection, text, **asked) as (engine, topics):
        from barnabas.cli.sql_output import writer_for

        make_writer = writer_for(as_json=as_json, as_csv=as_csv, is_terminal=sys.stdout.isatty())
        if text is not None and watch_s is not None:
            _watch(engine, text, make_writer, watch_s, redraws=sys.stdout.isatty() and not (as_json or as_csv))
        elif text is not None and statement is None:
            from barnabas.cli.sql_prompt import Prompt, script_parts

            Prompt(engine, topics, make_writer).run_script(script_parts(text))
        elif text is not None:
            _run(engine, text, make_writer, sys.stdout)
        else:
            from barnabas.cli.sql_prompt import Prompt

            Prompt(engine, topics, make_writer).run()


@contextmanager
def _engine(
    connection: Connection,
    text: str | None,
    *,
    engine_name: str,
    value_format: str,
    nested: bool,
    registry_url: str | None,
    memory: str,
    master: str,
) -> Iterator[tuple[Engine, Topics]]:
    if engine_name == "spark":
        require_installed("pyspark", "spark")
    if engine_name != "spark":
        from barnabas.cli.without_pandas import hide_pandas

        hide_pandas()
    elif text is not None:
        from barnabas.sql.spark_engine import split_queries

        if not text.lstrip().startswith("."):
            split_queries(text)  # check the statement before Spark starts, because the start takes seconds
    from barnabas.sql.sampling import ValueOptions, json_rules
    from barnabas.sql.topics import Topics

    options = ValueOptions(value_format, connection.registry_target(registry_url), json_rules(nested=nested))
    connect(connection).close()
    with Topics(connection.admin_settings, options) as topics:
        if engine_name == "spark":
            from barnabas.cli.spark_sessions import spark_session
            from barnabas.sql.spark_engine import SparkEngine

            with spark_session("sql", master) as spark:
                yield SparkEngine(topics, spark), topics
        else:
            from barnabas.sql.duckdb_engine import DuckDbEngine

            with DuckDbEngine(topics, memory=memory) as duckdb:
                yield duckdb, topics


def _run(engine: Engine, text: str, make_writer: MakeWriter, output: TextIO) -> None:
    for query in engine.split(text):
        result = engine.run(query)
        writer = make_writer(result.schema, output)
        with closing(result.batches):
            for batch in result.batches:
                writer.write(batch)
        writer.finish()


def _watch(engine: Engine, text: str, make_writer: MakeWriter, watch_s: float, *, redraws: bool) -> None:
    """Repeat the query. On a terminal, only the rows that fit on the screen are shown."""
    while True:
        shown = io.StringIO() if redraws else sys.stdout
        _run(engine, text, make_writer, shown)
        if isinstance(shown, io.StringIO):
            lines = shown.getvalue().splitlines()[: shutil.get_terminal_size().lines - 1]
            sys.stdout.write(SCREEN_BEGINNING + "".join(f"{line}\n" for line in lines))
        sys.stdout.flush()
        SYSTEM_CLOCK.sleep(watch_s)
