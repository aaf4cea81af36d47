"""Which tables a statement names, read off the tree that DuckDB's parser makes of it. Pure.

The tree is that of `json_serialize_sql`: nodes of type BASE_TABLE name tables, and `cte_map` the tables that the
statement defines itself (WITH).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

LIST_OF_TABLES = '"tables"'
"""What SHOW TABLES shows, as the tree has it."""


@dataclass(frozen=True, slots=True, order=True)
class TableName:
    """A table as a statement names it; `schema` is empty unless something stands before a dot."""

    schema: str
    name: str


@dataclass(frozen=True, slots=True)
class NamedTables:
    """The tables that a statement names, those that it defines, and whether it asks which there are."""

    named: frozenset[TableName]
    defined: frozenset[str]
    is_list_of_tables: bool = False


def named_tables(tree: Mapping[str, Any]) -> NamedTables:
    """Return what a statement's tree says."""
    named: set[TableName] = set()
    defined: set[str] = set()
    shows: set[str] = set()
    for node in _nodes(tree):
        if node.get("type") == "BASE_TABLE":
            named.add(TableName(node.get("schema_name") or "", node["table_name"]))
        elif node.get("type") == "SHOW_REF":
            shows.add(node.get("table_name") or "")
        if "cte_map" in node:
            defined.update(entry["key"].lower() for entry in node["cte_map"]["map"])
    return NamedTables(frozenset(named), frozenset(defined), LIST_OF_TABLES in shows)


def _nodes(tree: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    left: list[Any] = [tree]
    while left:
        each = left.pop()
        if isinstance(each, dict):
            yield each
            left += each.values()
        elif isinstance(each, list):
            left += each
