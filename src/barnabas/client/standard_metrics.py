"""The metrics that KIP-714 requires of producers and consumers, under the names of KIP-714.

The latencies of a broker cover produce and fetch requests only, because other requests are rare.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from barnabas.client.consumer.fetched_records import ConsumerMetrics
from barnabas.client.producer.accumulator import ProducerMetrics
from barnabas.metrics.otlp import Point
from barnabas.metrics.rolling_sum import RollingSum, greatest_of, mean_of

PRODUCER = "org.apache.kafka.producer."
CONSUMER = "org.apache.kafka.consumer."


def producer_metrics(metrics: ProducerMetrics, connections: RollingSum) -> Iterator[Point]:
    """Yield the metrics of a producer.

    :param connections: the number of established connections over time.
    """
    yield from _connections(PRODUCER, connections)
    yield from _latencies(PRODUCER, metrics.latency_ms)
    yield from _throttle_times(f"{PRODUCER}produce.throttle.time", metrics.throttle_ms, metrics.latency_ms)
    yield from _avg_and_max(f"{PRODUCER}record.queue.time", metrics.queue_ms)


def consumer_metrics(
    metrics: ConsumerMetrics, connections: RollingSum, assigned_partitions: int | None
) -> Iterator[Point]:
    """Yield the metrics of a consumer.

    :param connections: the number of established connections over time.
    :param assigned_partitions: the number of assigned partitions, or None for a consumer without a group.
    """
    yield from _connections(CONSUMER, connections)
    yield from _latencies(CONSUMER, metrics.fetch_latency_ms)
    fetches = list(metrics.fetch_latency_ms.values())
    yield _gauge(f"{CONSUMER}fetch.manager.fetch.latency.avg", mean_of(fetches))
    yield _gauge(f"{CONSUMER}fetch.manager.fetch.latency.max", greatest_of(fetches))
    throttle = f"{CONSUMER}fetch.manager.fetch.throttle.time"
    yield from _throttle_times(throttle, metrics.throttle_ms, metrics.fetch_latency_ms)
    yield _gauge(f"{CONSUMER}poll.idle.ratio.avg", min(metrics.idle_s.per_s(), 1.0))
    if assigned_partitions is None:
        return
    yield _gauge(f"{CONSUMER}coordinator.assigned.partitions", assigned_partitions)
    yield from _avg_and_max(f"{CONSUMER}coordinator.commit.latency", metrics.commit_ms)
    yield from _avg_and_max(f"{CONSUMER}coordinator.rebalance.latency", metrics.rebalance_ms)
    yield _counter(f"{CONSUMER}coordinator.rebalance.latency.total", metrics.rebalance_ms.total)


def _connections(prefix: str, connections: RollingSum) -> Iterator[Point]:
    yield _gauge(f"{prefix}connection.creation.rate", connections.per_s())
    yield _counter(f"{prefix}connection.creation.total", connections.count)


def _latencies(prefix: str, by_node: Mapping[int, RollingSum]) -> Iterator[Point]:
    for node_id, window in list(by_node.items()):
        for point in _avg_and_max(f"{prefix}node.request.latency", window):
            yield point._replace(attributes=(("node_id", str(node_id)),))


def _throttle_times(name: str, throttle_ms: RollingSum, latency_ms: Mapping[int, RollingSum]) -> Iterator[Point]:
    """Yield the mean throttle time of all responses, most of which have none, and the maximum."""
    responses = sum(step[2] for each in list(latency_ms.values()) for step in each.recent())
    throttled_ms = sum(step[1] for step in throttle_ms.recent())
    yield _gauge(f"{name}.avg", throttled_ms / max(responses, 1))
    yield _gauge(f"{name}.max", throttle_ms.greatest())


def _avg_and_max(name: str, window: RollingSum) -> Iterator[Point]:
    yield _gauge(f"{name}.avg", window.mean())
    yield _gauge(f"{name}.max", window.greatest())


def _gauge(name: str, value: float) -> Point:
    return Point(name, is_counter=False, is_delta=False, value=float(value))


def _counter(name: str, value: float) -> Point:
    return Point(name, is_counter=True, is_delta=False, value=float(value))
