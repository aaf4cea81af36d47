"""A consumer group: its members, its lag, and the reset of its offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote, urlencode

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from barnabas.console.context import Context
from barnabas.console.pages.fields import time_in_ms, whole_number
from barnabas.console.record_text import visible
from barnabas.model import OffsetAndMetadata, TopicPartition

EARLIEST, LATEST, TIME, OFFSET = "earliest", "latest", "time", "offset"


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """The position of a group in a partition.

    :ivar lag: the records from the committed offset to the end.
    """

    where: TopicPartition
    committed: int | None
    end: int | None
    member: str

    @property
    def lag(self) -> int | None:
        return None if self.committed is None or self.end is None else max(0, self.end - self.committed)


async def group(context: Context) -> Response:
    name, admin = context.query("name"), context.view.admin
    described, offsets = await asyncio.gather(
        context.view.within(admin.describe_group(name)), context.view.within(admin.group_offsets(name))
    )
    if not described.exists and not offsets:
        raise HTTPException(404, f"there is no group {visible(name)}")
    owners = {where: member.client_id for member in described.members for where in member.partitions}
    places = sorted({*offsets, *owners})
    ends = await context.view.within(admin.end_offsets(await context.view.with_leader(places)))
    lags = [
        PartitionLag(where, offsets[where].offset if where in offsets else None, ends.get(where), owners.get(where, ""))
        for where in places
    ]
    total = sum(each.lag or 0 for each in lags)
    return context.page("group.html", title=name, group=described, lags=lags, total=total)


async def lag(context: Context) -> Response:
    """Return the lag over time for the chart."""
    times, values = context.view.lags.values(context.query("name"))
    return context.json({"times": times, "values": values})


async def reset(context: Context) -> Response:
    """Preview new offsets, and set them when the user confirms."""
    fields = await context.form() if context.request.method == "POST" else dict(context.request.query_params)
    # a browser changes line ends and NUL in a field, so the forms contain the encoded name
    name = fields.get("name") or unquote(fields.get("encoded", ""))
    described = await context.view.within(context.view.admin.describe_group(name))
    offsets = await context.view.within(context.view.admin.group_offsets(name))
    topic = fields.get("topic", "")
    places = sorted(where for where in offsets if topic in ("", where.topic))
    wanted = await _wanted(context, await context.view.with_leader(places), fields) if fields.get("to") else {}
    if context.request.method == "POST":
        if not wanted:
            raise HTTPException(404, "the group has committed no offsets of partitions that exist and have a leader")
        if described.members:
            raise HTTPException(409, "the group has members; stop its consumers before you change its offsets")
        await context.view.within(context.view.admin.set_group_offsets(name, wanted))
        return RedirectResponse("/group?" + urlencode({"name": name}), 303)
    changes = [(where, offsets[where].offset, wanted.get(where)) for where in places]
    return context.page(
        "reset.html",
        title=f"Reset {name}",
        group=described,
        topics=sorted({where.topic for where in offsets}),
        changes=changes,
        fields={key: fields.get(key, "") for key in ("topic", "to", "time", "offset")},
        is_preview=bool(wanted),
    )


async def _wanted(
    context: Context, places: list[TopicPartition], fields: Mapping[str, str]
) -> dict[tuple[str, int], OffsetAndMetadata | int]:
    """Return the offsets that a form asks for."""
    admin, to = context.view.admin, fields["to"]
    begins, ends = await asyncio.gather(
        context.view.within(admin.beginning_offsets(places)), context.view.within(admin.end_offsets(places))
    )
    if to in {EARLIEST, LATEST}:
        return {where: (begins if to == EARLIEST else ends)[where] for where in places}
    if to == TIME:
        time_ms = time_in_ms(fields.get("time", ""))
        found = await context.view.within(admin.offsets_for_times(dict.fromkeys(places, time_ms)))
        return {where: each.offset if (each := found.get(where)) is not None else ends[where] for where in places}
    if to == OFFSET:
        offset = whole_number(fields.get("offset", ""), "offset")
        return {where: min(max(offset, begins[where]), ends[where]) for where in places}
    raise HTTPException(400, "choose the new position: earliest, latest, a time, or an offset")
