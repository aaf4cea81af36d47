"""Queries on topics with Spark, for topics too large for one process. Each topic is a view with the same columns as in
DuckDB.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from functools import partial
from typing import Any

import pyarrow as pa

from barnabas.spark.extras import require
from barnabas.sql.engine import Result
from barnabas.sql.errors import SqlError
from barnabas.sql.record_columns import as_text, headers_as_map
from barnabas.sql.statements import QUOTED, REFUSED
from barnabas.sql.table_names import check_unambiguous_names
from barnabas.sql.topics import Topics, TopicTable

TABLES_MAX = 100
"""The maximum number of topics in one statement."""
WORD_LETTERS_SHOWN = 30

_OUTSIDE_QUOTES = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"]|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/""", re.DOTALL)
_FIRST_WORDS = frozenset({"select", "with", "from", "values", "describe", "desc", "explain", "show"})
_CHANGING = re.compile(r"\b(?:insert\s+(?:into|overwrite)|delete\s+from|merge\s+into|update\s+\S+\s+set)\b")


class SparkEngine:
    """Runs statements in a Spark session; see `Engine`.

    :param topics: The topics to query. The engine does not close them.
    :param spark: The session. The engine configures it so that SQL statements cannot read files.
    """

    def __init__(self, topics: Topics, spark: Any) -> None:
        self._topics = topics
        self._spark = spark
        self._queries = require("barnabas.spark.topic_queries")
        self._queries.prepare(spark)
        self._views: list[str] = []
        """The temporary views created for the last statement."""

    def split(self, text: str) -> list[str]:
        """Return the queries in a text; see `Engine`."""
        return split_queries(text)

    def run(self, query: str) -> Result:
        """Start a query; see `Engine`."""
        self._drop_views()
        self._check_names(query)
        for _ in range(TABLES_MAX):
            try:
                frame = self._queries.begin_query(self._spark, query)
            except self._queries.QueryRefusedError as error:
                if error.unknown_table is None:
                    raise SqlError(str(error)) from None
                table = self._topics.get(error.unknown_table)
                if table.name in self._views:
                    raise SqlError(QUOTED.format(table.name)) from None
                self._make_view(table)
            else:
                return Result(self._queries.columns_of(frame), self._rows(frame))
        raise SqlError(f"the statement names more than {TABLES_MAX} topics")

    def _check_names(self, query: str) -> None:
        """Check that Spark cannot confuse a topic in a statement with another table.

        If Spark does not find a table, it uses a view whose name differs only in case, or a table of the session.

        :raises SqlError: Two topics differ only in case, or the session has a table with the name of a topic.
        """
        named = identifiers(query)
        topics = [topic for topic in self._topics.names() if topic in named]
        check_unambiguous_names(topics)
        for topic in topics:
            if self._queries.has_table(self._spark, topic):
                raise SqlError(f"the Spark session has a table {topic!r}, which hides the topic: rename the table")

    def _rows(self, frame: Any) -> Generator[pa.RecordBatch]:
        try:
            yield from self._queries.rows_of(frame)
        except self._queries.QueryRefusedError as error:
            raise SqlError(str(error)) from None

    def _drop_views(self) -> None:
        for name in self._views:
            self._queries.drop_topic_view(self._spark, name)
        self._views = []

    def _make_view(self, table: TopicTable) -> None:
        values = table.rows.values
        decode = partial(values.decode, wanted=values.schema.names)
        self._views.append(table.name)
        self._queries.make_topic_view(
            self._spark, self._topics.settings, table.name, values.schema, decode, as_text, headers_as_map
        )


def split_queries(text: str) -> list[str]:
    """Return the queries in a text, separated by semicolons. This function needs no Spark session.

    :raises SqlError: A statement is not a query.
    """
    statements = split_at_semicolons(text)
    for statement in statements:
        if not is_query(statement):
            raise SqlError(f"{REFUSED}; this begins with {statement.split()[0][:WORD_LETTERS_SHOWN]!r}")
    return statements


def split_at_semicolons(text: str) -> list[str]:
    """Return the statements of a text. Semicolons in quotes and comments do not separate statements.

    >>> split_at_semicolons("select ';' ; -- a; b\\nselect 2;")
    ["select ';'", '-- a; b\\nselect 2']
    """
    blank = _OUTSIDE_QUOTES.sub(lambda found: " " * len(found[0]), text)
    ends = [at for at, letter in enumerate(blank) if letter == ";"] + [len(text)]
    starts = [0, *(end + 1 for end in ends)]
    pairs = zip(starts, ends, strict=False)
    return [text[start:end].strip() for start, end in pairs if blank[start:end].strip()]


def identifiers(statement: str) -> set[str]:
    """Return the names and words of a statement, without quotes.

    >>> sorted(identifiers("select 'a', `b-1` from web.c -- d"))
    ['b-1', 'from', 'select', 'web.c']
    """
    found: set[str] = set()
    for quoted in _OUTSIDE_QUOTES.findall(statement):
        if quoted[0] in '"`':
            found.add(quoted[1:-1].replace(quoted[0] * 2, quoted[0]))
    return found | set(re.findall(r"[\w.]+", _OUTSIDE_QUOTES.sub(" ", statement)))


def is_query(statement: str) -> bool:
    """Return whether a statement only reads. The check uses the words of the statement, because Spark's parser runs in
    another process.

    >>> is_query("with a as (select 1) select 'insert' from a"), is_query("with a as (select 1) insert into b from a")
    (True, False)
    """
    bare = _OUTSIDE_QUOTES.sub(" ", statement).lower()
    words = re.findall(r"[a-z_]+", bare)
    return bool(words) and words[0] in _FIRST_WORDS and not _CHANGING.search(bare)
