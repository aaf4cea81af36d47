"""Catalogs that Spark's settings name (`spark.sql.catalog.prod.*`), as pyiceberg takes them.

    spark.sql.catalog.prod              org.apache.iceberg.spark.SparkCatalog
    spark.sql.catalog.prod.type         rest, hive or glue
    spark.sql.catalog.prod.uri          http://HOST:PORT
    spark.sql.catalog.prod.warehouse    s3://lake
    spark.sql.catalog.prod.s3.endpoint  ...

So whoever has set up a catalog for Spark need not name it to pyiceberg once more. A session that is given tells its own
settings; else those of `spark-defaults.conf` count, in SPARK_CONF_DIR or in SPARK_HOME. What pyiceberg's own
configuration says of a catalog goes before them. Most properties have one name on both sides; those that name Java
classes do not count here.
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
    """Return the catalog that a table's name begins with; None where it has fewer than three parts.

    >>> catalog_of_name("prod.web.clicks"), catalog_of_name("web.clicks")
    ('prod', None)
    """
    return table.split(".")[0] if table is not None and table.count(".") >= 2 else None


def properties_in_spark(name: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Return pyiceberg's properties of a catalog of Spark's; none where Spark does not have it.

    :raises ConfigurationError: it is of a kind that pyiceberg has not.

    >>> own = {"spark.sql.catalog.p.type": "rest", "spark.sql.catalog.p.uri": "http://h:1"}
    >>> properties_in_spark("p", {"spark.sql.catalog.p": "org.apache.iceberg.spark.SparkCatalog", **own})
    {'type': 'rest', 'uri': 'http://h:1'}
    """
    java_class = settings.get(f"{PREFIX}{name}")
    if java_class is None:
        return {}
    if java_class not in OF_ICEBERG:
        raise ConfigurationError(f"catalog {name!r} of Spark is {java_class}, and none of Iceberg's")
    start = f"{PREFIX}{name}."
    own = {key.removeprefix(start): value for key, value in settings.items() if key.startswith(start)}
    told = own.get("catalog-impl") or own.get("type", "hive")  # Iceberg's default
    if told not in _TYPES:
        raise ConfigurationError(
            f"catalog {name!r} of Spark is of type {told!r}, which is not known here as it is there: it may be rest, "
            "hive or glue; or name one to pyiceberg, in ~/.pyiceberg.yaml"
        )
    return {"type": _TYPES[told], **{key: value for key, value in own.items() if key not in _OF_JAVA}}


def settings_of(spark: Any) -> Mapping[str, str]:
    """Return the settings of a session; without one those that it would begin with.

    :param spark: a session of any kind, or None.
    :raises ConfigurationError: they cannot be read.
    """
    return _default_settings(os.environ) if spark is None else dict(spark.conf.getAll)


def is_known_to_pyiceberg(name: str) -> bool:
    """Whether its own configuration has a catalog."""
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
    """Read the text of a file of settings: a name, blanks or a `=` or a `:`, a value; `#` begins a comment.

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
    """Return where a table is: as is said, or in the catalog that its name begins with.

    :param spark: the session whose settings may name the catalog; None: those that a session would begin with.
    :raises ConfigurationError: nothing says where it is, or what is said does not go together.
    """
    properties = dict(catalog_properties or {})
    if warehouse is None and catalog is None and "uri" not in properties:
        catalog = catalog_of_name(table)
    if catalog is not None and "uri" not in properties and not is_known_to_pyiceberg(catalog):
        properties = {**properties_in_spark(catalog, settings_of(spark)), **properties}
    return TablePlace.of(warehouse, catalog=catalog, catalog_properties=properties, table_format=table_format)
