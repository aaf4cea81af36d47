"""Catalogs of pyiceberg whose calls end, although a server accepts connections and never answers.

Servers and tables do not choose the client's classes, login and local files (`client_properties.py`).

pyiceberg gives its REST and Hive catalogs no time limits, so this module opens them with subclasses that have limits.
The driver of PostgreSQL gets a limit for the connection. boto (Glue, DynamoDB) and Arrow (S3) have limits of their own.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
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
_OF_PYICEBERG = {
    CatalogType.SQL.value: "pyiceberg.catalog.sql.SqlCatalog",
    CatalogType.IN_MEMORY.value: "pyiceberg.catalog.memory.InMemoryCatalog",
    CatalogType.GLUE.value: "pyiceberg.catalog.glue.GlueCatalog",
    CatalogType.DYNAMODB.value: "pyiceberg.catalog.dynamodb.DynamoDbCatalog",
    CatalogType.BIGQUERY.value: "pyiceberg.catalog.bigquery_metastore.BigQueryMetastoreCatalog",
}
_POSTGRES = ("postgresql:", "postgresql+psycopg:", "postgresql+psycopg2:")


def open_catalog(name: str, properties: Mapping[str, str]) -> Catalog:
    """Open a catalog of pyiceberg's configuration or of the given properties, with time limits.

    :raises ValueError: A property is missing or invalid. Other errors of pyiceberg's catalogs pass.
    """
    whole: dict[str, Any] = dict(merge_config(Config().get_catalog_config(name) or {}, dict(properties)))
    uri = str(whole.get(URI, ""))
    kind = None if PY_CATALOG_IMPL in properties else _kind(name, whole)
    # pyiceberg imports the libraries of a catalog only if they are needed, so the subclasses are imported here.
    if kind == CatalogType.REST.value and uri:
        from barnabas.spark.bounded_rest_catalog import BoundedRestCatalog  # noqa: PLC0415

        return BoundedRestCatalog(name, **whole)
    if kind == CatalogType.SQL.value and uri:
        whole[URI] = with_connect_timeout(uri)
    try:
        if kind == CatalogType.HIVE.value and uri:
            from barnabas.spark.bounded_hive_catalog import BoundedHiveCatalog  # noqa: PLC0415

            return BoundedHiveCatalog(name, **whole)
        if kind in _OF_PYICEBERG and (uri or kind != CatalogType.SQL.value):
            module, _, class_name = _OF_PYICEBERG[kind].rpartition(".")
            return restricted(getattr(import_module(module), class_name))(name, **whole)
    except ImportError:
        return load_catalog(name, **properties)  # its error names the missing package
    return load_catalog(name, **properties)


def _kind(name: str, properties: dict[str, Any]) -> str | None:
    given = properties.get(TYPE)
    if given:
        return str(given).lower()
    inferred = infer_catalog_type(name, properties) if properties.get(URI) else None
    return None if inferred is None else inferred.value


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
