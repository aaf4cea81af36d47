"""Transactions: the list, one transactional id, and the producers of a partition."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from starlette.exceptions import HTTPException
from starlette.responses import Response

from barnabas.client.admin.transactions import ProducerDescription, TransactionDescription
from barnabas.console.cluster_view import TransactionRow, text_of
from barnabas.console.context import Context
from barnabas.console.pages.fields import whole_number
from barnabas.console.pages.listing import listing
from barnabas.console.record_text import visible
from barnabas.errors import BarnabasError
from barnabas.model import TopicPartition

T = TypeVar("T")

SHOWN_PARTITIONS_MAX = 200
SHOWN_PRODUCERS_MAX = 500
KEYS = {
    "name": lambda row: row.name,
    "state": lambda row: row.state,
    "producer": lambda row: row.producer_id,
    "coordinator": lambda row: row.coordinator,
    "open": lambda row: row.open_s,
    "partitions": lambda row: None if row.described is None else len(row.described.partitions),
}


@dataclass(frozen=True, slots=True)
class TransactionPartition:
    """A partition of an open transaction.

    :ivar first_offset: the first offset of the transaction in the partition; None if the transaction has not written.
    :ivar stable: the last stable offset, before which readers of committed records can read.
    """

    where: TopicPartition
    first_offset: int | None
    stable: int | None
    end: int | None

    @property
    def waiting(self) -> int | None:
        """The number of offsets that readers of committed records cannot read yet."""
        return None if self.stable is None or self.end is None else max(0, self.end - self.stable)


@dataclass(frozen=True, slots=True)
class ProducerRow:
    """A producer of a partition, with its transactional id; empty if it is not known."""

    producer: ProducerDescription
    name: str


async def transactions(context: Context) -> Response:
    """Show the transactional ids, those with the longest open transaction first; a script gets only the table."""
    rows = await _rows(context)
    found = listing(context, rows, lambda row: row.name, KEYS, sort="open")
    open_s = [row.open_s for row in rows if row.open_s is not None]
    return context.page(
        "_transactions.html" if context.is_partial else "transactions.html",
        title="Transactions",
        list=found,
        open_count=sum(row.is_open for row in rows),
        longest_s=max(open_s, default=None),
        late_count=sum(row.is_late for row in rows),
        undescribed=sum(row.is_open and row.described is None for row in rows),
    )


async def transaction(context: Context) -> Response:
    """Show a transactional id, and the partitions of its open transaction."""
    name = context.query("id")
    row = next((each for each in await _rows(context) if each.name == name), None)
    if row is None:
        raise HTTPException(404, f"the cluster has no transactional id {visible(name)}, or you may not describe it")
    partitions: list[TransactionPartition] = []
    problem = ""
    if row.described is not None:
        wanted = row.described.partitions[:SHOWN_PARTITIONS_MAX]
        partitions, problem = await _partitions(context, row.described, wanted)
    return context.page(
        "transaction.html", title=visible(name), transaction=row, partitions=partitions, problem=problem
    )


async def _partitions(
    context: Context, described: TransactionDescription, wanted: tuple[TopicPartition, ...]
) -> tuple[list[TransactionPartition], str]:
    """Return the partitions of a transaction with what the user can see, and the reason why something is missing."""
    view = context.view
    topics = await view.topics()
    internal = [where for where in wanted if where.topic not in topics]
    led = [*await view.with_leader(wanted), *internal]
    (producers, no_producers), (ends, no_ends), (stable, _) = await asyncio.gather(
        _part(context, view.admin.describe_producers(led)),
        _part(context, view.admin.end_offsets(led)),
        _part(context, view.admin.end_offsets(led, isolation_level="read_committed")),
    )
    found = [
        TransactionPartition(where, _first_offset(producers, where, described), stable.get(where), ends.get(where))
        for where in wanted
    ]
    return found, no_producers or no_ends


async def _part(
    context: Context, call: Coroutine[Any, Any, dict[TopicPartition, T]]
) -> tuple[dict[TopicPartition, T], str]:
    try:
        return await context.view.within(call), ""
    except (BarnabasError, TimeoutError) as error:
        return {}, text_of(error)


def _first_offset(
    producers: Mapping[TopicPartition, list[ProducerDescription]],
    where: TopicPartition,
    described: TransactionDescription,
) -> int | None:
    of_id = (each for each in producers.get(where, ()) if each.producer_id == described.producer_id)
    return next((each.transaction_start_offset for each in of_id), None)


async def producers(context: Context) -> Response:
    """Show the producers of a partition, those with an open transaction first."""
    where = TopicPartition(context.query("topic"), whole_number(context.query("partition"), "partition"))
    names = {row.producer_id: row.name for row in await _rows(context)}
    described = await context.view.within(context.view.admin.describe_producers([where]))
    found = sorted(described.get(where, ()), key=_open_first)
    return context.page(
        "producers.html",
        title=f"Producers of {visible(str(where))}",
        where=where,
        producers=[ProducerRow(each, names.get(each.producer_id, "")) for each in found[:SHOWN_PRODUCERS_MAX]],
        total=len(found),
    )


def _open_first(each: ProducerDescription) -> tuple[bool, int, int]:
    """Sort key: producers with an open transaction first, in the order of their offsets; then those that wrote last."""
    start = each.transaction_start_offset
    return start is None, start or 0, -(each.last_timestamp_ms or 0)


async def _rows(context: Context) -> list[TransactionRow]:
    """Return the transactional ids.

    :raises HTTPException: the brokers do not list transactions.
    """
    if not context.view.has_transactions:
        raise HTTPException(404, "the brokers of this cluster do not list transactions")
    return await context.view.transactions()
