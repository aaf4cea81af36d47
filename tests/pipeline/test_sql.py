"""The same statements by DuckDB and by Spark give the same rows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import barnabas
from barnabas.sql.duckdb_engine import DuckDbEngine
from barnabas.sql.engine import Engine
from barnabas.sql.errors import SqlError, UnknownTopicError
from barnabas.sql.sampling import ValueOptions
from barnabas.sql.spark_engine import SparkEngine
from barnabas.sql.topics import Topics

pytest.importorskip("duckdb")

TOPIC, OTHER = "web.clicks-1", "pages"
BEGAN_MS = 1_700_000_000_000
HEADERS = [("trace", b"7"), ("trace", b"8")]
STATEMENTS = (
    f'select * from "{TOPIC}" where "partition" = 1 and "offset" < 3 order by "offset"',
    f"""select page, count(*) as n, max(timestamp) as last, avg(ms) as ms from "{TOPIC}"
        where timestamp >= timestamp '2023-11-14 22:14:00' and ok group by page order by page""",
    f"""select headers['trace'] as trace, headers['none'] as nothing, count(*) as n from "{TOPIC}" group by all""",
    f"select headers from {OTHER} limit 1",
    f"""select p.title, count(*) as n from "{TOPIC}" c join {OTHER} p on c.page = p.key
        group by p.title order by p.title""",
)


def rows(engine: Engine, text: str) -> list[dict[str, object]]:
    (query,) = engine.split(text)
    return [row for batch in engine.run(query).batches for row in batch.to_pylist()]


@pytest.mark.timeout(600)
def test_spark_gives_what_duckdb_gives(broker, spark, tmp_path: Path) -> None:
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic(TOPIC, partitions=2, config={"retention.ms": "-1"})
    with barnabas.Producer(broker.bootstrap) as producer:
        for number in range(200):
            fields = {"page": f"/{number % 3}", "ms": number, "ok": number % 2 == 0, "key": "other"}
            at_ms = BEGAN_MS + number * 1_000
            producer.send(
                TOPIC,
                json.dumps(fields).encode(),
                key=b"\xff",
                headers=HEADERS,
                partition=number % 2,
                timestamp_ms=at_ms,
            )
        for number in range(3):
            producer.send(OTHER, json.dumps({"title": f"page {number}"}).encode(), key=f"/{number}".encode())
    file = tmp_path / "secret.csv"
    file.write_text("secret\n")
    with Topics(broker.bootstrap, ValueOptions()) as topics, DuckDbEngine(topics) as duckdb:
        engine = SparkEngine(topics, spark)
        for statement in (*STATEMENTS, STATEMENTS[0]):
            by_duckdb = rows(duckdb, statement)
            assert by_duckdb
            assert rows(engine, statement) == by_duckdb
        with pytest.raises(UnknownTopicError, match=f"did you mean '{TOPIC}'"):
            engine.run('select * from "web.clicks"')
        with pytest.raises(SqlError, match="pge"):
            engine.run(f'select pge from "{TOPIC}"')
        with pytest.raises(SqlError, match="only queries"):
            engine.split(f"insert into {OTHER} select 1")
        with pytest.raises(SqlError):
            rows(engine, f"select * from csv.`{file}`")


NAMES = ["visits", "web.visits", "sqlite_master", "main.visits", "pg_class", "tables", "select", "-x", "l" * 249]
NAMES_FOR_SPARK = NAMES[:3]
"""Spark takes a while for each."""


@pytest.mark.timeout(600)
def test_each_topic_is_reached_under_its_own_name_by_both_engines(broker, spark) -> None:
    with barnabas.Producer(broker.bootstrap) as producer:
        for name in ("Visits", *NAMES):
            producer.send(name, json.dumps({"who": name}).encode()).result(60)
    with Topics(broker.bootstrap, ValueOptions()) as topics, DuckDbEngine(topics) as duckdb:
        engines: list[Engine] = [duckdb, SparkEngine(topics, spark)]
        for engine, names in zip(engines, (NAMES, NAMES_FOR_SPARK), strict=True):
            all_names = " union all ".join(f'select who, topic from "{name}"' for name in names)
            found = {(row["who"], row["topic"]) for row in rows(engine, all_names)}
            assert found == {(name, name) for name in names}
            assert rows(engine, 'select who from "Visits"') == [{"who": "Visits"}]
            for query, told in {
                'select * from visits, "Visits"': "SQL takes the topics 'Visits' and 'visits' for one table",
                "select * from VISITS": "did you mean 'Visits' or 'visits'",
                "select * from web.visits": 'contain special characters: "web.visits"',
            }.items():
                with pytest.raises(SqlError, match=told):
                    rows(engine, query)
        spark.range(1).createOrReplaceTempView("visits")
        with pytest.raises(SqlError, match="the Spark session has a table 'visits', which hides the topic"):
            rows(engines[1], "select * from visits")
        spark.catalog.dropTempView("visits")
