"""`barnabas topic reassign`: moves a topic's partitions to other brokers, and shows the progress."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.connection import Connection
from barnabas.cli.name_completion import complete_topics
from barnabas.cli.options import connect, connection_options, json_option, require_topics, yes_option
from barnabas.cli.partition_moves import begin_and_wait, machines_of, remove_remaining_throttles, show_moves, show_plan
from barnabas.cli.reassignment_throttle import Targets, throttle_option
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas import Admin


@click.command()
@click.argument("name", shell_complete=complete_topics)
@click.option(
    "-p",
    "--partition",
    "partitions",
    metavar="N=ID,ID,...",
    multiple=True,
    help="New replicas of partition N, the preferred leader first; repeatable.",
)
@click.option(
    "--brokers", metavar="ID,ID,...", help="Brokers for the topic's replicas; moves as few replicas as possible."
)
@click.option("-r", "--replication-factor", type=click.IntRange(min=1), help="Replicas per partition.")
@throttle_option
@click.option("--status", is_flag=True, help="Show the reassignments in progress.")
@click.option("--cancel", is_flag=True, help="Cancel all reassignments in progress.")
@click.option("--no-wait", is_flag=True, help="Start the move and return.")
@json_option
@yes_option
@connection_options
def reassign(
    name: str,
    partitions: tuple[str, ...],
    brokers: str | None,
    replication_factor: int | None,
    throttle: int | None,
    status: bool,
    cancel: bool,
    no_wait: bool,
    as_json: bool,
    yes: bool,
    connection: Connection,
) -> None:
    """Move the partitions of the topic NAME to other brokers.

    The command shows the plan and asks for confirmation. The partitions stay available. Ctrl-C ends the command, but
    not the move.
    """
    wanted = bool(partitions) + (brokers is not None or replication_factor is not None) + status + cancel
    if wanted != 1:
        raise click.UsageError("give one of --partition N=ID,ID, --brokers ID,ID, --status and --cancel")
    with connect(connection) as admin:
        require_topics(admin, [name])
        if status or cancel:
            moving = {tp: each for tp, each in admin.list_partition_reassignments().items() if tp.topic == name}
        if (status or cancel) and not moving:
            remove_remaining_throttles(admin, [name])
        if status:
            show_moves(moving, as_json=as_json)
            return
        if cancel and not moving:
            click.echo("no partition is moving", err=True)
            return
        if cancel:
            admin.alter_partition_reassignments(dict.fromkeys(moving))
            click.echo(f"canceled the reassignment of {_partitions(len(moving))} of {name}")
            return
        before = {
            TopicPartition(name, each.partition): each.replicas for each in admin.describe_topics([name])[0].partitions
        }
        if partitions:
            targets = _given(name, partitions, before)
        else:
            targets = _chosen(admin, before, brokers, replication_factor)
        if not targets:
            remove_remaining_throttles(admin, [name])
            click.echo(f"the partitions of {name} need no move", err=True)
            return
        show_plan(before, targets, as_json=as_json)
        again = f"barnabas topic reassign {name} --status"
        begin_and_wait(admin, before, targets, yes=yes, waits=not no_wait, again=again, throttle=throttle)


def _given(name: str, partitions: tuple[str, ...], before: Targets) -> Targets:
    targets = {}
    for each in partitions:
        number, equals, ids = each.partition("=")
        if not (equals and number.isdigit()):
            raise click.UsageError(f"{each!r} is not N=ID,ID,...")
        tp = TopicPartition(name, int(number))
        if tp not in before:
            raise click.UsageError(f"{name} has no partition {number}")
        targets[tp] = _ids(ids)
    return {tp: replicas for tp, replicas in targets.items() if tuple(before[tp]) != replicas}


def _chosen(admin: Admin, before: Targets, brokers: str | None, replication_factor: int | None) -> Targets:
    from barnabas.replication.spreading import spread

    racks = {node.id: node.rack for node in admin.brokers()}
    allowed = racks if brokers is None else {each: racks.get(each) for each in _ids(brokers)}
    return dict(spread(before, allowed, replication_factor=replication_factor, machines=machines_of(admin, racks)))


def _ids(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdigit() for part in parts):
        raise click.UsageError(f"{text!r} is not a list of broker ids such as 1,2,3")
    return tuple(int(part) for part in parts)


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"
