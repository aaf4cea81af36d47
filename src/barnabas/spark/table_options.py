"""How the options of `CREATE TABLE ... USING barnabas OPTIONS (...)` reach the queries on the table.

Spark hands the options to `schema` when the table is made. To a query on the table it hands the table's columns, and
of the options nothing. So the first column carries them, in the metadata that the catalog keeps with each column.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from pyspark.sql.types import StructType

from barnabas.errors import ConfigurationError

METADATA_KEY = "barnabas.options"
# What Spark puts among a table's options beside those that the user gave.
_OF_THE_CATALOG = ("provider", "owner", "location", "external", "is_managed_location", "comment", "collation")
_REPEATED_PREFIX = "option."


def is_for_table(options: Mapping[str, str]) -> bool:
    """Return whether a table is being made, and not a query planned."""
    return any(name.lower() == "provider" for name in options)


def given_options(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the user gave.

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
    """Return the columns of a table, the first of which carries the options."""
    carried = StructType.fromJson(schema.jsonValue())
    carried.fields[0].metadata = {METADATA_KEY: json.dumps(dict(options), sort_keys=True)}
    return carried


def options_of_query(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a query that reads: its own, and those of its table where it has one.

    :param schema: the columns that Spark hands to a query.
    :raises ConfigurationError: it is a query on a table that carries none.
    """
    return {**_carried(options, schema), **options}


def options_of_insert(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    """Return the options of a query that writes. What goes into a table of one topic goes to that topic.

    :param schema: the columns that Spark hands to a query.
    :raises ConfigurationError: it is a query on a table that carries none.
    """
    carried = {name.lower(): value for name, value in _carried(options, schema).items()}
    kept = {name: value for name, value in carried.items() if name.startswith("kafka.")}
    topics = carried.get("subscribe", "").split(",")
    if len(topics) == 1 and topics[0].strip():
        kept["topic"] = topics[0].strip()
    return {**kept, **options}


def _carried(options: Mapping[str, str], schema: StructType) -> dict[str, str]:
    if any(name.lower() == "kafka.bootstrap.servers" for name in options):
        return {}  # no table, though its columns may come from one
    for field in schema.fields:
        if METADATA_KEY in (field.metadata or {}):
            carried: dict[str, str] = json.loads(field.metadata[METADATA_KEY])
            return carried
    if not options:
        raise ConfigurationError(
            "there are no options; for a table: CREATE TABLE ... USING barnabas OPTIONS (...), without columns"
        )
    return {}
