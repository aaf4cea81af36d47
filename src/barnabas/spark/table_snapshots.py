"""The snapshots and files of a table, in parts, for pages. The same for all table formats. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from barnabas.spark.compact_json import unpack
from barnabas.spark.ledger import ADDED, LEDGER, RANGES, RECORDS

OffsetRanges = Mapping[str, Mapping[int, tuple[int, int]]]
"""By topic and partition: the first offset, and the offset after the last one."""


@dataclass(frozen=True, slots=True)
class TableSnapshot:
    """A version of a table. Numbers are None if the table does not record them.

    :param time_ms: the time of the commit, in ms since 1970.
    :param loaded: the offsets that the load of this version has added; empty for other changes.
    """

    id: int
    time_ms: int
    operation: str
    is_current: bool
    added_files: int | None
    deleted_files: int | None
    added_records: int | None
    deleted_records: int | None
    loaded: OffsetRanges


@dataclass(frozen=True, slots=True)
class SnapshotPage:
    """A part of a table's versions, the newest first.

    :param total: the number of all versions.
    """

    snapshots: Sequence[TableSnapshot]
    total: int


@dataclass(frozen=True, slots=True)
class TableFile:
    """A file of a table.

    :param content: `data`, or the kind of deletes that the file contains.
    :param partition: the values of the partition's columns, for example `event_day=2026-11-28`.
    """

    path: str
    content: str
    records: int | None
    bytes: int
    partition: str


@dataclass(frozen=True, slots=True)
class FilePage:
    """A part of the files of a table's version.

    :param total: the number of all files.
    """

    files: Sequence[TableFile]
    total: int


def loaded_offsets(properties: Mapping[str, Any]) -> OffsetRanges:
    """Return the offsets that a load has added, from the properties of its version (ledger.py).

    The properties may come from another tool: without valid ones, the result is empty.

    >>> loaded_offsets({ADDED: '{"clicks": [30]}', LEDGER: '{"clicks": {"id": "", "next": [250]}}'})
    {'clicks': {0: (220, 250)}}
    """
    try:
        if ADDED in properties:
            ends = {topic: unpack(each["next"]) for topic, each in json.loads(properties[LEDGER]).items()}
            return {
                topic: {
                    partition: (ends[topic][partition] - count, ends[topic][partition])
                    for partition, count in unpack(counts).items()
                }
                for topic, counts in json.loads(properties[ADDED]).items()
            }
        return {
            topic: {int(partition): (int(first), int(end)) for partition, (first, end) in ranges.items()}
            for topic, ranges in json.loads(properties.get(RANGES, "{}")).items()
        }
    except (ValueError, LookupError, TypeError, AttributeError):
        return {}


def number_of(properties: Mapping[str, Any], *names: str) -> int | None:
    """Return the first of these properties that is a whole number; None without one.

    >>> number_of({"added-records": "7"}, "added", "added-records"), number_of({"added": "x"}, "added")
    (7, None)
    """
    texts = (str(properties.get(name, "")) for name in names)
    return next((int(text) for text in texts if text.isascii() and text.isdecimal() and len(text) < 20), None)


def added_by_load(properties: Mapping[str, Any]) -> int | None:
    """Return the number of records that a load has added; None if it is not recorded."""
    return number_of(properties, RECORDS)
