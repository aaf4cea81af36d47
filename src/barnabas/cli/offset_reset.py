"""The targets of `barnabas group reset`, and the plan of offset changes for a target."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.cli.consume_span import Anchor, Bound, OffsetSource, resolve
from barnabas.model import OffsetAndMetadata, TopicPartition

Committed = Mapping[TopicPartition, OffsetAndMetadata]


@dataclass(frozen=True, slots=True)
class OffsetShift:
    """Moves the committed offset forward by `by` offsets, or back if `by` is negative."""

    by: int


@dataclass(frozen=True, slots=True)
class CurrentOffsets:
    """Keeps the committed offset, or commits the log end offset if the group has none."""


Target = Bound | OffsetShift | CurrentOffsets | Mapping[TopicPartition, int]
"""A target of a reset: one bound for all partitions, a shift, the committed offsets, or an offset for each
partition."""


@dataclass(frozen=True, slots=True)
class Move:
    """A planned change: a partition, its current committed offset (None if there is none), and the new one."""

    topic: str
    partition: int
    before: int | None
    after: int


def parse_partitions(text: str) -> tuple[str, tuple[int, ...] | None]:
    """Return the topic and the partitions of `TOPIC[:P,...]`; None instead of partitions means all.

    :raises ValueError: the partitions are not numbers.

    >>> parse_partitions("clicks:0,2"), parse_partitions("clicks")
    (('clicks', (0, 2)), ('clicks', None))
    """
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    parts = numbers.split(",")
    if not topic or not all(part.isascii() and part.isdigit() for part in parts):
        raise ValueError(f"{text!r} is not TOPIC or TOPIC:P,P,... such as clicks:0,2")
    return topic, tuple(map(int, parts))


def read_offsets(lines: Iterable[str], source: str) -> dict[TopicPartition, int]:
    """Return the offsets of a CSV file with the columns topic, partition, offset and an optional header line.

    :param source: the file's name for errors.
    :raises ValueError: a line has another form, or a partition occurs twice.
    """
    offsets: dict[TopicPartition, int] = {}
    for number, row in enumerate(csv.reader(lines), 1):
        cells = [cell.strip() for cell in row]
        if not any(cells) or (number == 1 and cells == ["topic", "partition", "offset"]):
            continue
        if len(cells) != 3 or not all(cell.isascii() and cell.isdigit() for cell in cells[1:]):
            raise ValueError(f"{source}, line {number}: {','.join(row)!r} is not topic,partition,offset")
        tp = TopicPartition(cells[0], int(cells[1]))
        if tp in offsets:
            raise ValueError(f"{source}, line {number}: {tp} occurs twice")
        offsets[tp] = int(cells[2])
    if not offsets:
        raise ValueError(f"{source} has no offsets; its lines must be topic,partition,offset")
    return offsets


def plan(
    target: Target, partitions: Iterable[TopicPartition], committed: Committed, source: OffsetSource
) -> list[Move]:
    """Return the planned move of each partition; new offsets stay between the log start offset and the log end offset.

    :raises ValueError: a shift needs a committed offset, and a partition has none.
    """
    partitions = sorted(partitions)
    after = _targets(target, partitions, committed, source)
    return [
        Move(tp.topic, tp.partition, committed[tp].offset if tp in committed else None, after[tp]) for tp in partitions
    ]


def _targets(
    target: Target, partitions: list[TopicPartition], committed: Committed, source: OffsetSource
) -> dict[TopicPartition, int]:
    if isinstance(target, Bound):
        return resolve(target, partitions, source)
    if isinstance(target, OffsetShift):
        nowhere = [tp for tp in partitions if tp not in committed]
        if nowhere:
            raise ValueError(
                f"no offset is committed in {', '.join(map(str, nowhere))}, "
                "so --shift-by does not work; use --to-earliest, --to-latest or --to-offset there"
            )
        wanted = {tp: max(0, committed[tp].offset + target.by) for tp in partitions}
    first, end = resolve(Bound(Anchor.BEGINNING), partitions, source), resolve(Bound(Anchor.END), partitions, source)
    if isinstance(target, CurrentOffsets):
        wanted = {tp: committed[tp].offset if tp in committed else end[tp] for tp in partitions}
    elif not isinstance(target, OffsetShift):
        wanted = {tp: target[tp] for tp in partitions}
    return {tp: min(max(wanted[tp], first[tp]), end[tp]) for tp in partitions}
