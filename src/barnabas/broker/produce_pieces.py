"""Produce requests for many partitions, or with much for several, are carried out in pieces: others have their turn in
between.

The pieces are appended in the order of the request, so what comes out is the same as if it were carried out at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

PIECE_ENTRIES_MAX = 64
"""How many topics and partitions are carried out at once."""

PIECE_BYTES_MAX = 1024 * 1024
"""A piece ends with the partition that makes it larger than this."""


def entry_count(request: ProduceRequest) -> int:
    """Return how many topics and partitions a request names."""
    count = len(request.topic_data)
    for topic in request.topic_data:
        count += len(topic.partition_data)
    return count


def must_be_in_pieces(request: ProduceRequest, size: int) -> bool:
    """Return whether a request of so many bytes is too much to be carried out at once."""
    entries = entry_count(request)
    partitions = entries - len(request.topic_data)
    return entries > PIECE_ENTRIES_MAX or (size > PIECE_BYTES_MAX and partitions > 1)


def only_partition(request: ProduceRequest) -> PartitionProduceData | None:
    """Return what the request brings for the one partition that it names; None if it does not name exactly one."""
    if len(request.topic_data) == 1 == len(request.topic_data[0].partition_data):
        return request.topic_data[0].partition_data[0]
    return None


class Piece(NamedTuple):
    """A part of a request, and whether its first topic is the last one of the part before."""

    request: ProduceRequest
    continues: bool


def pieces(request: ProduceRequest) -> Iterator[Piece]:
    """Yield requests for a part of the partitions each, in their order."""
    part: list[tuple[TopicProduceData, PartitionProduceData | None]] = []
    entries = size = 0
    continues = False
    for topic in request.topic_data:
        for number, data in enumerate(topic.partition_data or [None]):
            if entries >= PIECE_ENTRIES_MAX or size >= PIECE_BYTES_MAX:
                yield Piece(_request_for(part, request), continues)
                part, entries, size, continues = [], 0, 0, number > 0
            part.append((topic, data))
            entries += 1 if number else 2
            size += len(data.records) if data and data.records else 0
    yield Piece(_request_for(part, request), continues)


def _request_for(
    part: Sequence[tuple[TopicProduceData, PartitionProduceData | None]], request: ProduceRequest
) -> ProduceRequest:
    topics = []
    for _, same in groupby(part, key=lambda each: id(each[0])):
        (topic, first), *others = same
        data = [each for each in (first, *(other for _, other in others)) if each is not None]
        topics.append(replace(topic, partition_data=data))
    return replace(request, topic_data=topics)


def join(responses: Sequence[tuple[ProduceResponse, bool]]) -> ProduceResponse:
    """Return the response to a request of the responses to its pieces.

    :param responses: each with whether its first topic is the last one of the piece before.
    """
    topics: list[TopicProduceResponse] = []
    for response, continues in responses:
        parts = response.responses
        if continues:
            topics[-1].partition_responses += parts[0].partition_responses
        topics += parts[1:] if continues else parts
    return replace(responses[0][0], responses=topics)


async def join_later(responses: Sequence[tuple[ProduceResponse | Awaitable[ProduceResponse], bool]]) -> ProduceResponse:
    """Do the same where some of the responses have to be waited for."""
    waiting = [response for response, _ in responses if not isinstance(response, ProduceResponse)]
    settled = iter(await asyncio.gather(*waiting))
    return join([(each if isinstance(each, ProduceResponse) else next(settled), on) for each, on in responses])
