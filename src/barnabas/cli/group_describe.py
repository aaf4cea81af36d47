"""`barnabas group describe`: shows the members, committed offsets and lag of groups."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, NamedTuple

import click

from barnabas.cli.connection import Connection
from barnabas.cli.error_messages import unknown_group
from barnabas.cli.group_lag import PartitionLag, count_members, lags, member_name, short_partitions, total_lag
from barnabas.cli.name_completion import complete_groups
from barnabas.cli.options import connect, connection_options, existing_partitions, json_option
from barnabas.cli.table_output import Row, show_json, show_table
from barnabas.cli.zookeeper_groups import Groups, groups_of, zookeeper_option

if TYPE_CHECKING:
    from barnabas import Admin, GroupDescription


class DescribedGroup(NamedTuple):
    """A group with its committed offsets and lag per partition."""

    group: GroupDescription
    rows: list[PartitionLag]


@click.command()
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=complete_groups)
@click.option("--all-groups", is_flag=True, help="Describe all groups.")
@click.option("--offsets", "offsets_only", is_flag=True, help="Show only committed offsets and lag.")
@click.option("--members", "members_only", is_flag=True, help="Show only members, with client ids and subscriptions.")
@click.option("--state", "state_only", is_flag=True, help="Show only the state, in one line per group.")
@json_option
@click.option(
    "--csv", "as_csv", is_flag=True, help="Print topic,partition,offset, the format of group reset --from-file."
)
@zookeeper_option
@connection_options
def describe(
    names: tuple[str, ...],
    all_groups: bool,
    offsets_only: bool,
    members_only: bool,
    state_only: bool,
    as_json: bool,
    as_csv: bool,
    zookeeper: str | None,
    connection: Connection,
) -> None:
    """Show the members of groups, and their lag per partition and in total.

    \b
    barnabas group describe ctr
    barnabas group describe --all-groups --state
    """
    if bool(names) == all_groups:
        raise click.UsageError("name the groups (NAME...), or give --all-groups")
    if offsets_only + members_only + state_only + as_json + as_csv > 1:
        raise click.UsageError("give only one of --offsets, --members, --state, --json and --csv")
    if as_csv and len(names) != 1:
        raise click.UsageError("--csv supports one group at a time")
    with connect(connection) as admin, groups_of(admin, zookeeper, connection) as groups:
        chosen = [listed.group for listed in groups.list_groups()] if all_groups else list(dict.fromkeys(names))
        found = [_find(admin, groups, name, with_lag=not (members_only or state_only)) for name in chosen]
    if as_json:
        described = [_as_json(*each) for each in found]
        show_json(described if all_groups or len(names) > 1 else described[0])
    elif as_csv:
        _show_csv(found[0].rows)
    elif state_only:
        _show_states(each.group for each in found)
    elif members_only:
        _show_all_members([each.group for each in found])
    else:
        for number, each in enumerate(found):
            if number:
                click.echo()
            _show_group(each, with_members=not offsets_only)


def _find(admin: Admin, groups: Groups, name: str, *, with_lag: bool) -> DescribedGroup:
    found = groups.describe_group(name)
    if not found.exists:
        raise unknown_group(name, [listed.group for listed in groups.list_groups()])
    if not with_lag:
        return DescribedGroup(found, [])
    committed = groups.group_offsets(name)
    read = {tp for member in found.members for tp in member.partitions}
    ends = admin.end_offsets(existing_partitions(admin, committed.keys() | read))
    return DescribedGroup(found, lags(committed, ends, found.members))


def _as_json(found: GroupDescription, rows: Sequence[PartitionLag]) -> dict[str, object]:
    return {
        "group": found.group,
        "state": found.state,
        "assignor": found.assignor,
        "coordination": found.coordination,
        "coordinator": None if found.coordinator is None else asdict(found.coordinator),
        "members": [asdict(member) for member in found.members],
        "lag": total_lag(rows),
        "partitions": [{**asdict(row), "lag": row.lag} for row in rows],
    }


def _show_csv(rows: Iterable[PartitionLag]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["topic", "partition", "offset"])
    writer.writerows([row.topic, row.partition, row.committed] for row in rows if row.committed is not None)


def _show_states(groups: Iterable[GroupDescription]) -> None:
    rows: list[Row] = [
        [each.group, each.state, len(each.members), each.assignor or None, str(each.coordinator or each.coordination)]
        for each in groups
    ]
    show_table(["group", "state", "members", "assignor", "coordinator"], rows)


def _show_all_members(groups: Sequence[GroupDescription]) -> None:
    rows: list[Row] = [
        [
            each.group,
            member.member_id,
            member.instance_id,
            member.client_id or None,
            member.host or None,
            ",".join(member.topics) or None,
            short_partitions(member.partitions) or None,
        ]
        for each in groups
        for member in each.members
    ]
    if rows:
        show_table(["group", "member", "instance", "client", "host", "subscribed", "partitions"], rows)
    for each in groups:
        if not each.members:
            click.echo(f"group {each.group} has no members", err=True)


def _show_group(found: DescribedGroup, *, with_members: bool) -> None:
    group, rows = found
    how = f", assigned by {group.assignor}" if group.assignor else ""
    where = "" if group.coordinator else f", coordination {group.coordination}"
    click.echo(f"group {group.group}: {group.state}, {count_members(group.members)}{how}{where}")
    if group.members and with_members:
        table: list[Row] = [
            [member_name(each), each.host or None, short_partitions(each.partitions)] for each in group.members
        ]
        click.echo()
        show_table(["member", "host", "partitions"], table)
    if rows:
        click.echo()
        show_table(
            ["topic", "partition", "committed", "end", "lag", *(["member"] if group.members else [])],
            [*_lines(found), ["total", None, None, None, total_lag(rows), *([None] if group.members else [])]],
        )


def _lines(found: DescribedGroup) -> Iterator[Row]:
    names = {each.member_id: member_name(each) for each in found.group.members}
    for row in found.rows:
        reader = [names.get(row.member or "")] if found.group.members else []
        yield [row.topic, row.partition, row.committed, row.end, row.lag, *reader]
