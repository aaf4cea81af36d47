"""W13: Spark counts a topic's records, streams them to files, and loads them into the warehouse."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory

import pyarrow as pa

from barnabas import Producer
from barnabas.serialization.avro import AvroSerializer
from barnabas.serialization.registry_client import SchemaRegistry
from bench.contest import Contest, problem_of
from bench.downloads import UnavailableError
from bench.drivers import DRIVERS
from bench.drivers.job import Job
from bench.goals import LOADER, SPARK, SPARKS_SOURCE
from bench.peers import SERVERS
from bench.peers.server import Server
from bench.processes import ClientError, run_client
from bench.results import Case, Row, Run
from bench.spark_kafka_source import kafka_source_jars
from bench.workloads.workload import Workload

READ, FIRST = "count and sum of lengths", "the first query of a session"
STREAM = "a stream of the whole topic into Parquet files"
LOAD, LOAD_JSON = "load into the warehouse", "load of JSON with 10 fields into columns"
LOAD_AVRO = "load of Avro with 10 fields into columns"
NOTHING = "load without new records"
MANY, PARTITION = "count and sum of lengths, 200 partitions", "count and sum of lengths, one of 6 partitions"
LAST = "count and sum of lengths, the newest 1 % by timestamp"
MADE_BY_SPARK = "Spark, rows that it makes itself"
LIMIT_SHARE = 4
"""The time limit of the Spark process, as a multiple of the limit of one run. Spark runs all rounds in one process."""
PARTITIONS_MANY = 200
MAIN, WIDE, JSON, AVRO = "spark", "spark-200", "spark-json", "spark-avro"
CHUNK = 20_000
"""The number of JSON or Avro records that are generated at a time."""
JSON_VALUE = (
    '{"id":%d,"user":"user-%d","page":"/products/%d","referrer":"https://example.org/search","status":200,"bytes":%d,'
    '"seconds":0.%03d,"agent":"Mozilla/5.0","country":"AT","cached":%s}'
)
AVRO_FIELDS = {
    **{"id": "long", "user": "string", "page": "string", "referrer": "string", "status": "int", "bytes": "long"},
    **{"seconds": "double", "agent": "string", "country": "string", "cached": "boolean"},
}


@dataclass(frozen=True, slots=True)
class SparkReport:
    """The report of `bench.spark_job`: the seconds of each round, and the total CPU time."""

    records: int
    seconds: list[float]
    cpu_s: float


@dataclass(frozen=True, slots=True)
class Asked:
    """One row of a case: the job of `bench.spark_job`, its source and its topic."""

    case: str
    work: str
    client: str = SPARK
    source: str = "barnabas"
    topic: str = MAIN
    format: str = "raw"


BOTH_SERVERS = (
    Asked(READ, "read"),
    Asked(READ, "read", SPARKS_SOURCE, "kafka"),
    Asked(STREAM, "stream"),
    Asked(STREAM, "stream", SPARKS_SOURCE, "kafka"),
)
BARNABAS_ONLY = (
    Asked(FIRST, "first"),
    Asked(FIRST, "first", SPARKS_SOURCE, "kafka"),
    Asked(STREAM, "stream", MADE_BY_SPARK, "rate-micro-batch"),
    Asked(LOAD, "load", LOADER),
    Asked(LOAD_JSON, "load", LOADER, topic=JSON, format="json"),
    Asked(LOAD_AVRO, "load", LOADER, topic=AVRO, format="avro"),
    Asked(NOTHING, "nothing", LOADER),
    Asked(MANY, "read", topic=WIDE),
    Asked(PARTITION, "partition"),
    Asked(LAST, "last"),
)


def measure_spark(contest: Contest) -> Sequence[Case]:
    """Measure W13."""
    count = contest.scale.records(2_000_000, 5_000_000, 50_000_000)
    job = Job("produce", count, topic=MAIN)
    cases = {asked.case: Case(asked.case, job.size) for asked in (*BOTH_SERVERS, *BARNABAS_ONLY)}
    for name in ("barnabas", "kafka"):
        try:
            server = contest.arena.server(name)
            _fill(contest, server, job)
            if name == "barnabas":
                _fill(contest, server, replace(job, topic=WIDE, partitions=PARTITIONS_MANY))
                cases[LOAD_JSON].size = _fill_json(contest, server, count // 5)
                _fill_avro(contest, server, count // 5)
        except Exception as error:  # noqa: BLE001  # a failed server must not stop the others
            cases[READ].rows.append(Row(SERVERS[name].title, SPARK, problem=problem_of(error)))
            continue
        for asked in (*BOTH_SERVERS, *BARNABAS_ONLY) if name == "barnabas" else BOTH_SERVERS:
            cases[asked.case].rows.append(_row(contest, name, asked, count))
    return list(cases.values())


def _fill(contest: Contest, server: Server, job: Job) -> None:
    server.create_topic(job.topic, job.partitions)
    contest.progress.say(
        f"{contest.name}: filling {job.topic} of {server.title} ({job.partitions} partitions, {job.records:,} records)"
    )
    DRIVERS["confluent"].run(server, job, contest.scale.limit_s)


def _fill_json(contest: Contest, server: Server, records: int) -> int:
    """Send JSON objects with ten fields. Return the average size of one in bytes."""
    server.create_topic(JSON, 6)
    contest.progress.say(f"{contest.name}: filling {JSON} of {server.title} with {records:,} records")
    with Producer(server.address, linger_ms=20) as producer:
        for first in range(0, records, CHUNK):
            numbers = range(first, min(first + CHUNK, records))
            values = [_json_value(number).encode() for number in numbers]
            producer.send_many(JSON, values).result(contest.scale.limit_s)
    return len(values[-1]) if records else 0


def _fill_avro(contest: Contest, server: Server, records: int) -> None:
    """Send the same data as Avro records."""
    server.create_topic(AVRO, 6)
    contest.progress.say(f"{contest.name}: filling {AVRO} of {server.title} with {records:,} records")
    schema = {"type": "record", "name": "View", "fields": [{"name": n, "type": t} for n, t in AVRO_FIELDS.items()]}
    with schema_registry(server.address) as url, Producer(server.address, linger_ms=20) as producer:
        serializer = AvroSerializer(SchemaRegistry(url), schema)
        for first in range(0, records, CHUNK):
            numbers = range(first, min(first + CHUNK, records))
            values = [json.loads(_json_value(number)) for number in numbers]
            producer.send_arrow(AVRO, pa.Table.from_pylist(values), value_schema=serializer).result(
                contest.scale.limit_s
            )


@contextmanager
def schema_registry(bootstrap: str) -> Iterator[str]:
    """Run a schema registry with a broker. Yield its URL."""
    command = [sys.executable, "-m", "barnabas.cli.main", "registry", "--port", "0", "--bootstrap", bootstrap]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            assert process.stdout
            ready, _, url = process.stdout.readline().strip().partition(" ")
            if ready != "ready":
                raise ClientError("the schema registry did not start")
            yield url
        finally:
            process.terminate()


def _json_value(number: int) -> str:
    is_cached = "true" if number % 3 else "false"
    return JSON_VALUE % (number, number % 9973, number % 499, number % 65536, number % 1000, is_cached)


def _row(contest: Contest, name: str, asked: Asked, records: int) -> Row:
    server = contest.arena.server(name)
    row = Row(server.title, asked.client)
    title = f"{contest.name} {asked.case}: {asked.client} with {server.title}"
    try:
        if asked.source == "kafka":
            kafka_source_jars()
    except UnavailableError as error:
        row.problem = str(error)
        contest.progress.say(f"{title} is left out: {error}")
        return row
    contest.progress.say(f"{title}: starting Spark")
    # run one round only, because a Spark session has only one first query
    for _ in range(contest.scale.rounds if asked.work == "first" else 1):
        try:
            row.runs += _runs(contest, server, asked, records)
        except ClientError as error:
            row.problem = str(error)
            contest.progress.say(f"{title}: failed: {error}")
            return row
    contest.progress.say(f"{title}: {row.records_per_s or 0:,.0f} records/s")
    return row


def _runs(contest: Contest, server: Server, asked: Asked, records: int) -> list[Run]:
    """Run Spark in a separate process. Return its measurements."""
    with TemporaryDirectory(prefix="barnabas-bench-warehouse-") as folder:
        command = [sys.executable, "-m", "bench.spark_job", asked.work, "--source", asked.source]
        command += ["--bootstrap", server.address, "--topic", asked.topic, "--format", asked.format]
        command += ["--records", str(records), "--rounds", str(contest.scale.rounds), "--folder", folder]
        with schema_registry(server.address) if asked.format == "avro" else nullcontext() as registry:
            command += ["--registry", registry] if registry else []
            server.reset_memory_peak()
            cpu_before_s = server.cpu_s()
            report = parse_report(run_client(command, contest.scale.limit_s * LIMIT_SHARE).output)
    cpu_server_s = server.cpu_s() - cpu_before_s
    turns = len(report.seconds) + (asked.work != "first")  # all jobs except `first` have a warm-up round
    return [
        Run(
            records=report.records,
            seconds=took_s,
            cpu_client_s=report.cpu_s / len(report.seconds),
            cpu_server_s=cpu_server_s / turns,
            memory_server_mib=server.memory_mib_max(),
        )
        for took_s in report.seconds
    ]


def parse_report(output: str) -> SparkReport:
    """Parse the line of JSON that `bench.spark_job` prints.

    :raises ClientError: if there is no such line.
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
        "4.3 M/s for a data source that only creates Arrow batches",
        "Spark (`local[2]`) reads records of 100 B from 6 partitions. The batch query computes `count(*)` and "
        "`sum(length(value))`. The stream writes Parquet files with the trigger `availableNow`, and the load "
        "writes the whole topic into an Iceberg table. The first query of a session is measured from "
        "`register` to its result in a new session, or, for Spark's own source, from the first line of the "
        "query. JSON and Avro records have ten fields, which become columns; a sample of the JSON records "
        "determines their types. For a load without new records, the number of records is that of the table. "
        "Conditions on `partition` and `timestamp` exclude records from the read. The CPU time includes Spark "
        "and its Python workers. Spark's own Kafka source in Scala (`spark-sql-kafka-0-10`) runs for "
        "comparison.",
        measure_spark,
    ),
)
