"""Changes merged into a table: `barnabas load --upsert` beside Spark's MERGE INTO, on the same data in the same run.

    python -m bench.upserts --iceberg-jar iceberg-spark-runtime-4.0_2.13-1.10.0.jar --spark-python PYTHON
    python -m bench.upserts --changes 100000 --keys 20000 ...

`PYTHON` is the Python of an environment with the PySpark that the jar is for. Both tables have the same rows at the
start, and the same ones at the end; a difference is an error. Barnabas reads the changes from a broker and decodes JSON
there. Spark reads the same changes as JSON lines from a file, so it does not pay for the reading of a topic. A tenth of
the changes are deletions. Both sides may use a local Spark session with two cores; a load of up to a million records
needs none. The CPU time is that of the whole process with its children; the time without the start is shown, too.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.compute as pc

import barnabas.spark
from barnabas import Admin, Producer
from bench import processes
from bench.arena import fresh_folder
from bench.broker_process import MeasuredBroker
from bench.figures import parent_of, parser_of, show
from bench.tables import table

TOPIC = "orders"
PARTITIONS = 4
MASTER = "local[2]"
CHANGES, KEYS = 1_000_000, 200_000
LIMIT_S = 900.0
SEED = 44


@dataclass(frozen=True, slots=True)
class Merged:
    """The figures of one merge.

    :param cpu_s: the CPU time of the whole process.
    :param work_cpu_s: the CPU time without the start of the session.
    """

    name: str
    seconds: float
    cpu_s: float
    work_cpu_s: float
    rewritten_files: int
    rows: int


def row(key: int, number: int, chance: random.Random, *, op: str) -> dict[str, Any]:
    """Return the row of an order, as JSON has it."""
    return {
        "id": key,
        "shop": f"shop-{key % 50}",
        "state": chance.choice(["new", "paid", "sent", "returned"]),
        "amount": chance.randrange(100, 100_000) / 4,
        "items": chance.randrange(1, 9),
        "note": f"order {key} at step {number}, written by the warehouse",
        "updated_at": number,
        "op": op,
    }


def texts(keys: int, changes: int) -> Iterator[tuple[int, str]]:
    """Yield the key and the JSON of the rows at the start, then of the changes."""
    chance = random.Random(SEED)
    for key in range(keys):
        yield key, json.dumps(row(key, key, chance, op="c"))
    for number in range(keys, keys + changes):
        key = chance.randrange(keys)
        yield (
            key,
            json.dumps(row(key, number, chance, op="d" if chance.random() < 0.1 else "u")),
        )


def load(bootstrap: str, folder: Path) -> dict[str, Any]:
    """Load the topic in this process, and return the figures."""
    sessions = barnabas.spark.LocalSessions("bench.upserts", MASTER)
    before_s, begun_s = processes.cpu_s(os.getpid()), time.perf_counter()
    result = barnabas.spark.load(
        TOPIC,
        bootstrap=bootstrap,
        warehouse=folder / "barnabas",
        format="json",
        spark=sessions,
        upsert="id",
        op="op",
        order_by="updated_at",
    )
    seconds = time.perf_counter() - begun_s
    cpu_s = processes.cpu_s(os.getpid())  # a JVM would still run, so its time would count
    sessions.close()
    count, amount, updated = 0, 0.0, 0
    for batch in barnabas.spark.scan_table(folder / "barnabas", TOPIC, columns=["amount", "updated_at"]):
        count += len(batch)
        amount += pc.sum(batch.column("amount")).as_py() or 0
        updated += pc.sum(batch.column("updated_at")).as_py() or 0
    done = result.tables[0]
    state = [count, round(amount, 2), updated]
    return {
        "seconds": seconds,
        "cpu_s": cpu_s - before_s,
        "whole_cpu_s": cpu_s,
        "rewritten_files": done.rewritten_files,
        "state": state,
    }


def produce(bootstrap: str, lines: Iterator[tuple[int, str]], count: int, copy: Path) -> None:
    """Send lines to the topic by key, and write them to a file."""
    with Producer({"bootstrap.servers": bootstrap, "linger.ms": 20}) as producer, copy.open("w") as file:
        for _, (key, text) in zip(range(count), lines, strict=False):
            file.write(text + "\n")
            producer.send(TOPIC, text.encode(), key=str(key).encode())
        producer.flush()


def ran(command: Sequence[str]) -> dict[str, Any]:
    """Run a program, and return the figures on its last line."""
    figures: dict[str, Any] = json.loads(processes.run_client(command, LIMIT_S).output.strip().splitlines()[-1])
    return figures


def measure(folder: Path, spark_python: str, jar: str, keys: int, changes: int) -> list[Merged]:
    """Make both tables, merge the changes into both, and compare them."""
    own = [sys.executable, "-m", "bench.upserts", "--only-load"]
    spark = [spark_python, "-m", "bench.clients.spark_merge"]
    with MeasuredBroker(folder / "broker") as broker:
        with Admin(broker.bootstrap) as admin:
            admin.create_topic(TOPIC, partitions=PARTITIONS)
        lines = texts(keys, changes)
        produce(broker.bootstrap, lines, keys, folder / "rows.json")
        ran([*own, broker.bootstrap, str(folder)])
        produce(broker.bootstrap, lines, changes, folder / "changes.json")
        loaded = ran([*own, broker.bootstrap, str(folder)])
    ran([*spark, "make", str(folder), jar])
    merged = ran([*spark, "merge", str(folder), jar])
    if loaded["state"] != merged["state"]:
        raise SystemExit(f"the tables differ: {loaded['state']} and {merged['state']}")
    return [
        Merged(
            name,
            each["seconds"],
            each["whole_cpu_s"],
            each["cpu_s"],
            each["rewritten_files"],
            each["state"][0],
        )
        for name, each in (
            ("barnabas load --upsert", loaded),
            ("Spark MERGE INTO", merged),
        )
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure once. Return the exit code."""
    parser = parser_of("bench.upserts", __doc__)
    parser.add_argument(
        "--only-load",
        nargs=2,
        metavar=("BOOTSTRAP", "FOLDER"),
        help="load in this process alone",
    )
    parser.add_argument(
        "--iceberg-jar",
        metavar="JAR",
        help="Iceberg's runtime for the PySpark of --spark-python",
    )
    parser.add_argument("--spark-python", metavar="PYTHON", default=sys.executable, help="[this Python]")
    parser.add_argument("--keys", type=int, default=KEYS, help=f"number of rows at the start [{KEYS}]")
    parser.add_argument("--changes", type=int, default=CHANGES, help=f"number of changes [{CHANGES}]")
    asked = parser.parse_args(arguments)
    if asked.only_load:
        bootstrap, where = asked.only_load
        sys.stdout.write(json.dumps(load(bootstrap, Path(where))) + "\n")
        return 0
    if asked.iceberg_jar is None:
        parser.error("--iceberg-jar is missing: give Iceberg's runtime jar")
    with fresh_folder(parent_of(asked)) as folder:
        figures = measure(folder, asked.spark_python, asked.iceberg_jar, asked.keys, asked.changes)
    header = ["", "CPU s", "without start", "wall s", "rewritten files", "rows"]
    rows = [
        [
            each.name,
            f"{each.cpu_s:.1f}",
            f"{each.work_cpu_s:.1f}",
            f"{each.seconds:.1f}",
            str(each.rewritten_files),
            f"{each.rows:,}",
        ]
        for each in figures
    ]
    ratio, of_work = (getattr(figures[0], name) / getattr(figures[1], name) for name in ("cpu_s", "work_cpu_s"))
    show(
        asked,
        "bench.upserts",
        [*table(header, rows, left=1), "", f"CPU time: {ratio:.2f} of Spark's, {of_work:.2f} without the start"],
        figures,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
