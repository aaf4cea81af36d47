"""The changes of a real PostgreSQL server, loaded into tables with the same rows as the server's table.

The server decodes its log with `pgoutput`, as for Debezium; `tests/support/postgres_server.py` turns this into events.
`make suites SUITE=changes` runs this test.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas import Admin, Producer
from barnabas.spark import load, scan_table
from tests.support.broker_process import BrokerProcess
from tests.support.postgres_server import ChangeReader, PostgresServer, Row, find_binaries

ROUNDS = int(os.environ.get("CHANGES_RUNS", "0"))
pytestmark = [
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not ROUNDS, reason="`make suites SUITE=changes` runs the tests with PostgreSQL"),
]
TABLE = """
CREATE TABLE orders (
    id bigint PRIMARY KEY, customer text, status text NOT NULL, amount double precision, paid boolean, note text,
    changed_at timestamptz DEFAULT clock_timestamp()
);
ALTER TABLE orders REPLICA IDENTITY FULL;
"""
NOTES = ("NULL", "''", "'it''s'", "E'a\\tb\\n\"c\" \\\\ d'", "'Zoë 東京 🚚'", "repeat(md5(random()::text), 400)")
KEYS = 60


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    binaries = find_binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server is installed: `apt-get install postgresql`")
    with PostgresServer(binaries) as running:
        yield running


def transactions(draw: random.Random, count: int, columns: list[str]) -> str:
    """Return a script of transactions on few rows. Some of them are rolled back."""
    script = []
    for _ in range(count):
        script.append("BEGIN;")
        # The ids increase within a transaction, so that two sessions do not wait for each other in a circle.
        for key in sorted(draw.sample(range(KEYS), draw.choice((1, 1, 2, 5)))):
            script.append(statement(draw, key, columns))
        script.append("ROLLBACK;" if draw.random() < 0.1 else "COMMIT;")
    return "\n".join(script)


def statement(draw: random.Random, key: int, columns: list[str]) -> str:
    values = {
        "customer": f"'c{draw.randrange(9)}'",
        "status": f"'s{draw.randrange(5)}'",
        "amount": f"{draw.randrange(-9_999, 9_999)} / 7.0",
        "paid": draw.choice(("true", "false", "NULL")),
        "note": draw.choice(NOTES),
        **{name: str(draw.randrange(1_000_000)) for name in columns},
    }
    kind = draw.random()
    if kind < 0.2:
        return f"DELETE FROM orders WHERE id = {key};"
    if kind < 0.25:
        is_free = f"NOT EXISTS (SELECT FROM orders WHERE id = {key + KEYS})"
        return f"UPDATE orders SET id = id + {KEYS} WHERE id = {key} AND {is_free};"
    if kind < 0.3:
        return f"DELETE FROM orders WHERE id = {key + KEYS};"
    chosen = {name: values[name] for name in draw.sample(sorted(values), draw.randrange(1, len(values)))} | {
        "status": values["status"]
    }
    changed = ", ".join(f"{name} = {value}" for name, value in chosen.items())
    return (
        f"INSERT INTO orders (id, {', '.join(chosen)}) VALUES ({key}, {', '.join(chosen.values())}) "
        f"ON CONFLICT (id) DO UPDATE SET {changed}, changed_at = clock_timestamp();"
    )


def records_of(event: Row) -> list[tuple[bytes, bytes | None]]:
    """Return the records that Debezium sends for a change; a changed key is a delete and an insert."""
    before, after = event["before"], event["after"]
    if before is not None and after is not None and before["id"] != after["id"]:
        return [
            *records_of({**event, "op": "d", "after": None}),
            *records_of({**event, "op": "c", "before": None}),
        ]
    key = json.dumps({"id": (after or before)["id"]}).encode()
    value = json.dumps(event, ensure_ascii=False).encode()
    return [(key, value), (key, None)] if event["op"] == "d" else [(key, value)]


def loaded(folder: Path, table_format: str, columns: list[str]) -> dict[int, Row]:
    found: dict[int, Row] = {}
    for batch in scan_table(folder, "orders", table_format=table_format):
        for row in batch.to_pylist():
            assert row["id"] not in found
            found[row["id"]] = {name: row.get(name) for name in columns}
    return found


def expected(server: PostgresServer, columns: list[str]) -> dict[int, Row]:
    rows = {row["id"]: row for row in server.rows("orders")}
    return {key: {name: row.get(name) for name in columns} for key, row in rows.items()}


@pytest.mark.parametrize("order_by", ["offset", "source.lsn"])
def test_tables_have_the_rows_of_the_server(
    broker: BrokerProcess, server: PostgresServer, tmp_path: Path, order_by: str
) -> None:
    draw = random.Random(f"postgresql {order_by}")
    reader = ChangeReader(server)
    server.execute(TABLE)
    server.execute("\n".join(statement(draw, key, []) for key in range(KEYS)))
    reader.create_slot()
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        admin.create_topic("orders", 3)
    snapshot = [
        {"before": None, "after": {**row, "changed_at": None}, "op": "r", "source": {"lsn": 0}, "ts_ms": 0}
        for row in server.rows("orders")
    ]
    columns: list[str] = []
    operations: dict[str, int] = {}
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        _send(producer, snapshot, draw, spread=order_by != "offset")
        for number in range(ROUNDS):
            if number % 10 == 5 and len(columns) < 5:
                columns.append(f"later_{len(columns)}")
                server.execute(f"ALTER TABLE orders ADD COLUMN {columns[-1]} integer;")
            sessions = [
                server.start_script(transactions(draw, draw.randrange(20), columns), stops_at_errors=False)
                for _ in range(2)
            ]
            for session in sessions:
                session.communicate(timeout=120)
            events = [event for _, event in reader.read()]
            for event in events:
                operations[event["op"]] = operations.get(event["op"], 0) + 1
            _send(producer, events, draw, spread=order_by != "offset")
            names = ["id", "customer", "status", "amount", "paid", "note", *columns]
            for table_format in ("iceberg", "delta"):
                folder = tmp_path / table_format
                load(
                    "orders",
                    warehouse=folder,
                    bootstrap=broker.bootstrap,
                    format="json",
                    table_format=table_format,
                    upsert="id",
                    envelope="debezium",
                    order_by=order_by,
                )
                assert loaded(folder, table_format, names) == expected(server, names)
    assert min(operations[op] for op in "cud") > ROUNDS
    sys.stdout.write(f"{ROUNDS} rounds, changes of PostgreSQL: {operations}\n")


def _send(producer: Producer[Any, Any], events: list[Row], draw: random.Random, *, spread: bool) -> None:
    for event in events:
        partition = draw.randrange(3) if spread else None
        for key, value in records_of(event):
            producer.send("orders", value, key=key, partition=partition)
    producer.flush()
