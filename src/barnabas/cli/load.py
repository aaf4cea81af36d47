"""`barnabas load`: topics into warehouse tables with Spark, data and offsets in one commit."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal

import click

from barnabas.cli.broker_names import complete_topics
from barnabas.cli.options import bootstrap_option, connect, properties_option, require_topics
from barnabas.cli.tables import Row, show_json, show_table

if TYPE_CHECKING:
    from barnabas.spark.load_types import LoadProgress, LoadResult, ProgressCallback, TableLoad


@click.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@click.option("-w", "--warehouse", metavar="DIR", help="The folder of the embedded warehouse; made if missing.")
@click.option("--catalog", metavar="NAME", help="Instead: a catalog of pyiceberg's configuration.")
@click.option("--table", metavar="[NAMESPACE.]NAME", help="One table for all; else one for each topic.")
@click.option(
    "--format",
    "value_format",
    type=click.Choice(["raw", "json"]),
    default="raw",
    show_default=True,
    help="Values as bytes, or their JSON fields as columns.",
)
@click.option("--master", metavar="URL", default="local[*]", show_default=True, help="Where Spark runs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@properties_option
@bootstrap_option
def load(
    topics: tuple[str, ...],
    warehouse: str | None,
    catalog: str | None,
    table: str | None,
    value_format: Literal["raw", "json"],
    master: str,
    as_json: bool,
    properties: dict[str, str],
    bootstrap: str,
) -> None:
    """Load what is new in TOPICs into Iceberg tables.

    Each load goes on where the last one ended; a load that is killed leaves the table as it was.

    \b
    barnabas load clicks --warehouse ./warehouse --format json
    """
    if (warehouse is None) == (catalog is None):
        raise click.UsageError("say where the tables are: either --warehouse DIR or --catalog NAME")
    with connect(bootstrap) as admin:
        require_topics(admin, topics)
    from barnabas.spark import load as load_topics
    from barnabas.spark import local_session, stop_session

    with _progress() as on_progress:
        session = local_session("barnabas load", master=master)
        try:
            result = load_topics(
                topics,
                bootstrap=bootstrap,
                warehouse=warehouse,
                catalog=catalog,
                table=table,
                spark=session,
                format=value_format,
                client_options=properties,
                on_progress=on_progress,
            )
        finally:
            stop_session(session)
    _show(result, as_json)


def _show(result: LoadResult, as_json: bool) -> None:
    if as_json:
        show_json([_as_json(table) for table in result.tables])
        return
    rows: list[Row] = [
        [table.table, table.records, table.files, table.snapshot_id and str(table.snapshot_id)]
        for table in result.tables
    ]
    show_table(["table", "loaded", "files", "snapshot"], rows)
    if not result.records:
        click.echo("there was nothing new", err=True)


def _as_json(table: TableLoad) -> dict[str, object]:
    return {
        "table": table.table,
        "records": table.records,
        "files": table.files,
        "snapshot_id": table.snapshot_id,
        "kept_values": table.kept_values,
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
