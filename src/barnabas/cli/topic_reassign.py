"""`barnabas topic reassign`: have a topic's partitions move to other brokers, and look on."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from barnabas.cli.name_completion import complete_topics
from barnabas.cli.options import bootstrap_option, connect, json_option, require_topics, yes_option
from barnabas.cli.partition_moves import begin_and_wait, show_moves, show_plan, take_back_throttles_left
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
    help="Where partition N is to be, the preferred leader first; may repeat.",
)
@click.option("--brokers", metavar="ID,ID,...", help="The brokers that may hold the topic; as little moves as can.")
@click.option("-r", "--replication-factor", type=click.IntRange(min=1), help="How many replicas each is to have.")
@throttle_option
@click.option("--status", is_flag=True, help="Show what is on its way.")
@click.option("--cancel", is_flag=True, help="Let all that is on its way stay where it was.")
@click.option("--no-wait", is_flag=True, help="Return when it has begun.")
@json_option
@yes_option
@bootstrap_option
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
    bootstrap: str,
) -> None:
    """Move the partitions of the topic NAME to other brokers.

    Shows the plan and asks first. The partitions are served all the while. Ctrl-C ends the looking on, not the move.
    """
    wanted = bool(partitions) + (brokers is not None or replication_factor is not None) + status + cancel
    if wanted != 1:
        raise click.UsageError("say where to: --partition N=ID,ID or --brokers ID,ID; or ask: --status, --cancel")
    with connect(bootstrap) as admin:
        require_topics(admin, [name])
        if status or cancel:
            moving = {tp: each for tp, each in admin.list_partition_reassignments().items() if tp.topic == name}
        if (status or cancel) and not moving:
            take_back_throttles_left(admin, [name])
        if status:
            show_moves(moving, as_json=as_json)
            return
        if cancel and not moving:
            click.echo("nothing is on its way", err=True)
            return
        if cancel:
            admin.alter_partition_reassignments(dict.fromkeys(moving))
            click.echo(f"{_partitions(len(moving))} of {name} stay{'s' if len(moving) == 1 else ''}")
            return
        before = {
            TopicPartition(name, each.partition): each.replicas for each in admin.describe_topics([name])[0].partitions
        }
        if partitions:
            targets = _given(name, partitions, before)
        else:
            targets = _chosen(admin, before, brokers, replication_factor)
        if not targets:
            take_back_throttles_left(admin, [name])
            click.echo(f"{name} is where it is to be", err=True)
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
    return dict(spread(before, allowed, replication_factor=replication_factor))


def _ids(text: str) -> tuple[int, ...]:
    parts = text.split(",")
    if not all(part.strip().isdigit() for part in parts):
        raise click.UsageError(f"{text!r} is no list of broker ids, as 1,2,3")
    return tuple(int(part) for part in parts)


def _partitions(count: int) -> str:
    return f"{count} partition{'' if count == 1 else 's'}"
