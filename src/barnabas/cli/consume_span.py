"""The option `-o` of `barnabas consume`: parses start and end in kcat's notation, and resolves them to offsets.

Parsing does no I/O. The resolution calls the methods of `OffsetSource`, which `Admin` implements.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

from barnabas.cli.times import TIME_HELP, parse_time_ms
from barnabas.clock import SYSTEM_CLOCK
from barnabas.model import OffsetAndTimestamp, TopicPartition

OFFSET_HELP = (
    "beginning, end, N, -N (N before the end), s@TIME or @TIME (from that time on), e@TIME (up to that time) or"
    " @TIME:TIME"
)


class Anchor(enum.Enum):
    """The meaning of the number in a `Bound`: the point that it counts from."""

    BEGINNING = "beginning"
    END = "end"
    OFFSET = "offset"
    BEFORE_END = "before end"
    TIMESTAMP = "timestamp"


@dataclass(frozen=True, slots=True)
class Bound:
    """A position in a partition: an anchor, and an offset, a record count, or milliseconds since the epoch."""

    anchor: Anchor
    number: int = 0


@dataclass(frozen=True, slots=True)
class Span:
    """The range to read, from `start` to `stop` (exclusive). If `stop` is None, the range has no end."""

    start: Bound = Bound(Anchor.BEGINNING)
    stop: Bound | None = None


class OffsetSource(Protocol):
    """The queries for partition offsets that `Admin` and test doubles implement."""

    def beginning_offsets(self, partitions: Iterable[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """Return the log start offset of each partition."""
        ...

    def end_offsets(self, partitions: Iterable[TopicPartition], /) -> Mapping[TopicPartition, int]:
        """Return the log end offset of each partition."""
        ...

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int], /
    ) -> Mapping[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first offset at or after the timestamp in each partition; None if there is no such record."""
        ...


def parse_span(texts: Iterable[str]) -> Span:
    """Return the range that one or more `-o` values describe.

    :raises ValueError: a value has none of the forms in OFFSET_HELP.

    >>> parse_span(["-10"])
    Span(start=Bound(anchor=<Anchor.BEFORE_END: 'before end'>, number=10), stop=None)
    """
    now_ms = SYSTEM_CLOCK.time_ms()  # read once, so that @-2h:-1h is exactly an hour
    span = Span()
    for text in texts:
        if text.startswith("e@"):
            span = Span(span.start, _at_time(text[2:], now_ms))
        elif text.startswith("@"):
            start, stop = _parse_times(text[1:], now_ms)
            span = Span(start, stop or span.stop)
        else:
            span = Span(_parse_start(text, now_ms), span.stop)
    if span.stop is not None and span.start.anchor is Anchor.TIMESTAMP and span.start.number > span.stop.number:
        raise ValueError("the start is after the end")
    return span


def _parse_times(text: str, now_ms: int) -> tuple[Bound, Bound | None]:
    """Return start and end of TIME or TIME:TIME. A time may contain colons, so the whole text is tried first."""
    with contextlib.suppress(ValueError):
        return _at_time(text, now_ms), None
    for at in (at for at, letter in enumerate(text) if letter == ":"):
        with contextlib.suppress(ValueError):
            return _at_time(text[:at], now_ms), _at_time(text[at + 1 :], now_ms)
    return _at_time(text, now_ms), None


def _at_time(text: str, now_ms: int) -> Bound:
    return Bound(Anchor.TIMESTAMP, parse_time_ms(text, now_ms))


def parse_position(text: str, now_ms: int | None = None) -> Bound:
    """Return a position in a partition: an offset, -N, `beginning`, `end`, or a time, with or without @.

    :raises ValueError: the text has none of these forms.

    >>> parse_position("500"), parse_position("@1234")
    (Bound(anchor=<Anchor.OFFSET: 'offset'>, number=500), Bound(anchor=<Anchor.TIMESTAMP: 'timestamp'>, number=1234))
    """
    now_ms = SYSTEM_CLOCK.time_ms() if now_ms is None else now_ms
    if text.startswith("@"):
        return _at_time(text[1:], now_ms)
    with contextlib.suppress(ValueError):
        return _parse_start(text, now_ms)
    with contextlib.suppress(ValueError):
        return _at_time(text, now_ms)
    raise ValueError(f"{text!r} is neither an offset, -N (N before the end) or end, nor a time: {TIME_HELP}")


def _parse_start(text: str, now_ms: int) -> Bound:
    if text in {"beginning", "earliest", "start"}:
        return Bound(Anchor.BEGINNING)
    if text in {"end", "latest"}:
        return Bound(Anchor.END)
    if text.startswith("s@"):
        return _at_time(text[2:], now_ms)
    if text.startswith("-"):
        return Bound(Anchor.BEFORE_END, _number(text[1:], text))
    return Bound(Anchor.OFFSET, _number(text, text))


def _number(digits: str, text: str) -> int:
    if not (digits.isascii() and digits.isdigit()):
        raise ValueError(f"{text!r} is not an offset; use {OFFSET_HELP}")
    return int(digits)


def resolve(bound: Bound, partitions: Iterable[TopicPartition], source: OffsetSource) -> dict[TopicPartition, int]:
    """Return the offset of `bound` in each partition.

    Offsets and times after the end resolve to the log end offset. Offsets before the beginning resolve to the log start
    offset.
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
