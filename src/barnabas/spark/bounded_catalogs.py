"""Catalogs of pyiceberg whose calls end, although a server accepts connections and never answers.

Servers and tables do not choose the client's classes, login and local files (`client_properties.py`).

pyiceberg gives its REST and Hive catalogs no time limits, so this module opens them with subclasses that have limits.
The driver of PostgreSQL gets a limit for the connection. boto (Glue, DynamoDB) and Arrow (S3) have limits of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyiceberg.catalog import (
    PY_CATALOG_IMPL,
    TYPE,
    URI,
    Catalog,
    CatalogType,
    infer_catalog_type,
    load_catalog,
)
from pyiceberg.utils.config import Config, merge_config

from barnabas.spark.client_properties import restricted

POSTGRES_CONNECT_S = 30
_POSTGRES = ("postgresql:", "postgresql+psycopg:", "postgresql+psycopg2:")


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Open a catalog of pyiceberg's configuration or of the given properties, with time limits.

    :raises ValueError: A property is missing or invalid. Other errors of pyiceberg's catalogs pass.
    """
    whole: dict[str, Any] = dict(merge_config(Config().get_catalog_config(name) or {}, dict(properties)))
    uri = str(whole.get(URI, ""))
    kind = None if PY_CATALOG_IMPL in properties or not uri else _kind(name, whole)
    # pyiceberg imports the libraries of a catalog only if they are needed, so the subclasses are imported here.
    if kind == CatalogType.REST.value:
        from barnabas.spark.bounded_rest_catalog import BoundedRestCatalog  # noqa: PLC0415

        return BoundedRestCatalog(name, **whole)
    if kind == CatalogType.HIVE.value:
        try:
            from barnabas.spark.bounded_hive_catalog import BoundedHiveCatalog  # noqa: PLC0415
        except ImportError:
            return load_catalog(name, **properties)  # its error names the missing package
        return restricted(BoundedHiveCatalog(name, **whole))
    if kind == CatalogType.SQL.value:
        return restricted(load_catalog(name, **{**properties, URI: with_connect_timeout(uri)}))
    return restricted(load_catalog(name, **properties))


def _kind(name: str, properties: dict[str, Any]) -> str:
    given = properties.get(TYPE)
    if given:
        return str(given).lower()
    inferred = infer_catalog_type(name, properties)
    return "" if inferred is None else inferred.value


def with_connect_timeout(uri: str) -> str:
    """Return the address of a database with a limit for the connection, if the driver has none by default.

    >>> with_connect_timeout("postgresql+psycopg2://h/db?sslmode=require")
    'postgresql+psycopg2://h/db?sslmode=require&connect_timeout=30'
    >>> with_connect_timeout("postgresql://h/db?connect_timeout=5"), with_connect_timeout("sqlite:////x.db")
    ('postgresql://h/db?connect_timeout=5', 'sqlite:////x.db')
    """
    if not uri.startswith(_POSTGRES) or "connect_timeout=" in uri:
        return uri
    return f"{uri}{'&' if '?' in uri else '?'}connect_timeout={POSTGRES_CONNECT_S}"
