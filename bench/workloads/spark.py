"""W13: Spark reads a topic into count and sum of lengths, streams it into files, and loads it into the warehouse."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.contest import Contest, problem_of
from bench.downloads import UnavailableError
from bench.drivers import DRIVERS
from bench.drivers.job import Job
from bench.peers import SERVERS
from bench.processes import ClientError, run_client
from bench.results import Case, Row, Run
from bench.spark_kafka_source import kafka_source_jars
from bench.workloads.workload import Workload

READ, LOAD = "count and sum of lengths", "load into the warehouse"
STREAM = "a stream of all that there is, into Parquet files"
BARNABAS_SOURCE, KAFKA_SOURCE, LOADER = "Spark, `barnabas`", "Spark, its own `kafka` source", "`barnabas load`"
LIMIT_SHARE = 4
"""Spark does all rounds in one process, which gets so many times the limit of one run."""


@dataclass(frozen=True, slots=True)
class SparkReport:
    """What `bench.spark_job` printed: the seconds of each round, the CPU time of all."""

    records: int
    seconds: list[float]
    cpu_s: float


def measure_spark(contest: Contest) -> Sequence[Case]:
    """Measure W13."""
    job = Job("produce", contest.scale.records(6_000_000, 12_000_000, 50_000_000), topic="spark")
    read, stream, load = (Case(name, job.size) for name in (READ, STREAM, LOAD))
    for name in ("barnabas", "kafka"):
        try:
            server = contest.arena.server(name)
            server.create_topic(job.topic, job.partitions)
            contest.progress.say(f"{contest.name}: filling a topic of {server.title} with {job.records:,} records")
            DRIVERS["confluent"].run(server, job, contest.scale.limit_s)
        except Exception as error:  # noqa: BLE001  # the others go on
            read.rows.append(Row(SERVERS[name].title, BARNABAS_SOURCE, problem=problem_of(error)))
            continue
        for case, arguments in ((read, []), (stream, ["--stream"])):
            case.rows.append(_row(contest, name, BARNABAS_SOURCE, "barnabas", *arguments))
            case.rows.append(_row(contest, name, KAFKA_SOURCE, "kafka", *arguments))
        if name == "barnabas":
            load.rows.append(_row(contest, name, LOADER, "load"))
    return [read, stream, load]


def _row(contest: Contest, name: str, client: str, action: str, *arguments: str) -> Row:
    server = contest.arena.server(name)
    row = Row(server.title, client)
    told = f"{contest.name}: {server.title} < {client}"
    try:
        if action == "kafka":
            kafka_source_jars()
    except UnavailableError as error:
        row.problem = str(error)
        contest.progress.say(f"{told} is left out: {error}")
        return row
    contest.progress.say(f"{told}: starting Spark")
    with TemporaryDirectory(prefix="barnabas-bench-warehouse-") as warehouse:
        command = [sys.executable, "-m", "bench.spark_job", action, "--bootstrap", server.address, "--topic", "spark"]
        command += ["--rounds", str(contest.scale.rounds), "--warehouse", str(Path(warehouse)), *arguments]
        server.reset_memory_peak()
        cpu_before_s = server.cpu_s()
        try:
            finished = run_client(command, contest.scale.limit_s * LIMIT_SHARE)
            report = parse_report(finished.output)
        except ClientError as error:
            row.problem = str(error)
            contest.progress.say(f"{told}: failed: {error}")
            return row
    cpu_server_s = server.cpu_s() - cpu_before_s
    for took_s in report.seconds:
        row.runs.append(
            Run(
                records=report.records,
                seconds=took_s,
                cpu_client_s=report.cpu_s / len(report.seconds),
                cpu_server_s=cpu_server_s / (len(report.seconds) + 1),  # it warmed up once
                memory_server_mib=server.memory_mib_max(),
            )
        )
    contest.progress.say(f"{told}: {row.records_per_s or 0:,.0f} records/s")
    return row


def parse_report(output: str) -> SparkReport:
    """Read the line of JSON that `bench.spark_job` prints.

    :raises ClientError: there is none.
    """
    for line in reversed(output.splitlines()):
        if line.startswith('{"records"'):
            found = json.loads(line)
            return SparkReport(int(found["records"]), list(found["seconds"]), float(found["cpu_s"]))
    raise ClientError("Spark's job printed no report")


WORKLOADS = (
    Workload(
        "W13",
        "Spark",
        "4.3 M/s was measured for a data source that only makes Arrow batches",
        "Records of 100 B, 6 partitions, `local[2]`; `count(*)` and `sum(length(value))` of a batch query, a stream "
        "with the trigger `availableNow` into Parquet files, and a load of the whole topic into an Iceberg table. The "
        "CPU time is that of Spark with its Python workers. The peer is Spark's own Kafka source in Scala "
        "(`spark-sql-kafka-0-10`).",
        measure_spark,
    ),
)
