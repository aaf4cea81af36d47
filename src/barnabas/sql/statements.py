"""Statements: told apart, checked, and asked which tables they name; by DuckDB's own parser."""

from __future__ import annotations

import re
from typing import Any

from barnabas.sql.errors import SqlError

STATEMENT_BYTES_MAX = 1024 * 1024

_BEFORE = r"(?>\s|--[^\n]*\n|/\*(?:[^*]|\*(?!/))*\*/)*"
"""What may be before a statement's first word: DuckDB's parser leaves the comments there that follow the one before."""

_EXPLAIN = re.compile(_BEFORE + r"explain\b(\s+analyze\b)?(\s*\([^)]*\))?", re.IGNORECASE)
_DESCRIBED = re.compile(_BEFORE + r'(describe|desc|summarize|show)\s+"((?:[^"]|"")+)"\s*', re.IGNORECASE)
_NAME_WITH_SIGNS = re.compile(r"\b(?:from|join)\s+([\w.]*-[\w.-]*)", re.IGNORECASE)
_KIND = re.compile(r"^[A-Z][A-Za-z ]{2,30} Error: ")
_RESERVED_COLUMN = re.compile(r"(?<!\")\boffset\b(?!\"|\s+\d)", re.IGNORECASE)
QUOTED = 'names with other signs than letters are quoted: "{}"'
REFUSED = (
    "only queries are carried out (SELECT, WITH, FROM, VALUES, DESCRIBE, SUMMARIZE, EXPLAIN): topics are read here, "
    "and nothing is written"
)


def split_statements(duckdb: Any, text: str) -> list[str]:
    """Return the queries that a text has, separated by semicolons.

    :raises SqlError: there is a statement that is no query, or the text is no SQL.
    """
    if len(text) > STATEMENT_BYTES_MAX:
        raise SqlError(f"a text of {len(text):,} letters is too long; the most are {STATEMENT_BYTES_MAX:,}")
    statements = _parse(duckdb, text)
    for statement in statements:
        if not _is_query(duckdb, statement):
            raise SqlError(REFUSED)
    return [statement.query.strip().rstrip(";") for statement in statements]


def without_explain(query: str) -> str:
    """Return the query that is to be explained; another one as it is.

    >>> without_explain("explain analyze select 1"), without_explain("-- of one\\n explain select 1")
    ('select 1', 'select 1')
    """
    explain = _EXPLAIN.match(query)
    return query if explain is None else query[explain.end() :].lstrip()


def described_table(query: str) -> tuple[str, str] | None:
    """Return the word and the table of a statement that describes one quoted table; None for another statement.

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
    """Return what is the likely reason why a statement is no SQL, for who knows topics better than SQL's words."""
    signs = _NAME_WITH_SIGNS.search(text)
    if signs:
        return f"; {QUOTED.format(signs[1])}"
    return '; offset is a word of SQL, the column is quoted: "offset"' if _RESERVED_COLUMN.search(text) else ""


def first_line(error: BaseException) -> str:
    """Return what an error of DuckDB says, in one line, without the excerpt of the statement.

    >>> first_line(ValueError('Binder Error: no column "pge"!\\nCandidate bindings: "page"\\n\\nLINE 1: select'))
    'no column "pge"; candidate bindings: "page"'
    """
    told = str(error).partition("\n\nLINE ")[0]
    head, *more = [line.strip() for line in told.split("\n") if line.strip()] or [type(error).__name__]
    text = _KIND.sub("", head).rstrip(".!")
    hints = [line[:1].lower() + line[1:] for line in more[:1] if not line.endswith(":")]
    return "; ".join([text, *hints])
