"""Produce requests with many partitions are carried out in pieces, so that others have their turn in between.

The pieces are appended in the order of the request, so what comes out is the same as if it were carried out at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from dataclasses import replace
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


def entry_count(request: ProduceRequest) -> int:
    """Return how many topics and partitions a request names."""
    count = len(request.topic_data)
    for topic in request.topic_data:
        count += len(topic.partition_data)
    return count


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
    topics: list[TopicProduceData] = []
    room, continues = PIECE_ENTRIES_MAX, False
    for topic in request.topic_data:
        partitions = topic.partition_data
        for begin in range(0, len(partitions) or 1, PIECE_ENTRIES_MAX):
            if room <= 0:
                yield Piece(replace(request, topic_data=topics), continues)
                topics, room, continues = [], PIECE_ENTRIES_MAX, begin > 0
            part = partitions[begin : begin + PIECE_ENTRIES_MAX]
            topics.append(replace(topic, partition_data=part))
            room -= 1 + len(part)
    yield Piece(replace(request, topic_data=topics), continues)


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
