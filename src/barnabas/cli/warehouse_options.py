"""Options for the location of tables, shared by `load`, `table` and `audit`."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

import click

from barnabas.cli.options import parse_pairs
from barnabas.errors import ConfigurationError
from barnabas.extras import require_installed
from barnabas.spark.table_place import DELTA, TABLE_FORMATS, TablePlace

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def place_options(function: Decorated) -> Callable[..., Any]:
    """Add the options for the location of tables. The decorated function receives the location as `place`."""
    return _with_options(function, is_needed=True)


def maybe_place_options(function: Decorated) -> Callable[..., Any]:
    """Add the options for the location of tables. `place` is None if the user gives none of the options."""
    return _with_options(function, is_needed=False)


def _with_options(function: Decorated, *, is_needed: bool) -> Callable[..., Any]:
    @wraps(function)
    def with_place(
        *arguments: Any,
        warehouse: str | None,
        catalog: str | None,
        catalog_uri: str | None,
        catalog_properties: dict[str, str],
        table_format: str,
        **others: Any,
    ) -> Any:
        properties = {**catalog_properties, **({} if catalog_uri is None else {"uri": catalog_uri})}
        if warehouse is None and catalog is None and "uri" not in properties:
            catalog = _catalog_of(others)
        if not is_needed and warehouse is None and catalog is None and not properties:
            return function(*arguments, place=None, **others)
        try:
            place = TablePlace.of(warehouse, catalog=catalog, catalog_properties=properties, table_format=table_format)
        except ConfigurationError as error:
            raise click.UsageError(str(error)) from None
        _require_extra(place)
        return function(*arguments, place=place, **others)

    for option in reversed(_OPTIONS):
        with_place = option(with_place)
    return with_place


def _require_extra(place: TablePlace) -> None:
    """Check that the packages for the table format are installed, before the command connects to a broker or catalog.

    :raises MissingExtraError: the extra is not installed.
    """
    if place.table_format == DELTA:
        require_installed("deltalake", "delta")
    else:
        require_installed("pyiceberg", "spark")


def _catalog_of(others: dict[str, Any]) -> str | None:
    """Return the catalog in a table name of three parts, if the command line has such a name."""
    name = others.get("table") or others.get("name") or next(iter(others.get("names") or ()), None)
    return name.split(".")[0] if isinstance(name, str) and name.count(".") >= 2 else None


_OPTIONS = (
    click.option(
        "-w",
        "--warehouse",
        metavar="DIR",
        help="Directory of the embedded warehouse; with a catalog, the location of new tables (s3://...).",
    ),
    click.option(
        "--catalog", metavar="NAME", help="Catalog of pyiceberg's configuration, or of Spark's (spark-defaults.conf)."
    ),
    click.option("--catalog-uri", metavar="URI", help="URI of a catalog: http://HOST:PORT for a REST catalog."),
    click.option(
        "--catalog-property",
        "catalog_properties",
        metavar="NAME=VALUE",
        multiple=True,
        callback=lambda _context, _option, pairs: parse_pairs(pairs),
        help="Property of the catalog or its storage, by pyiceberg's name, such as s3.endpoint=http://HOST:PORT.",
    ),
    click.option(
        "--table-format",
        type=click.Choice(TABLE_FORMATS),
        default=TABLE_FORMATS[0],
        show_default=True,
        help="Table format.",
    ),
)
