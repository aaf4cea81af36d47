"""Runs and pieces of Produce: requests that are carried out together, and parts of one that is too much at once.

Requests of a run want the same acknowledgement. The pieces of a request are appended in its order, so the result is the
same as if it were carried out at once; others have their turn in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

from barnabas.model import Acks
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


REQUESTS_MAX = 1024
"""The most requests of a run."""

ACKNOWLEDGED_MAX = 50
"""A run of more requests is answered in parts: the producer, which has so many under way and not more, can make the
next ones of the answers to the first part while the second is carried out, instead of waiting for all of them."""


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


class ProduceRuns:
    """The rules of runs (`barnabas.broker.pipeline.served_api.RunRules`)."""

    entry_count = staticmethod(entry_count)
    only_partition = staticmethod(only_partition)
    must_be_in_pieces = staticmethod(must_be_in_pieces)
    pieces = staticmethod(pieces)
    join = staticmethod(join)

    def requests_max(self, first: ProduceRequest) -> int:
        """Return how many requests a run has at most."""
        return ACKNOWLEDGED_MAX if first.acks != Acks.NONE else REQUESTS_MAX

    def go_together(self, first: ProduceRequest, other: ProduceRequest) -> bool:
        """Whether two requests want the same acknowledgement."""
        return first.acks == other.acks

    def wants_answer(self, request: ProduceRequest) -> bool:
        """Whether a request wants an acknowledgement."""
        return request.acks != Acks.NONE
