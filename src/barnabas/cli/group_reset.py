"""`barnabas group reset`: moves committed offsets of groups, or shows the planned moves."""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.cli.connection import Connection
from barnabas.cli.consume_span import Anchor, Bound
from barnabas.cli.group_lag import count_members, member_name
from barnabas.cli.name_completion import complete_groups, complete_topics
from barnabas.cli.offset_reset import CurrentOffsets, Move, OffsetShift, Target, parse_partitions, plan, read_offsets
from barnabas.cli.options import (
    connect,
    connection_options,
    existing_partitions,
    json_option,
    partitions_of,
    require_topics,
)
from barnabas.cli.table_output import Row, show_json, show_table
from barnabas.cli.times import DURATION_HELP, TIME_HELP, parse_duration_ms, parse_time_ms
from barnabas.cli.zookeeper_groups import Groups, groups_of, zookeeper_option
from barnabas.clock import SYSTEM_CLOCK
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas import Admin, GroupDescription


def _target(*names: str, becomes: Callable[[Any], Target], **attributes: Any) -> Callable[[Any], Any]:
    """Return a command-line option for a reset target. The function `becomes` converts the option's value to the
    target."""

    def parse(_context: click.Context, _option: click.Parameter, value: Any) -> Target | None:
        if value is None or value is False:
            return None
        try:
            return becomes(value)
        except ValueError as error:
            raise click.UsageError(str(error)) from None

    return click.option(*names, callback=parse, **attributes)


def _from_file(path: Path) -> Target:
    with path.open(encoding="utf-8", newline="") as file:
        return read_offsets(file, str(path))


def partitions_option(*, required: bool = False) -> Callable[[Any], Any]:
    """Return the option `--topic`, whose values `parse_partitions` parses."""
    return click.option(
        "-t",
        "--topic",
        "topics",
        metavar="TOPIC[:P,...]",
        multiple=True,
        required=required,
        shell_complete=complete_topics,
        help="Limit to this topic or these partitions of it; repeatable.",
    )


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=complete_groups)
@click.option("--all-groups", is_flag=True, help="Reset all groups.")
@partitions_option()
@click.option("--all-topics", is_flag=True, help="Reset all partitions with committed offsets.")
@_target("--to-earliest", becomes=lambda _: Bound(Anchor.BEGINNING), is_flag=True, help="Move to the log start offset.")
@_target("--to-latest", becomes=lambda _: Bound(Anchor.END), is_flag=True, help="Move to the log end offset.")
@_target(
    "--to-current",
    becomes=lambda _: CurrentOffsets(),
    is_flag=True,
    help="Keep the committed offset; move to the log end offset if there is none.",
)
@_target(
    "--to-offset",
    becomes=lambda offset: Bound(Anchor.OFFSET, offset),
    metavar="N",
    type=click.IntRange(min=0),
    help="Move to this offset in each partition.",
)
@_target(
    "--to-time",
    becomes=lambda text: Bound(Anchor.TIMESTAMP, parse_time_ms(text)),
    metavar="TIME",
    help=f"Move to the first record at or after this time: {TIME_HELP}.",
)
@_target(
    "--by-duration",
    becomes=lambda text: Bound(Anchor.TIMESTAMP, max(0, SYSTEM_CLOCK.time_ms() - parse_duration_ms(text))),
    metavar="DURATION",
    help=f"Move to the first record that is not older: {DURATION_HELP}.",
)
@_target("--shift-by", becomes=OffsetShift, metavar="N", type=int, help="Move forward by N offsets; -N: back.")
@_target(
    "--from-file",
    becomes=_from_file,
    metavar="CSV",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Move to the offsets in a CSV file with topic,partition,offset; see --csv and group describe --csv.",
)
@click.option("--execute", is_flag=True, help="Apply the changes; by default they are only shown.")
@json_option
@click.option("--csv", "as_csv", is_flag=True, help="Print topic,partition,offset, the format of --from-file.")
@zookeeper_option
@connection_options
def reset(
    names: tuple[str, ...],
    all_groups: bool,
    topics: tuple[str, ...],
    all_topics: bool,
    execute: bool,
    as_json: bool,
    as_csv: bool,
    zookeeper: str | None,
    connection: Connection,
    **targets: Target | None,
) -> None:
    """Move the committed offsets of groups, which must have no members.

    \b
    barnabas group reset ctr --topic clicks --to-earliest              # only shows the changes
    barnabas group reset ctr --topic clicks:0,2 --to-time 2013-01-31 --execute
    """
    target, of_file = _only(targets), targets["from_file"] is not None
    _check_usage(len(names), all_groups, bool(topics) + all_topics + of_file, of_file, as_json, as_csv)
    with connect(connection) as admin, groups_of(admin, zookeeper, connection) as groups:
        chosen = [listed.group for listed in groups.list_groups()] if all_groups else list(dict.fromkeys(names))
        if not chosen:
            raise click.ClickException("there are no groups")
        for name in chosen:
            _require_no_members(groups.describe_group(name))
        named = _partitions(admin, topics) if topics else None if all_topics else _of_file(target)
        moves = {name: _plan(admin, groups, name, target, named) for name in chosen}
        if not any(moves.values()):
            which = f"group {chosen[0]!r} has" if len(chosen) == 1 else "the groups have"
            raise click.ClickException(f"{which} no committed offsets; name topics: --topic TOPIC")
        if execute:
            for name, each in moves.items():
                groups.set_group_offsets(name, {(move.topic, move.partition): move.after for move in each})
    if as_json:
        shown = [_as_json(name, each, execute) for name, each in moves.items()]
        show_json(shown if all_groups or len(names) > 1 else shown[0])
    elif as_csv:
        _show_csv(moves[names[0]])
    else:
        _show_table(moves)
    if not execute:
        click.echo("nothing was changed; apply the changes with --execute", err=True)


def _check_usage(named: int, all_groups: bool, ways: int, of_file: bool, as_json: bool, as_csv: bool) -> None:
    """Check that the options are compatible.

    :param named: number of groups that the command line names.
    :param ways: number of options that select partitions.
    """
    if bool(named) == all_groups:
        raise click.UsageError("name the groups (NAME...), or give --all-groups")
    if ways != 1:
        raise click.UsageError("select the partitions: --topic TOPIC[:P,...], --all-topics, or --from-file CSV")
    if (of_file or as_csv) and named != 1:
        raise click.UsageError("--from-file and --csv support one group at a time")
    if as_json and as_csv:
        raise click.UsageError("give only one of --json and --csv")


def _as_json(name: str, moves: Iterable[Move], executed: bool) -> dict[str, object]:
    return {"group": name, "executed": executed, "partitions": [asdict(move) for move in moves]}


def _plan(
    admin: Admin, groups: Groups, name: str, target: Target, named: Iterable[TopicPartition] | None
) -> list[Move]:
    """Return the planned offset changes of a group. `partitions` None selects all partitions with committed offsets.

    :raises click.ClickException: a partition does not exist, or the target has no offset in it.
    """
    committed = groups.group_offsets(name)
    try:
        return plan(target, _require_partitions(admin, committed if named is None else named), committed, admin)
    except ValueError as error:
        raise click.ClickException(f"group {name!r}: {error}") from None


def _only(targets: dict[str, Target | None]) -> Target:
    given = [target for target in targets.values() if target is not None]
    if len(given) != 1:
        raise click.UsageError(
            "give one target: --to-earliest, --to-latest, --to-current, --to-offset, --to-time, "
            "--by-duration, --shift-by or --from-file"
        )
    return given[0]


def _of_file(target: Target) -> Iterable[TopicPartition]:
    assert not isinstance(target, Bound | CurrentOffsets | OffsetShift), "`_check_usage` has checked the options"
    return target


def _require_no_members(group: GroupDescription) -> None:
    members = group.members
    if members:
        hosts = ", ".join(
            f"{member_name(each)} at {each.host}" if each.host else member_name(each) for each in members[:3]
        )
        more = ", ..." if len(members) > 3 else ""
        raise click.ClickException(
            f"group {group.group!r} has {count_members(members)} ({hosts}{more}); stop them first: members ignore "
            "changes of committed offsets"
        )


def _partitions(admin: Admin, texts: Iterable[str]) -> list[TopicPartition]:
    """Return the partitions that the `--topic` options select."""
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


def _show_table(moves: Mapping[str, Iterable[Move]]) -> None:
    group = ["group"] if len(moves) > 1 else []
    rows: list[Row] = [
        [*([name] if group else []), move.topic, move.partition, move.before, move.after]
        for name, each in moves.items()
        for move in each
    ]
    show_table([*group, "topic", "partition", "before", "after"], rows)


def _show_csv(moves: Iterable[Move]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["topic", "partition", "offset"])
    writer.writerows([move.topic, move.partition, move.after] for move in moves)
