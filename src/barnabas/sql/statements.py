"""Splits a text into statements and checks them with DuckDB's parser, and explains errors."""

from __future__ import annotations

import re
from typing import Any

from barnabas.sql.errors import SqlError

STATEMENT_BYTES_MAX = 1024 * 1024

_BEFORE = r"(?>\s|--[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*"
"""Whitespace and comments before the first word of a statement. DuckDB's parser keeps the comments that follow the
previous statement.
"""

_EXPLAIN = re.compile(_BEFORE + r"explain\b(\s+analyze\b)?(\s*\([^)]*\))?", re.IGNORECASE)
_DESCRIBED = re.compile(_BEFORE + r'(describe|desc|summarize|show)\s+"((?:[^"]|"")+)"\s*', re.IGNORECASE)
_NAME_WITH_SIGNS = re.compile(r"\b(?:from|join)\s+([\w.]*-[\w.-]*)", re.IGNORECASE)
_KIND = re.compile(r"^[A-Z][A-Za-z ]{2,30} Error: ")
_RESERVED_COLUMN = re.compile(r"(?<!\")\boffset\b(?!\"|\s+\d)", re.IGNORECASE)
QUOTED = 'quote names that contain special characters: "{}"'
REFUSED = (
    "only queries are allowed (SELECT, WITH, FROM, VALUES, DESCRIBE, SUMMARIZE, EXPLAIN): topics can be read here, "
    "but not written"
)


def split_statements(duckdb: Any, text: str) -> list[str]:
    """Return the queries in a text, separated by semicolons.

    :raises SqlError: A statement is not a query, or the text is invalid SQL.
    """
    if len(text) > STATEMENT_BYTES_MAX:
        raise SqlError(f"a text of {len(text):,} letters is too long; the limit is {STATEMENT_BYTES_MAX:,}")
    statements = _parse(duckdb, text)
    for statement in statements:
        if not _is_query(duckdb, statement):
            raise SqlError(REFUSED)
    return [statement.query.strip().rstrip(";") for statement in statements]


def without_explain(query: str) -> str:
    """Return the query after EXPLAIN; other queries are returned unchanged.

    >>> without_explain("explain analyze select 1"), without_explain("-- of one\\n explain select 1")
    ('select 1', 'select 1')
    """
    explain = _EXPLAIN.match(query)
    return query if explain is None else query[explain.end() :].lstrip()


def described_table(query: str) -> tuple[str, str] | None:
    """Return the keyword and the table of a statement that describes one quoted table; None for other statements.

    >>> described_table('show "tables"'), described_table("describe tables")
    (('describe', 'tables'), None)
    """
    described = _DESCRIBED.fullmatch(query)
    if described is None:
        return None
    word = described[1].lower()
    return "describe" if word == "show" else word, described[2].replace('""', '"')


def _is_query(duckdb: Any, statement: Any) -> bool:
    kinds = duckdb.StatementType
    if statement.type == kinds.EXPLAIN:
        explained = _parse(duckdb, without_explain(statement.query))
        return [each.type for each in explained] == [kinds.SELECT]
    return bool(statement.type == kinds.SELECT)


def _parse(duckdb: Any, text: str) -> list[Any]:
    try:
        return list(duckdb.extract_statements(text))
    except duckdb.Error as error:
        raise SqlError(f"{first_line(error)}{_advice(text)}") from None


def _advice(text: str) -> str:
    """Return advice on the likely error in an invalid statement: an unquoted topic name, or the keyword `offset`."""
    signs = _NAME_WITH_SIGNS.search(text)
    if signs:
        return f"; {QUOTED.format(signs[1])}"
    return '; offset is an SQL keyword, quote the column: "offset"' if _RESERVED_COLUMN.search(text) else ""


def first_line(error: BaseException) -> str:
    """Return the message of a DuckDB error in one line, without the excerpt of the statement.

    >>> first_line(ValueError('Binder Error: no column "pge"!\\nCandidate bindings: "page"\\n\\nLINE 1: select'))
    'no column "pge"; candidate bindings: "page"'
    """
    message = str(error).partition("\n\nLINE ")[0]
    head, *more = [line.strip() for line in message.split("\n") if line.strip()] or [type(error).__name__]
    text = _KIND.sub("", head).rstrip(".!")
    hints = [line[:1].lower() + line[1:] for line in more[:1] if not line.endswith(":")]
    return "; ".join([text, *hints])
