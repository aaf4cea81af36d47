"""The parser of event times: texts in common notations, and numbers of seconds, milli-, micro- or nanoseconds.

    2015-05-17T10:05:03.123+02:00   ISO 8601 (also with a space, a comma, without seconds, as a date or in basic form),
                                    and syslog's notation of RFC 5424
    2009/01/01 19:45:44             nginx's error log
    17/May/2015:10:05:03 +0000      common and combined log format
    Oct 11 22:14:15                 syslog's notation of RFC 3164, without a year: the parser chooses the last year in
                                    which the time is not after the record's timestamp
    Sun, 06 Nov 1994 08:49:37 GMT   RFC 5322, HTTP
    Wed Oct 11 14:32:52.123 2000    C's asctime, Apache's error log
    1431857103.5                    a number (see `from_numbers`); without a unit only with 10, 13, 16 or 19 digits
                                    before the point, the lengths of seconds to nanoseconds from 2001 to 2286

An offset from UTC has at most 23 hours and 59 minutes (RFC 3339). A text without a time zone has the zone that the
caller passes, else UTC. A text in another notation, or with an invalid date (February 30), is null. So are times
outside of the years 2 to 9998, which not every table reader supports. Digits below a microsecond are dropped.

The regular expressions run in RE2, in linear time.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.errors import ConfigurationError

TimeUnit = Literal["s", "ms", "us", "ns"]
UNITS: tuple[TimeUnit, ...] = get_args(TimeUnit)

TIME_TYPE = pa.timestamp("us", tz="UTC")
TIME_US_MIN = -62_104_060_800_000_000
"""0002-01-01 00:00:00 UTC."""
TIME_US_MAX = 253_370_764_799_999_999
"""9998-12-31 23:59:59.999999 UTC."""

AHEAD_US_MAX = 14 * 3_600_000_000
"""A time without year and zone may be later than its record's timestamp by at most this many microseconds: the largest
offset from UTC.
"""
AHEAD_IN_ZONE_US_MAX = 3_600_000_000
"""A time in a known time zone, but without a year, may be later than its record's timestamp by at most this many
microseconds. This allows for differences between clocks.
"""
LEAP_DAY_YEARS_MAX = 8
"""The number of years to search backward for a February 29. The longest period without one was from 1897 to 1903."""

_MONTHS = pa.array(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"])
_CLOCK = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d"
_FRACTION = r"(?:[.,](?P<fraction>\d{1,9})\d*)?"
_OFFSET_HOURS = r"[-+](?:[01]\d|2[0-3])"
_ZONE = rf" ?(?P<zone>Z|z|UTC|GMT|{_OFFSET_HOURS}:?[0-5]\d|{_OFFSET_HOURS})"
_NAME_OF_DAY = r"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)"
_NAME_OF_MONTH = r"(?P<month>Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_US_IN: Mapping[TimeUnit, int] = {"s": 1_000_000, "ms": 1_000, "us": 1}
_SECONDS_BELOW, _MILLISECONDS_BELOW, _MICROSECONDS_BELOW = 10**11, 10**14, 10**17


@dataclass(frozen=True, slots=True)
class TimeForm:
    """A notation of times: a regular expression with some of the groups year, month, day, clock, fraction and zone."""

    name: str
    expression: str


FORMS = (
    TimeForm(
        "ISO 8601",
        rf"(?P<year>\d{{4}})[-/](?P<month>\d{{2}})[-/](?P<day>\d{{2}})"
        rf"(?:[Tt ](?P<clock>{_CLOCK}|(?:[01]\d|2[0-3]):[0-5]\d){_FRACTION}(?:{_ZONE})?)?",
    ),
    TimeForm("log", rf"(?P<day>\d{{2}})/{_NAME_OF_MONTH}/(?P<year>\d{{4}}):(?P<clock>{_CLOCK}){_ZONE}"),
    TimeForm("syslog", rf"{_NAME_OF_MONTH} {{1,2}}(?P<day>\d{{1,2}}) (?P<clock>{_CLOCK}){_FRACTION}"),
    TimeForm(
        "RFC 5322",
        rf"(?:{_NAME_OF_DAY}, )?(?P<day>\d{{1,2}}) {_NAME_OF_MONTH} (?P<year>\d{{4}}) (?P<clock>{_CLOCK}){_ZONE}",
    ),
    TimeForm(
        "asctime",
        rf"{_NAME_OF_DAY} {_NAME_OF_MONTH} {{1,2}}(?P<day>\d{{1,2}}) (?P<clock>{_CLOCK}){_FRACTION} (?P<year>\d{{4}})",
    ),
    TimeForm(
        "basic ISO 8601",
        rf"(?P<year>\d{{4}})(?P<month>\d{{2}})(?P<day>\d{{2}})[Tt]"
        rf"(?P<hour>[01]\d|2[0-3])(?P<minute>[0-5]\d)(?P<second>[0-5]\d){_FRACTION}(?:{_ZONE})?",
    ),
)
"""The notations in the order in which they are tried."""

_FRACTION_OF_NUMBER = r"(?:\.(?P<fraction>\d{1,9})\d*)?"
_NUMBER = rf"^(?P<whole>-?\d{{1,18}}|-?[1-8]\d{{18}}){_FRACTION_OF_NUMBER}$"
_NUMBER_WITHOUT_UNIT = (
    rf"^(?P<whole>-?(?:[1-9]\d{{9}}|[1-9]\d{{12}}|[1-9]\d{{15}}|[1-8]\d{{18}})){_FRACTION_OF_NUMBER}$"
)
"""A number without a unit. Its length distinguishes it from dates without separators (20240630, 20240630120000)."""
_BRACKETED = r"^\[([^\[\]]*)\]$"


def from_texts(
    texts: pa.Array, near: pa.Array | None = None, unit: TimeUnit | None = None, zone: str | None = None
) -> pa.Array:
    """Parse the times in texts.

    :param texts: strings. Surrounding whitespace is ignored, and so are brackets, except around a number.
    :param near: one time per text (`TIME_TYPE`, may be null), from which a text without a year gets its year. If it is
        missing, such a text becomes null.
    :param unit: the unit of numbers; None to derive it from the number of digits.
    :param zone: the time zone of texts without a zone, as `checked_zone` returns it; None for UTC.
    :returns: times of `TIME_TYPE`; null for a text that is not a time.

    >>> from_texts(pa.array(["2015-05-17T12:05:03+02:00", "17/May/2015:10:05:03 +0000", "1431857103"])).unique()
    <pyarrow.lib.TimestampArray object at ...>
    [
      2015-05-17 10:05:03.000000Z
    ]
    """
    trimmed = pc.utf8_trim(texts, " \t\r\n")
    if near is None:
        near = pa.nulls(len(texts), TIME_TYPE)
    times = _numbers_in(trimmed, unit)
    # Remove brackets around times such as `[17/May/2015:10:05:03 +0000]`, but not around a number: `[1]` is a list.
    trimmed = pc.replace_substring_regex(trimmed, _BRACKETED, r"\1")
    for form in FORMS:
        left = pc.and_(pc.is_null(times), pc.is_valid(trimmed))
        if not left.true_count:
            break
        found = _in_form(trimmed.filter(left), near.filter(left), form, zone)
        if found.null_count < len(found):
            times = pc.replace_with_mask(times, left, found)
    return times


def from_numbers(numbers: pa.Array, unit: TimeUnit | None = None) -> pa.Array:
    """Convert numbers since 1970 to times.

    :param numbers: integers or floats.
    :param unit: the unit; None to derive it from the size: below 10^11 seconds (to the year 5138), below 10^14
        milliseconds, below 10^17 microseconds, else nanoseconds.
    :returns: times of `TIME_TYPE`; null for a number outside of the years 2 to 9998.

    >>> from_numbers(pa.array([1431857103, 1431857103000, 1431857103000000, 1431857103000000000])).unique()
    <pyarrow.lib.TimestampArray object at ...>
    [
      2015-05-17 10:05:03.000000Z
    ]
    """
    if pa.types.is_floating(numbers.type):
        return _from_floats(numbers.cast(pa.float64()), unit)
    if pa.types.is_uint64(numbers.type):
        numbers = pc.if_else(
            pc.less_equal(numbers, pa.scalar(2**63 - 1, numbers.type)), numbers, pa.scalar(None, numbers.type)
        )
    whole = numbers.cast(pa.int64())
    if unit == "ns":
        return _in_calendar(_rounded_down(whole, 1_000))
    if unit is not None:
        return _scaled(whole, _US_IN[unit])
    return _by_size(whole)


def from_dates_and_times(column: pa.Array) -> pa.Array:
    """Convert dates, or timestamps of any unit with or without a zone, to times.

    :returns: times of `TIME_TYPE`; null for a time outside of the years 2 to 9998.
    """
    if pa.types.is_date32(column.type):
        return _scaled(column.cast(pa.int32()).cast(pa.int64()), 86_400_000_000)
    whole = column.cast(pa.int64())
    if column.type.unit == "ns":
        return _in_calendar(_rounded_down(whole, 1_000))
    return _scaled(whole, _US_IN[column.type.unit])


def _by_size(numbers: pa.Array) -> pa.Array:
    if numbers.null_count == len(numbers):
        return pa.nulls(len(numbers), TIME_TYPE)
    bounds = pc.min_max(numbers)
    least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    if least > -_SECONDS_BELOW and greatest < _SECONDS_BELOW:
        return _scaled(numbers, 1_000_000)
    if least >= _SECONDS_BELOW and greatest < _MILLISECONDS_BELOW:
        return _scaled(numbers, 1_000)
    nanoseconds = _in_calendar(_rounded_down(numbers, 1_000))
    times = pc.if_else(_is_within(numbers, _MICROSECONDS_BELOW), _scaled(numbers, 1), nanoseconds)
    times = pc.if_else(_is_within(numbers, _MILLISECONDS_BELOW), _scaled(numbers, 1_000), times)
    return pc.if_else(_is_within(numbers, _SECONDS_BELOW), _scaled(numbers, 1_000_000), times)


def _from_floats(numbers: pa.Array, unit: TimeUnit | None) -> pa.Array:
    if unit is None:
        size = pc.abs(numbers)
        factor = pc.if_else(pc.less(size, float(_MICROSECONDS_BELOW)), 1.0, 1e-3)
        factor = pc.if_else(pc.less(size, float(_MILLISECONDS_BELOW)), 1e3, factor)
        factor = pc.if_else(pc.less(size, float(_SECONDS_BELOW)), 1e6, factor)
    else:
        factor = pa.scalar(1e-3 if unit == "ns" else float(_US_IN[unit]))
    microseconds = pc.round(pc.multiply(numbers, factor))
    fits = pc.and_(
        pc.greater_equal(microseconds, float(TIME_US_MIN)), pc.less_equal(microseconds, float(TIME_US_MAX))
    )  # false for NaN
    return _in_calendar(pc.if_else(fits, microseconds, pa.scalar(None, pa.float64())).cast(pa.int64()))


def _is_within(numbers: pa.Array, bound: int) -> pa.Array:
    return pc.and_(pc.greater(numbers, -bound), pc.less(numbers, bound))


def _rounded_down(numbers: pa.Array, by: int) -> pa.Array:
    quotient = pc.divide(numbers, by)
    cut_up = pc.and_(pc.less(numbers, 0), pc.not_equal(pc.multiply(quotient, by), numbers))
    return pc.if_else(cut_up, pc.subtract(quotient, 1), quotient)


def _scaled(numbers: pa.Array, factor: int) -> pa.Array:
    least, greatest = -(-TIME_US_MIN // factor), TIME_US_MAX // factor
    fits = pc.and_(pc.greater_equal(numbers, least), pc.less_equal(numbers, greatest))
    kept = numbers if pc.all(fits).as_py() else pc.if_else(fits, numbers, pa.scalar(None, pa.int64()))
    return pc.multiply(kept, factor).cast(TIME_TYPE)


def _in_calendar(microseconds: pa.Array) -> pa.Array:
    return _scaled(microseconds, 1)


def _numbers_in(texts: pa.Array, unit: TimeUnit | None) -> pa.Array:
    parts = pc.extract_regex(texts, _NUMBER_WITHOUT_UNIT if unit is None else _NUMBER)
    if parts.null_count == len(parts):
        return pa.nulls(len(texts), TIME_TYPE)
    whole, fraction = parts.field("whole"), parts.field("fraction")
    numbers = pc.if_else(parts.is_valid(), whole, pa.scalar(None, pa.string())).cast(pa.int64())
    times = from_numbers(numbers, unit)
    has_fraction = pc.and_kleene(parts.is_valid(), pc.not_equal(fraction, "")).fill_null(False)
    if not has_fraction.true_count:
        return times
    exact = pc.if_else(has_fraction, texts, pa.scalar(None, pa.string())).cast(pa.float64())
    return pc.if_else(has_fraction, from_numbers(exact, unit), times)


def _in_form(texts: pa.Array, near: pa.Array, form: TimeForm, zone: str | None) -> pa.Array:
    parts = pc.extract_regex(texts, f"^(?:{form.expression})$")
    if parts.null_count == len(parts):
        return pa.nulls(len(texts), TIME_TYPE)
    rows = parts.is_valid()
    found = _time_of(parts.filter(rows), near.filter(rows), zone)
    if len(found) == len(texts):
        return found
    return pc.replace_with_mask(pa.nulls(len(texts), TIME_TYPE), rows, found)


def _time_of(parts: pa.StructArray, near: pa.Array, zone: str | None) -> pa.Array:
    """Combine the parsed parts of times (year, month, day and so on) to times. All parts must be valid."""
    names = {field.name for field in parts.type}
    month, day = parts.field("month"), pc.utf8_lpad(parts.field("day"), 2, "0")
    if "hour" in names:
        clock = pc.binary_join_element_wise(parts.field("hour"), parts.field("minute"), parts.field("second"), ":")
    else:
        clock = parts.field("clock")
        clock = pc.if_else(pc.equal(clock, ""), "00:00", clock)
        clock = pc.if_else(pc.equal(pc.binary_length(clock), 5), pc.binary_join_element_wise(clock, "00", ":"), clock)
    if len(parts) and not month[0].as_py().isdigit():
        month = pc.utf8_lpad(pc.add(pc.index_in(month, _MONTHS), 1).cast(pa.string()), 2, "0")
    if "fraction" in names:
        digits = pc.utf8_rpad(parts.field("fraction"), 6, "0")
        clock = pc.binary_join_element_wise(clock, pc.utf8_slice_codeunits(digits, 0, 6), ".")
    if "year" not in names:
        return _in_last_year(month, day, clock, near, zone)
    microseconds = _microseconds(parts.field("year"), month, day, clock)
    local = microseconds if zone is None else _local_us(microseconds, zone)
    if "zone" in names:
        has_zone = pc.not_equal(parts.field("zone"), "")
        microseconds = pc.subtract(microseconds, _offset_us(parts.field("zone")))
        microseconds = pc.if_else(has_zone, microseconds, local)
    else:
        microseconds = local
    return _in_calendar(microseconds)


def _microseconds(year: pa.Array, month: pa.Array, day: pa.Array, clock: pa.Array) -> pa.Array:
    """Return microseconds since 1970; null for an invalid date."""
    texts = pc.binary_join_element_wise(pc.binary_join_element_wise(year, month, day, "-"), clock, "T")
    wanted = pa.timestamp("us")
    try:
        return texts.cast(wanted).cast(pa.int64())
    except pa.ArrowInvalid:
        return pa.concat_arrays([_one(text, wanted) for text in texts]).cast(pa.int64())


def _one(text: pa.Scalar, wanted: pa.DataType) -> pa.Array:
    try:
        return pa.array([text.as_py()], pa.string()).cast(wanted)
    except pa.ArrowInvalid:
        return pa.nulls(1, wanted)


def _in_last_year(month: pa.Array, day: pa.Array, clock: pa.Array, near: pa.Array, zone: str | None) -> pa.Array:
    """Return each time in the last year in which it is not after `near`, because a log line is older than its record.

    A time may still be slightly after `near` because of a fast clock or an unknown time zone.
    """
    ahead_us = AHEAD_US_MAX if zone is None else AHEAD_IN_ZONE_US_MAX
    latest_us = pc.add(near.cast(pa.int64()), ahead_us)
    found = pa.nulls(len(near), pa.int64())
    for years in range(1, -LEAP_DAY_YEARS_MAX - 1, -1):
        year = pc.add(pc.year(near), years)
        sane = pc.and_(pc.greater_equal(year, 2), pc.less_equal(year, 9998))
        text = pc.utf8_lpad(pc.if_else(sane, year, pa.scalar(None, pa.int64())).cast(pa.string()), 4, "0")
        made = _microseconds(text, month, day, clock)
        made = made if zone is None else _local_us(made, zone)
        fits = pc.and_(pc.is_null(found), pc.less_equal(made, latest_us)).fill_null(False)
        found = pc.if_else(fits, made, found)
        if not pc.and_(pc.is_null(found), pc.is_valid(near)).true_count:
            break
    return _in_calendar(found)


def checked_zone(zone: str) -> str:
    """Return the zone in Arrow's notation.

    :raises ConfigurationError: if the zone does not exist.

    >>> checked_zone("Europe/Berlin"), checked_zone("+0200"), checked_zone("Z")
    ('Europe/Berlin', '+02:00', 'UTC')
    """
    offset = re.fullmatch(r"([-+])(\d{2}):?(\d{2})?", zone)
    name = f"{offset[1]}{offset[2]}:{offset[3] or '00'}" if offset else "UTC" if zone in ("Z", "z") else zone
    try:
        _local_us(pa.array([0], pa.int64()), name)
    except (pa.ArrowException, ValueError) as error:
        raise ConfigurationError(
            f"time zone: {zone!r} is not in the time zone database of this machine; use a name such as Europe/Berlin, "
            "or an offset such as +02:00"
        ) from error
    return name


def _local_us(microseconds: pa.Array, zone: str) -> pa.Array:
    """Convert microseconds of local time in a zone to UTC. A time that occurs twice, at the end of daylight saving
    time, is taken as the first one.
    """
    local = microseconds.cast(pa.timestamp("us"))
    return pc.assume_timezone(local, zone, ambiguous="earliest", nonexistent="latest").cast(pa.int64())


def _offset_us(zone: pa.Array) -> pa.Array:
    """Return the offsets of zones (`+02:00`, `-0530`, `+02`, `Z`, or nothing) from UTC, in microseconds."""
    parts = pc.extract_regex(zone, r"^(?P<sign>[-+])(?P<hours>\d{2}):?(?P<minutes>\d{0,2})$")
    if parts.null_count == len(parts):
        return pa.repeat(pa.scalar(0, pa.int64()), len(zone))
    digits = [pc.if_else(parts.is_valid(), parts.field(name), "0") for name in ("hours", "minutes")]
    hours, minutes = (pc.if_else(pc.equal(each, ""), "0", each).cast(pa.int64()) for each in digits)
    ahead = pc.multiply(pc.add(pc.multiply(hours, 60), minutes), 60_000_000)
    is_behind = pc.and_(parts.is_valid(), pc.equal(parts.field("sign"), "-"))
    return pc.if_else(is_behind, pc.negate(ahead), ahead)
