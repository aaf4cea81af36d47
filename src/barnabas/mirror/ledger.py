"""The entries of a mirror's ledger, the compacted topic `_mirror` of the target cluster. Entries are JSON records.

There are four kinds of entries: the claim on a topic, the settings of a topic, the mark of a partition, and the mark of
a group in a partition. Each has its own key. The log of a target partition alone shows which records are mirrored. A
mark has three further uses: the mirror needs to read less of that log, the mark remains when retention deletes the
records, and it contains the offset map for groups. An entry with the id of a deleted topic is ignored.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, ClassVar, Self

from barnabas.mirror.batch_verification import SourceBatch
from barnabas.mirror.offset_map import OffsetMap, Run
from barnabas.records.mirror_identity import ORIGIN_MAX

LEDGER_TOPIC = "_mirror"
FORMAT = 1


class BadEntryError(ValueError):
    """A record of the ledger topic is not an entry, or has the format of a later release."""


def _key(kind: str, *names: object) -> str:
    return json.dumps([kind, *names], ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim of a mirror on a topic of this cluster: the mirror fills it from a topic of another cluster.

    :param path: the ids of the clusters that the records have passed through; the first is the cluster they were
        produced to.
    """

    source_cluster: str
    source_topic: str
    source_topic_id: str
    target_topic_id: str
    path: tuple[str, ...]

    @staticmethod
    def key(target_topic: str) -> str:
        return _key("topic", target_topic)

    def value(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def read(cls, value: object) -> Self:
        """Return the claim in a decoded JSON value.

        :raises BadEntryError: the value is not a claim.
        """
        fields = _fields(value)
        path = fields.get("path")
        if not isinstance(path, list):
            raise BadEntryError(f"claim without a path: {value!r:.200}")
        cluster, topic, source_id, target_id = (fields.get(name) for name in cls.__slots__[:4])
        if not all(isinstance(each, str) for each in (cluster, topic, source_id, target_id, *path)):
            raise BadEntryError(f"claim with a field that is not a string: {value!r:.200}")
        return cls(str(cluster), str(topic), str(source_id), str(target_id), tuple(map(str, path)))


@dataclass(frozen=True, slots=True)
class PartitionMark:
    """The state of a mirrored partition: a lower bound of the mirrored offsets, and the offset map.

    :param reported_to: the source offset below which the audit has reported all records; None before the first report.
    :param last_source: the source batch that was mirrored last; None if it is not known.
    :param diverged: the reason why source and target differ; None if no difference is known.
    """

    target_topic_id: str
    origin: int | None
    runs: tuple[Run, ...]
    reported_to: int | None = None
    diverged: str | None = None
    last_source: SourceBatch | None = None

    FIELDS: ClassVar[tuple[str, ...]] = (
        "target_topic_id",
        "origin",
        "runs",
        "told_to",  # wire name
        "diverged",
        "last_source",
    )
    """The names of the fields in the ledger's JSON, in the order of the dataclass fields."""

    @staticmethod
    def key(target_topic: str, partition: int) -> str:
        return _key("partition", target_topic, partition)

    def value(self) -> dict[str, Any]:
        names = dict(zip(self.__slots__, self.FIELDS, strict=True))
        return {"format": FORMAT, **{names[name]: value for name, value in asdict(self).items()}}

    @classmethod
    def read(cls, value: object) -> Self:
        """Return the mark in a decoded JSON value.

        :raises BadEntryError: the value is not a partition mark.
        """
        fields = _fields(value)
        topic_id, origin, runs, reported_to, diverged, last = (fields.get(name) for name in cls.FIELDS)
        if not (last is None or _is_run(last)):
            raise BadEntryError(f"partition mark with an invalid last source batch: {value!r:.200}")
        if not (diverged is None or isinstance(diverged, str)):
            raise BadEntryError(f"partition mark with a divergence that is not a string: {value!r:.200}")
        if not isinstance(topic_id, str) or not all(each is None or _is_offset(each) for each in (origin, reported_to)):
            raise BadEntryError(f"partition mark with an invalid topic id or offset: {value!r:.200}")
        if not isinstance(runs, list) or not all(_is_run(run) for run in runs):
            raise BadEntryError(f"partition mark with invalid runs of offsets: {value!r:.200}")
        try:
            found = OffsetMap.of([(source, target, count) for source, target, count in runs])
        except ValueError as error:
            raise BadEntryError(f"partition mark with overlapping runs of offsets: {error}") from error
        return cls(topic_id, origin, found.runs, reported_to, diverged, None if last is None else SourceBatch(*last))


@dataclass(frozen=True, slots=True)
class GroupMark:
    """Committed offsets of a group in one partition that correspond to each other in source and target.

    Each cluster may have several offsets. The mirror writes an offset to the ledger before it commits the offset. So
    the next mirror knows that a mirror, not a consumer, committed this offset, even if the commit seemed to fail.
    """

    source: tuple[int, ...] = field(default=())
    target: tuple[int, ...] = field(default=())

    @staticmethod
    def key(group: str, target_topic: str, partition: int) -> str:
        return _key("group", group, target_topic, partition)

    def value(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def read(cls, value: object) -> Self:
        """Return the mark in a decoded JSON value.

        :raises BadEntryError: the value is not a group mark.
        """
        fields = _fields(value)
        sides = []
        for name in cls.__slots__:
            given = fields.get(name)
            if not isinstance(given, list) or not all(_is_offset(each) for each in given):
                raise BadEntryError(f"group mark with invalid offsets: {value!r:.200}")
            sides.append(tuple(given))
        return cls(*sides)


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The values that mirrors have set on a topic of this cluster, by setting name; None if the mirror removed the
    setting.

    A setting may have several values. The mirror writes a value to the ledger before it sets the value. So the next
    mirror knows that a mirror, not an operator, set it, even if the change seemed to fail.
    """

    target_topic_id: str
    left: Mapping[str, tuple[str | None, ...]]

    @staticmethod
    def key(target_topic: str) -> str:
        return _key("settings", target_topic)

    @classmethod
    def of(cls, target_topic_id: str, left: Mapping[str, Iterable[str | None]]) -> Self:
        """Return an entry with these values; their order does not matter."""
        return cls(target_topic_id, {name: _ordered(values) for name, values in sorted(left.items())})

    def with_values(self, left: Mapping[str, Iterable[str | None]]) -> Self:
        """Return a copy of the entry with other values for the given settings."""
        return self.of(self.target_topic_id, {**self.left, **left})

    def value(self) -> dict[str, Any]:
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def read(cls, value: object) -> Self:
        """Return the settings in a decoded JSON value.

        :raises BadEntryError: the value is not a settings entry.
        """
        fields = _fields(value)
        topic_id, left = (fields.get(name) for name in cls.__slots__)
        if not isinstance(topic_id, str) or not isinstance(left, dict):
            raise BadEntryError(f"settings entry without a topic id or values: {value!r:.200}")
        for values in left.values():
            if not isinstance(values, list) or not all(each is None or isinstance(each, str) for each in values):
                raise BadEntryError(f"settings entry with a value that is not a string: {value!r:.200}")
        return cls.of(topic_id, left)


def _ordered(values: Iterable[str | None]) -> tuple[str | None, ...]:
    return tuple(sorted(set(values), key=lambda each: (each is not None, each or "")))


def _fields(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise BadEntryError(f"not a ledger entry of format {FORMAT}: {value!r:.200}")
    return value


def _is_offset(value: object) -> bool:
    return type(value) is int and 0 <= value <= ORIGIN_MAX


def _is_run(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(_is_offset(each) for each in value)


def encode(key: str, value: Mapping[str, Any] | None) -> tuple[bytes, bytes | None]:
    """Return the key and value bytes of an entry's record; a value of None becomes a tombstone, which deletes the
    entry."""
    text = None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return key.encode(), text


def decode(key: bytes | None, value: bytes | None) -> tuple[str, object]:
    """Return the key and the JSON value of a record; a tombstone has the value None.

    :raises BadEntryError: key or value is not valid UTF-8, or the value is not valid JSON.
    """
    try:
        return (key or b"").decode(), None if value is None else json.loads(value)
    except (ValueError, RecursionError) as error:
        raise BadEntryError(f"invalid JSON: {error}") from error
