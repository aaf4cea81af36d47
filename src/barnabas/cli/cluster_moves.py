"""`barnabas cluster drain`, `replace` and `balance`: partitions that move so that brokers can go, and share the load.

Nothing is kept of a plan: where one is stopped, the same command goes on with what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import click

from barnabas.cli.options import bootstrap_option, confirm, connect, json_option, yes_option
from barnabas.cli.partition_moves import begin_and_wait, show_plan, take_back_throttles_left
from barnabas.cli.reassignment_throttle import throttle_option
from barnabas.cli.terminal_text import with_noun
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas import Admin

Placed = dict[TopicPartition, tuple[int, ...]]
Racks = Mapping[int, str | None]

AT_ONCE = 20

at_once_option = click.option(
    "--at-once",
    type=click.IntRange(min=1),
    default=AT_ONCE,
    show_default=True,
    help="Move so many partitions at a time.",
)
plan_option = click.option("--plan", "plan_only", is_flag=True, help="Show the plan, and do nothing.")


@click.command()
@click.argument("broker", type=int)
@at_once_option
@throttle_option
@plan_option
@json_option
@yes_option
@bootstrap_option
def drain(
    broker: int, at_once: int, throttle: int | None, plan_only: bool, as_json: bool, yes: bool, bootstrap: str
) -> None:
    """Move all partitions of the broker BROKER to the others, so that it can go."""

    def plan(placed: Placed, racks: Racks) -> Placed:
        return _without(broker, placed, racks)

    _carry_out(bootstrap, plan, at_once, throttle, plan_only=plan_only, as_json=as_json, yes=yes)


@click.command()
@click.argument("old", type=int)
@click.argument("new", type=int)
@at_once_option
@throttle_option
@plan_option
@json_option
@yes_option
@bootstrap_option
def replace(
    old: int, new: int, at_once: int, throttle: int | None, plan_only: bool, as_json: bool, yes: bool, bootstrap: str
) -> None:
    """Give the broker NEW the place of OLD in all partitions, whether OLD lives or not."""
    if old == new:
        raise click.UsageError("OLD and NEW are the same broker")

    def plan(placed: Placed, racks: Racks) -> Placed:
        if new not in racks:
            raise click.UsageError(f"broker {new} is not there; there are {', '.join(map(str, sorted(racks)))}")
        both = {tp: each for tp, each in placed.items() if old in each and new in each}
        taken = {
            tp: tuple(new if broker == old else broker for broker in each)
            for tp, each in placed.items()
            if old in each and new not in each
        }
        # Where both hold it, some other broker takes the place of OLD.
        return taken | _without(old, both, racks, {**placed, **taken})

    _carry_out(bootstrap, plan, at_once, throttle, plan_only=plan_only, as_json=as_json, yes=yes)


@click.command()
@at_once_option
@throttle_option
@plan_option
@json_option
@yes_option
@bootstrap_option
def balance(at_once: int, throttle: int | None, plan_only: bool, as_json: bool, yes: bool, bootstrap: str) -> None:
    """Share replicas and leaders out evenly among all brokers, with few moves.

    Racks are kept apart. Which partitions go is chosen by their sizes.
    """
    from barnabas.replication.balancing import balance as balanced

    with connect(bootstrap) as admin:
        sizes: dict[TopicPartition, int] = {}
        for folder in admin.log_dirs():
            for tp, size in folder.sizes.items():
                sizes[tp] = max(size, sizes.get(tp, 0))
    _carry_out(
        bootstrap,
        lambda placed, racks: balanced(placed, racks, sizes),
        at_once,
        throttle,
        plan_only=plan_only,
        as_json=as_json,
        yes=yes,
    )


def _without(broker: int, wanted: Placed, racks: Racks, placed: Placed | None = None) -> Placed:
    """Return where the partitions of a broker go."""
    from barnabas.replication.spreading import spread

    moving = {tp: each for tp, each in wanted.items() if broker in each}
    allowed = {each: rack for each, rack in racks.items() if each != broker}
    # A replica whose broker is away stays where it is: only the one that is to go does.
    allowed |= {each: None for replicas in moving.values() for each in replicas if each not in {broker, *racks}}
    others = [each for tp, each in (placed or wanted).items() if tp not in moving]
    return spread(moving, allowed, others)


def _carry_out(
    bootstrap: str,
    plan: Callable[[Placed, Racks], Placed],
    at_once: int,
    throttle: int | None,
    *,
    plan_only: bool,
    as_json: bool,
    yes: bool,
) -> None:
    with connect(bootstrap) as admin:
        placed = _placed(admin)
        racks = {node.id: node.rack for node in admin.brokers()}
        targets = plan(placed, racks)
        if not targets:
            take_back_throttles_left(admin, {tp.topic for tp in placed})
            click.echo("nothing is to move", err=True)
            return
        show_plan(placed, targets, as_json=as_json)
        if plan_only:
            return
        question = f"move {with_noun(len(targets), 'partition')}, {at_once} at a time?"
        confirm(question, yes=yes, otherwise="nothing was moved")
        # What is on brokers alone that are away waits for them, and is last: the others need not wait with it.
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
                again="the same command, which goes on with what is left",
                throttle=throttle,
            )


def _placed(admin: Admin) -> Placed:
    """Return where all partitions are, or are on their way to."""
    from barnabas.client.admin.topics import require

    moving = admin.list_partition_reassignments()
    found = {}
    for topic in require(admin.describe_topics(include_internal=True)):
        for each in topic.partitions:
            tp = TopicPartition(topic.name, each.partition)
            found[tp] = moving[tp].target if tp in moving else tuple(each.replicas)
    return found
