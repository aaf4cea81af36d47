"""`barnabas topic trim`: deletes the oldest records of a topic, up to an offset or a time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from barnabas.cli.connection import Connection
from barnabas.cli.consume_span import Bound, OffsetSource, parse_position, resolve
from barnabas.cli.name_completion import complete_topics
from barnabas.cli.options import (
    confirm,
    confirm_by_name,
    connect,
    connection_options,
    is_of_pipeline,
    json_option,
    partitions_of,
    require_topics,
    yes_option,
)
from barnabas.cli.table_output import Row, show_json, show_table
from barnabas.cli.terminal_text import with_noun
from barnabas.cli.times import TIME_HELP
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from barnabas import Admin

POSITION_HELP = f"an offset, -N (N before the end), end, or a time: {TIME_HELP}"


@dataclass(frozen=True, slots=True)
class Trim:
    """The deletion of the records from `first` up to, but not including, `before` in a partition."""

    partition: int
    first: int
    before: int
    end: int

    @property
    def offsets(self) -> int:
        """The number of deleted offsets. A compacted partition has fewer records than offsets."""
        return self.before - self.first


def plan_trims(bound: Bound, partitions: Iterable[TopicPartition], source: OffsetSource) -> list[Trim]:
    """Return the deletion in each partition, in the order of their numbers."""
    chosen = sorted(partitions)
    before = resolve(bound, chosen, source)
    first, end = source.beginning_offsets(chosen), source.end_offsets(chosen)
    # A partition may grow, or lose records by retention, after its offset is resolved.
    return [Trim(tp.partition, first[tp], max(before[tp], first[tp]), end[tp]) for tp in chosen]


def _position(_context: click.Context, _option: click.Parameter, text: str) -> Bound:
    try:
        return parse_position(text)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.command()
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "--before",
    metavar="OFFSET|TIME",
    required=True,
    callback=_position,
    help=f"Delete the records before this position: {POSITION_HELP}.",
)
@click.option(
    "-p", "--partition", "numbers", metavar="P", type=click.IntRange(min=0), multiple=True, help="Only this partition."
)
@click.option("--dry-run", is_flag=True, help="Only show the plan.")
@yes_option
@click.option("--force", is_flag=True, help="Also trim topics of the pipeline without asking: _audit, _schemas ...")
@json_option
@connection_options
def trim(
    name: str,
    before: Bound,
    numbers: tuple[int, ...],
    dry_run: bool,
    yes: bool,
    force: bool,
    as_json: bool,
    connection: Connection,
) -> None:
    """Delete the oldest records of the topic NAME. Consumers continue at the first remaining record.

    \b
    barnabas topic trim clicks --before -7d --dry-run      # older than seven days; only shows the plan
    barnabas topic trim clicks --before 1000 -p 0          # the offsets up to 999 of partition 0
    barnabas topic trim clicks --before end -y             # all records
    """
    with connect(connection) as admin:
        require_topics(admin, [name])
        trims = plan_trims(before, _partitions(admin, name, numbers), admin)
        count = sum(each.offsets for each in trims)
        if dry_run or not count:
            _show(name, trims, as_json=as_json, executed=False)
            if not as_json:
                click.echo(f"nothing was deleted{'' if count else ': no records are before this position'}", err=True)
            return
        if not (yes or as_json):
            _show(name, trims, as_json=False, executed=False)
        if is_of_pipeline(name) and not force:
            confirm_by_name(name)
        confirm(f"delete {with_noun(count, 'record')} of {name}?", yes=yes)
        targets = {(name, each.partition): each.before for each in trims if each.offsets}
        started = admin.delete_records(targets)
    _show(name, _executed(name, trims, started), as_json=as_json, executed=True)


def _partitions(admin: Admin, name: str, numbers: tuple[int, ...]) -> list[TopicPartition]:
    there = partitions_of(admin, [name])
    missing = sorted(set(numbers) - {tp.partition for tp in there})
    if missing:
        raise click.ClickException(f"topic {name!r} has no partition {', '.join(map(str, missing))}")
    return [tp for tp in there if not numbers or tp.partition in numbers]


def _executed(name: str, trims: Iterable[Trim], started: Mapping[TopicPartition, int]) -> list[Trim]:
    """Return the deletions with the log start offsets that the brokers returned."""
    return [
        Trim(each.partition, each.first, started.get(TopicPartition(name, each.partition), each.before), each.end)
        for each in trims
    ]


def _show(name: str, trims: Iterable[Trim], *, as_json: bool, executed: bool) -> None:
    if as_json:
        partitions = [
            {"partition": each.partition, "first": each.first, "new_first": each.before, "end": each.end}
            for each in trims
        ]
        show_json({"topic": name, "executed": executed, "partitions": partitions})
        return
    columns = ["partition", "first", "new first", "end", "deleted" if executed else "to delete"]
    rows: list[Row] = [[each.partition, each.first, each.before, each.end, each.offsets] for each in trims]
    show_table(columns, rows)
