"""`barnabas topic`: create, list, describe and delete topics."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from barnabas.cli.options import bootstrap_option, connect, json_option, parse_pairs, require_topics
from barnabas.cli.tables import Row, show_json, show_table
from barnabas.errors import ErrorCode, KafkaError
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas import Admin


@click.group()
def topic() -> None:
    """Create, list, describe and delete topics."""


@topic.command()
@click.argument("name")
@click.option("-p", "--partitions", type=click.IntRange(min=1), default=1, show_default=True, help="How many.")
@click.option("-r", "--replication-factor", type=click.IntRange(min=1), default=1, show_default=True)
@click.option(
    "-c", "--config", "configs", metavar="NAME=VALUE", multiple=True, help="For example -c retention.ms=86400000."
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing when the topic exists.")
@bootstrap_option
def create(
    name: str,
    partitions: int,
    replication_factor: int,
    configs: tuple[str, ...],
    if_not_exists: bool,
    bootstrap: str,
) -> None:
    """Create the topic NAME."""
    with connect(bootstrap) as admin:
        try:
            admin.create_topic(name, partitions, replication_factor, parse_pairs(configs))
        except KafkaError as error:
            if not (if_not_exists and error.code is ErrorCode.TOPIC_ALREADY_EXISTS):
                raise
            click.echo(f"topic {name} exists")
        else:
            click.echo(f"created topic {name} with {partitions} partition{'s' if partitions > 1 else ''}")


@topic.command(name="list")
@json_option
@bootstrap_option
def list_(as_json: bool, bootstrap: str) -> None:
    """List the topics."""
    with connect(bootstrap) as admin:
        descriptions = admin.describe_topics(sorted(admin.list_topics()))
        records = {
            found.name: sum(end - first for first, end in _offsets(admin, found.name, len(found.partitions)))
            for found in descriptions
        }
    if as_json:
        rows = [
            {"topic": found.name, "partitions": len(found.partitions), "records": records[found.name]}
            for found in descriptions
        ]
        show_json(rows)
    elif descriptions:
        show_table(
            ["topic", "partitions", "records"],
            [[found.name, len(found.partitions), records[found.name]] for found in descriptions],
        )
    else:
        click.echo("there are no topics; create one with: barnabas topic create NAME", err=True)


@topic.command()
@click.argument("name")
@json_option
@bootstrap_option
def describe(name: str, as_json: bool, bootstrap: str) -> None:
    """Show the partitions of the topic NAME: leader, replicas, offsets."""
    with connect(bootstrap) as admin:
        require_topics(admin, [name])
        (found,) = admin.describe_topics([name])
        partitions = sorted(found.partitions, key=lambda partition: partition.partition)
        offsets = _offsets(admin, name, len(partitions))
    rows: list[Row] = [
        [part.partition, part.leader, _ids(part.replicas), _ids(part.isr), first, end, end - first]
        for part, (first, end) in zip(partitions, offsets, strict=True)
    ]
    columns = ["partition", "leader", "replicas", "isr", "first", "end", "records"]
    if as_json:
        show_json(
            {
                "topic": name,
                "id": found.id,
                "partitions": [
                    {
                        **dict(zip(columns, row, strict=True)),
                        "replicas": list(part.replicas),
                        "isr": list(part.isr),
                    }
                    for part, row in zip(partitions, rows, strict=True)
                ],
            }
        )
    else:
        show_table(columns, rows)


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@bootstrap_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str) -> None:
    """Delete topics and all that is in them."""
    with connect(bootstrap) as admin:
        require_topics(admin, names)
        if not yes and sys.stdin.isatty():
            click.confirm(f"delete {', '.join(names)} with all records?", abort=True)
        for name in names:
            admin.delete_topic(name)
            click.echo(f"deleted topic {name}")


def _offsets(admin: Admin, name: str, partition_count: int) -> list[tuple[int, int]]:
    """Return the first and the end offset of each partition."""
    partitions = [TopicPartition(name, partition) for partition in range(partition_count)]
    first, end = admin.beginning_offsets(partitions), admin.end_offsets(partitions)
    return [(first[tp], end[tp]) for tp in partitions]


def _ids(broker_ids: list[int] | tuple[int, ...]) -> str:
    return ",".join(map(str, broker_ids))
