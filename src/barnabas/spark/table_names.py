"""Names of tables: which namespace a name is in, and which table a topic goes into where nobody names one. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.errors import ConfigurationError

DEFAULT_NAMESPACE = "default"
PARTS_MAX = 10


def parse_table_name(name: str, catalog: str | None = None) -> tuple[str, ...]:
    """Return the levels of the namespace, and the table: of `"table"`, `"namespace.table"` or `"a.b.table"`.

    :param catalog: the name of the catalog. As in Spark, a name of three parts may begin with it; where there is a
        catalog, other names of three parts and more have a namespace of several levels.
    :raises ConfigurationError: a part is empty, or there are more than the warehouse has.

    >>> parse_table_name("clicks"), parse_table_name("web.clicks"), parse_table_name("prod.web.clicks", "prod")
    (('default', 'clicks'), ('web', 'clicks'), ('web', 'clicks'))
    """
    parts = tuple(name.split("."))
    if len(parts) > 2 and parts[0] == catalog:
        parts = parts[1:]
    if not all(parts) or len(parts) > PARTS_MAX:
        raise ConfigurationError(f"{name!r} is no table: give 'table' or 'namespace.table'")
    if len(parts) > 2 and catalog is None:
        raise ConfigurationError(
            f"{name!r} is no table of a warehouse that has no catalog with a name: give 'table' or 'namespace.table'; "
            "for catalog.namespace.table say which catalog that is (--catalog NAME)"
        )
    return parts if len(parts) > 1 else (DEFAULT_NAMESPACE, *parts)


def table_name_of_topic(topic: str) -> str:
    """Return the name of the table for a topic, where nobody chose another.

    >>> table_name_of_topic("web.clicks-v2")
    'web_clicks_v2'
    """
    return "".join(letter if letter.isalnum() else "_" for letter in topic)


def tables_of_topics(topics: Iterable[str]) -> dict[str, str]:
    """Return the topic of each table, where each topic has a table named after it.

    :raises ConfigurationError: two topics would be in the same table.

    >>> tables_of_topics(["clicks", "web.views"])
    {'clicks': 'clicks', 'web_views': 'web.views'}
    """
    tables: dict[str, str] = {}
    for topic in topics:
        name = table_name_of_topic(topic)
        # Catalogs and file systems there are that do not look at case.
        other = next((known for table, known in tables.items() if table.lower() == name.lower()), None)
        if other is not None:
            raise ConfigurationError(
                f"topics {other!r} and {topic!r} would both be loaded into table {name!r}: load one of them by itself "
                "and name its table, table=... (--table NAME)"
            )
        tables[name] = topic
    return tables
