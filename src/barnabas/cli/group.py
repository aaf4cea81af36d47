"""`barnabas group`: what a consumer group has committed, and how far it is behind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import click

from barnabas.cli.options import bootstrap_option, connect, json_option
from barnabas.cli.tables import Row, show_json, show_table
from barnabas.model import OffsetAndMetadata, TopicPartition


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """How far a group is in one partition. `lag` counts records, and is never negative."""

    topic: str
    partition: int
    committed: int
    end: int
    lag: int


def lags(
    committed: Mapping[TopicPartition, OffsetAndMetadata], ends: Mapping[TopicPartition, int]
) -> list[PartitionLag]:
    """Return the lag in each partition with a committed offset, in order of topic and partition."""
    return [
        PartitionLag(tp.topic, tp.partition, at.offset, ends[tp], max(0, ends[tp] - at.offset))
        for tp, at in sorted(committed.items())
    ]


@click.group()
def group() -> None:
    """Show how far a consumer group is, and its lag."""


@group.command()
@click.argument("name")
@json_option
@bootstrap_option
def describe(name: str, as_json: bool, bootstrap: str) -> None:
    """Show the committed offsets of the group NAME and its lag, per partition and in all."""
    with connect(bootstrap) as admin:
        committed = admin.group_offsets(name)
        if not committed:
            raise click.ClickException(
                f"group {name!r} has no committed offsets; a consumer commits as: barnabas consume TOPIC -g {name}"
            )
        rows = lags(committed, admin.end_offsets(list(committed)))
    if as_json:
        show_json(_as_json(name, rows))
        return
    table: list[Row] = [[row.topic, row.partition, row.committed, row.end, row.lag] for row in rows]
    show_table(["topic", "partition", "committed", "end", "lag"], [*table, ["total", None, None, None, _total(rows)]])


def _as_json(name: str, rows: Iterable[PartitionLag]) -> dict[str, object]:
    rows = list(rows)
    return {
        "group": name,
        "lag": _total(rows),
        "partitions": [
            {
                "topic": row.topic,
                "partition": row.partition,
                "committed": row.committed,
                "end": row.end,
                "lag": row.lag,
            }
            for row in rows
        ],
    }


def _total(rows: Iterable[PartitionLag]) -> int:
    return sum(row.lag for row in rows)
