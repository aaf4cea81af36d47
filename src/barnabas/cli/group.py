"""`barnabas group`: which groups there are, who is in them, how far they are; moving them, and forgetting them."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from barnabas.cli.broker_names import complete_groups
from barnabas.cli.failures import unknown_group
from barnabas.cli.group_lag import (
    PartitionLag,
    count_members,
    lags,
    member_name,
    short_partitions,
    total_lag,
)
from barnabas.cli.group_reset import reset
from barnabas.cli.options import bootstrap_option, confirm, connect, existing_partitions, json_option, yes_option
from barnabas.cli.tables import Row, show_json, show_table

if TYPE_CHECKING:
    from barnabas import GroupDescription


@click.group()
def group() -> None:
    """List, describe, reset and delete consumer groups."""


group.add_command(reset)


@group.command(name="list")
@json_option
@bootstrap_option
def list_(as_json: bool, bootstrap: str) -> None:
    """List the groups: those with members, and those that have committed offsets alone."""
    with connect(bootstrap) as admin:
        listed = admin.list_groups()
    if as_json:
        show_json([asdict(each) for each in listed])
    elif listed:
        show_table(["group", "state", "protocol"], [[each.group, each.state, each.protocol_type] for each in listed])
    else:
        click.echo("there are no groups; a consumer joins one with: barnabas consume TOPIC -g GROUP", err=True)


@group.command()
@click.argument("name", shell_complete=complete_groups)
@json_option
@click.option(
    "--csv", "as_csv", is_flag=True, help="Print topic,partition,offset, as group reset --from-file takes it."
)
@bootstrap_option
def describe(name: str, as_json: bool, as_csv: bool, bootstrap: str) -> None:
    """Show the members of the group NAME, and its lag per partition and in all."""
    with connect(bootstrap) as admin:
        found = admin.describe_group(name)
        if not found.exists:
            raise unknown_group(name, [listed.group for listed in admin.list_groups()])
        committed = admin.group_offsets(name)
        read = {tp for member in found.members for tp in member.partitions}
        ends = admin.end_offsets(existing_partitions(admin, committed.keys() | read))
    rows = lags(committed, ends, found.members)
    if as_json:
        show_json(_as_json(found, rows))
    elif as_csv:
        _show_csv(rows)
    else:
        _show_group(found, rows)


def _as_json(found: GroupDescription, rows: Sequence[PartitionLag]) -> dict[str, object]:
    return {
        "group": found.group,
        "state": found.state,
        "assignor": found.assignor,
        "members": [asdict(member) for member in found.members],
        "lag": total_lag(rows),
        "partitions": [{**asdict(row), "lag": row.lag} for row in rows],
    }


def _show_csv(rows: Iterable[PartitionLag]) -> None:
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["topic", "partition", "offset"])
    writer.writerows([row.topic, row.partition, row.committed] for row in rows if row.committed is not None)


def _show_group(found: GroupDescription, rows: Sequence[PartitionLag]) -> None:
    how = f", assigned by {found.assignor}" if found.assignor else ""
    click.echo(f"group {found.group}: {found.state}, {count_members(found.members)}{how}")
    if found.members:
        table: list[Row] = [[member_name(each), each.host, short_partitions(each.partitions)] for each in found.members]
        click.echo()
        show_table(["member", "host", "partitions"], table)
    if rows:
        names = {each.member_id: member_name(each) for each in found.members}
        readers = [names.get(row.member or "") for row in rows]
        lines: list[Row] = [
            [row.topic, row.partition, row.committed, row.end, row.lag, *([reader] if found.members else [])]
            for row, reader in zip(rows, readers, strict=True)
        ]
        total: Row = ["total", None, None, None, total_lag(rows), *([None] if found.members else [])]
        click.echo()
        show_table(
            ["topic", "partition", "committed", "end", "lag", *(["member"] if found.members else [])], [*lines, total]
        )


@group.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...", shell_complete=complete_groups)
@yes_option
@bootstrap_option
def delete(names: tuple[str, ...], yes: bool, bootstrap: str) -> None:
    """Forget groups without members, and their committed offsets."""
    with connect(bootstrap) as admin:
        known = [listed.group for listed in admin.list_groups()]
        for name in names:
            if name not in known:
                raise unknown_group(name, known)
        confirm(f"forget {', '.join(names)} with all committed offsets?", yes=yes)
        for name in names:
            admin.delete_group(name)
            click.echo(f"deleted group {name}")
