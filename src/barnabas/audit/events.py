"""Monitoring events: the counts that a tier reports, as records of the topic `_audit`.

An event is cumulative: it counts all records of one window of one topic that an instance (one run of one producer) has
counted so far. The record key names the instance, the window, and the topic with its id, because a topic may be deleted
and created again. So a later event replaces an earlier one, a repeated event changes nothing, and compaction keeps the
last event. The events are JSON, so that any tool can read them.
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
"""Tier: records acknowledged to a producer."""
MIRRORED = "mirrored"
"""Tier: records that the target cluster acknowledged to a mirror. Their sequence numbers are source offsets."""
CONSUMED = "consumed"
"""Tier: records delivered to the application by a member of a group; the event's application is the group."""
LOADED = "loaded"
"""Tier: records in files that a load is about to commit to a table. The audit ignores the event until the load has
committed.
"""
COMMITTED = "committed"
"""Not a tier, but the marker of a committed load. The load has reported its account before; the marker uses the last
window of that account.
"""

NAME_CHARACTERS_MAX = 1_000
"""The maximum length in characters of a host, application or instance name."""

EVENT_BYTES = 400
"""The approximate size in bytes of an event without its rows."""
ROW_BYTES = 60
"""The approximate size in bytes of a row of numbers in an event."""

PARTS_MAX = 100_000
"""The maximum number of rows in each list of an event."""


class BadEventError(BarnabasError):
    """A record of the audit topic is not a monitoring event."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A batch that may or may not be stored: its producer received no response."""

    producer: Producer
    first: int
    records: int
    window_ms: int


class Reach(NamedTuple):
    """The range of offsets counted in a partition: source offsets for a mirror, consumed offsets for a consumer."""

    first: int
    """The offset of the first counted record."""
    next: int
    """The offset after the last counted record."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """The counts of mirrored records under their identities in the source cluster.

    :param topic, topic_id: name and hex id of the topic in the source.
    :param counted: the counts by producer in the source cluster.
    :param reached: for each source partition, the offsets whose records are counted in this window.
    """

    topic: str
    topic_id: str
    counted: dict[Producer, Tally] = field(default_factory=dict)
    reached: dict[int, Reach] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        return {
            "topic": self.topic,
            "topic_id": self.topic_id,
            "counted": [[*producer, *counted] for producer, counted in self.counted.items()],
            "reached": [[partition, *reach] for partition, reach in self.reached.items()],
        }


@dataclass(frozen=True, slots=True)
class MonitoringEvent:
    """The counts of one instance in one window of a topic.

    :param window_ms: start of the window in ms; `NO_WINDOW_MS` for records without a timestamp.
    :param number: grows with each event of the instance; an event replaces those with lower numbers.
    :param counted: the counts by producer id, epoch and partition.
    :param late: number of records acknowledged long after the end of the window.
    :param doubts: batches that may or may not be stored.
    :param is_last: True if the producer has closed and all its counts are reported.
    :param topic_id: the topic id in hex; empty if the brokers have no topic ids.
    :param offsets: the counts by partition with offsets as record numbers; only for tiers that know the offsets.
    :param upstream: the counts in the source cluster; only for mirrors.
    :param reached: the counted offsets of the window by partition; only for consumers.
    :param unknown: offset ranges, by partition, in which a consumer received records but could not report them. The
        ranges cover all windows, and earlier reports may contain some of these records.
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
        """The approximate size in bytes of the event's record."""
        rows = len(self.counted) + len(self.doubts) + len(self.offsets) + len(self.reached) + len(self.unknown)
        return EVENT_BYTES + ROW_BYTES * rows

    @property
    def key(self) -> bytes:
        """The key of the event's record."""
        return json.dumps([self.topic, self.tier, self.window_ms, self.instance, self.topic_id]).encode()

    def to_json(self) -> bytes:
        """Return the value of the event's record."""
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
        """Return the event in a record value.

        :raises BadEventError: the value is not a valid event.
        """
        try:
            fields = json.loads(value or b"")
        except (ValueError, RecursionError) as error:
            raise BadEventError(f"not a monitoring event: {error}") from None
        if not isinstance(fields, dict) or fields.get("version") != VERSION:
            raise BadEventError("the record is not a monitoring event of a known version")
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
        raise BadEventError("invalid monitoring event: upstream is not an object")
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
        raise BadEventError(
            f"invalid monitoring event: {name} is not a string of at most {NAME_CHARACTERS_MAX} characters"
        )
    try:
        value.encode()
    except UnicodeEncodeError:  # an escape sequence in JSON can encode one half of a surrogate pair
        raise BadEventError(f"invalid monitoring event: {name} is not valid Unicode") from None
    return value


def _number(value: object, least: int = 0, most: int = 2**63 - 1) -> int:
    if type(value) is not int or not least <= value <= most:
        raise BadEventError("invalid monitoring event: a number is missing or out of range")
    return value


def _width(value: object) -> int:
    width_ms = _number(value, 1, DAY_MS)
    if DAY_MS % width_ms:
        raise BadEventError(f"invalid monitoring event: a day is not a multiple of windows of {width_ms} ms")
    return width_ms


def _rows(fields: dict[str, Any], name: str, width: int) -> list[list[object]]:
    rows = fields.get(name)
    if not isinstance(rows, list) or len(rows) > PARTS_MAX:
        raise BadEventError(f"invalid monitoring event: {name} is not a list, or has more than {PARTS_MAX} rows")
    for row in rows:
        if not isinstance(row, list) or len(row) != width:
            raise BadEventError(f"invalid monitoring event: a row of {name} does not have {width} numbers")
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
