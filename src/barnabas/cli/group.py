"""`barnabas group`: lists, describes, resets and deletes consumer groups."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict

import click

from barnabas.cli.connection import Connection
from barnabas.cli.error_messages import unknown_group
from barnabas.cli.group_describe import describe
from barnabas.cli.group_reset import partitions_option, reset
from barnabas.cli.name_completion import complete_groups
from barnabas.cli.offset_reset import parse_partitions
from barnabas.cli.options import confirm, connect, connection_options, json_option, yes_option
from barnabas.cli.table_output import show_json, show_table
from barnabas.cli.zookeeper_groups import groups_of, zookeeper_option
from barnabas.model import TopicPartition


@click.group()
def group() -> None:
    """List, describe, reset and delete consumer groups."""


group.add_command(describe)
group.add_command(reset)


def _split(_context: click.Context, _option: click.Parameter, texts: tuple[str, ...]) -> list[str]:
    return [each.strip() for text in texts for each in text.split(",") if each.strip()]


@group.command(name="list")
@click.option(
    "--state",
    "states",
    metavar="STATE,...",
    multiple=True,
    callback=_split,
    help="Show only groups in these states: Empty, PreparingRebalance, CompletingRebalance, Stable.",
)
@click.option(
    "--type",
    "types",
    metavar="TYPE,...",
    multiple=True,
    callback=_split,
    help="Show only groups of these types: classic.",
)
@json_option
@zookeeper_option
@connection_options
def list_(states: list[str], types: list[str], as_json: bool, zookeeper: str | None, connection: Connection) -> None:
    """List the groups that have members or committed offsets."""
    with connect(connection) as admin, groups_of(admin, zookeeper, connection) as groups:
        listed = groups.list_groups(states=states, types=types)
    if as_json:
        show_json([asdict(each) for each in listed])
    elif listed:
        show_table(
            ["group", "state", "type", "protocol"],
            [[each.group, each.state, each.type or None, each.protocol_type] for each in listed],
        )
    elif states or types:
        click.echo("there are no such groups", err=True)
    else:
        click.echo("there are no groups; a consumer joins one with: barnabas consume TOPIC -g GROUP", err=True)


@group.command()
@click.argument("names", nargs=-1, metavar="[NAME...]", shell_complete=complete_groups)
@click.option("--all-groups", is_flag=True, help="Delete all groups without members.")
@yes_option
@zookeeper_option
@connection_options
def delete(names: tuple[str, ...], all_groups: bool, yes: bool, zookeeper: str | None, connection: Connection) -> None:
    """Delete groups without members, with their committed offsets."""
    if bool(names) == all_groups:
        raise click.UsageError("name the groups (NAME...), or give --all-groups")
    with connect(connection) as admin, groups_of(admin, zookeeper, connection) as groups:
        known = {listed.group: listed.state for listed in groups.list_groups()}
        for name in names:
            if name not in known:
                groups.describe_group(name)  # fails if the user may not see the group
                raise unknown_group(name, known)
        if all_groups:
            names = tuple(name for name, state in known.items() if state == "Empty")
            if not names:
                raise click.ClickException("there are no groups without members")
        confirm(f"delete {', '.join(names)} with all committed offsets?", yes=yes)
        for name in names:
            groups.delete_group(name)
            click.echo(f"deleted group {name}")


@group.command(name="delete-offsets")
@click.argument("name", shell_complete=complete_groups)
@partitions_option(required=True)
@yes_option
@zookeeper_option
@connection_options
def delete_offsets(
    name: str, topics: tuple[str, ...], yes: bool, zookeeper: str | None, connection: Connection
) -> None:
    """Delete committed offsets of the group NAME. No member of the group may consume the topics."""
    try:
        named = [parse_partitions(text) for text in topics]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    with connect(connection) as admin, groups_of(admin, zookeeper, connection) as groups:
        known = [listed.group for listed in groups.list_groups()]
        if name not in known:
            groups.describe_group(name)  # fails if the user may not see the group
            raise unknown_group(name, known)
        wanted = _committed(groups.group_offsets(name), named, name)
        confirm(f"delete the offsets of {name} in {', '.join(map(str, wanted))}?", yes=yes)
        groups.delete_group_offsets(name, wanted)
    for tp in wanted:
        click.echo(f"deleted the offset of {name} in {tp}")


def _committed(
    committed: Iterable[TopicPartition], named: Iterable[tuple[str, tuple[int, ...] | None]], group: str
) -> list[TopicPartition]:
    """Return the named partitions, all of which must have committed offsets.

    :raises click.ClickException: a named partition has no committed offset.
    """
    committed = set(committed)
    wanted: set[TopicPartition] = set()
    for topic, numbers in named:
        chosen = {tp for tp in committed if tp.topic == topic and (numbers is None or tp.partition in numbers)}
        if len(chosen) < (1 if numbers is None else len(set(numbers))):
            partitions = "" if numbers is None else f":{','.join(map(str, numbers))}"
            raise click.ClickException(
                f"group {group!r} has not committed in {topic}{partitions}; see: barnabas group describe {group}"
            )
        wanted |= chosen
    return sorted(wanted)
