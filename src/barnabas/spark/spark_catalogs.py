"""Catalogs from Spark's settings (`spark.sql.catalog.prod.*`), converted to pyiceberg's properties.

    spark.sql.catalog.prod              org.apache.iceberg.spark.SparkCatalog
    spark.sql.catalog.prod.type         rest, hive or glue
    spark.sql.catalog.prod.uri          http://HOST:PORT
    spark.sql.catalog.prod.warehouse    s3://lake
    spark.sql.catalog.prod.s3.endpoint  ...

A catalog that is configured for Spark needs no second configuration for pyiceberg. The settings come from the given
session, or from `spark-defaults.conf` in SPARK_CONF_DIR or SPARK_HOME. pyiceberg's own configuration of a catalog
overrides them. Most properties have the same name on both sides; properties that name Java classes are ignored.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyiceberg.utils.config import Config

from barnabas.errors import ConfigurationError
from barnabas.spark.table_place import TablePlace

PREFIX = "spark.sql.catalog."
OF_ICEBERG = frozenset({"org.apache.iceberg.spark.SparkCatalog", "org.apache.iceberg.spark.SparkSessionCatalog"})
_TYPES = {
    "rest": "rest",
    "hive": "hive",
    "glue": "glue",
    "org.apache.iceberg.rest.RESTCatalog": "rest",
    "org.apache.iceberg.hive.HiveCatalog": "hive",
    "org.apache.iceberg.aws.glue.GlueCatalog": "glue",
}
_OF_JAVA = frozenset({"type", "catalog-impl", "io-impl", "rest-metrics-reporting-enabled", "metrics-reporter-impl"})
_DEFAULTS_FILE = "spark-defaults.conf"
_END_OF_NAME = re.compile(r"\s*[=:]\s*|\s+")


def catalog_of_name(table: str | None) -> str | None:
    """Return the catalog part of a table name; None if the name has fewer than three parts.

    >>> catalog_of_name("prod.web.clicks"), catalog_of_name("web.clicks")
    ('prod', None)
    """
    return table.split(".")[0] if table is not None and table.count(".") >= 2 else None


def properties_in_spark(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return pyiceberg's properties of a catalog in Spark's settings; empty if Spark does not have the catalog.

    :raises ConfigurationError: pyiceberg does not support the kind of catalog.

    >>> own = {"spark.sql.catalog.p.type": "rest", "spark.sql.catalog.p.uri": "http://h:1"}
    >>> properties_in_spark("p", {"spark.sql.catalog.p": "org.apache.iceberg.spark.SparkCatalog", **own})
    {'type': 'rest', 'uri': 'http://h:1'}
    """
    java_class = settings.get(f"{PREFIX}{name}")
    if java_class is None:
        return {}
    if java_class not in OF_ICEBERG:
        raise ConfigurationError(f"catalog {name!r} of Spark is {java_class}, which is not an Iceberg catalog")
    start = f"{PREFIX}{name}."
    own = {key.removeprefix(start): value for key, value in settings.items() if key.startswith(start)}
    kind = own.get("catalog-impl") or own.get("type", "hive")  # Iceberg's default
    if kind not in _TYPES:
        raise ConfigurationError(
            f"catalog {name!r} of Spark is of type {kind!r}, which is not supported: use rest, hive or glue, or "
            "configure the catalog in ~/.pyiceberg.yaml"
        )
    return {"type": _TYPES[kind], **{key: value for key, value in own.items() if key not in _OF_JAVA}}


def settings_of(spark: Any) -> Mapping[str, str]:
    """Return the settings of a session, or without a session the default settings of this machine.

    :param spark: A session of any kind, or None.
    :raises ConfigurationError: The default settings cannot be read.
    """
    return _default_settings(os.environ) if spark is None else dict(spark.conf.getAll)


def is_known_to_pyiceberg(name: str) -> bool:
    """Return whether pyiceberg's configuration has a catalog."""
    return Config().get_catalog_config(name) is not None


def _default_settings(environment: Mapping[str, str]) -> dict[str, str]:
    home = environment.get("SPARK_HOME")
    folder = environment.get("SPARK_CONF_DIR") or (f"{home}/conf" if home else None)
    file = None if folder is None else Path(folder) / _DEFAULTS_FILE
    if file is None or not file.is_file():
        return {}
    try:
        return parse_settings(file.read_text(encoding="utf-8", errors="replace"))
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be read: {error}; name the catalog in ~/.pyiceberg.yaml") from error


def parse_settings(text: str) -> dict[str, str]:
    """Parse a properties file: a name, whitespace or `=` or `:`, and a value per line. `#` starts a comment.

    >>> parse_settings("# catalogs\\nspark.a  x y\\nspark.b = z\\n")
    {'spark.a': 'x y', 'spark.b': 'z'}
    """
    settings = {}
    for line in map(str.strip, text.splitlines()):
        if line and not line.startswith("#"):
            name, *value = _END_OF_NAME.split(line, maxsplit=1)
            settings[name] = "".join(value)
    return settings


def place_of(
    table: str | None,
    spark: Any,
    warehouse: str | Path | None,
    catalog: str | None,
    catalog_properties: Mapping[str, str] | None,
    table_format: str,
) -> TablePlace:
    """Return the location of a table: the given one, or the catalog that the table name begins with.

    :param spark: The session whose settings may have the catalog; None uses the default settings of this machine.
    :raises ConfigurationError: The location is missing, or the arguments contradict each other.
    """
    properties = dict(catalog_properties or {})
    if warehouse is None and catalog is None and "uri" not in properties:
        catalog = catalog_of_name(table)
    if catalog is not None and "uri" not in properties and not is_known_to_pyiceberg(catalog):
        properties = {**properties_in_spark(catalog, settings_of(spark)), **properties}
    return TablePlace.of(warehouse, catalog=catalog, catalog_properties=properties, table_format=table_format)
