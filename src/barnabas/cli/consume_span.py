"""The start and end of `barnabas consume -o`: kcat's notation, resolved to offsets.

Parsing is pure; resolving asks the brokers through the four methods of `OffsetSource`, which `Admin` has.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from barnabas.cli.times import parse_time_ms
from barnabas.model import OffsetAndTimestamp, TopicPartition

OFFSET_HELP = "beginning, end, N, -N (N before the end), s@TIME (from that time on) or e@TIME (up to that time)"


class Anchor(enum.Enum):
    """What the number of a `Bound` is counted from."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    BEFORE_END = "before end"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Bound:
    """One place in a partition: an anchor, and an offset, a count or milliseconds since the epoch."""

    anchor: Anchor
    number: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """What to read: from `start` up to `stop`, or without an end when `stop` is None."""

    start: Bound = Bound(Anchor.BEGINNING)
    stop: Bound | None = None


class OffsetSource(Protocol):
    """Who knows the offsets of partitions: an `Admin`, or a fake of it."""

    def beginning_offsets(self, partitions: Iterable[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """Return the first offset of each."""
        ...

    def end_offsets(self, partitions: Iterable[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """Return the offset after the last record of each."""
        ...

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int], /
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after that time of each, or None where there is none."""
        ...


def parse_span(texts: Iterable[str]) -> Span:
    """Return what one or more `-o` options ask for.

    :raises ValueError: a text is none of OFFSET_HELP; times are as `timestamps.TIME_HELP` says.

    >>> parse_span(["-10"])
    Span(start=Bound(anchor=<Anchor.BEFORE_END: 'before end'>, number=10), stop=None)
    """
    span = Span()
    for text in texts:
        if text.startswith("e@"):
            span = Span(span.start, Bound(Anchor.TIMESTAMP, parse_time_ms(text[2:])))
        else:
            span = Span(_parse_start(text), span.stop)
    return span


def _parse_start(text: str) -> Bound:
    if text in {"beginning", "earliest", "start"}:
        return Bound(Anchor.BEGINNING)
    if text in {"end", "latest"}:
        return Bound(Anchor.END)
    if text.startswith("s@"):
        return Bound(Anchor.TIMESTAMP, parse_time_ms(text[2:]))
    if text.startswith("-"):
        return Bound(Anchor.BEFORE_END, _number(text[1:], text))
    return Bound(Anchor.OFFSET, _number(text, text))


def _number(digits: str, text: str) -> int:
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{text!r} is no offset; give {OFFSET_HELP}")
    return int(digits)


def resolve(bound: Bound, partitions: Iterable[TopicPartition], source: OffsetSource) -> dict[TopicPartition, int]:
    """Return the offset that `bound` means in each of the partitions.

    A time after the last record, and a number beyond the end, mean the end; a number before the beginning
    means the beginning.
    """
    partitions = list(partitions)
    first, end = source.beginning_offsets(partitions), source.end_offsets(partitions)
    if bound.anchor is Anchor.TIMESTAMP:
        found = source.offsets_for_times(dict.fromkeys(partitions, bound.number))
        return {tp: end[tp] if (at := found.get(tp)) is None else at.offset for tp in partitions}
    wanted = {
        Anchor.BEGINNING: first,
        Anchor.END: end,
        Anchor.OFFSET: dict.fromkeys(partitions, bound.number),
        Anchor.BEFORE_END: {tp: end[tp] - bound.number for tp in partitions},
    }[bound.anchor]
    return {tp: min(max(wanted[tp], first[tp]), end[tp]) for tp in partitions}
