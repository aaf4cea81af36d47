"""Moves of partitions between brokers: plan, confirmation, and progress."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import click

from barnabas.cli.options import confirm
from barnabas.cli.progress_bar import byte_progress
from barnabas.cli.reassignment_throttle import Targets, remove_throttles, set_throttle
from barnabas.cli.table_output import show_json, show_table
from barnabas.cli.terminal_text import with_noun
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition

if TYPE_CHECKING:
    from barnabas import Admin
    from barnabas.client.admin.reassignments import Reassignment

LOOK_S = 0.5
"""The interval in seconds between two queries for the progress of moves."""


def machines_of(admin: Admin, brokers: Iterable[int]) -> dict[int, str]:
    """Return the labels of the brokers' machines (setting `machine`), by broker id.

    A broker that does not respond, or does not show its settings to this user, is left out. The brokers refuse a plan
    that puts two replicas of a partition on one machine, so nothing is placed wrongly then.
    """
    found = {}
    for each in brokers:
        try:
            setting = admin.describe_config(broker=each).get("machine")
        except BarnabasError:
            continue
        if setting is not None and setting.value:
            found[each] = setting.value
    return found


def show_plan(before: Targets, targets: Targets, *, as_json: bool = False) -> None:
    """Print the current and the planned replicas of partitions."""
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
    """Print the reassignments in progress."""
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
        click.echo("no partition is moving", err=True)


def begin_and_wait(
    admin: Admin, before: Targets, targets: Targets, *, yes: bool, waits: bool, again: str, throttle: int | None = None
) -> None:
    """Ask for confirmation, start the moves, and wait until they are complete.

    :param before: the current replicas.
    :param waits: True to wait until the moves are complete.
    :param throttle: limit in bytes per second, removed after the moves; None means no limit.
    :param again: the command that shows the progress.
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
            click.echo(f"started to move {what}; see: {again}")
            return
        _wait(admin, targets)
    except KeyboardInterrupt:
        click.echo(f"the move continues; see: {again}", err=True)
        raise
    except BaseException:
        remove_throttles(admin, {tp.topic for tp in targets})
        raise
    remove_throttles(admin, {tp.topic for tp in targets})
    click.echo(f"moved {what}")


def remove_remaining_throttles(admin: Admin, topics: Collection[str]) -> None:
    """Remove the throttles of an interrupted command, after waiting for its moves to end."""
    while left := remove_throttles(admin, topics):
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
    """Return the size of each replica in bytes. The key consists of broker id and partition."""
    return {(folder.broker, tp): size for folder in admin.log_dirs() for tp, size in folder.sizes.items()}


def _ids(broker_ids: Sequence[int]) -> str:
    return ",".join(map(str, broker_ids))
