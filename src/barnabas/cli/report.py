"""`barnabas report`: prints reports on loaded tables, and draws the reports as charts."""

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
    "popularity": "the most requested items",
    "trending": "items requested more than usual, by time",
    "co-occurrence": "items seen together in a session",
    "recommendations": "items that viewers of an item also viewed",
    "ctr": "the share of impressions that were clicked, by hour",
    "abuse": "addresses with too many requests per minute",
    "newsfeed": "items shared by the accounts that a member follows",
}
"""The reports of `barnabas.spark.reports`, copied because importing that module requires Spark."""
ROWS_SHOWN_MAX = 100
TYPES = ("impression", "click", "share", "follow")


def _columns_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options `--ROLE-column` and `--TYPE-type`, such as `--item-column` and `--click-type`."""
    for kind in reversed(TYPES):
        text = f"Value of the type column for {kind}s."
        command = click.option(f"--{kind}-type", metavar="VALUE", default=kind, show_default=True, help=text)(command)
    for role in reversed(Role):
        text = f"Column of {MEANING[role]}."
        command = click.option(f"--{role}-column", metavar="NAME", help=text)(command)
    return command


@click.command()
@click.argument("name", metavar="NAME", type=click.Choice(list(REPORTS)))
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@click.option("-w", "--warehouse", metavar="DIR", help="Directory of the embedded warehouse.")
@click.option("--catalog", metavar="NAME", help="Catalog of pyiceberg's configuration, instead of --warehouse.")
@click.option(
    "--png", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path), help="Draw a picture to this file."
)
@click.option("--top", metavar="N", type=int, default=10, show_default=True, help="Maximum number of rows.")
@click.option("--where", metavar="SQL", help="Use only events with this condition, such as \"type = 'click'\".")
@click.option("--window", metavar="LENGTH", default="1 hour", show_default=True, help="Length of time windows.")
@click.option("--gap", metavar="LENGTH", default="30 minutes", show_default=True, help="Pause that ends a session.")
@click.option(
    "--within", metavar="LENGTH", default="30 minutes", show_default=True, help="Time limit from impression to click."
)
@click.option(
    "--threshold", metavar="N", type=int, default=60, show_default=True, help="Events per minute that are not abuse."
)
@click.option("--master", metavar="URL", default="local[*]", show_default=True, help="Spark master.")
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
    """Report on the tables that `barnabas load` has created from TOPICs; several tables are combined.

    NAME is popularity, trending, co-occurrence, recommendations, ctr, abuse or newsfeed. Columns are found by their
    usual names, or named by options.

    \b
    barnabas report popularity clicks --warehouse ./warehouse --png popularity.png
    barnabas report abuse access --warehouse ./warehouse --threshold 30
    barnabas report co-occurrence flights --warehouse ./warehouse --item-column dest --visitor-column tailnum
    """
    if (warehouse is None) == (catalog is None):
        raise click.UsageError("give the location of the tables: either --warehouse DIR or --catalog NAME")
    draw = None if png is None else pictures().draw
    with _spark(master) as spark:
        frame = _events(spark, topics, warehouse, catalog, where)
        found = _run(name, frame, asked)
    if draw is not None and png is not None:
        draw(found, png)
    _show(found, as_json=as_json)


def pictures() -> Any:
    """Import the module that draws pictures.

    :raises MissingExtraError: matplotlib is not installed.
    """
    return require("barnabas.reports.pictures", "reports")


@contextmanager
def _spark(master: str) -> Iterator[Any]:
    """Run a Spark session, and show a status line on a terminal while it starts."""
    from rich.console import Console

    from barnabas.cli.spark_sessions import spark_session

    console = Console(stderr=True)
    with (
        console.status("Spark is running") if sys.stderr.isatty() else nullcontext(),
        spark_session("report", master) as session,
    ):
        yield session


def _events(spark: Any, topics: tuple[str, ...], warehouse: str | None, catalog: str | None, where: str | None) -> Any:
    """Return the rows of all tables; a column that a table lacks is null in its rows.

    :raises WarehouseError: a table does not exist.
    :raises ConfigurationError: `where` is not a valid condition.
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
        click.echo("the report has no rows", err=True)
    if len(found.rows) > len(rows):
        click.echo(f"{len(found.rows) - len(rows):,} more rows; see all with --json", err=True)
    for remark in found.remarks:
        click.echo(remark)
