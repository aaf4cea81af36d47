"""Queries by DuckDB on topics in memory: what is asked of the brokers, what comes back, what is refused."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.errors import ConfigurationError, TimedOutError
from barnabas.sql.duckdb_engine import DuckDbEngine
from barnabas.sql.errors import SqlError, UnknownTopicError
from barnabas.sql.record_columns import RECORD_COLUMNS, RecordRows
from barnabas.sql.topics import TopicTable, find_topic
from barnabas.sql.value_columns import JsonColumns
from tests.support.searches import examples

pytest.importorskip("duckdb")
ROWS_PER_BATCH = 1_000
PATIENCE_S = 60


class ListedTopics:
    """In the place of a cluster: topics with `batches` batches of rows each, whose records have the field `ms`."""

    def __init__(self, *names: str, batches: int = 3) -> None:
        self.known = list(names)
        self.batches = batches
        self.fields = {"ms": "long"}
        self.asked: list[tuple[str, list[str], str]] = []
        self.read_batches = 0
        self.failure: Exception | None = None
        self.blocks = threading.Event()
        self.blocks.set()
        self.stopped = threading.Event()
        self.tables: dict[str, TopicTable] = {}

    def get(self, name: str) -> TopicTable:
        name = find_topic(name, self.known)
        return self.tables.get(name) or self.refresh(name)

    def refresh(self, name: str) -> TopicTable:
        self.tables[name] = TopicTable(name, RecordRows(JsonColumns(dict(self.fields))))
        return self.tables[name]

    def read(self, table: TopicTable, columns: Sequence[str], condition: ds.Expression | None) -> Iterator[Any]:
        self.asked.append((table.name, list(columns), str(condition)))
        for number in range(self.batches):
            if not self.blocks.wait(PATIENCE_S) or self.stopped.is_set():
                raise TimedOutError("stopped")
            if self.failure is not None and number == 1:
                raise self.failure
            self.read_batches += 1
            rows = _batch(table, number)
            yield (rows if condition is None else rows.filter(condition)).select(list(columns))

    def stop_reading(self) -> None:
        self.stopped.set()
        self.blocks.set()


def _batch(table: TopicTable, number: int) -> pa.RecordBatch:
    first = number * ROWS_PER_BATCH
    columns = {
        "topic": pa.repeat(table.name, ROWS_PER_BATCH),
        "partition": pa.repeat(pa.scalar(0, pa.int32()), ROWS_PER_BATCH),
        "offset": pa.array(range(first, first + ROWS_PER_BATCH), pa.int64()),
        "timestamp": pa.array(range(first, first + ROWS_PER_BATCH), pa.int64()).cast(RECORD_COLUMNS.field(3).type),
        "ms": pa.array([row % 10 for row in range(ROWS_PER_BATCH)], pa.int64()),
    }
    arrays = [columns.get(field.name, pa.nulls(ROWS_PER_BATCH, field.type)) for field in table.schema]
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)


@pytest.fixture
def topics() -> ListedTopics:
    return ListedTopics("clicks", "web.page-views")


@pytest.fixture
def engine(topics) -> Iterator[DuckDbEngine]:
    with DuckDbEngine(topics) as made:
        yield made


def rows(engine: DuckDbEngine, query: str) -> list[tuple[object, ...]]:
    (one,) = engine.split(query)
    return [tuple(row.values()) for batch in engine.run(one).batches for row in batch.to_pylist()]


def test_a_topic_is_a_table_also_with_a_name_that_is_quoted(engine, topics) -> None:
    assert rows(engine, 'select count(*), min("offset"), max("offset") from "web.page-views"') == [(3_000, 0, 2_999)]
    assert topics.asked == [("web.page-views", ["offset"], "None")]


def test_topics_are_joined(engine) -> None:
    query = """select count(*) from clicks join "web.page-views" w using ("offset") where clicks."offset" < 10"""
    assert rows(engine, query) == [(10,)]


def test_conditions_and_columns_reach_what_reads(engine, topics) -> None:
    query = """with late as (select * from clicks where timestamp >= timestamptz '1970-01-01 00:00:00.001Z')
        select ms from late where "offset" between 1500 and 1502 and "partition" = 0"""
    assert rows(engine, query) == [(0,), (1,), (2,)]
    ((_, columns, condition),) = topics.asked
    assert columns == ["ms"]
    for told in ("timestamp >= 1970-01-01 00:00:00.001", "offset >= 1500", "offset <= 1502", "partition == 0"):
        assert told in condition


def test_now_is_a_constant_for_what_reads(engine, topics) -> None:
    assert rows(engine, "select count(*) from clicks where timestamp > now() - interval 5 minutes") == [(0,)]
    assert "timestamp > 20" in topics.asked[0][2]


def test_rows_come_as_they_are_read_and_a_limit_ends_the_reading(topics) -> None:
    topics.batches = 10_000
    with DuckDbEngine(topics) as engine:
        batches = engine.run("select * from clicks").batches
        assert next(batches).num_rows
        batches.close()
        assert topics.read_batches < 1_000
        assert len(rows(engine, "select * from clicks limit 5")) == 5
        assert topics.read_batches < 2_000


def test_a_sort_that_is_larger_than_the_memory_goes_to_disk(topics) -> None:
    topics.batches = 400
    with DuckDbEngine(topics, memory="80MB") as engine:
        query = 'select "offset", repeat(\'x\', 200) from clicks order by hash("offset")'
        found = [offset for batch in engine.run(query).batches for offset in batch.column(0).to_pylist()]
    assert len(found) == 400_000
    assert len(set(found)) == 400_000


def test_a_name_that_is_no_topic_is_told_with_those_that_are_alike(engine) -> None:
    with pytest.raises(UnknownTopicError, match="no topic 'clikcs'; did you mean 'clicks'"):
        engine.run("select * from clikcs")


def test_a_column_that_does_not_exist_is_told_with_those_that_are_alike(engine) -> None:
    with pytest.raises(SqlError, match='"mss" not found in FROM clause; candidate bindings: "ms"'):
        engine.run("select mss from clicks")


def test_a_field_that_came_later_is_found(engine, topics) -> None:
    rows(engine, "select ms from clicks limit 1")
    topics.fields["page"] = "string"
    assert rows(engine, "select page from clicks limit 1") == [(None,)]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("select * from web.page-views", 'contain special characters: "web.page-views"'),
        ("select offset from clicks", 'quote the column: "offset"'),
        ("selec 1", "syntax error at or near"),
    ],
)
def test_what_is_no_sql_is_told_in_a_line(engine, text: str, told: str) -> None:
    with pytest.raises(SqlError) as caught:
        engine.split(text)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    [
        "copy (select 1) to 'OUT'",
        "attach 'OUT'",
        "install httpfs",
        "load httpfs",
        "create table t as select 1",
        "insert into clicks values (1)",
        "set memory_limit = '100GB'",
        "pragma database_list",
        "call pragma_version()",
        "export database 'OUT'",
        "explain analyze create table t as select 1",
        "explain analyze copy (select 1) to 'OUT'",
        "select 1; drop view clicks",
    ],
)
def test_only_queries_are_carried_out(engine, tmp_path: Path, text: str) -> None:
    with pytest.raises(SqlError, match="only queries are allowed"):
        engine.split(text.replace("OUT", str(tmp_path / "out")))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "query",
    [
        "select * from read_csv('FILE')",
        "select * from read_text('FILE')",
        "select * from read_blob('FILE')",
        "select * from read_json('FILE')",
        "select * from read_parquet('FILE')",
        "select * from glob('FILE*')",
        "select * from sniff_csv('FILE')",
        "select * from 'FILE'",
        'select * from "FILE"',
        "select * from read_csv('http://127.0.0.1:1/x.csv')",
    ],
)
def test_no_file_of_the_machine_can_be_read(engine, tmp_path: Path, query: str) -> None:
    file = tmp_path / "secret.csv"
    file.write_text("secret\n1\n")
    with pytest.raises(SqlError) as caught:
        rows(engine, query.replace("FILE", str(file)))
    assert "secret\n" not in str(caught.value)


def test_no_variable_of_this_process_is_a_table(engine) -> None:
    secret = pa.table({"a": [1]})
    with pytest.raises(UnknownTopicError):
        rows(engine, "select * from secret")
    assert secret.num_rows


def test_what_goes_wrong_while_reading_is_told_as_it_is(engine, topics) -> None:
    topics.failure = TimedOutError("no broker answers")
    with pytest.raises(TimedOutError, match="no broker answers"):
        rows(engine, "select sum(ms) from clicks")
    topics.failure = None
    assert rows(engine, "select 1") == [(1,)]


def test_whoever_stops_waiting_ends_the_query(topics, monkeypatch: pytest.MonkeyPatch) -> None:
    topics.blocks.clear()
    with DuckDbEngine(topics) as engine:
        result = engine._thread.submit

        def submit_and_be_interrupted(work: Any, *arguments: Any) -> Any:
            future = result(work, *arguments)
            monkeypatch.setattr(future, "result", _interrupt)
            return future

        monkeypatch.setattr(engine._thread, "submit", submit_and_be_interrupted)
        with pytest.raises(KeyboardInterrupt):
            engine.run("select sum(ms) from clicks")
        assert topics.stopped.is_set()


def _interrupt() -> None:
    raise KeyboardInterrupt


def test_rows_that_are_left_may_be_let_go_after_the_engine(topics) -> None:
    topics.batches = 10_000
    with DuckDbEngine(topics) as engine:
        batches = engine.run("select * from clicks").batches
        assert next(batches).num_rows
    batches.close()


def test_what_is_no_size_of_memory_is_refused(topics) -> None:
    with pytest.raises(ConfigurationError, match="Memory"):
        DuckDbEngine(topics, memory="much")


def test_several_statements_are_told_apart(engine) -> None:
    assert engine.split("select ';';\nvalues (1);") == ["select ';'", "values (1)"]
    assert engine.split(" ") == []
    # To which statement a comment between two belongs differs from one release of DuckDB to the next.
    commented = engine.split("select ';'; -- a; b\n/* c; */ explain select 2; -- d\nvalues (1);")
    assert [len(rows(engine, each)) for each in commented] == [1, 1, 1]
    assert rows(engine, commented[0]) == [(";",)]
    assert rows(engine, "explain select 1")
    assert [row[0] for row in rows(engine, "describe clicks")][-1] == "ms"


OWN_NAMES = [
    *("sqlite_master", "pg_class", "pg_orders", "duckdb_tables", "main", "temp", "system", "information_schema"),
    *("information_schema.tables", "main.clicks", "tables", "databases", "variables", "x.csv", "select", "a.b.c", "0"),
]
LEGAL = st.text("abAB01._-", min_size=1, max_size=8).filter(lambda name: name not in (".", ".."))


@given(st.sets(LEGAL | st.sampled_from([*OWN_NAMES, "Main", "PG_CLASS", "query"]), min_size=1, max_size=6), st.data())
@settings(max_examples=examples(20))
def test_each_topic_is_reached_under_its_own_name(names: set[str], data: st.DataObject) -> None:
    topics = ListedTopics(*sorted(names), batches=1)
    with DuckDbEngine(topics) as engine:  # type: ignore[arg-type]
        for name in data.draw(st.permutations(sorted(names))):
            assert rows(engine, f'select distinct topic from "{name}"') == [(name,)]
            assert ("ms", "BIGINT") in {row[:2] for row in rows(engine, f'describe "{name}"')}
        one, other = data.draw(st.lists(st.sampled_from(sorted(names)), min_size=2, max_size=2))
        both = f'select distinct o.topic, p.topic as other from "{one}" o, "{other}" p'
        if one != other and one.lower() == other.lower():
            with pytest.raises(SqlError, match="query each in a statement of its own"):
                rows(engine, both)
        else:
            assert rows(engine, both) == [(one, other)]


@pytest.mark.parametrize(
    ("query", "told"),
    [
        ("select * from main.views", 'contain special characters: "main.views"'),
        ("select * from temp.clicks", "no topic 'temp.clicks'; did you mean 'clicks'"),
        ("select * from temp.main.clicks", "no topic 'temp.main.clicks'"),
        ("select * from a.b.c", 'contain special characters: "a.b.c"'),
        ("select * from CLICKS", "no topic 'CLICKS'; did you mean"),
        ('select * from clicks, "Clicks"', "SQL takes the topics 'Clicks' and 'clicks' for one table"),
        ("select * from query_table('clicks')", "the function query_table does not support topics"),
        ("select * from query('from clicks')", "the function query does not support topics"),
    ],
)
def test_a_name_that_may_mean_another_topic_is_refused(query: str, told: str) -> None:
    with DuckDbEngine(ListedTopics("clicks", "Clicks", "main.views", "a.b.c", "views")) as engine:  # type: ignore[arg-type]
        rows(engine, 'select topic from "clicks" limit 1')
        with pytest.raises(SqlError, match=re.escape(told)):
            rows(engine, query)


def test_tables_of_duckdb_are_there_where_no_topic_has_their_name(engine) -> None:
    assert rows(engine, "select count(*) >= 0 from sqlite_master") == [(True,)]
    assert rows(engine, "select count(*) >= 0 from information_schema.tables") == [(True,)]
    assert rows(engine, "with clicks2 as (select 1 as a) select a from CLICKS2") == [(1,)]
