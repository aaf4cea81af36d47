"""Queries on topics with DuckDB in this process, for interactive use and small queries.

Tables are topics, looked up when a statement names them. DuckDB reads records from the brokers in batches, and returns
rows in batches. State that exceeds the memory limit (a sort, a join) goes to a temporary directory. DuckDB has no
access to other files, the network or extensions.

A separate thread owns the connection. The main thread only waits for it, so Ctrl-C works during any DuckDB call.
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

    :raises MissingExtraError: duckdb is not installed.
    """
    return require("duckdb", "sql")


class DuckDbEngine:
    """Runs queries in DuckDB, one after the other; see `Engine`.

    :param topics: The topics to query. The engine does not close them.
    :param memory: The memory limit of DuckDB, such as `1GB`.
    :raises ConfigurationError: duckdb is not installed, or `memory` is invalid.
    """

    def __init__(self, topics: Topics, *, memory: str = MEMORY) -> None:
        self._duckdb = import_duckdb()
        self._topics = topics
        self._known: dict[str, TopicTable] = {}
        """The topics that are registered with DuckDB."""
        # Pass the list's `append` to TopicDataset: a method of this class would create a reference cycle.
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
        """Return the queries in a text; see `Engine`."""
        return split_statements(self._duckdb, text)

    def run(self, query: str) -> Result:
        """Start a query; see `Engine`."""
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
        return self._begin(query)  # the topic now has fields that it lacked at the first lookup

    def _named(self, query: str) -> NamedTables:
        """Return the tables that a query names, according to DuckDB's parser."""
        ask = partial(self._connection.execute, "select json_serialize_sql($query::varchar)")
        tree = self._wait(lambda: json.loads(ask({"query": without_explain(query)}).fetchall()[0][0]))
        if tree.get("error"):
            raise SqlError(first_line(SqlError(tree.get("error_message", "no query"))))
        return named_tables(tree)

    def _make_tables(self, tables: NamedTables) -> list[str]:
        """Register the topics that a query names, and return their names."""
        for function in tables.by_text:
            raise SqlError(f"the function {function} does not support topics: name the topics after FROM")
        found = [self._topic_named(name, tables) for name in sorted(tables.named)]
        topics = {table.name: table for table in found if table is not None}
        check_unambiguous_names(name for name in topics if name.lower() not in tables.defined)
        for name in set(self._known) - set(topics):  # DuckDB ignores case, and could confuse two topics
            self._wait(partial(self._connection.unregister, name))
            del self._known[name]
        for table in topics.values():
            if self._known.get(table.name) is not table:
                self._add(table)
        return list(topics)

    def _topic_named(self, table: TableName, tables: NamedTables) -> TopicTable | None:
        """Return the topic of a table name; None if the table is defined in the statement or built into DuckDB.

        A topic takes precedence over a built-in table of the same name.
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
        """Look up topics again, and return whether the columns of any topic have changed."""
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
            except RuntimeError:  # `close` has already stopped the engine's thread
                reader.close()

    def _wait(self, work: Callable[[], Any]) -> Any:
        """Run a function on the thread that owns the connection, and wait for it. If the wait is interrupted, stop the
        function, too.
        """
        under_way = self._thread.submit(work)
        try:
            return under_way.result()
        except (self._duckdb.Error, pa.ArrowException, OSError) as error:
            raise self._as_sql_error(error) from None
        except BaseException:
            if not under_way.done():
                self._topics.stop_reading()
                self._connection.interrupt()
                under_way.exception()  # wait until the function returns or raises an error
            raise

    def _as_sql_error(self, error: BaseException) -> BaseException:
        """Return the cause of a DuckDB error: the error of `Topics.read` if there is one, else the DuckDB error."""
        if self._failures:
            failure = self._failures[0]
            self._failures.clear()
            return failure
        if isinstance(error, self._duckdb.InterruptException):
            return InterruptedQueryError("the query was interrupted")
        return error if isinstance(error, BarnabasError) else SqlError(first_line(error))

    def close(self) -> None:
        """Interrupt the running query, close the connection, and remove the temporary directory."""
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
    """Return the next rows, or END_OF_ROWS after the last ones. A future cannot raise StopIteration."""
    try:
        return reader.read_next_batch()
    except StopIteration:
        return END_OF_ROWS


def _list_of(topics: Sequence[str]) -> Result:
    batch = pa.record_batch([pa.array(topics, pa.string())], names=["name"])
    return Result(batch.schema, (each for each in [batch]))
