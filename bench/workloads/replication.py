"""The measurements of the article on three brokers (W5 to W7), the latency with acks=all, and strict durability (W20).

All brokers, ZooKeeper and clients share one machine; the article used three machines for brokers and three for clients.
So each table also contains the figure of one broker without replication from the same run.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.contest import Contender, Contest
from bench.drivers.job import Job
from bench.results import Case
from bench.workloads.workload import Workload

REPLICATED, LATENCY = "three replicas", "1,000 records/s"
ONE_MACHINE, FLUSHED = "one and two brokers of a machine, without replicas", "a flush before each acknowledgement"
FLUSH_EACH = (("flush.messages", "1"),)
FLUSHED_PRODUCERS = 4
FLUSHED_BYTES = 1024
LATENCY_RATE = 1_000
PRODUCERS = 3


def measure_asynchronous(contest: Contest) -> Sequence[Case]:
    """Measure W5, and one and two brokers of a machine with the producers of W5 and W7."""
    return [_produce(contest, "1"), _produce_here(contest)]


def measure_synchronous(contest: Contest) -> Sequence[Case]:
    """Measure W6."""
    return [_produce(contest, "all")]


def measure_three_producers(contest: Contest) -> Sequence[Case]:
    """Measure W7."""
    return [_produce(contest, "1", PRODUCERS)]


def _produce(contest: Contest, acks: str, producers: int = 1) -> Case:
    job = Job("produce", contest.scale.records(3_000_000, 6_000_000, 50_000_000), acks=acks, producers=producers)
    contenders = [
        Contender("barnabas", "send", plain=True),
        Contender("barnabas-cluster", "send"),
        Contender("barnabas-cluster", "many", minor=True),
        Contender("barnabas-cluster", "confluent", minor=True),
        Contender("kafka-cluster", "send"),
        Contender("kafka-cluster", "confluent", minor=True),
        Contender("kafka-cluster", "kafka-tools", 0.5),
    ]
    return contest.run(REPLICATED, job, contenders)


def _produce_here(contest: Contest) -> Case:
    """Measure several producers, because one producer alone does not load two brokers."""
    job = Job("produce", contest.scale.records(3_000_000, 6_000_000, 50_000_000), producers=PRODUCERS)
    contenders = [Contender(server, client) for client in ("send", "many") for server in ("barnabas", "barnabas-two")]
    return contest.run(ONE_MACHINE, job, contenders)


def measure_flushed(contest: Contest) -> Sequence[Case]:
    """Measure W20."""
    job = Job(
        "produce",
        contest.scale.records(1_000_000, 2_000_000, 10_000_000),
        FLUSHED_BYTES,
        producers=FLUSHED_PRODUCERS,
        topic_settings=FLUSH_EACH,
    )
    contenders = [
        Contender("barnabas", "send"),
        Contender("barnabas-two", "send"),
        Contender("kafka", "send", 0.5),
        Contender("kafka", "kafka-tools", 0.25),
    ]
    return [contest.run(FLUSHED, job, contenders)]


def measure_latency(contest: Contest) -> Sequence[Case]:
    """Measure the end-to-end latency at a moderate rate."""
    job = Job("latency", contest.scale.records(10_000, 20_000, 60_000), rate=LATENCY_RATE, acks="all")
    pairs = [("barnabas-cluster", "barnabas"), ("barnabas-cluster", "kafka-java"), ("kafka-cluster", "barnabas")]
    pairs += [("kafka-cluster", "kafka-java")]
    return [contest.run(LATENCY, job, [Contender(*pair) for pair in pairs])]


_ONE_BROKER = "The first row is the result of W4 in the same run: one producer, one broker without replicas, acks=1."
WORKLOADS = (
    Workload(
        "W5",
        "One producer, three replicas, asynchronous",
        "786,980/s with brokers on three machines",
        f"One producer sends records of 100 B to 6 partitions on three brokers with acks=1. {_ONE_BROKER} "
        "The second table compares one broker with two brokers of one machine (`barnabas up --brokers-here 2`), with "
        "three producers and without replicas. Brokers and producers share the cores.",
        measure_asynchronous,
    ),
    Workload(
        "W6",
        "One producer, three replicas, synchronous",
        "421,823/s with brokers on three machines",
        f"The workload is W5 with acks=all. {_ONE_BROKER}",
        measure_synchronous,
    ),
    Workload(
        "W7",
        "Three producers, three replicas",
        "2,024,032/s with brokers and producers on three machines each",
        f"The workload is W5 with three producer processes, which share the records. {_ONE_BROKER}",
        measure_three_producers,
    ),
    Workload(
        "W12R",
        "Latency with three replicas",
        "none",
        "The workload is W12 with 1,000 records/s and acks=all. A consumer gets a record only after all "
        "replicas have it.",
        measure_latency,
    ),
    Workload(
        "W20",
        "Strict durability",
        "none",
        "Four producers send records of 1 KiB to 6 partitions with acks=1. The topic has `flush.messages=1`, so the "
        "broker acknowledges a request only after its records are flushed to the disk. The two brokers are those of "
        "one machine (`barnabas up --brokers-here 2`).",
        measure_flushed,
    ),
)
