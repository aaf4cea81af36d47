"""The overview: the brokers, and the state of all partitions."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from itertools import islice
from typing import Any

from starlette.responses import Response

from barnabas.console.context import Context
from barnabas.console.elections import UNCLEAN
from barnabas.model import Node

RECENT_ELECTIONS_MAX = 10


@dataclass(frozen=True, slots=True)
class BrokerRow:
    """A broker, with the partitions that it leads and the replicas that it has."""

    node: Node
    is_controller: bool
    leads: int
    replicas: int
    out_of_sync: int


async def overview(context: Context) -> Response:
    return context.page("overview.html", title="Overview", **await _figures(context))


async def figures(context: Context) -> Response:
    """Return the part of the overview that changes."""
    return context.page("_overview.html", **await _figures(context))


async def elections(context: Context) -> Response:
    """Return the leader elections for the chart."""
    times, values = context.view.elections.per_sample()
    return context.json({"times": times, "values": values})


async def _figures(context: Context) -> dict[str, Any]:
    view = context.view
    cluster, topics, groups = await asyncio.gather(view.cluster(), view.topics(), view.groups())
    partitions = [each for topic in topics.values() for each in topic.partitions]
    rows = [
        BrokerRow(
            node,
            cluster.controller is not None and node.id == cluster.controller.id,
            sum(each.leader == node.id for each in partitions),
            sum(node.id in each.replicas for each in partitions),
            sum(node.id in each.replicas and node.id not in each.isr for each in partitions),
        )
        for node in sorted(cluster.brokers, key=lambda node: node.id)
    ]
    rates = [rate for name in topics if (rate := view.ends.rate(name)) is not None]
    living = {node.id for node in cluster.brokers}
    return {
        "cluster": cluster,
        "missing": sorted({number for each in partitions for number in each.replicas} - living),
        "brokers": rows,
        "topic_count": len(topics),
        "partition_count": len(partitions),
        "group_count": len(groups),
        "under_replicated": sum(len(each.isr) < len(each.replicas) for each in partitions),
        "offline": sum(each.leader < 0 for each in partitions),
        "unpreferred": sum(bool(each.replicas) and 0 <= each.leader != each.replicas[0] for each in partitions),
        "record_rate": sum(rates) if rates else None,
        "elections": view.elections.count(),
        "unclean": view.elections.count(UNCLEAN),
        "recent_elections": list(islice(view.elections.recent, RECENT_ELECTIONS_MAX)),
        "elections_since_ms": None if view.elections.since_s is None else int(view.elections.since_s) * 1000,
    }
