"""`barnabas cluster drain`, `replace` and `balance`: move partitions to free a broker or to balance the load.

The commands store no plan. If a command is interrupted, running it again moves the remaining partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from barnabas.cli.connection import Connection
from barnabas.cli.options import confirm, connect, connection_options, json_option, yes_option
from barnabas.cli.partition_moves import begin_and_wait, machines_of, remove_remaining_throttles, show_plan
from barnabas.cli.reassignment_throttle import throttle_option
from barnabas.cli.terminal_text import with_noun
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas import Admin

Placed = dict[TopicPartition, tuple[int, ...]]
Racks = Mapping[int, str | None]
Machines = Mapping[int, str]

AT_ONCE = 20

at_once_option = click.option(
    "--at-once",
    type=click.IntRange(min=1),
    default=AT_ONCE,
    show_default=True,
    help="Number of partitions to move at a time.",
)
plan_option = click.option("--plan", "plan_only", is_flag=True, help="Only show the plan.")


@click.command()
@click.argument("broker", type=int)
@at_once_option
@throttle_option
@plan_option
@json_option
@yes_option
@connection_options
def drain(
    broker: int, at_once: int, throttle: int | None, plan_only: bool, as_json: bool, yes: bool, connection: Connection
) -> None:
    """Move all partitions of BROKER to other brokers, so that it can be removed."""

    def plan(placed: Placed, racks: Racks, machines: Machines) -> Placed:
        return _without(broker, placed, racks, machines)

    _execute(connection, plan, at_once, throttle, plan_only=plan_only, as_json=as_json, yes=yes)


@click.command()
@click.argument("old", type=int)
@click.argument("new", type=int)
@at_once_option
@throttle_option
@plan_option
@json_option
@yes_option
@connection_options
def replace(
    old: int,
    new: int,
    at_once: int,
    throttle: int | None,
    plan_only: bool,
    as_json: bool,
    yes: bool,
    connection: Connection,
) -> None:
    """Move all partitions of broker OLD to broker NEW, whether or not OLD is running."""
    if old == new:
        raise click.UsageError("OLD and NEW are the same broker")

    def plan(placed: Placed, racks: Racks, machines: Machines) -> Placed:
        from barnabas.replication.machines import machine_of

        if new not in racks:
            raise click.UsageError(
                f"broker {new} is not registered; the brokers are {', '.join(map(str, sorted(racks)))}"
            )
        held = {tp: each for tp, each in placed.items() if old in each}
        machine = machine_of(new, machines)
        both = {
            tp: each
            for tp, each in held.items()
            if any(machine_of(broker, machines) == machine for broker in each if broker != old)
        }
        taken = {
            tp: tuple(new if broker == old else broker for broker in each)
            for tp, each in held.items()
            if tp not in both
        }
        # If the machine of NEW has another replica of a partition, the replica on OLD moves to a third broker.
        return taken | _without(old, both, racks, machines, {**placed, **taken})

    _execute(connection, plan, at_once, throttle, plan_only=plan_only, as_json=as_json, yes=yes)


@click.command()
@at_once_option
@throttle_option
@plan_option
@json_option
@yes_option
@connection_options
def balance(
    at_once: int, throttle: int | None, plan_only: bool, as_json: bool, yes: bool, connection: Connection
) -> None:
    """Balance replicas and leaders evenly among all brokers, with few moves.

    Replicas stay on separate racks. The command chooses the partitions to move by their sizes.
    """
    from barnabas.replication.balancing import balance as balanced

    with connect(connection) as admin:
        sizes: dict[TopicPartition, int] = {}
        for folder in admin.log_dirs():
            for tp, size in folder.sizes.items():
                sizes[tp] = max(size, sizes.get(tp, 0))
    _execute(
        connection,
        lambda placed, racks, machines: balanced(placed, racks, sizes, machines),
        at_once,
        throttle,
        plan_only=plan_only,
        as_json=as_json,
        yes=yes,
    )


def _without(broker: int, wanted: Placed, racks: Racks, machines: Machines, placed: Placed | None = None) -> Placed:
    """Return new replicas for all partitions of a broker, without that broker."""
    from barnabas.replication.spreading import spread

    moving = {tp: each for tp, each in wanted.items() if broker in each}
    allowed = {each: rack for each, rack in racks.items() if each != broker}
    # Only the replicas of `broker` move. Replicas on other unavailable brokers stay there.
    allowed |= {each: None for replicas in moving.values() for each in replicas if each not in {broker, *racks}}
    others = [each for tp, each in (placed or wanted).items() if tp not in moving]
    return spread(moving, allowed, others, machines=machines)


def _execute(
    connection: Connection,
    plan: Callable[[Placed, Racks, Machines], Placed],
    at_once: int,
    throttle: int | None,
    *,
    plan_only: bool,
    as_json: bool,
    yes: bool,
) -> None:
    with connect(connection) as admin:
        placed = _placed(admin)
        racks = {node.id: node.rack for node in admin.brokers()}
        targets = plan(placed, racks, machines_of(admin, racks))
        if not targets:
            remove_remaining_throttles(admin, {tp.topic for tp in placed})
            click.echo("there is nothing to move", err=True)
            return
        show_plan(placed, targets, as_json=as_json)
        if plan_only:
            return
        question = f"move {with_noun(len(targets), 'partition')}, {at_once} at a time?"
        confirm(question, yes=yes, otherwise="no partition was moved")
        # Partitions whose replicas are all on unavailable brokers come last, because their moves wait for these
        # brokers.
        left = sorted(targets, key=lambda tp: (racks.keys().isdisjoint(placed[tp]), tp))
        while left:
            some, left = left[:at_once], left[at_once:]
            slice_ = {tp: targets[tp] for tp in some}
            begin_and_wait(
                admin,
                placed,
                slice_,
                yes=True,
                waits=True,
                again="the same command, which moves the remaining partitions",
                throttle=throttle,
            )


def _placed(admin: Admin) -> Placed:
    """Return the replicas of all partitions. If a partition is moving, return its target replicas."""
    from barnabas.client.admin.topics import require

    moving = admin.list_partition_reassignments()
    found = {}
    for topic in require(admin.describe_topics(include_internal=True)):
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition)
            found[tp] = moving[tp].target if tp in moving else tuple(each.replicas)
    return found
