"""What a mirror writes down in the target's compacted topic `_mirror`: records in JSON, each with a key of its own.

Four kinds: the claim on a topic, its settings, the mark of a partition, the mark of a group in a partition. The log of
a partition tells by itself how far it is mirrored; a mark saves reading much of it, outlives its retention, and has the
map of offsets for groups. A record of a topic that has been deleted since (its id tells) counts for nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from barnabas.mirror.batch_verification import SourceBatch
from barnabas.mirror.offset_map import OffsetMap, Run
from barnabas.records.mirror_identity import ORIGIN_MAX

LEDGER_TOPIC = "_mirror"
FORMAT = 1


class BadEntryError(ValueError):
    """A record that is none of this ledger, or of a later release."""


def _key(kind: str, *names: object) -> str:
    return json.dumps([kind, *names], ensure_ascii=False)


@dataclass(frozen=True, slots=True)
class Claim:
    """A topic of this cluster is filled by a mirror, from that topic of that cluster.

    `path` are the clusters that its records have come through, the first one where they were produced.
    """

    source_cluster: str
    source_topic: str
    source_topic_id: str
    target_topic_id: str
    path: tuple[str, ...]

    @staticmethod
    def key(target_topic: str) -> str:
        """Return the key in the ledger."""
        return _key("topic", target_topic)

    def value(self) -> dict[str, Any]:
        """Return what is written."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def read(cls, value: object) -> Self:
        """:raises BadEntryError: it is none."""
        fields = _fields(value)
        path = fields.get("path")
        if not isinstance(path, list):
            raise BadEntryError(f"a claim without a path: {value!r:.200}")
        cluster, topic, source_id, target_id = (fields.get(name) for name in cls.__slots__[:4])
        if not all(isinstance(each, str) for each in (cluster, topic, source_id, target_id, *path)):
            raise BadEntryError(f"a claim of other things than names: {value!r:.200}")
        return cls(str(cluster), str(topic), str(source_id), str(target_id), tuple(map(str, path)))


@dataclass(frozen=True, slots=True)
class PartitionMark:
    """How far a partition was mirrored, at least, and which offsets stand for which.

    :param told_to: the source offset up to which the audit was told; None: it never was.
    :param last_source: the source batch that was mirrored last; None: not known.
    :param diverged: why the source does not confirm what the target has; None: it does, as far as is known.
    """

    target_topic_id: str
    origin: int | None
    runs: tuple[Run, ...]
    told_to: int | None = None
    diverged: str | None = None
    last_source: SourceBatch | None = None

    @staticmethod
    def key(target_topic: str, partition: int) -> str:
        """Return the key in the ledger."""
        return _key("partition", target_topic, partition)

    def value(self) -> dict[str, Any]:
        """Return what is written."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def read(cls, value: object) -> Self:
        """:raises BadEntryError: it is none."""
        fields = _fields(value)
        topic_id, origin, runs, told_to, diverged, last = (fields.get(name) for name in cls.__slots__)
        if not (last is None or _is_run(last)):
            raise BadEntryError(f"a mark whose last source batch is none: {value!r:.200}")
        if not (diverged is None or isinstance(diverged, str)):
            raise BadEntryError(f"a mark whose divergence is no text: {value!r:.200}")
        if not isinstance(topic_id, str) or not all(each is None or _is_offset(each) for each in (origin, told_to)):
            raise BadEntryError(f"a mark without topic or origin: {value!r:.200}")
        if not isinstance(runs, list) or not all(_is_run(run) for run in runs):
            raise BadEntryError(f"a mark without runs of offsets: {value!r:.200}")
        try:
            found = OffsetMap.of([(source, target, count) for source, target, count in runs])
        except ValueError as error:
            raise BadEntryError(f"a mark with runs that cannot be: {error}") from error
        return cls(topic_id, origin, found.runs, told_to, diverged, None if last is None else SourceBatch(*last))


@dataclass(frozen=True, slots=True)
class GroupMark:
    """Committed offsets of a group in one partition that stand for each other, in both clusters.

    Either side may have several: what a mirror is about to commit is written here before, and is known again whether
    it came to that or not.
    """

    source: tuple[int, ...] = field(default=())
    target: tuple[int, ...] = field(default=())

    @staticmethod
    def key(group: str, target_topic: str, partition: int) -> str:
        """Return the key in the ledger."""
        return _key("group", group, target_topic, partition)

    def value(self) -> dict[str, Any]:
        """Return what is written."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def read(cls, value: object) -> Self:
        """:raises BadEntryError: it is none."""
        fields = _fields(value)
        sides = []
        for name in cls.__slots__:
            given = fields.get(name)
            if not isinstance(given, list) or not all(_is_offset(each) for each in given):
                raise BadEntryError(f"a group's mark without offsets: {value!r:.200}")
            sides.append(tuple(given))
        return cls(*sides)


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """The values that mirrors have left at a topic of this cluster, by the setting's name; None: left unset.

    A setting may have several: what a mirror is about to set is written here before, and is known again whether it came
    to that or not.
    """

    target_topic_id: str
    left: Mapping[str, tuple[str | None, ...]]

    @staticmethod
    def key(target_topic: str) -> str:
        """Return the key in the ledger."""
        return _key("settings", target_topic)

    @classmethod
    def of(cls, target_topic_id: str, left: Mapping[str, Iterable[str | None]]) -> Self:
        """Make an entry of values in any order."""
        return cls(target_topic_id, {name: _ordered(values) for name, values in sorted(left.items())})

    def with_values(self, left: Mapping[str, Iterable[str | None]]) -> Self:
        """Return the entry with other values of some settings."""
        return self.of(self.target_topic_id, {**self.left, **left})

    def value(self) -> dict[str, Any]:
        """Return what is written."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def read(cls, value: object) -> Self:
        """:raises BadEntryError: it is none."""
        fields = _fields(value)
        topic_id, left = (fields.get(name) for name in cls.__slots__)
        if not isinstance(topic_id, str) or not isinstance(left, dict):
            raise BadEntryError(f"settings without topic or values: {value!r:.200}")
        for values in left.values():
            if not isinstance(values, list) or not all(each is None or isinstance(each, str) for each in values):
                raise BadEntryError(f"settings with other values than texts: {value!r:.200}")
        return cls.of(topic_id, left)


def _ordered(values: Iterable[str | None]) -> tuple[str | None, ...]:
    return tuple(sorted(set(values), key=lambda each: (each is not None, each or "")))


def _fields(value: object) -> Mapping[str, Any]:
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise BadEntryError(f"no entry of format {FORMAT}: {value!r:.200}")
    return value


def _is_offset(value: object) -> bool:
    return type(value) is int and 0 <= value <= ORIGIN_MAX


def _is_run(value: object) -> bool:
    return isinstance(value, list) and len(value) == 3 and all(_is_offset(each) for each in value)


def encode(key: str, value: Mapping[str, Any] | None) -> tuple[bytes, bytes | None]:
    """Return key and value of a record; None takes back what was written."""
    text = None if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return key.encode(), text


def decode(key: bytes | None, value: bytes | None) -> tuple[str, object]:
    """Return what `encode` was given.

    :raises BadEntryError: it is no JSON.
    """
    try:
        return (key or b"").decode(), None if value is None else json.loads(value)
    except (ValueError, RecursionError) as error:
        raise BadEntryError(f"no JSON: {error}") from error
