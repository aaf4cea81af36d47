"""Moves of partitions to other brokers: the plan, the confirmation, and the progress."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from barnabas.cli.options import confirm
from barnabas.cli.progress_bar import byte_progress
from barnabas.cli.reassignment_throttle import Targets, set_throttle, take_throttles_back
from barnabas.cli.table_output import show_json, show_table
from barnabas.cli.terminal_text import with_noun
from barnabas.clock import SYSTEM_CLOCK
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas import Admin
    from barnabas.client.admin.reassignments import Reassignment

LOOK_S = 0.5
"""How often it is asked how far they have come."""


def show_plan(before: Targets, targets: Targets, *, as_json: bool = False) -> None:
    """Show where partitions are, and where they are to be."""
    if as_json:
        rows = [
            {"topic": tp.topic, "partition": tp.partition, "from": list(before[tp]), "to": list(replicas)}
            for tp, replicas in sorted(targets.items())
        ]
        show_json(rows)
        return
    show_table(
        ["partition", "from", "to"],
        [[str(tp), _ids(before[tp]), _ids(replicas)] for tp, replicas in sorted(targets.items())],
    )


def show_moves(moving: Mapping[TopicPartition, Reassignment], *, as_json: bool = False) -> None:
    """Show what is on its way."""
    if as_json:
        rows = [
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "replicas": list(each.replicas),
                "adding": list(each.adding),
                "removing": list(each.removing),
            }
            for tp, each in sorted(moving.items())
        ]
        show_json(rows)
    elif moving:
        show_table(
            ["partition", "replicas", "adding", "removing"],
            [
                [str(tp), _ids(each.replicas), _ids(each.adding) or None, _ids(each.removing) or None]
                for tp, each in sorted(moving.items())
            ],
        )
    else:
        click.echo("nothing is on its way", err=True)


def begin_and_wait(
    admin: Admin, before: Targets, targets: Targets, *, yes: bool, waits: bool, again: str, throttle: int | None = None
) -> None:
    """Ask, let partitions move, and look on until they are there.

    :param before: where they are.
    :param waits: whether to look on.
    :param throttle: how fast, in bytes a second; it is taken back by whoever has looked on to the end.
    :param again: the command that shows how far they are.
    """
    what = f"{len(targets)} partition{'' if len(targets) == 1 else 's'}"
    confirm(f"move {what}?", yes=yes, otherwise="nothing was moved")
    wanted: dict[tuple[str, int], Sequence[int] | None] = {
        (tp.topic, tp.partition): each for tp, each in targets.items()
    }
    if throttle is not None:
        set_throttle(admin, before, targets, throttle)
    try:
        admin.alter_partition_reassignments(wanted)
        if not waits:
            click.echo(f"{what} began to move; see: {again}")
            return
        _wait(admin, targets)
    except KeyboardInterrupt:
        click.echo(f"the move goes on; see: {again}", err=True)
        raise
    except BaseException:
        take_throttles_back(admin, {tp.topic for tp in targets})
        raise
    take_throttles_back(admin, {tp.topic for tp in targets})
    click.echo(f"moved {what}")


def take_back_throttles_left(admin: Admin, topics: Collection[str]) -> None:
    """Take back what an interrupted command has left; look on first until what it has begun is over."""
    while left := take_throttles_back(admin, topics):
        click.echo(f"still moving, with a throttle: {with_noun(len(left), 'partition')}", err=True)
        _wait(admin, dict.fromkeys(left, ()))


def _wait(admin: Admin, targets: Targets) -> None:
    moving = admin.list_partition_reassignments(targets)
    new = {(broker_id, tp) for tp, each in moving.items() for broker_id in each.adding}
    if not moving:
        return
    sizes = _sizes(admin)
    wanted = {tp: max((size for (_, each), size in sizes.items() if each == tp), default=0) for tp in moving}
    total = sum(wanted[tp] for _, tp in new)
    done = 0
    with byte_progress(f"moving {with_noun(len(moving), 'partition')}", total) as advance:
        while moving:
            SYSTEM_CLOCK.sleep(LOOK_S)
            moving = admin.list_partition_reassignments(targets)
            sizes = _sizes(admin)
            now = sum(
                min(wanted[tp], sizes.get((broker_id, tp), 0)) if tp in moving else wanted[tp] for broker_id, tp in new
            )
            advance(max(0, now - done))
            done = max(done, now)


def _sizes(admin: Admin) -> dict[tuple[int, TopicPartition], int]:
    """Return how many bytes each broker has of each partition."""
    return {(folder.broker, tp): size for folder in admin.log_dirs() for tp, size in folder.sizes.items()}


def _ids(broker_ids: Sequence[int]) -> str:
    return ",".join(map(str, broker_ids))
