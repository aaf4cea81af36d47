"""Requests and output of `barnabas cluster status`."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import click

from barnabas.cli.cluster_health import OFFSETS_TOPIC, ClusterHealth, assess, ranges
from barnabas.cli.table_output import Row, show_json, show_table
from barnabas.errors import RetriableError, UnsupportedVersionError

if TYPE_CHECKING:
    from barnabas import Admin

MIN_INSYNC = "min.insync.replicas"
ANSWER_TIMEOUT_MS = 5_000
"""The request timeout in ms. It is short, because a broker that has just failed may still be registered."""
UNHEALTHY_SHOWN_MAX = 50


def ask_for_health(admin: Admin) -> ClusterHealth:
    """Request the state of all brokers and partitions."""
    cluster = admin.describe_cluster()
    topics = admin.describe_topics(include_internal=True)
    settings = admin.describe_topic_configs([each.name for each in topics if not each.error], [MIN_INSYNC])
    min_insync = {topic: int(found[MIN_INSYNC].value or 1) for topic, found in settings.items() if MIN_INSYNC in found}
    groups = {broker.id: _count_groups(admin, broker.id) for broker in cluster.brokers}
    offline = {broker.id: _offline_folders(admin, broker.id) for broker in cluster.brokers}
    return assess(cluster, topics, min_insync, groups, offline)


def _count_groups(admin: Admin, broker: int) -> int | None:
    try:
        return len(admin.list_groups(broker=broker))
    except RetriableError:  # the status command shows this broker as not responding
        return None


def _offline_folders(admin: Admin, broker: int) -> tuple[str, ...]:
    try:
        return tuple(each.path for each in admin.log_dirs(broker, with_sizes=False) if each.error)
    except (RetriableError, UnsupportedVersionError):
        return ()


def show_health(health: ClusterHealth) -> None:
    """Print the health as tables: brokers, coordinators, unhealthy partitions, and a summary line."""
    click.echo(f"cluster {health.id}, controller: broker {'-' if health.spokesman is None else health.spokesman}\n")
    show_table(
        ["broker", "address", "rack", "leads", "replicas", "in sync"],
        [[each.id, each.address, each.rack, each.leads, each.replicas, each.in_sync] for each in health.brokers],
    )
    click.echo("")
    show_table(
        ["coordinator", "groups", f"partitions of {OFFSETS_TOPIC}"],
        [[each.id, each.groups, ranges(each.coordinates) or None] for each in health.brokers],
    )
    click.echo("")
    if rows := _unhealthy_by_topic(health):
        show_table(["topic", "partitions", "problem"], rows[:UNHEALTHY_SHOWN_MAX])
        more = len(rows) - UNHEALTHY_SHOWN_MAX
        click.echo(f"and {more} more lines; see all with --json\n" if more > 0 else "")
    click.echo(health.summary)


def _unhealthy_by_topic(health: ClusterHealth) -> list[Row]:
    """Return the rows of the table of unhealthy partitions. Partitions of a topic with the same problems share a
    row."""
    numbers: dict[tuple[str, str], list[int]] = {}
    for each in health.unhealthy:
        numbers.setdefault((each.topic, ", ".join(each.problems)), []).append(each.partition)
    return [[topic, ranges(sorted(partitions)), problem] for (topic, problem), partitions in numbers.items()]


def show_health_as_json(health: ClusterHealth) -> None:
    """Print the health as JSON."""
    show_json(
        {
            "id": health.id,
            "spokesman": health.spokesman,
            "healthy": health.is_healthy,
            "summary": health.summary,
            "brokers": [dataclasses.asdict(each) for each in health.brokers],
            "partitions": [{**dataclasses.asdict(each), "problems": each.problems} for each in health.partitions],
            "undescribed": dict(health.undescribed),
        }
    )
