"""The measurements of the paper's section 5: one producer (W1), one consumer (W2), storage overhead (W3)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace

from bench.contest import Contender, Contest, problem_of, run_of
from bench.drivers.job import Job, Outcome
from bench.peers import SERVERS
from bench.peers.server import Server
from bench.results import Case, Row, Run
from bench.workloads.workload import Workload

SIZE = 200
BATCH = 50
FETCH_BYTES = 200_000
SETTLED_S = 1.0
SETTLE_LIMIT_S = 30.0
BATCH_OF_1, BATCH_OF_50 = "batch of 1", "batch of 50"
ONE_CONSUMER = "one consumer"
OVERHEAD = "bytes beyond the payload"

QUEUES = (
    Contender("rabbitmq", "perftest", share=0.2),
    Contender("rabbitmq", "pika", share=0.1),
    Contender("activemq", "activemq-java", share=0.2),
    Contender("activemq", "stomp", share=0.05),
)

SHARES_OF_1 = {
    ("barnabas", "kafka-tools"): 0.15,
    ("kafka", "kafka-tools"): 0.15,
    ("kafka", "requests"): 0.4,
    ("kafka", "confluent"): 0.4,
    ("tansu", "confluent"): 0.2,
}
"""The share of records that slow contenders get in the case with batches of 1."""
MINOR = (("barnabas", "kafka-tools"), ("tansu", "confluent"))


def measure_producer(contest: Contest) -> Sequence[Case]:
    """Measure W1."""
    single = contest.scale.records(100_000, 250_000, 10_000_000)
    batched = contest.scale.records(1_000_000, 2_000_000, 10_000_000)
    job = Job("produce", single, SIZE, acks="0", batch_records=1)
    pairs = [("barnabas", "requests"), ("barnabas", "confluent"), ("barnabas", "kafka-tools"), ("kafka", "requests")]
    pairs += [("kafka", "confluent"), ("kafka", "kafka-tools"), ("tansu", "confluent")]
    logs = [Contender(*pair, minor=pair in MINOR) for pair in pairs]
    alone = [replace(each, share=SHARES_OF_1.get((each.server, each.client), 1.0)) for each in logs]
    return [
        contest.run(BATCH_OF_1, job, [*alone, *QUEUES]),
        contest.run(BATCH_OF_50, replace(job, records=batched, batch_records=BATCH), logs),
    ]


def measure_acknowledged(contest: Contest) -> Sequence[Case]:
    """Measure W1A."""
    single = contest.scale.records(50_000, 500_000, 2_000_000)
    batched = contest.scale.records(1_000_000, 8_000_000, 20_000_000)
    job = Job("produce", single, SIZE, acks="all", batch_records=1)
    ours, theirs = Contender("barnabas", "requests"), Contender("kafka", "requests")
    return [
        contest.run(BATCH_OF_1, job, [ours, replace(theirs, share=0.5)]),
        contest.run(BATCH_OF_50, replace(job, records=batched, batch_records=BATCH), [ours, theirs]),
    ]


def measure_consumer(contest: Contest) -> Sequence[Case]:
    """Measure W2."""
    job = Job(
        "consume",
        contest.scale.records(1_000_000, 2_000_000, 10_000_000),
        SIZE,
        batch_records=BATCH,
        fetch_bytes=FETCH_BYTES,
    )
    queue_share = contest.scale.records(30_000, 40_000, 400_000) / job.records
    return [
        contest.run(
            ONE_CONSUMER,
            job,
            [
                Contender("barnabas", "records"),
                Contender("barnabas", "arrow"),
                Contender("barnabas", "confluent"),
                Contender("barnabas", "kafka-java", minor=True),
                Contender("kafka", "records"),
                Contender("kafka", "confluent"),
                Contender("kafka", "kafka-java"),
                Contender("kafka", "kafka-tools"),
                Contender("tansu", "confluent", share=0.1, minor=True),
                Contender("rabbitmq", "perftest", queue_share),
                Contender("rabbitmq", "pika", queue_share),
                Contender("activemq", "activemq-java", queue_share),
                Contender("activemq", "stomp", queue_share / 4),
            ],
        )
    ]


def measure_overhead(contest: Contest) -> Sequence[Case]:
    """Measure W3 with one run each, because the bytes do not vary between runs."""
    records = contest.scale.records(200_000, 200_000, 1_000_000)
    job = Job("produce", records, SIZE, acks="1", batch_records=BATCH)
    case = Case(OVERHEAD, SIZE)
    for server, client, asked in (
        ("barnabas", "requests", job),
        ("barnabas", "confluent", job),
        ("kafka", "confluent", job),
        ("kafka", "kafka-tools", job),
        ("rabbitmq", "perftest", replace(job, records=records // 2)),
        ("activemq", "activemq-java", replace(job, records=records // 2)),
    ):
        case.rows.append(_overhead_row(contest, Contender(server, client), asked))
    return [case]


def _overhead_row(contest: Contest, contender: Contender, job: Job) -> Row:
    row = Row(SERVERS[contender.server].title, contender.driver.name)
    try:
        contender.driver.check()
        server = contest.arena.server(contender.server)
        empty_bytes = server.stored_bytes("")
        row.runs.append(contest.one(contender, job, lambda *found: _with_overhead(empty_bytes, *found)))
        contest.progress.say(f"{contest.name}: {contender.title}: {row.runs[0].stored:.2f} bytes a message")
    except Exception as error:  # noqa: BLE001  # a failed contender must not stop the other contenders
        row.problem = problem_of(error)
        contest.progress.say(f"{contest.name}: {contender.title} failed: {row.problem}")
    return row


def _with_overhead(empty_bytes: int, server: Server, job: Job, outcome: Outcome) -> Run:
    stored_bytes = _settled_bytes(server, job.topic)
    empty_bytes = 0 if server.protocol == "kafka" else empty_bytes  # each Kafka topic has its own directories
    records = server.record_count(job.topic) or job.records
    return replace(run_of(outcome, job), stored=(stored_bytes - empty_bytes) / records - job.size)


def _settled_bytes(server: Server, topic: str) -> int:
    """Wait until the number of stored bytes no longer grows, and return it."""
    limit_s = time.monotonic() + SETTLE_LIMIT_S
    before, changed_s = -1, time.monotonic()
    while time.monotonic() < limit_s:
        now = server.stored_bytes(topic)
        if now != before:
            before, changed_s = now, time.monotonic()
        if time.monotonic() - changed_s > SETTLED_S:
            break
        time.sleep(0.1)
    return before


WORKLOADS = (
    Workload(
        "W1",
        "One producer, batches of 1 and of 50",
        "50,000/s and 400,000/s (paper, figure 4)",
        "One producer sends messages of 200 B without acknowledgements, and the broker flushes "
        "asynchronously. Barnabas's client pipelines requests of exactly 1 or 50 records (`barnabas perf "
        "produce --batch-records`). librdkafka uses `batch.num.messages`, and Kafka's Java client a "
        "`batch.size` for about as many records. AMQP and JMS clients have no batches and send one message "
        "per call.",
        measure_producer,
    ),
    Workload(
        "W1A",
        "The same, each request acknowledged",
        "none, because the paper has no acknowledgements",
        "The workload is W1 with acks=all, and with up to 100 requests in flight. The same client sends the "
        "same requests to both brokers in one run.",
        measure_acknowledged,
    ),
    Workload(
        "W2",
        "One consumer, fetches of 200 KB",
        "22,000/s (paper, figure 5)",
        "One consumer reads messages of 200 B in batches of 50 from 6 partitions, all in the page cache. A "
        "response contains at most 200 KB per partition. RabbitMQ and ActiveMQ acknowledge automatically, as "
        "in the paper.",
        measure_consumer,
    ),
    Workload(
        "W3",
        "Bytes on disk beyond the payload",
        "9 B per message for Kafka, 144 B for ActiveMQ (paper, section 5)",
        "The topic has messages of 200 B in batches of 50. The measurement divides the size of all files by "
        "the number of messages. For Kafka's protocol these are the log and the indexes, for RabbitMQ and "
        "ActiveMQ the message store. Preallocated space does not count.",
        measure_overhead,
    ),
)
