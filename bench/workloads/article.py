"""The measurements of the article on one broker: W4, W8 to W12. `replication.py` contains the measurements with
replication."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from bench.contest import Contender, Contest, problem_of
from bench.drivers.job import Job
from bench.peers import SERVERS
from bench.results import Case, Row
from bench.workloads.workload import Workload

ONE_PRODUCER, ONE_CONSUMER, THREE_CONSUMERS = "one producer", "one consumer", "three consumers"
TOGETHER, STORED, LATENCY = "producer and consumer", "stored data", "10,000 records/s"
SIZES = (10, 100, 1_000, 10_000, 100_000)
CHUNKS_PER_GB = 2
LATENCY_RATE = 10_000


def measure_producer(contest: Contest) -> Sequence[Case]:
    """Measure W4."""
    job = Job("produce", contest.scale.records(3_000_000, 5_000_000, 50_000_000))
    return [
        contest.run(
            ONE_PRODUCER,
            job,
            [
                Contender("barnabas", "send"),
                Contender("barnabas", "many"),
                Contender("barnabas", "arrow-send"),
                Contender("barnabas", "confluent"),
                Contender("barnabas", "confluent-batch", minor=True),
                Contender("barnabas", "kafka-tools", 0.5, minor=True),
                Contender("barnabas", "kafka-python", 0.04, minor=True),
                Contender("barnabas", "aiokafka", 0.08, minor=True),
                Contender("kafka", "send"),
                Contender("kafka", "many"),
                Contender("kafka", "confluent"),
                Contender("kafka", "kafka-tools", 0.5),
                Contender("tansu", "confluent", 0.5, minor=True),
            ],
        )
    ]


def measure_consumer(contest: Contest) -> Sequence[Case]:
    """Measure W8."""
    job = Job("consume", contest.scale.records(3_000_000, 10_000_000, 50_000_000))
    several = replace(job, consumers=3)
    return [
        contest.run(
            ONE_CONSUMER,
            job,
            [
                Contender("barnabas", "records"),
                Contender("barnabas", "arrow"),
                Contender("barnabas", "confluent"),
                Contender("barnabas", "confluent-default", 0.2, minor=True),
                Contender("barnabas", "kafka-tools", minor=True),
                Contender("barnabas", "kafka-python", 0.08, minor=True),
                Contender("barnabas", "aiokafka", 0.08, minor=True),
                Contender("kafka", "records"),
                Contender("kafka", "arrow"),
                Contender("kafka", "confluent"),
                Contender("kafka", "kafka-tools"),
                Contender("tansu", "records", 0.1, minor=True),
                Contender("tansu", "confluent", 0.1, minor=True),
            ],
        ),
        contest.run(
            THREE_CONSUMERS,
            several,
            [
                Contender("barnabas", "records"),
                Contender("barnabas", "arrow"),
                Contender("barnabas", "confluent"),
                Contender("kafka", "records"),
                Contender("kafka", "confluent"),
                Contender("kafka", "kafka-java"),
            ],
        ),
    ]


def measure_both(contest: Contest) -> Sequence[Case]:
    """Measure W9."""
    job = Job("both", contest.scale.records(1_000_000, 2_000_000, 50_000_000))
    pairs = [("barnabas", "barnabas"), ("barnabas", "confluent"), ("barnabas", "kafka-java"), ("kafka", "barnabas")]
    pairs += [("kafka", "confluent"), ("kafka", "kafka-java")]
    return [contest.run(TOGETHER, job, [Contender(*pair) for pair in pairs])]


def measure_sizes(contest: Contest) -> Sequence[Case]:
    """Measure W10: the same number of bytes for each size, but at most a maximum number of records."""
    total_bytes = contest.scale.records(100_000_000, 200_000_000, 3_000_000_000)
    records_max = contest.scale.records(1_000_000, 2_000_000, 30_000_000)
    cases = []
    for size in SIZES[::2] if contest.scale.is_brief else SIZES:
        job = Job("produce", min(records_max, total_bytes // size), size)
        pairs = [("barnabas", "send"), ("barnabas", "many"), ("barnabas", "confluent"), ("kafka", "confluent")]
        pairs += [("kafka", "kafka-tools")]
        cases.append(contest.run(size_case(size), job, [Contender(*pair) for pair in pairs]))
    return cases


def size_case(size: int) -> str:
    """Return the name of the case with a record size."""
    return f"{size:,} B"


def measure_stored(contest: Contest) -> Sequence[Case]:
    """Measure W11: one topic per contender, which grows by half a gigabyte per run."""
    case = Case(STORED, 100)
    for contender in (
        Contender("barnabas", "many"),
        Contender("barnabas", "confluent"),
        Contender("kafka", "confluent"),
    ):
        row = Row(SERVERS[contender.server].title, contender.driver.name)
        case.rows.append(row)
        try:
            contender.driver.check()
            _store(contest, contender, row)
        except Exception as error:  # noqa: BLE001  # a failed contender must not stop the other contenders
            row.problem = problem_of(error)
            contest.progress.say(f"{contest.name}: {contender.title} failed: {row.problem}")
    return [case]


def _store(contest: Contest, contender: Contender, row: Row) -> None:
    server = contest.arena.server(contender.server)
    topic = f"stored-{contender.client}"
    chunks = round(contest.scale.stored_gb * CHUNKS_PER_GB)
    job = Job("produce", round(1e9 / CHUNKS_PER_GB / 100), topic=topic)
    server.create_topic(topic, job.partitions)
    contest.measure(contender, replace(job, records=job.records // 10), into_fresh_memory=True)
    for number in range(1, chunks + 1):
        stored_gb = server.stored_bytes(topic) / 1e9
        os.sync()
        # Prepare no memory, because the page cache cannot hold all data.
        run = replace(contest.measure(contender, job, into_fresh_memory=True), stored_gb=stored_gb, series=[])
        row.runs.append(run)
        progress = f"{contest.name}: {contender.title}, {number}/{chunks}, {stored_gb:.1f} GB stored"
        contest.progress.say(f"{progress}: {run.records_per_s:,.0f} records/s")
    server.delete_topic(topic)


def measure_latency(contest: Contest) -> Sequence[Case]:
    """Measure W12."""
    job = Job("latency", contest.scale.records(30_000, 40_000, 600_000), rate=LATENCY_RATE)
    pairs = [("barnabas", "barnabas"), ("barnabas", "confluent"), ("barnabas", "kafka-java"), ("kafka", "barnabas")]
    pairs += [("kafka", "confluent"), ("kafka", "confluent-linger"), ("kafka", "kafka-java"), ("rabbitmq", "perftest")]
    return [contest.run(LATENCY, job, [Contender(*pair) for pair in pairs])]


WORKLOADS = (
    Workload(
        "W4",
        "One producer thread",
        "821,557/s",
        "One producer sends records of 100 B to 6 partitions with acks=1, without replication.",
        measure_producer,
    ),
    Workload(
        "W8",
        "One consumer, and three",
        "940,521/s, and 2,615,968/s on three machines",
        "Consumers read records of 100 B from 6 partitions, all in the page cache. The three consumers are "
        "processes that share the partitions.",
        measure_consumer,
    ),
    Workload(
        "W9",
        "A producer and a consumer together",
        "795,064/s",
        "The topic is empty at first. A producer process sends at full speed with acks=1, while a consumer "
        "process reads. The rate is that of the consumer.",
        measure_both,
    ),
    Workload(
        "W10",
        "Record sizes from 10 B to 100 KB",
        "MB/s increase with the record size",
        "One producer sends records of each size to 6 partitions with acks=1.",
        measure_sizes,
    ),
    Workload(
        "W11",
        "Throughput while the stored data grows",
        "constant throughput",
        "One producer sends records of 100 B to a topic that grows by half a gigabyte per run. The broker "
        "writes into memory pages that no process has used before.",
        measure_stored,
    ),
    Workload(
        "W12",
        "Latency from end to end",
        "2 ms median, 3 ms p99, 14 ms p99.9",
        "A producer sends 10,000 records/s of 100 B with acks=1. The load is an open loop: the latency of a "
        "record counts from the time at which the record was due, so a slow sender is visible. The first "
        "second does not count. librdkafka with `linger.ms=0` sends one request per record. If the broker "
        "cannot keep up with these requests, librdkafka never catches up, so the table also has a row for its "
        "default `linger.ms`. RabbitMQ's PerfTest measures from the time of sending, and includes the first "
        "second.",
        measure_latency,
    ),
)
