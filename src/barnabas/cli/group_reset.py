"""`barnabas group reset`: moves a group's committed offsets, or shows where it would move them to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from barnabas.cli.broker_names import complete_groups, complete_topics
from barnabas.cli.group_lag import count_members, member_name
from barnabas.cli.offset_reset import Move, Shift, Target, parse_partitions, plan, read_offsets
from barnabas.cli.options import (
    bootstrap_option,
    connect,
    existing_partitions,
    json_option,
    partitions_of,
    require_topics,
)
from barnabas.cli.start_offset import Anchor, Bound
from barnabas.cli.tables import show_json, show_table
from barnabas.cli.timestamps import TIME_HELP, parse_time_ms
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas import Admin


@click.command()
@click.argument("name", shell_complete=complete_groups)
@click.option(
    "-t",
    "--topic",
    "topics",
    metavar="TOPIC[:P,...]",
    multiple=True,
    shell_complete=complete_topics,
    help="Of this topic, or of these partitions of it; may repeat.",
)
@click.option("--all-topics", is_flag=True, help="Of all topics in which the group has committed offsets.")
@click.option("--to-earliest", is_flag=True, help="To the first record that there is.")
@click.option("--to-latest", is_flag=True, help="To the end: only what comes from now on.")
@click.option("--to-offset", metavar="N", type=click.IntRange(min=0), help="To this offset in each partition.")
@click.option("--to-time", metavar="TIME", help=f"To the first record of that time or later: {TIME_HELP}.")
@click.option("--shift-by", metavar="N", type=int, help="So many records on; -N: back.")
@click.option(
    "--from-file",
    metavar="CSV",
    type=click.Path(dir_okay=False, path_type=Path),
    help="To the offsets in a file of lines topic,partition,offset; see group describe --csv.",
)
@click.option("--execute", is_flag=True, help="Do it; without this, only what would be done is shown.")
@json_option
@bootstrap_option
def reset(
    name: str,
    topics: tuple[str, ...],
    all_topics: bool,
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_time: str | None,
    shift_by: int | None,
    from_file: Path | None,
    execute: bool,
    as_json: bool,
    bootstrap: str,
) -> None:
    """Move the committed offsets of the group NAME, which must have no members now.

    \b
    barnabas group reset ctr --topic clicks --to-earliest              # shows what it would do
    barnabas group reset ctr --topic clicks:0,2 --to-time 2013-01-31 --execute
    """
    target = _target(to_earliest, to_latest, to_offset, to_time, shift_by, from_file)
    ways = [bool(topics), all_topics, from_file is not None]
    if sum(ways) != 1:
        raise click.UsageError("say which partitions: --topic TOPIC[:P,...], --all-topics, or --from-file CSV")
    with connect(bootstrap) as admin:
        _require_no_members(admin, name)
        committed = admin.group_offsets(name)
        wanted = _partitions(admin, topics) if topics else list(committed if all_topics else _of_file(target))
        if not wanted:
            raise click.ClickException(f"group {name!r} has no committed offsets; name topics: --topic TOPIC")
        if not topics:
            wanted = _require_partitions(admin, wanted)
        try:
            moves = plan(target, wanted, committed, admin)
        except ValueError as error:
            raise click.ClickException(str(error)) from None
        if execute:
            admin.set_group_offsets(name, {(move.topic, move.partition): move.after for move in moves})
    _show_moves(name, moves, as_json, execute)


def _target(
    to_earliest: bool,
    to_latest: bool,
    to_offset: int | None,
    to_time: str | None,
    shift_by: int | None,
    from_file: Path | None,
) -> Target:
    targets: list[Target] = []
    try:
        targets += [Bound(Anchor.BEGINNING)] if to_earliest else []
        targets += [Bound(Anchor.END)] if to_latest else []
        targets += [] if to_offset is None else [Bound(Anchor.OFFSET, to_offset)]
        targets += [] if to_time is None else [Bound(Anchor.TIMESTAMP, parse_time_ms(to_time))]
        targets += [] if shift_by is None else [Shift(shift_by)]
        if from_file is not None:
            with from_file.open(encoding="utf-8", newline="") as file:
                targets.append(read_offsets(file, str(from_file)))
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if len(targets) != 1:
        raise click.UsageError(
            "say where to, in one way: --to-earliest, --to-latest, --to-offset, --to-time, --shift-by or --from-file"
        )
    return targets[0]


def _of_file(target: Target) -> Iterable[TopicPartition]:
    assert not isinstance(target, Bound | Shift), "checked with the options"
    return target


def _require_no_members(admin: Admin, name: str) -> None:
    members = admin.describe_group(name).members
    if members:
        hosts = ", ".join(f"{member_name(each)} at {each.host}" for each in members[:3])
        more = ", ..." if len(members) > 3 else ""
        raise click.ClickException(
            f"group {name!r} has {count_members(members)} ({hosts}{more}); stop them first, they would go on "
            "where they are"
        )


def _partitions(admin: Admin, texts: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions that `--topic` options name."""
    try:
        named = [parse_partitions(text) for text in texts]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    require_topics(admin, [topic for topic, _ in named])
    there = partitions_of(admin, {topic for topic, _ in named})
    wanted: set[TopicPartition] = set()
    for topic, numbers in named:
        wanted.update(TopicPartition(topic, number) for number in numbers or ())
        wanted.update(tp for tp in there if numbers is None and tp.topic == topic)
    return _require_partitions(admin, wanted)


def _require_partitions(admin: Admin, wanted: Iterable[TopicPartition]) -> list[TopicPartition]:
    wanted = sorted(set(wanted))
    existing = set(existing_partitions(admin, wanted))
    missing = [str(tp) for tp in wanted if tp not in existing]
    if missing:
        raise click.ClickException(f"there is no partition {', '.join(missing)}; see: barnabas topic list")
    return wanted


def _show_moves(name: str, moves: Sequence[Move], as_json: bool, executed: bool) -> None:
    if as_json:
        show_json({"group": name, "executed": executed, "partitions": [asdict(move) for move in moves]})
    else:
        show_table(
            ["topic", "partition", "before", "after"],
            [[move.topic, move.partition, move.before, move.after] for move in moves],
        )
    if not executed:
        click.echo("nothing was changed; do it with --execute", err=True)
