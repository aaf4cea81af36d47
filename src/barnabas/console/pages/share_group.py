"""A share group: its members, its start offsets and lag, and the stored delivery states of its records."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.exceptions import HTTPException
from starlette.responses import Response

from barnabas.client.admin.share_groups import DeliveredRange, ShareGroupOffset
from barnabas.console.cluster_view import text_of
from barnabas.console.context import Context
from barnabas.console.record_text import visible
from barnabas.errors import BarnabasError, ErrorCode
from barnabas.model import TopicPartition

SHOWN_RANGES_MAX = 20
"""The number of ranges of offsets that the page shows of each partition."""
READ_PARTITIONS_MAX = 500
"""The number of partitions whose delivery states the page reads."""


@dataclass(frozen=True, slots=True)
class SharePartition:
    """The position of a share group in a partition.

    :ivar members: the client ids of the members that have the partition, any of which may have acquired records.
    :ivar ranges: the stored delivery states, at most `SHOWN_RANGES_MAX`; None if they are not known.
    :ivar more: the number of further ranges.
    """

    where: TopicPartition
    start: int | None
    end: int | None
    lag: int | None
    members: Sequence[str]
    ranges: Sequence[DeliveredRange] | None
    more: int
    error: str


async def share_group(context: Context) -> Response:
    """Show a share group."""
    name, view = context.query("name"), context.view
    if not view.has_share_groups:
        raise HTTPException(404, "the brokers of this cluster do not describe share groups")
    described, offsets = await asyncio.gather(
        view.within(view.admin.describe_share_group(name)), view.within(view.admin.share_group_offsets(name))
    )
    if not described.exists:
        raise HTTPException(404, f"there is no share group {visible(name)}")
    owners: dict[TopicPartition, list[str]] = {}
    for member in described.members:
        for where in member.partitions:
            owners.setdefault(where, []).append(member.client_id)
    places = sorted({*offsets, *owners})
    ends, (deliveries, problem) = await asyncio.gather(
        view.within(view.admin.end_offsets(await view.with_leader(places))), _deliveries(context, name, offsets)
    )
    partitions = [_partition(where, offsets.get(where), ends.get(where), owners, deliveries) for where in places]
    lags = [each.lag for each in partitions if each.lag is not None]
    return context.page(
        "share_group.html",
        title=visible(name),
        group=described,
        partitions=partitions,
        total=sum(lags) if lags else None,
        problem=problem,
    )


async def _deliveries(
    context: Context, name: str, offsets: Mapping[TopicPartition, ShareGroupOffset]
) -> tuple[Mapping[TopicPartition, Sequence[DeliveredRange]], str]:
    """Return the stored delivery states, or the reason why the user cannot see them."""
    wanted = dict(sorted(offsets.items())[:READ_PARTITIONS_MAX])
    try:
        return await context.view.within(context.view.admin.share_group_deliveries(name, wanted)), ""
    except (BarnabasError, TimeoutError) as error:
        return {}, text_of(error)


def _partition(
    where: TopicPartition,
    offset: ShareGroupOffset | None,
    end: int | None,
    owners: Mapping[TopicPartition, Sequence[str]],
    deliveries: Mapping[TopicPartition, Sequence[DeliveredRange]],
) -> SharePartition:
    ranges = deliveries.get(where)
    return SharePartition(
        where,
        None if offset is None else offset.start_offset,
        end,
        None if offset is None else offset.lag,
        sorted(set(owners.get(where, ()))),
        None if ranges is None else ranges[:SHOWN_RANGES_MAX],
        0 if ranges is None else max(0, len(ranges) - SHOWN_RANGES_MAX),
        "" if offset is None or offset.error is ErrorCode.NONE else offset.error.name,
    )
