"""Table names: the namespace of a name, and the default table name of a topic. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.errors import ConfigurationError

DEFAULT_NAMESPACE = "default"
PARTS_MAX = 10
DELETED_KEYS = "deleted-keys"
"""The format of the side table that remembers the deleted keys of a state table (deleted_keys.py)."""
DELETED_KEYS_SUFFIX = "__deleted"
"""The end of the name of this side table."""


def parse_table_name(name: str, catalog: str | None = None) -> tuple[str, ...]:
    """Split `"table"`, `"namespace.table"` or `"a.b.table"` into the levels of the namespace and the table name.

    :param catalog: The name of the catalog. As in Spark, a name of three parts may begin with it. With a catalog, other
        names of three or more parts have a namespace of several levels.
    :raises ConfigurationError: A part is empty, or the name has more parts than the warehouse supports.

    >>> parse_table_name("clicks"), parse_table_name("web.clicks"), parse_table_name("prod.web.clicks", "prod")
    (('default', 'clicks'), ('web', 'clicks'), ('web', 'clicks'))
    """
    parts = tuple(name.split("."))
    if len(parts) > 2 and parts[0] == catalog:
        parts = parts[1:]
    if not all(parts) or len(parts) > PARTS_MAX:
        raise ConfigurationError(f"invalid table name {name!r}: use 'table' or 'namespace.table'")
    if len(parts) > 2 and catalog is None:
        raise ConfigurationError(
            f"invalid table name {name!r}: this warehouse has no catalog name; use 'table' or 'namespace.table', or "
            "name the catalog of catalog.namespace.table with --catalog NAME"
        )
    return parts if len(parts) > 1 else (DEFAULT_NAMESPACE, *parts)


def table_name_of_topic(topic: str) -> str:
    """Return the default name of a topic's table.

    >>> table_name_of_topic("web.clicks-v2")
    'web_clicks_v2'
    """
    return "".join(letter if letter.isalnum() else "_" for letter in topic)


def tables_of_topics(topics: Iterable[str]) -> dict[str, str]:
    """Return the topic of each table if each topic has a table named after it.

    :raises ConfigurationError: Two topics have the same table name.

    >>> tables_of_topics(["clicks", "web.views"])
    {'clicks': 'clicks', 'web_views': 'web.views'}
    """
    tables: dict[str, str] = {}
    for topic in topics:
        name = table_name_of_topic(topic)
        # Some catalogs and file systems ignore case in names.
        other = next((known for table, known in tables.items() if table.lower() == name.lower()), None)
        if other is not None:
            raise ConfigurationError(
                f"topics {other!r} and {topic!r} have the same default table {name!r}: load one of them separately "
                "with a table name, table=... (--table NAME)"
            )
        tables[name] = topic
    return tables
