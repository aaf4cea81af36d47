"""The tables that a statement names, from the syntax tree of DuckDB's parser. Pure.

The tree is the output of `json_serialize_sql`. Nodes of type BASE_TABLE name tables, and `cte_map` has the tables that
the statement itself defines (WITH).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.sql.errors import SqlError

LIST_OF_TABLES = '"tables"'
"""The table name that DuckDB's syntax tree has for SHOW TABLES."""


_SPECIAL = "SHOW_SPECIAL"
BY_TEXT = frozenset({"query", "query_table"})
"""DuckDB functions that take table names or queries as text."""

_OWN_SCHEMAS = frozenset({"information_schema", "pg_catalog", "system"})
_OWN_TABLES = ("duckdb_", "pg_", "sqlite_")


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table name in a statement; `schema` and `catalog` are empty without a qualifier."""

    schema: str
    name: str
    catalog: str = ""

    def __str__(self) -> str:
        return ".".join(part for part in (self.catalog, self.schema, self.name) if part)

    @property
    def may_be_builtin(self) -> bool:
        """True if DuckDB may have a built-in table with this name."""
        return self.schema.lower() in _OWN_SCHEMAS or self.name.lower().startswith(_OWN_TABLES)


@dataclass(frozen=True, slots=True)
class NamedTables:
    """The tables that a statement names, and the tables that it defines.

    `is_list_of_tables`: True for SHOW TABLES.
    `is_special`: True for DESCRIBE, SUMMARIZE or SHOW with a keyword of DuckDB, such as `tables`.
    `by_text`: The functions in the statement that take table names as text.
    """

    named: frozenset[TableName]
    defined: frozenset[str]
    is_list_of_tables: bool = False
    is_special: bool = False
    by_text: frozenset[str] = frozenset()


def named_tables(tree: Mapping[str, Any]) -> NamedTables:
    """Return the table names in the syntax tree of a statement."""
    named: set[TableName] = set()
    defined: set[str] = set()
    shows: set[str] = set()
    specials: set[str] = set()
    functions: set[str] = set()
    for node in _nodes(tree):
        if node.get("type") == "BASE_TABLE":
            names = (node.get("schema_name") or "", node["table_name"], node.get("catalog_name") or "")
            named.add(TableName(*names))
        elif node.get("type") == "SHOW_REF":
            shows.add(node.get("table_name") or "")
            specials.add(node.get("show_type") or "")
        elif node.get("type") == "TABLE_FUNCTION":
            functions.add((node.get("function") or {}).get("function_name") or "")
        if "cte_map" in node:
            defined.update(entry["key"].lower() for entry in node["cte_map"]["map"])
    by_text = frozenset(functions & BY_TEXT)
    return NamedTables(frozenset(named), frozenset(defined), LIST_OF_TABLES in shows, _SPECIAL in specials, by_text)


def check_unambiguous_names(topics: Iterable[str]) -> None:
    """Check that no two topics of a statement differ only in case, which SQL ignores.

    :raises SqlError: Two topics differ only in case.

    >>> check_unambiguous_names(["Clicks", "views", "clicks"])  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    barnabas.sql.errors.SqlError: SQL takes the topics 'Clicks' and 'clicks' for one table: query each in ...
    """
    found: dict[str, str] = {}
    for topic in sorted(set(topics)):
        other = found.setdefault(topic.lower(), topic)
        if other != topic:
            raise SqlError(
                f"SQL takes the topics {other!r} and {topic!r} for one table: query each in a statement of its own"
            )


def _nodes(tree: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    left: list[Any] = [tree]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            yield each
            left += each.values()
        elif isinstance(each, list):
            left += each
