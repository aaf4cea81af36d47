"""The metrics of KIP-714, made of what the clients count."""

from __future__ import annotations

from barnabas.client.consumer.fetched_records import ConsumerMetrics
from barnabas.client.producer.accumulator import ProducerMetrics
from barnabas.client.standard_metrics import CONSUMER, PRODUCER, consumer_metrics, producer_metrics
from barnabas.clock import ManualClock
from barnabas.metrics.otlp import Point
from barnabas.metrics.rolling_sum import RollingSum

REQUIRED_OF_PRODUCERS = {
    "connection.creation.rate",
    "connection.creation.total",
    "node.request.latency.avg",
    "node.request.latency.max",
    "produce.throttle.time.avg",
    "produce.throttle.time.max",
    "record.queue.time.avg",
    "record.queue.time.max",
}
REQUIRED_OF_CONSUMERS = {
    "connection.creation.rate",
    "connection.creation.total",
    "coordinator.assigned.partitions",
    "coordinator.commit.latency.avg",
    "coordinator.commit.latency.max",
    "coordinator.rebalance.latency.avg",
    "coordinator.rebalance.latency.max",
    "coordinator.rebalance.latency.total",
    "fetch.manager.fetch.latency.avg",
    "fetch.manager.fetch.latency.max",
    "node.request.latency.avg",
    "node.request.latency.max",
    "poll.idle.ratio.avg",
}
"""KIP-714, *Standard producer metrics* and *Standard consumer metrics*."""
FURTHER_OF_CONSUMERS = {"fetch.manager.fetch.throttle.time.avg", "fetch.manager.fetch.throttle.time.max"}


def by_name(points: list[Point], prefix: str) -> dict[str, Point]:
    return {point.name.removeprefix(prefix): point for point in points if not point.attributes}


def of_nodes(points: list[Point], name: str) -> dict[str, float]:
    return {dict(point.attributes)["node_id"]: point.value for point in points if point.name == name}


def test_producer_has_the_required_metrics() -> None:
    clock = ManualClock()
    metrics, connections = ProducerMetrics(clock), RollingSum(clock)
    connections.add(1)
    connections.add(1)
    metrics.answered(1, 0.002)
    metrics.answered(1, 0.004)
    metrics.answered(2, 0.010)
    metrics.throttle_ms.add(90)
    metrics.delivered(10, 100, 0.005)
    metrics.delivered(10, 100, 0.007)
    points = list(producer_metrics(metrics, connections))
    assert {point.name.removeprefix(PRODUCER) for point in points} == REQUIRED_OF_PRODUCERS
    assert of_nodes(points, f"{PRODUCER}node.request.latency.avg") == {"1": 3.0, "2": 10.0}
    assert of_nodes(points, f"{PRODUCER}node.request.latency.max") == {"1": 4.0, "2": 10.0}
    found = by_name(points, PRODUCER)
    assert found["connection.creation.total"] == Point(
        f"{PRODUCER}connection.creation.total", is_counter=True, is_delta=False, value=2.0
    )
    assert found["produce.throttle.time.avg"].value == 30.0
    assert found["produce.throttle.time.max"].value == 90.0
    assert found["record.queue.time.avg"].value == 6.0
    assert found["record.queue.time.max"].value == 7.0


def test_consumer_has_the_required_metrics() -> None:
    clock = ManualClock()
    metrics, connections = ConsumerMetrics(clock), RollingSum(clock)
    connections.add(1)
    metrics.fetched(1, 0.1)
    metrics.fetched(2, 0.3)
    metrics.throttle_ms.add(500)
    metrics.commit_ms.add(8)
    metrics.rebalance_ms.add(50)
    metrics.rebalance_ms.add(70)
    clock.advance(10)
    metrics.idle_s.add(4.0)
    points = list(consumer_metrics(metrics, connections, assigned_partitions=3))
    assert {point.name.removeprefix(CONSUMER) for point in points} == REQUIRED_OF_CONSUMERS | FURTHER_OF_CONSUMERS
    assert of_nodes(points, f"{CONSUMER}node.request.latency.max") == {"1": 100.0, "2": 300.0}
    found = by_name(points, CONSUMER)
    assert found["fetch.manager.fetch.latency.avg"].value == 200.0
    assert found["fetch.manager.fetch.throttle.time.avg"].value == 250.0
    assert found["fetch.manager.fetch.throttle.time.max"].value == 500.0
    assert found["coordinator.assigned.partitions"].value == 3.0
    assert found["coordinator.commit.latency.max"].value == 8.0
    assert found["coordinator.rebalance.latency.total"].value == 120.0
    assert found["coordinator.rebalance.latency.total"].is_counter
    assert found["poll.idle.ratio.avg"].value == 0.4


def test_consumer_without_group_has_no_metrics_of_a_coordinator() -> None:
    clock = ManualClock()
    points = consumer_metrics(ConsumerMetrics(clock), RollingSum(clock), assigned_partitions=None)
    assert not any("coordinator" in point.name for point in points)


def test_idle_ratio_is_one_at_most() -> None:
    clock = ManualClock()
    metrics = ConsumerMetrics(clock)
    clock.advance(60)
    metrics.idle_s.add(60)
    points = list(consumer_metrics(metrics, RollingSum(clock), assigned_partitions=None))
    assert by_name(points, CONSUMER)["poll.idle.ratio.avg"].value == 1.0
