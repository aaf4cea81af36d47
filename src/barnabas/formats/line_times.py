"""The times of lines that are about to be sent: a log's own time becomes the timestamp of the record."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import ConfigurationError
from barnabas.formats.event_time import LINE, RECORD, EventTime, times_in_json, times_in_lines, times_of_column
from barnabas.formats.line_patterns import TIME_GROUP
from barnabas.formats.lines import LineDecoder
from barnabas.formats.times import TIME_TYPE
from barnabas.formats.value_format import JSON, LINES, decoder_of


@dataclass(frozen=True, slots=True)
class LineTimes:
    """Finds the times of lines. `decoder` is that of a pattern; without one, lines are JSON or any text."""

    event_time: EventTime
    decoder: LineDecoder | None = None

    @classmethod
    def of(cls, value_format: str, event_time: str | None, zone: str | None = None) -> LineTimes | None:
        """Return what finds times in lines of a format (`raw`, `json`, `lines:PATTERN`); None to use none.

        :param event_time: `record` for none, `line`, a field or group, or NAME:UNIT; None for the group `time` of a
            pattern, else for none.
        :param zone: the zone of times that name none: a name of the IANA database, or an offset as +02:00.
        :raises ConfigurationError: the two do not fit.
        """
        decoder = decoder_of(value_format)
        pattern = decoder if isinstance(decoder, LineDecoder) else None
        if event_time is None:
            has_time = pattern is not None and TIME_GROUP in pattern.pattern.groups
            event_time = TIME_GROUP if has_time else RECORD
        where = EventTime.parse(event_time).in_zone(zone)
        if where.source == RECORD:
            return None
        if where.field is not None and pattern is not None and where.field not in pattern.pattern.groups:
            groups = ", ".join(pattern.pattern.groups)
            raise ConfigurationError(f"event time: the pattern has no group {where.field!r}; it has {groups}")
        if where.field is not None and pattern is None and value_format != JSON:
            raise ConfigurationError(
                f"event time: {where.field!r} is a field of lines of {JSON} or {LINES}:PATTERN; say which (--format)"
            )
        return cls(where, pattern)

    def times_ms(self, lines: Sequence[bytes], now_ms: int) -> tuple[list[int], int]:
        """Return the time of each line in milliseconds, and how many lines have none; these have `now_ms`.

        >>> LineTimes(EventTime("line")).times_ms([b"2015-05-17T10:05:03Z started", b"  at main()"], 5)
        ([1431857103000, 5], 1)
        """
        values = pa.array(lines, pa.binary())
        near = pa.repeat(pa.scalar(now_ms * 1_000, pa.int64()).cast(TIME_TYPE), len(lines))
        milliseconds = pc.divide(self._times(values, near).cast(pa.int64()), 1_000)
        return milliseconds.fill_null(now_ms).to_pylist(), milliseconds.null_count

    def _times(self, values: pa.Array, near: pa.Array) -> pa.Array:
        if self.event_time.source == LINE:
            return times_in_lines(values, near, self.event_time.zone)
        if self.decoder is None:
            return times_in_json(values, self.event_time, near)[0]
        column = self.decoder.decode(values, {self.event_time.source: "string"}).columns[0]
        return times_of_column(column, near, self.event_time.unit, self.event_time.zone)
