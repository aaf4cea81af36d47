"""Monitoring events: what a tier tells of what it has counted, as records of the topic `_audit`.

An event is cumulative: it holds all that an instance (one life of one producer) has counted in one window of one topic,
and its key names the three, the topic with its id: another topic of the same name is not the same. So a later one
replaces an earlier one, one that comes twice changes nothing, and compaction keeps what is needed. They are JSON, so
that any tool reads them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.audit.identities import FIELD, Producer
from barnabas.audit.windows import DAY_MS, NO_WINDOW_MS, Tally
from barnabas.errors import BarnabasError

VERSION = 1

PRODUCED = "produced"
"""Tier: acknowledged to a producer."""
MIRRORED = "mirrored"
"""Tier: acknowledged to a mirror by the cluster that it fills. Its records' numbers are their source offsets."""
CONSUMED = "consumed"
"""Tier: handed to the application by a member of a group, which is the event's application."""
LOADED = "loaded"
"""Tier: in files that a load is about to commit to a table. The account of a load counts once it is committed."""
COMMITTED = "committed"
"""No tier: a load whose account was told is in its table. It says so in the last window that it has told of."""

NAME_CHARACTERS_MAX = 1_000
"""Of a host, an application or an instance."""

EVENT_BYTES = 400
"""About what an event has without its rows."""
ROW_BYTES = 60
"""About what a row of numbers in it has."""

PARTS_MAX = 100_000
"""So many partitions and epochs, and so many doubtful batches, an event has at most."""


class BadEventError(BarnabasError):
    """A record of the audit topic that is no monitoring event."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A batch of which its producer does not know whether it was stored."""

    producer: Producer
    first: int
    records: int
    window_ms: int


class Reach(NamedTuple):
    """From where to where a partition was counted: by a mirror that of the source, by a consumer the one it reads."""

    first: int
    """The offset of the first record that was counted."""
    next: int
    """The offset after the last one."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """What a mirror tells of the records' life before it.

    :param topic, topic_id: of the source, the id in hex.
    :param counted: the same records, under the identities that they have in the source.
    :param reached: by partition, as far as the window is concerned.
    """

    topic: str
    topic_id: str
    counted: dict[Producer, Tally] = field(default_factory=dict)
    reached: dict[int, Reach] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Return what an event has of it."""
        return {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "counted": [[*producer, *counted] for producer, counted in self.counted.items()],
            "reached": [[partition, *reach] for partition, reach in self.reached.items()],
        }


@dataclass(frozen=True, slots=True)
class MonitoringEvent:
    """What one instance has counted in one window of a topic.

    :param window_ms: when the window begins; `NO_WINDOW_MS`: records without a timestamp.
    :param number: of the event among those of its instance; a greater one tells more.
    :param counted: by producer id, epoch and partition.
    :param late: how many of the records were acknowledged long after the window's end.
    :param doubts: what may be stored, and may not.
    :param is_last: the producer has ended, and all that it has counted was told before.
    :param topic_id: of the topic, in hex; empty where brokers have none.
    :param offsets: by partition, the same records with their offsets for numbers; of tiers that know these.
    :param upstream: of mirrors.
    :param reached: by partition, as far as the window is concerned; of consumers.
    :param unknown: by partition, among which offsets, in whatever windows, a consumer was handed records that it could
        not tell of; some of them it may have told.
    """

    topic: str
    tier: str
    window_ms: int
    width_ms: int
    instance: str
    number: int
    host: str
    application: str
    counted: dict[Producer, Tally] = field(default_factory=dict)
    late: int = 0
    doubts: tuple[Doubt, ...] = ()
    is_last: bool = False
    topic_id: str = ""
    offsets: dict[int, Tally] = field(default_factory=dict)
    upstream: Upstream | None = None
    reached: dict[int, Reach] = field(default_factory=dict)
    unknown: dict[int, Reach] = field(default_factory=dict)

    @property
    def size_bytes(self) -> int:
        """About how many bytes its record has."""
        rows = len(self.counted) + len(self.doubts) + len(self.offsets) + len(self.reached) + len(self.unknown)
        return EVENT_BYTES + ROW_BYTES * rows

    @property
    def key(self) -> bytes:
        """The key of its record."""
        return json.dumps([self.topic, self.tier, self.window_ms, self.instance, self.topic_id]).encode()

    def to_json(self) -> bytes:
        """Return the value of its record."""
        offsets = {"offsets": [[partition, *counted] for partition, counted in self.offsets.items()]}
        reached = {"reached": [[partition, *reach] for partition, reach in self.reached.items()]}
        unknown = {"unknown": [[partition, *reach] for partition, reach in self.unknown.items()]}
        return json.dumps(
            {
                "version": VERSION,
                "topic": self.topic,
                "topic_id": self.topic_id,
                "tier": self.tier,
                "window": self.window_ms,
                "width": self.width_ms,
                "instance": self.instance,
                "number": self.number,
                "host": self.host,
                "application": self.application,
                "counted": [[*producer, *counted] for producer, counted in self.counted.items()],
                "late": self.late,
                "doubts": [[*each.producer, each.first, each.records, each.window_ms] for each in self.doubts],
                "last": self.is_last,
                **(offsets if self.offsets else {}),
                **(reached if self.reached else {}),
                **(unknown if self.unknown else {}),
                **({} if self.upstream is None else {"upstream": self.upstream.to_json()}),
            },
            separators=(",", ":"),
        ).encode()

    @classmethod
    def from_json(cls, value: bytes | None) -> MonitoringEvent:
        """Return the event that a record holds.

        :raises BadEventError: it is none.
        """
        try:
            fields = json.loads(value or b"")
        except (ValueError, RecursionError) as error:
            raise BadEventError(f"no monitoring event: {error}") from None
        if not isinstance(fields, dict) or fields.get("version") != VERSION:
            raise BadEventError("no monitoring event of a version that is known")
        return cls(
            topic=_name(fields, "topic"),
            tier=_name(fields, "tier"),
            window_ms=_number(fields.get("window"), NO_WINDOW_MS),
            width_ms=_width(fields.get("width")),
            instance=_name(fields, "instance"),
            number=_number(fields.get("number")),
            host=_name(fields, "host"),
            application=_name(fields, "application"),
            counted=dict(_counted(row) for row in _rows(fields, "counted", 6)),
            late=_number(fields.get("late")),
            doubts=tuple(_doubt(row) for row in _rows(fields, "doubts", 6)),
            is_last=fields.get("last") is True,
            topic_id=_name(fields, "topic_id"),
            offsets=dict(_offsets(row) for row in _rows({"offsets": [], **fields}, "offsets", 4)),
            upstream=_upstream(fields.get("upstream")),
            reached=dict(_reach(row) for row in _rows({"reached": [], **fields}, "reached", 3)),
            unknown=dict(_reach(row) for row in _rows({"unknown": [], **fields}, "unknown", 3)),
        )


def _upstream(fields: object) -> Upstream | None:
    if fields is None:
        return None
    if not isinstance(fields, dict):
        raise BadEventError("no monitoring event: upstream is no object")
    return Upstream(
        _name(fields, "topic"),
        _name(fields, "topic_id"),
        dict(_counted(row) for row in _rows(fields, "counted", 6)),
        dict(_reach(row) for row in _rows(fields, "reached", 3)),
    )


def _reach(row: list[object]) -> tuple[int, Reach]:
    return _number(row[0], 0, 2**31 - 1), Reach(_number(row[1]), _number(row[2]))


def _name(fields: dict[str, Any], name: str) -> str:
    value = fields.get(name)
    if not isinstance(value, str) or len(value) > NAME_CHARACTERS_MAX:
        raise BadEventError(f"no monitoring event: {name} is no name")
    try:
        value.encode()
    except UnicodeEncodeError:  # JSON may escape half a character, which nobody could show
        raise BadEventError(f"no monitoring event: {name} is no text") from None
    return value


def _number(value: object, least: int = 0, most: int = 2**63 - 1) -> int:
    if type(value) is not int or not least <= value <= most:
        raise BadEventError("no monitoring event: a number is none, or out of its range")
    return value


def _width(value: object) -> int:
    width_ms = _number(value, 1, DAY_MS)
    if DAY_MS % width_ms:
        raise BadEventError(f"no monitoring event: a day is no multiple of windows of {width_ms} ms")
    return width_ms


def _rows(fields: dict[str, Any], name: str, width: int) -> list[list[object]]:
    rows = fields.get(name)
    if not isinstance(rows, list) or len(rows) > PARTS_MAX:
        raise BadEventError(f"no monitoring event: {name} is no list, or too long")
    for row in rows:
        if not isinstance(row, list) or len(row) != width:
            raise BadEventError(f"no monitoring event: a row of {name} does not have {width} numbers")
    return rows


def _producer(row: list[object]) -> Producer:
    return Producer(_number(row[0]), _number(row[1], 0, 2**15 - 1), _number(row[2], 0, 2**31 - 1))


def _counted(row: list[object]) -> tuple[Producer, Tally]:
    return _producer(row), _tally(row[3:])


def _offsets(row: list[object]) -> tuple[int, Tally]:
    return _number(row[0], 0, 2**31 - 1), _tally(row[1:])


def _tally(row: list[object]) -> Tally:
    return Tally(_number(row[0]), _number(row[1]), _number(row[2], 0, FIELD - 1))


def _doubt(row: list[object]) -> Doubt:
    first, records = _number(row[3], 0, 2**31 - 1), _number(row[4], 1, 2**31 - 1)
    return Doubt(_producer(row), first, records, _number(row[5], NO_WINDOW_MS))
