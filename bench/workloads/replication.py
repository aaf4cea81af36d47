"""The measurements of the article on three brokers, W5 to W7, and latency with acks from all replicas.

All brokers, ZooKeeper and clients share one machine; the article had three machines for brokers and three for clients.
So each figure stands beside that of one broker without replication in the same run.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.contest import Contender, Contest
from bench.drivers.job import Job
from bench.results import Case
from bench.workloads.workload import Workload

REPLICATED, LATENCY = "three replicas", "1,000 records/s"
LATENCY_RATE = 1_000
PRODUCERS = 3


def measure_asynchronous(contest: Contest) -> Sequence[Case]:
    """Measure W5."""
    return [_produce(contest, "1")]


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


def measure_latency(contest: Contest) -> Sequence[Case]:
    """Measure the end-to-end latency at a moderate rate."""
    job = Job("latency", contest.scale.records(10_000, 20_000, 60_000), rate=LATENCY_RATE, acks="all")
    pairs = [("barnabas-cluster", "barnabas"), ("barnabas-cluster", "kafka-java"), ("kafka-cluster", "barnabas")]
    pairs += [("kafka-cluster", "kafka-java")]
    return [contest.run(LATENCY, job, [Contender(*pair) for pair in pairs])]


_ONE_BROKER = "The first row is one producer on one broker without replicas, acks=1 (W4), in the same run."
WORKLOADS = (
    Workload(
        "W5",
        "One producer, three replicas, asynchronous",
        "article: 786,980/s (brokers on three machines)",
        f"Records of 100 B, 6 partitions on three brokers, acks=1. {_ONE_BROKER}",
        measure_asynchronous,
    ),
    Workload(
        "W6",
        "One producer, three replicas, synchronous",
        "article: 421,823/s (brokers on three machines)",
        f"As W5, acks=all. {_ONE_BROKER}",
        measure_synchronous,
    ),
    Workload(
        "W7",
        "Three producers, three replicas",
        "article: 2,024,032/s (brokers and producers on three machines each)",
        f"As W5, from three processes that share the records. {_ONE_BROKER}",
        measure_three_producers,
    ),
    Workload(
        "W12R",
        "Latency with three replicas",
        "nowhere",
        "As W12, at 1,000 records/s, acks=all, so that a consumer has a record only when all replicas have it.",
        measure_latency,
    ),
)
