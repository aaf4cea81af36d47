"""The times of log lines that are sent as records. The time in a line becomes the timestamp of the record."""

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
    """A finder of the times in lines.

    :param event_time: the source of the times.
    :param decoder: the decoder of a pattern; None if the lines are JSON or arbitrary text.
    """

    event_time: EventTime
    decoder: LineDecoder | None = None

    @classmethod
    def of(cls, value_format: str, event_time: str | None, zone: str | None = None) -> LineTimes | None:
        """Return the object that finds the event times of lines in a format, or None if lines have no event time.

        :param value_format: `raw`, `json` or `lines:PATTERN`.
        :param event_time: `line`, the name of a field or group, NAME:UNIT, or `record` if lines have no event time.
            None selects the group `time` if the pattern has one, else no times.
        :param zone: the time zone of times without a zone: a name of the IANA database, or an offset such as +02:00.
        :raises ConfigurationError: if format and event time do not match.
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
                f"event time: {where.field!r} is a field; set the format of the lines (--format) to {JSON} or "
                f"{LINES}:PATTERN"
            )
        return cls(where, pattern)

    def times_ms(self, lines: Sequence[bytes], now_ms: int) -> tuple[list[int], int]:
        """Return the time of each line in milliseconds, and the number of lines without a time. Lines without a time
        get `now_ms`.

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
