"""`barnabas topic`: create, list, describe, analyze, trim, delete, alter and move topics."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.connection import Connection
from barnabas.cli.error_messages import unknown_setting
from barnabas.cli.log_dirs import move_log
from barnabas.cli.name_completion import complete_topics
from barnabas.cli.options import (
    confirm,
    confirm_by_name,
    connect,
    connection_options,
    is_of_pipeline,
    json_option,
    parse_pairs,
    require_topics,
    yes_option,
)
from barnabas.cli.table_output import Row, show_json, show_table
from barnabas.cli.terminal_text import with_noun
from barnabas.cli.topic_analyze import analyze
from barnabas.cli.topic_reassign import reassign
from barnabas.cli.topic_selection import existing_topics, parse_topics
from barnabas.cli.topic_trim import trim
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from barnabas import Admin
    from barnabas.client.admin.topics import PartitionDescription, TopicDescription

COLUMNS = ["partition", "leader", "replicas", "isr", "first", "end", "records"]
"""The columns of `topic describe`."""


@click.group()
def topic() -> None:
    """Create, list, describe, analyze, trim, delete, alter and move topics."""


@topic.command()
@click.argument("name")
@click.option(
    "-p", "--partitions", type=click.IntRange(min=1), default=1, show_default=True, help="Number of partitions."
)
@click.option(
    "-r",
    "--replication-factor",
    type=click.IntRange(min=1),
    help="Replicas per partition.  [default: the brokers' default.replication.factor]",
)
@click.option(
    "-c",
    "--config",
    "configs",
    metavar="NAME=VALUE",
    multiple=True,
    help="Topic setting, such as retention.ms=86400000.",
)
@click.option("--if-not-exists", is_flag=True, help="Do nothing if the topic exists.")
@connection_options
def create(
    name: str,
    partitions: int,
    replication_factor: int | None,
    configs: tuple[str, ...],
    if_not_exists: bool,
    connection: Connection,
) -> None:
    """Create the topic NAME."""
    with connect(connection) as admin:
        try:
            admin.create_topic(name, partitions, replication_factor, parse_pairs(configs))
        except ApiError as error:
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
            if not if_not_exists:
                see = f"see it with: barnabas topic describe {name}"
                raise click.ClickException(f"topic {name!r} already exists; {see}") from error
            click.echo(f"topic {name} exists")
        else:
            click.echo(f"created topic {name} with {partitions} partition{'s' if partitions > 1 else ''}")


@topic.command(name="list")
@click.option("--internal", is_flag=True, help="Also show internal topics.")
@json_option
@connection_options
def list_(internal: bool, as_json: bool, connection: Connection) -> None:
    """List the topics."""
    with connect(connection) as admin:
        descriptions = admin.describe_topics(include_internal=internal)
        ends = _offsets(admin, descriptions)
        records = dict.fromkeys((found.name for found in descriptions), 0)
        for tp, (first, end) in ends.items():
            records[tp.topic] += end - first
    columns = ["topic", "partitions", "records"]
    rows: list[Row] = [
        [found.name, None, None] if found.error else [found.name, len(found.partitions), records[found.name]]
        for found in descriptions
    ]
    if as_json:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    elif rows:
        show_table(columns, rows)
    else:
        click.echo("there are no topics; create one with: barnabas topic create NAME", err=True)
    for failed in [found for found in descriptions if found.error]:
        click.echo(f"topic {failed.name} cannot be described now: {failed.error.name}", err=True)


@topic.command()
@click.argument("topics", nargs=-1, required=True, metavar="TOPIC...", shell_complete=complete_topics)
@json_option
@connection_options
def describe(topics: tuple[str, ...], as_json: bool, connection: Connection) -> None:
    """Show the partitions of TOPICs with leaders, replicas and offsets, and the settings of the topics themselves.

    A TOPIC that begins with ^ is a regular expression for the beginning of names.

    \b
    barnabas topic describe clicks
    barnabas topic describe views '^clicks\\..*'   # views, clicks.eu, clicks.us ...
    """
    selection = parse_topics(topics)
    is_single = len(selection.names) == 1 and not selection.has_patterns
    with connect(connection) as admin:
        chosen = existing_topics(admin, selection)
        known = {found.name: found for found in admin.describe_topics(chosen)}
        descriptions = [known[name] for name in chosen]
        offsets = _offsets(admin, descriptions)
        settings = {name: _own_settings(admin, name) for name in chosen}
    if as_json:
        described = [_as_json(found, offsets, settings[found.name]) for found in descriptions]
        show_json(described[0] if is_single else described)
        return
    for number, found in enumerate(descriptions):
        if number:
            click.echo()
        if not is_single:
            click.echo(f"topic {found.name}")
        show_table(COLUMNS, [_row(found.name, part, offsets) for part in _in_order(found)])
        if own := settings[found.name]:
            click.echo(f"\n{' '.join(f'{setting}={value}' for setting, value in own.items())}")


def _own_settings(admin: Admin, name: str) -> dict[str, str | None]:
    """Return the settings of the topic itself, without those of the brokers."""
    return {each.name: each.value for each in admin.describe_config(name).values() if each.source.label == "topic"}


def _in_order(found: TopicDescription) -> list[PartitionDescription]:
    return sorted(found.partitions, key=lambda partition: partition.partition)


def _row(topic_name: str, part: PartitionDescription, offsets: Mapping[TopicPartition, tuple[int, int]]) -> Row:
    first, end = offsets.get(TopicPartition(topic_name, part.partition), (None, None))
    count = None if first is None or end is None else end - first
    leader = part.leader if part.leader >= 0 else None
    return [part.partition, leader, _ids(part.replicas), _ids(part.isr), first, end, count]


def _as_json(
    found: TopicDescription, offsets: Mapping[TopicPartition, tuple[int, int]], own: Mapping[str, str | None]
) -> dict[str, object]:
    partitions = [
        {
            **dict(zip(COLUMNS, _row(found.name, part, offsets), strict=True)),
            "replicas": list(part.replicas),
            "isr": list(part.isr),
        }
        for part in _in_order(found)
    ]
    return {"topic": found.name, "id": found.id, "config": own, "partitions": partitions}


@topic.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_topics)
@yes_option
@click.option(
    "--force", is_flag=True, help="Also delete topics of the pipeline without asking: _audit, _schemas, _mirror, __..."
)
@connection_options
def delete(names: tuple[str, ...], yes: bool, force: bool, connection: Connection) -> None:
    """Delete topics with all their records."""
    with connect(connection) as admin:
        require_topics(admin, names)
        for name in () if force else filter(is_of_pipeline, names):
            confirm_by_name(name)
        confirm(f"delete {', '.join(names)} with all records?", yes=yes)
        for name in names:
            admin.delete_topic(name)
            click.echo(f"deleted topic {name}")


@topic.command()
@click.argument("name", shell_complete=complete_topics)
@click.option("-p", "--partitions", type=click.IntRange(min=1), help="Increase the number of partitions.")
@click.option(
    "-c",
    "--config",
    "configs",
    metavar="NAME=VALUE",
    multiple=True,
    help="Set a setting, such as retention.ms=86400000.",
)
@click.option("--unset", "unset", metavar="NAME", multiple=True, help="Reset a setting to its default.")
@connection_options
def alter(
    name: str, partitions: int | None, configs: tuple[str, ...], unset: tuple[str, ...], connection: Connection
) -> None:
    """Change settings of the topic NAME, or increase its number of partitions.

    The number of partitions cannot decrease. After an increase, existing records stay in their partitions, but keys may
    map to other partitions.
    """
    if partitions is None and not configs and not unset:
        raise click.UsageError("give a change: --partitions N, --config NAME=VALUE or --unset NAME")
    to_set = parse_pairs(configs)
    with connect(connection) as admin:
        require_topics(admin, [name])
        known = admin.describe_config(name)
        for setting in (*to_set, *unset):
            if setting not in known:
                raise unknown_setting(setting, known, "topic", name)
        # Change the settings before the number of partitions: if the broker rejects the settings, nothing has changed.
        # Added partitions cannot be removed.
        admin.alter_config(name, to_set=to_set, to_unset=unset)
        if partitions is not None:
            admin.add_partitions(name, partitions)
    changes = [f"{setting}={value}" for setting, value in to_set.items()]
    changes += [f"{setting} unset" for setting in unset]
    changes += [] if partitions is None else [with_noun(partitions, "partition")]
    click.echo(f"altered topic {name}: {', '.join(changes)}")


topic.add_command(reassign)
topic.add_command(move_log)
topic.add_command(trim)
topic.add_command(analyze)


def _offsets(admin: Admin, topics: Iterable[TopicDescription]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the log start and log end offset of each partition. Partitions without a leader are missing, because only
    a leader can report these offsets."""
    led = [TopicPartition(each.name, part.partition) for each in topics for part in each.partitions if part.leader >= 0]
    first, end = admin.beginning_offsets(led), admin.end_offsets(led)
    return {tp: (first[tp], end[tp]) for tp in led}


def _ids(broker_ids: list[int] | tuple[int, ...]) -> str:
    return ",".join(map(str, broker_ids))
