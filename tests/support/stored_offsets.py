"""Offsets and groups that are in the log of a shard, however they came there."""

from __future__ import annotations

import asyncio

from barnabas.broker.group_service import GroupShard
from barnabas.errors import BarnabasError
from barnabas.groups.records import Change, encode_change
from barnabas.records import BatchBuilder


async def store(shard: GroupShard, *changes: Change) -> None:
    """Append records and let them take effect, past the coordinator."""
    builder = BatchBuilder()
    for change in changes:
        builder.append(1_000, *encode_change(change))
    outcomes = shard.replica.append_all([builder.build()])
    (outcome,) = await outcomes if isinstance(outcomes, asyncio.Future) else outcomes
    assert not isinstance(outcome, BarnabasError)
    for change in changes:
        shard.machine.apply(change)
