"""A topic: its partitions, replicas and settings."""

from __future__ import annotations

import asyncio

from starlette.exceptions import HTTPException
from starlette.responses import Response

from barnabas.client.admin.configs import ConfigSetting
from barnabas.client.admin.topics import TopicDescription
from barnabas.console.context import Context
from barnabas.errors import ApiError, BarnabasError
from barnabas.model import TopicPartition


async def topic(context: Context) -> Response:
    found = await _topic(context)
    places = [TopicPartition(found.name, each.partition) for each in found.partitions]
    admin = context.view.admin
    led = [where for where, each in zip(places, found.partitions, strict=True) if each.leader >= 0]
    ends, stable, begins, settings = await asyncio.gather(
        context.view.within(admin.end_offsets(led)),
        _stable_offsets(context, led),
        context.view.within(admin.beginning_offsets(led)),
        _settings(context, found.name),
    )
    partitions = [
        (each, begins.get(where), ends.get(where), stable.get(where))
        for each, where in zip(found.partitions, places, strict=True)
    ]
    return context.page("topic.html", title=found.name, topic=found, partitions=partitions, settings=settings)


async def _stable_offsets(context: Context, places: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the last stable offsets; nothing if the brokers have no transactions."""
    if not context.view.has_transactions:
        return {}
    return await context.view.within(context.view.admin.end_offsets(places, isolation_level="read_committed"))


async def rate(context: Context) -> Response:
    """Return the rate of new records for the chart."""
    found = await _topic(context)
    times, values = context.view.ends.values(found.name)
    rates = [
        max(0.0, (after - before) / (later - earlier)) if later > earlier else 0.0
        for before, after, earlier, later in zip(values, values[1:], times, times[1:], strict=False)
    ]
    return context.json({"times": times[1:], "values": rates})


async def _topic(context: Context) -> TopicDescription:
    name = context.query("name")
    found = (await context.view.topics()).get(name)
    if found is None:
        (found,) = await _describe(context, name)
    return found


async def _describe(context: Context, name: str) -> list[TopicDescription]:
    """Describe a topic that is not in the list, because it is internal, new, or does not exist."""
    try:
        return await context.view.within(context.view.admin.describe_topics([name]))
    except ApiError:
        raise
    except BarnabasError as error:
        raise HTTPException(404, str(error)) from error


async def _settings(context: Context, name: str) -> dict[str, ConfigSetting] | str:
    """Return the settings of a topic, or the reason why the user cannot see them."""
    try:
        found = await context.view.within(context.view.admin.describe_config(name))
    except ApiError as error:
        return str(error)
    return dict(sorted(found.items()))
