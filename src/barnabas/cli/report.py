"""`barnabas report`: what loaded tables tell, as a table in the terminal and as a picture."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import click

from barnabas.cli.name_completion import complete_topics
from barnabas.cli.options import json_option
from barnabas.cli.table_output import show_json, show_table
from barnabas.extras import require
from barnabas.reports.report import Report, shown
from barnabas.reports.roles import MEANING, Role, Roles

REPORTS = {
    "popularity": "what is wanted most",
    "trending": "what is wanted more than usual, and when",
    "co-occurrence": "what is seen together in a session",
    "recommendations": "who has seen this has also seen",
    "ctr": "how many impressions were clicked, by hour",
    "abuse": "addresses from which too much comes in a minute",
    "newsfeed": "what those whom somebody follows have shared, put together",
}
"""Those of `barnabas.spark.reports`, which needs Spark; the help does not."""
ROWS_SHOWN_MAX = 100
TYPES = ("impression", "click", "share", "follow")


def _columns_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--item-column` and so on, and `--impression-type` and so on."""
    for kind in reversed(TYPES):
        told = f"The type of events that are {kind}s."
        command = click.option(f"--{kind}-type", metavar="VALUE", default=kind, show_default=True, help=told)(command)
    for role in reversed(Role):
        told = f"The column of {MEANING[role]}."
        command = click.option(f"--{role}-column", metavar="NAME", help=told)(command)
    return command


@click.command()
@click.argument("name", metavar="NAME", type=click.Choice(list(REPORTS)))
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@click.option("-w", "--warehouse", metavar="DIR", help="The folder of the embedded warehouse.")
@click.option("--catalog", metavar="NAME", help="Instead: a catalog of pyiceberg's configuration.")
@click.option("--png", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Draw a picture.")
@click.option("--top", metavar="N", type=int, default=10, show_default=True, help="How many rows.")
@click.option("--where", metavar="SQL", help="Only events of which this is true: \"type = 'click'\".")
@click.option("--window", metavar="LENGTH", default="1 hour", show_default=True, help="Of windows over time.")
@click.option("--gap", metavar="LENGTH", default="30 minutes", show_default=True, help="A pause that ends a session.")
@click.option("--within", metavar="LENGTH", default="30 minutes", show_default=True, help="So long a click may take.")
@click.option("--threshold", metavar="N", type=int, default=60, show_default=True, help="No abuse: N a minute.")
@click.option("--master", metavar="URL", default="local[*]", show_default=True, help="Where Spark runs.")
@_columns_options
@json_option
def report(
    name: str,
    topics: tuple[str, ...],
    warehouse: str | None,
    catalog: str | None,
    png: Path | None,
    where: str | None,
    master: str,
    as_json: bool,
    **asked: Any,
) -> None:
    """Report on tables that `barnabas load` has made of TOPICs; several are taken together.

    NAME is popularity, trending, co-occurrence, recommendations, ctr, abuse or newsfeed. Which column is what is
    told by its usual name, or by the options.

    \b
    barnabas report popularity clicks --warehouse ./warehouse --png popularity.png
    barnabas report abuse access --warehouse ./warehouse --threshold 30
    barnabas report co-occurrence flights --warehouse ./warehouse --item-column dest --visitor-column tailnum
    """
    if (warehouse is None) == (catalog is None):
        raise click.UsageError("say where the tables are: either --warehouse DIR or --catalog NAME")
    draw = None if png is None else pictures().draw
    with _spark(master) as spark:
        frame = _events(spark, topics, warehouse, catalog, where)
        found = _run(name, frame, asked)
    if draw is not None and png is not None:
        draw(found, png)
    _show(found, as_json=as_json)


def pictures() -> Any:
    """Import the module that draws.

    :raises MissingExtraError: matplotlib is not installed.
    """
    return require("barnabas.reports.pictures", "reports")


@contextmanager
def _spark(master: str) -> Iterator[Any]:
    """Run a session, and say so where somebody waits at a terminal."""
    from rich.console import Console

    from barnabas.cli.spark_sessions import spark_session

    console = Console(stderr=True)
    with (
        console.status("Spark is at work") if sys.stderr.isatty() else nullcontext(),
        spark_session("report", master) as session,
    ):
        yield session


def _events(spark: Any, topics: tuple[str, ...], warehouse: str | None, catalog: str | None, where: str | None) -> Any:
    """Return the rows of all tables; a column that one of them does not have is null in its rows.

    :raises WarehouseError: a table is not there.
    :raises ConfigurationError: the condition is none.
    """
    return require("barnabas.spark.reports.events").events_of_tables(spark, topics, warehouse, catalog, where)


def _run(name: str, frame: Any, asked: Mapping[str, Any]) -> Report:
    from barnabas.spark.reports import REPORTS as FUNCTIONS
    from barnabas.spark.reports import ReportOptions

    given = dict(asked)
    named = {role: column for role in Role if (column := given.pop(f"{role}_column"))}
    types = {kind: given.pop(f"{kind}_type") for kind in TYPES}
    return FUNCTIONS[name](frame, ReportOptions(Roles(frame.columns, named), **types, **given))


def _show(found: Report, *, as_json: bool) -> None:
    if as_json:
        show_json(found.to_json())
        return
    click.echo(found.title)
    rows = [
        [shown(cell, column.kind) for cell, column in zip(row, found.columns, strict=True)]
        for row in found.rows[:ROWS_SHOWN_MAX]
    ]
    if rows:
        show_table([column.name for column in found.columns], rows)
    else:
        click.echo("there is nothing to tell", err=True)
    if len(found.rows) > len(rows):
        click.echo(f"{len(found.rows) - len(rows):,} more rows: --json", err=True)
    for remark in found.remarks:
        click.echo(remark)
