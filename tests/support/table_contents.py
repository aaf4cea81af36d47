"""What the tests of loads look at: rows of a table, and files in its folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from barnabas import Producer
from barnabas.spark import open_table, scan_table
from barnabas.spark.warehouse import Warehouse

TOPIC = "events"
DAY_MS = 86_400_000
START_MS = 1_400_000_000_000


def produce(bootstrap: str, first: int, count: int, topic: str = TOPIC, *, audit: bool = False) -> None:
    """Send records numbered from `first`, an hour apart, keyed so that all partitions get some."""
    numbers = range(first, first + count)
    with Producer(bootstrap, audit=audit) as producer:
        producer.send_many(
            topic,
            [b'{"number": %d}' % number for number in numbers],
            keys=[b"key-%d" % (number % 17) for number in numbers],
            timestamps_ms=[START_MS + number * 3_600_000 for number in numbers],
            headers=[[("id", b"%d" % number)] for number in numbers],
        ).result(60)


def numbers_in(warehouse: Path, table: str = TOPIC) -> list[int]:
    """Return the numbers of the records in a table, sorted, repeats included; nothing where there is no table."""
    if Warehouse.open(warehouse).find_table(table) is None:
        return []
    batches = scan_table(warehouse, table, columns=["headers"])
    return sorted(int(row[0]["value"]) for batch in batches for row in batch.column("headers").to_pylist())


def data_files(warehouse: Path) -> set[str]:
    """Return the Parquet files that are in a warehouse, with or without a table that names them."""
    return {str(path) for path in warehouse.rglob("*.parquet")}


def named_files(warehouse: Path, table: str = TOPIC) -> set[str]:
    """Return the files that the table names."""
    paths = open_table(warehouse, table).inspect.files().column("file_path").to_pylist()
    return {path.removeprefix("file://") for path in paths}


def next_offsets(warehouse: Path, topics: Sequence[str] = (TOPIC,), table: str = TOPIC) -> dict[str, dict[int, int]]:
    """Return where the table says that the next load goes on."""
    ledger = Warehouse.open(warehouse).begin(table).ledger()
    return {topic: dict(ledger.topics[topic].next_offsets) for topic in topics}
