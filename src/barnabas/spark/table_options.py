"""The options of `CREATE TABLE ... USING barnabas OPTIONS (...)`, passed on to the queries on the table.

Spark passes the options to `schema` when the table is created. A query on the table gets the table's columns, but no
options. So the options are stored in the metadata of the first column, which the catalog keeps.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructType

from barnabas.client.config import contains_secret
from barnabas.errors import ConfigurationError

METADATA_KEY = "barnabas.options"
# Option names that Spark adds to the options of a table. They are not options of the user.
_OF_THE_CATALOG = ("provider", "owner", "location", "external", "is_managed_location", "comment", "collation")
_REPEATED_PREFIX = "option."
_CLIENT_PREFIX = "kafka."


def is_for_table(options: Mapping[str, str]) -> bool:
    """Return whether Spark passes these options to create a table. For a query, the options have no `provider`."""
    return any(name.lower() == "provider" for name in options)


def given_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the user has set.

    >>> given_options({"provider": "barnabas", "subscribe": "a", "option.subscribe": "a", "owner": "me"})
    {'subscribe': 'a'}
    """
    if not is_for_table(options):
        return dict(options)
    return {
        name: value
        for name, value in options.items()
        if name.lower() not in _OF_THE_CATALOG and not name.lower().startswith(_REPEATED_PREFIX)
    }


def with_options(schema: StructType, options: Mapping[str, str]) -> StructType:
    """Return the columns of a table, with the options in the metadata of the first column.

    :raises ConfigurationError: An option contains a secret. Everybody who can describe the table would see it.
    """
    for name, value in options.items():
        if contains_secret(name.removeprefix(_CLIENT_PREFIX), value):
            raise ConfigurationError(
                f"the catalog stores the options of a table, so option {name!r} must not contain a secret: name its"
                " source instead, ${file:PATH} or ${env:NAME}, which each executor reads"
            )
    carried = StructType.fromJson(schema.jsonValue())
    carried.fields[0].metadata = {METADATA_KEY: json.dumps(dict(options), sort_keys=True)}
    return carried


def options_of_query(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a read query: its own options, and those of its table.

    :param schema: The columns that Spark passes to the query.
    :raises ConfigurationError: The query has no options, and no table with options.
    """
    return {**_carried(options, schema), **options}


def options_of_insert(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a write query. Inserts into a table of a single topic go to that topic.

    :param schema: The columns that Spark passes to the query.
    :raises ConfigurationError: The query has no options, and no table with options.
    """
    carried = {name.lower(): value for name, value in _carried(options, schema).items()}
    kept = {name: value for name, value in carried.items() if name.startswith("kafka.")}
    topics = carried.get("subscribe", "").split(",")
    if len(topics) == 1 and topics[0].strip():
        kept["topic"] = topics[0].strip()
    return {**kept, **options}


def _carried(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    if any(name.lower() == "kafka.bootstrap.servers" for name in options):
        return {}  # the query has options of its own, even if its columns come from a table
    for field in schema.fields:
        if METADATA_KEY in (field.metadata or {}):
            carried: dict[str, str] = json.loads(field.metadata[METADATA_KEY])
            return carried
    if not options:
        raise ConfigurationError(
            "the query has no options; for a table: CREATE TABLE ... USING barnabas OPTIONS (...), without columns"
        )
    return {}
