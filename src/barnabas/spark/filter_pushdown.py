"""Filters of a query on `topic`, `partition`, `offset` and `timestamp`, and the offset ranges that remain to read.

Filters on the first three columns are exact, so Spark need not check them again. A filter on `timestamp` is not exact:
times in a log need not ascend. The broker's index gives the first record with at least the wanted time; no earlier
record can match, and Spark checks the later ones. So an upper bound of the time does not restrict the ranges.

`push_filters` reads Spark's filters (`pyspark.sql.datasource.Filter`), which must all hold. The rest is pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyspark.sql.datasource as spark_filters  # Spark 4.0 has no filters, and pushes none down
from pyspark.sql import SparkSession

from barnabas.model import TopicPartition
from barnabas.spark.columns import TIMESTAMP_MS_MAX
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.range_resolution import OffsetLookup
from barnabas.spark.worker_python import context_of

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter

NEVER_NULL = frozenset({"topic", "partition", "offset"})
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NUMBER_MAX = 2**63 - 1


@dataclass(frozen=True, slots=True)
class Interval:
    """Whole numbers from `least` to `greatest`, both included."""

    least: int = -NUMBER_MAX
    greatest: int = NUMBER_MAX

    def intersection(self, other: Interval) -> Interval:
        """Return the numbers in both intervals."""
        return Interval(max(self.least, other.least), min(self.greatest, other.greatest))

    def __contains__(self, number: int) -> bool:
        return self.least <= number <= self.greatest


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """Restrictions by filters on the records that a query's options select. A field with the value None restricts
    nothing.
    """

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_interval: Interval = Interval()
    offset_values: frozenset[int] | None = None
    offset_interval: Interval = Interval()
    timestamp_ms_min: int | None = None

    def selects(self, partition: TopicPartition) -> bool:
        """Return whether a partition can have records that match."""
        return (
            (self.topics is None or partition.topic in self.topics)
            and (self.partitions is None or partition.partition in self.partitions)
            and partition.partition in self.partition_interval
        )

    def restrict(self, wanted: OffsetRange, start_by_time: int | None) -> OffsetRange:
        """Return the part of a range that can have records that match.

        :param start_by_time: The first record with at least the smallest timestamp; None without such a filter.
        """
        least, greatest = self.offset_interval.least, self.offset_interval.greatest
        if self.offset_values is not None:
            chosen = [value for value in self.offset_values if value in self.offset_interval]
            least, greatest = min(chosen, default=0), max(chosen, default=-1)
        start = max(wanted.start_offset, least, start_by_time if start_by_time is not None else 0)
        end = min(wanted.end_offset, greatest + 1)
        start = min(start, wanted.end_offset)
        return replace(wanted, start_offset=start, end_offset=max(start, end))


def push_filters(filters: Iterable[Filter]) -> tuple[PushedFilters, list[Filter]]:
    """Return the restrictions of filters, and the filters that Spark still has to check.

    >>> push_filters([spark_filters.EqualTo(("partition",), 3)])[0].partitions
    frozenset({3})
    """
    narrowing, rest = PushedFilters(), []
    for each in filters:
        narrowed, is_exact = _push_one(narrowing, each)
        narrowing = narrowed
        if not is_exact:
            rest.append(each)
    return narrowing, rest


def restrict_ranges(ranges: Iterable[OffsetRange], narrowing: PushedFilters, lookup: OffsetLookup) -> list[OffsetRange]:
    """Return the parts of ranges that can have records that match. Only a filter on time needs a request to the
    brokers."""
    wanted = [each for each in ranges if narrowing.selects(each.topic_partition)]
    starts: dict[TopicPartition, int] = {}
    if narrowing.timestamp_ms_min is not None and wanted:
        times = {(each.topic, each.partition): narrowing.timestamp_ms_min for each in wanted}
        found = lookup.offsets_for_times(times)
        # If a partition has no record with this timestamp or a later one, no record matches.
        starts = {tp: NUMBER_MAX if at is None else at.offset for tp, at in found.items()}
    return [narrowing.restrict(each, starts.get(each.topic_partition)) for each in wanted]


def _push_one(narrowing: PushedFilters, condition: Filter) -> tuple[PushedFilters, bool]:
    """Return the restrictions with one more filter, and True if Spark need not evaluate this filter again."""
    path: Sequence[str] = getattr(condition, "attribute", ())
    column = path[0].lower() if len(path) == 1 else ""
    if isinstance(condition, spark_filters.IsNotNull):
        return narrowing, column in NEVER_NULL
    restrict = _COLUMNS.get(column)
    return (narrowing, False) if restrict is None else restrict(narrowing, condition)


def _push_topic(narrowing: PushedFilters, condition: Filter) -> tuple[PushedFilters, bool]:
    values = _values(condition, str)
    if values is None:
        return narrowing, False
    return replace(narrowing, topics=_both(narrowing.topics, values)), True


def _push_partition(narrowing: PushedFilters, condition: Filter) -> tuple[PushedFilters, bool]:
    values, interval = _values(condition, int), _interval(condition)
    if values is not None:
        return replace(narrowing, partitions=_both(narrowing.partitions, values)), True
    if interval is not None:
        return replace(narrowing, partition_interval=narrowing.partition_interval.intersection(interval)), True
    return narrowing, False


def _push_offset(narrowing: PushedFilters, condition: Filter) -> tuple[PushedFilters, bool]:
    values, interval = _values(condition, int), _interval(condition)
    if values is not None:
        # The range from the smallest to the largest value may have other offsets, which Spark has to filter out.
        wanted = _both(narrowing.offset_values, values)
        return replace(narrowing, offset_values=wanted), len(values) <= 1
    if interval is not None:
        return replace(narrowing, offset_interval=narrowing.offset_interval.intersection(interval)), True
    return narrowing, False


def _push_timestamp(narrowing: PushedFilters, condition: Filter) -> tuple[PushedFilters, bool]:
    values = condition.value if isinstance(condition, spark_filters.In) else (getattr(condition, "value", None),)
    times = [_microseconds(value) for value in values if value is not None]
    known = [time for time in times if time is not None]
    if not known or len(known) < len(times):
        return narrowing, False
    if isinstance(condition, spark_filters.GreaterThan):
        least_ms = min(known) // 1000 + 1
    elif isinstance(
        condition,
        spark_filters.EqualTo | spark_filters.EqualNullSafe | spark_filters.In | spark_filters.GreaterThanOrEqual,
    ):
        least_ms = -(-min(known) // 1000)
    else:
        return narrowing, False
    # Times before 1970 restrict nothing: negative timestamps are special values in the protocol.
    if 0 < least_ms <= TIMESTAMP_MS_MAX:
        narrowing = replace(narrowing, timestamp_ms_min=max(least_ms, narrowing.timestamp_ms_min or 0))
    return narrowing, False


_COLUMNS: dict[str, Callable[[PushedFilters, Filter], tuple[PushedFilters, bool]]] = {
    "topic": _push_topic,
    "partition": _push_partition,
    "offset": _push_offset,
    "timestamp": _push_timestamp,
}


def _values(condition: Filter, kind: type) -> frozenset[Any] | None:
    """Return the values of an equality or IN filter; None for other filters and for values that contain null."""
    if isinstance(condition, (spark_filters.EqualTo, spark_filters.EqualNullSafe)):
        given: Iterable[Any] = (condition.value,)
    elif isinstance(condition, spark_filters.In):
        given = condition.value
    else:
        return None
    values = [value for value in given if value is not None]
    return frozenset(values) if all(type(value) is kind for value in values) else None


def _interval(condition: Filter) -> Interval | None:
    value = getattr(condition, "value", None)
    if type(value) is not int:
        return None
    match condition:
        case spark_filters.GreaterThan():
            return Interval(least=value + 1)
        case spark_filters.GreaterThanOrEqual():
            return Interval(least=value)
        case spark_filters.LessThan():
            return Interval(greatest=value - 1)
        case spark_filters.LessThanOrEqual():
            return Interval(greatest=value)
    return None


def _both(known: frozenset[Any] | None, values: frozenset[Any]) -> frozenset[Any]:
    return values if known is None else known & values


def _microseconds(value: Any) -> int | None:
    """Return a time with a time zone as microseconds since 1970; None for other values."""
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    return (value - EPOCH) // timedelta(microseconds=1)


_SCAN_BUILDER = "org.apache.spark.sql.execution.datasources.v2.python.PythonScanBuilder"
_KEPT_IN = "readInfo"


def supports_filter_pushdown(spark: SparkSession) -> bool:
    """Return whether this version of Spark makes a separate plan for each scan of a frame.

    With Spark Connect the result is False.

    Spark 4.2 and 4.3 keep one plan of a Python data source for all queries on the frame of one `load()`. After
    `frame.where("partition = 1")`, `frame.count()` counts one partition. A union of two such filters returns the rows
    of one of them twice. Later releases keep a plan per scan. Without it, pushing filters down would return wrong rows.
    """
    context = context_of(spark)
    jvm = None if context is None else context._jvm
    if jvm is None:
        return False
    fields = jvm.java.lang.Class.forName(_SCAN_BUILDER).getDeclaredFields()
    return any(field.getName().endswith(_KEPT_IN) for field in fields)
