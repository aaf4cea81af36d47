"""The neighbours of lost records: the records that the same producer sent before and after them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from barnabas.audit.identities import Producer, identity_of
from barnabas.client.config import Bootstrap
from barnabas.client.range_reader import RangeReader
from barnabas.model import TopicPartition
from barnabas.records.header import SEQUENCE_MAX, iter_headers


class Neighbours(NamedTuple):
    """The offsets of the neighbours in the log; None if the searched part of the log has no neighbour.

    :param is_whole: False if the search ended before the end of the range.
    """

    before: int | None
    after: int | None
    is_whole: bool = True


def neighbours_of(
    bootstrap: Bootstrap,
    where: TopicPartition,
    offsets: tuple[int, int],
    producer: Producer,
    missing: tuple[int, int],
    continues: Callable[[], bool] = lambda: True,
) -> Neighbours:
    """Search the neighbours of records that are missing in a partition. The search decodes batch headers only.

    :param offsets: the first offset and the end offset of the search.
    :param missing: the first missing sequence number, and the number of missing records.
    :param continues: returns False to end the search early.
    :raises ApiError: the log cannot be read.
    """
    first, count = missing
    last_before, first_after = _sequence(first - 1), _sequence(first + count)
    before = after = None
    with RangeReader(bootstrap, where.topic, where.partition, *offsets) as reader:
        for batches in reader:
            for _position, header in iter_headers(batches, partial_ok=True):
                owner, begin = identity_of(header, where.partition)
                if owner != producer:
                    continue
                before = _offset_of(last_before, header.base_offset, begin, header.last_offset, before)
                after = _offset_of(first_after, header.base_offset, begin, header.last_offset, after)
            if before is not None and after is not None:
                break
            if not continues():
                return Neighbours(before, after, is_whole=False)
    return Neighbours(before, after)


def _sequence(number: int) -> int:
    return number & SEQUENCE_MAX


def _offset_of(sequence: int, base_offset: int, begin: int, last_offset: int, known: int | None) -> int | None:
    """Return the offset of a sequence number if a batch has it; otherwise the known offset."""
    distance = _sequence(sequence - begin)
    return base_offset + distance if known is None and base_offset + distance <= last_offset else known
