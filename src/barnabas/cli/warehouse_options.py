"""Options for the place of tables, shared by `load` and `table`."""

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
    """Add the options; the function takes what they say, checked, as `place`."""
    return _with_options(function, is_needed=True)


def maybe_place_options(function: Decorated) -> Callable[..., Any]:
    """Add the options; where none of them is given, `place` is None."""
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
    """Name the extra of the tables' format before anything is connected.

    :raises MissingExtraError: it is not installed.
    """
    if place.table_format == DELTA:
        require_installed("deltalake", "delta")
    else:
        require_installed("pyiceberg", "spark")


def _catalog_of(others: dict[str, Any]) -> str | None:
    """Return the catalog with which a table's name of three parts begins, where a command has such a name."""
    name = others.get("table") or others.get("name") or next(iter(others.get("names") or ()), None)
    return name.split(".")[0] if isinstance(name, str) and name.count(".") >= 2 else None


_OPTIONS = (
    click.option(
        "-w",
        "--warehouse",
        metavar="DIR",
        help="The folder of the embedded warehouse; with a catalog, where that puts new tables (s3://...).",
    ),
    click.option(
        "--catalog", metavar="NAME", help="A catalog of pyiceberg's configuration, or of Spark's (spark-defaults.conf)."
    ),
    click.option("--catalog-uri", metavar="URI", help="A catalog by its address: http://HOST:PORT for a REST catalog."),
    click.option(
        "--catalog-property",
        "catalog_properties",
        metavar="NAME=VALUE",
        multiple=True,
        callback=lambda _context, _option, pairs: parse_pairs(pairs),
        help="A property of the catalog or of its storage, by pyiceberg's name, for example s3.endpoint=http://HOST:PORT.",
    ),
    click.option(
        "--table-format",
        type=click.Choice(TABLE_FORMATS),
        default=TABLE_FORMATS[0],
        show_default=True,
        help="The format of the tables.",
    ),
)
