"""Queries on topics by DuckDB, in this process: for the prompt, for small questions that want an answer at once.

Tables are topics, found when a statement names them. DuckDB pulls the records from the brokers batch by batch as it
needs them, and its rows come the same way; what it has to keep (a sort, a join) goes to a temporary folder when it is
more than the memory allowed. Nothing else of the machine is in its reach: no files, no network, no extensions.

One thread has the connection, and nobody else. So Ctrl-C finds the main thread waiting, whatever DuckDB does.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Self

import pyarrow as pa

from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.extras import require
from barnabas.sql.engine import Result
from barnabas.sql.errors import InterruptedQueryError, SqlError, UnknownTopicError
from barnabas.sql.statements import QUOTED, described_table, first_line, split_statements, without_explain
from barnabas.sql.table_names import NamedTables, TableName, check_unambiguous_names, named_tables
from barnabas.sql.topic_dataset import TopicDataset
from barnabas.sql.topics import Topics, TopicTable

ROWS_AT_ONCE = 2_048
MEMORY = "1GB"
END_OF_ROWS = None


def import_duckdb() -> Any:
    """Return the module duckdb.

    :raises MissingExtraError: it is not installed.
    """
    return require("duckdb", "sql")


class DuckDbEngine:
    """Carries out statements, one after the other; see `Engine`.

    :param topics: those that are queried; the engine does not close them.
    :param memory: how much DuckDB may keep in memory, as `1GB`.
    :raises ConfigurationError: duckdb is not installed, or `memory` is no size.
    """

    def __init__(self, topics: Topics, *, memory: str = MEMORY) -> None:
        self._duckdb = import_duckdb()
        self._topics = topics
        self._known: dict[str, TopicTable] = {}
        """The topics that DuckDB knows."""
        # The list itself, and not a method of this: the connection would keep what keeps the connection.
        self._failures: list[BaseException] = []
        self._folder = tempfile.TemporaryDirectory(prefix="barnabas-sql-")
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="barnabas-sql")
        self._connection = self._duckdb.connect()
        try:
            self._wait(partial(self._confine, memory))
        except SqlError as error:
            self.close()
            raise ConfigurationError(str(error)) from None

    def _confine(self, memory: str) -> None:
        settings = {
            "memory_limit": memory,
            "temp_directory": self._folder.name,
            "enable_external_access": "false",
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "python_enable_replacements": "false",
            "TimeZone": "UTC",
        }
        for name, value in settings.items():
            self._connection.execute(f"set {name} = $value", {"value": value})
        self._connection.execute("set lock_configuration = true")

    def split(self, text: str) -> list[str]:
        """Return the queries that a text has; see `Engine`."""
        return split_statements(self._duckdb, text)

    def run(self, query: str) -> Result:
        """Begin a query; see `Engine`."""
        tables = self._named(query)
        if tables.is_special and (described := described_table(query)) and self._is_topic(described[1]):
            query = "{} select * from {}".format(described[0], '"' + described[1].replace('"', '""') + '"')
            tables = self._named(query)
        if tables.is_list_of_tables:
            return _list_of(self._topics.names())
        names = self._make_tables(tables)
        try:
            return self._begin(query)
        except SqlError:
            if not self._refresh(names):
                raise
        return self._begin(query)  # with fields that were not there when the topic was looked at first

    def _named(self, query: str) -> NamedTables:
        """Return which tables a query names, by DuckDB's parser."""
        ask = partial(self._connection.execute, "select json_serialize_sql($query::varchar)")
        tree = self._wait(lambda: json.loads(ask({"query": without_explain(query)}).fetchall()[0][0]))
        if tree.get("error"):
            raise SqlError(first_line(SqlError(tree.get("error_message", "no query"))))
        return named_tables(tree)

    def _make_tables(self, tables: NamedTables) -> list[str]:
        """Make tables of the topics that a query names, and return their names."""
        for function in tables.by_text:
            raise SqlError(f"the function {function} does not find topics: name them after FROM")
        found = [self._topic_named(name, tables) for name in sorted(tables.named)]
        topics = {table.name: table for table in found if table is not None}
        check_unambiguous_names(name for name in topics if name.lower() not in tables.defined)
        for name in set(self._known) - set(topics):  # DuckDB would take it for another one that differs by case
            self._wait(partial(self._connection.unregister, name))
            del self._known[name]
        for table in topics.values():
            if self._known.get(table.name) is not table:
                self._add(table)
        return list(topics)

    def _topic_named(self, table: TableName, tables: NamedTables) -> TopicTable | None:
        """Return the topic of a name; None where it is a table of the statement's own, or of DuckDB's.

        A topic goes before a table of DuckDB's own that has its name.
        """
        name = str(table)
        try:
            found = self._topics.get(name)
        except UnknownTopicError:
            if table.may_be_builtin or (not table.schema and name.lower() in tables.defined):
                return None
            raise
        if table.schema:
            raise SqlError(QUOTED.format(found.name))
        return found

    def _is_topic(self, name: str) -> bool:
        try:
            return self._topics.get(name).name == name
        except UnknownTopicError:
            return False

    def _add(self, table: TopicTable) -> None:
        dataset = TopicDataset(table.schema, partial(self._topics.read, table), self._failures.append)
        self._wait(partial(self._connection.register, table.name, dataset))
        self._known[table.name] = table

    def _refresh(self, names: Sequence[str]) -> bool:
        """Look at topics anew; return whether one has got other columns."""
        before = {name: self._known[name].schema for name in names}
        for name in names:
            self._add(self._topics.refresh(name))
        return any(before[name] != self._known[name].schema for name in names)

    def _begin(self, query: str) -> Result:
        self._failures.clear()
        reader = self._wait(lambda: self._connection.sql(query).to_arrow_reader(ROWS_AT_ONCE))
        return Result(reader.schema, self._rows(reader))

    def _rows(self, reader: pa.RecordBatchReader) -> Generator[pa.RecordBatch]:
        try:
            while (batch := self._wait(partial(_next_of, reader))) is not END_OF_ROWS:
                yield batch
        finally:
            try:
                self._thread.submit(reader.close)
            except RuntimeError:  # the engine is closed, and its thread has ended
                reader.close()

    def _wait(self, work: Callable[[], Any]) -> Any:
        """Have something done on the connection's thread; whatever ends the wait ends it too."""
        under_way = self._thread.submit(work)
        try:
            return under_way.result()
        except (self._duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._as_sql_error(error) from None
        except BaseException:
            if not under_way.done():
                self._topics.stop_reading()
                self._connection.interrupt()
                under_way.exception()  # nobody goes on before it has ended
            raise

    def _as_sql_error(self, error: BaseException) -> BaseException:
        """Return what DuckDB's error is about: the error of reading that it passes on as text, or its own."""
        if self._failures:
            failure = self._failures[0]
            self._failures.clear()
            return failure
        if isinstance(error, self._duckdb.InterruptException):
            return InterruptedQueryError("the query was interrupted")
        return error if isinstance(error, BarnabasError) else SqlError(first_line(error))

    def close(self) -> None:
        """End what is under way, and forget all."""
        self._topics.stop_reading()
        self._connection.interrupt()
        self._thread.shutdown()
        self._connection.close()
        self._folder.cleanup()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _next_of(reader: pa.RecordBatchReader) -> pa.RecordBatch | None:
    """Return the next rows; END_OF_ROWS as a value, since a future cannot pass StopIteration on."""
    try:
        return reader.read_next_batch()
    except StopIteration:
        return END_OF_ROWS


def _list_of(topics: Sequence[str]) -> Result:
    batch = pa.record_batch([pa.array(topics, pa.string())], names=["name"])
    return Result(batch.schema, (each for each in [batch]))
