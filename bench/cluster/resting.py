"""The cost of idle brokers with many partitions, and the cost of a replicated record."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

from barnabas import Producer
from bench.cluster.report import Figure
from bench.cluster.stage import BROKERS, MeasuredCluster, Sizes, led_by_first, spread, wait_until

TOPIC, ALONE = "resting", "alone"
SETTLING_S = 5.0
WARM_UP_SHARE = 10
PARTITIONS = 6


def measure_resting(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Measure three idle brokers. Each broker has a replica of every partition, and each partition has one record."""
    count = f"{sizes.partitions:,} partitions x 3"
    with MeasuredCluster(folder) as cluster:
        cluster.create_topic(TOPIC, [*spread(sizes.partitions)])
        with Producer(cluster.bootstrap, acks="all") as producer:
            for number in range(sizes.partitions):
                producer.send(TOPIC, b"x", partition=number)
        time.sleep(SETTLING_S)
        yield Figure(
            f"{count}: memory of a broker, the largest",
            max(broker.memory_mib for broker in cluster.brokers.values()),
            "MiB",
            "80 MB",
        )
        brokers_s = sum(broker.cpu_s for broker in cluster.brokers.values())
        zookeeper_s, begun_s = cluster.zookeeper_cpu_s(), time.monotonic()
        time.sleep(sizes.resting_s)
        brokers_s = sum(broker.cpu_s for broker in cluster.brokers.values()) - brokers_s
        zookeeper_s = cluster.zookeeper_cpu_s() - zookeeper_s
        seconds = time.monotonic() - begun_s
    yield Figure(f"{count}, idle: of a core, all brokers together", brokers_s / seconds * 100, "%", "3 %")
    yield Figure(f"{count}, idle: of a core, ZooKeeper", zookeeper_s / seconds * 100, "%")


def measure_cost(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Send records to a leader without followers, then to a leader with two followers."""
    with MeasuredCluster(folder) as cluster:
        cluster.create_topic(ALONE, [(1,)] * PARTITIONS)
        cluster.create_topic(TOPIC, [*led_by_first(PARTITIONS)])
        for topic in (ALONE, TOPIC):
            _cpu_per_million(cluster, topic, sizes.records // WARM_UP_SHARE)
        alone_s = _cpu_per_million(cluster, ALONE, sizes.records)[1]
        replicated_s = _cpu_per_million(cluster, TOPIC, sizes.records)
    what = "CPU a million records of 100 B"
    yield Figure(f"{what}: leader without followers", alone_s, "s")
    yield Figure(f"{what}: leader of two followers", replicated_s[1], "s")
    follower_s = max(replicated_s[number] for number in BROKERS[1:])
    yield Figure(f"{what}: a follower", follower_s, "s", f"{alone_s:.2f} s")


def _cpu_per_million(cluster: MeasuredCluster, topic: str, records: int) -> dict[int, float]:
    """Return the CPU time of each broker per million records, including their replication."""
    before_s = {number: broker.cpu_s for number, broker in cluster.brokers.items()}
    cluster.produce(topic, records)
    _wait_until_equal(cluster, topic)
    return {number: (broker.cpu_s - before_s[number]) / records * 1e6 for number, broker in cluster.brokers.items()}


def _wait_until_equal(cluster: MeasuredCluster, topic: str) -> None:
    """Wait until the files of all replicas have the same size, so that the followers have fetched all records."""

    def sizes() -> set[int]:
        return {
            sum(path.stat().st_size for path in broker.data.glob(f"{topic}-*/*.log"))
            for broker in cluster.brokers.values()
        } - {0}

    wait_until(lambda: len(sizes()) == 1)
