"""Reads a range of offsets from the brokers, on executors and on the driver."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping

import pyarrow as pa

from barnabas.client.admin import Admin
from barnabas.client.config import AdminConfig, ClientConfig, ConsumerConfig, make_config
from barnabas.client.range_reader import RangeReader, RangeSource
from barnabas.errors import ApiError, BarnabasError, ErrorCode, TimedOutError
from barnabas.model import TopicPartition
from barnabas.records.arrow import ArrowReader
from barnabas.records.header import Buffer
from barnabas.spark.errors import DataLossError
from barnabas.spark.offset_ranges import OffsetRange

Settings = Mapping[str, str]
"""Settings of the client under Kafka's dotted names. Those that only matter to members of a group, or to a
reader without end, are accepted and have no effect."""

OnBatches = Callable[[Buffer], object]

REACHABLE_WITHIN_MS = 3_000

log = logging.getLogger(__name__)

_CLIENT_NAMES = frozenset(field.name for field in dataclasses.fields(ClientConfig))
_ADMIN_NAMES = frozenset(field.name for field in dataclasses.fields(AdminConfig))


def read_range(
    wanted: OffsetRange,
    bootstrap: str,
    settings: Settings,
    *,
    include_headers: bool = True,
    on_batches: OnBatches | None = None,
    connections: RangeConnections | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range in Arrow columns, one answer of the broker at a time, which bounds the memory.

    :param on_batches: called with the batches of an answer, before its records are yielded.
    :param connections: for ranges that are read one after the other; None: the range has its own.
    :raises ApiError: OFFSET_OUT_OF_RANGE where the log has no longer what is asked for, and others.
    :raises DataLossError: the log ends before the range does, and has done so for `default.api.timeout.ms`: a leader
        that is new may be short of its end for a moment, a topic that was made again is for ever.
    :raises BarnabasError: no broker can be reached, or what it sent is damaged.
    """
    kept = RangeConnections() if connections is None else connections
    place = (wanted.topic, wanted.partition, wanted.start_offset, wanted.end_offset)
    next_offset = wanted.start_offset
    try:
        with kept.reader(bootstrap, settings, place) as reader:
            columns = ArrowReader(include_headers=include_headers)
            for buffer in reader:
                next_offset = columns.read(
                    buffer, wanted.topic, wanted.partition, min_offset=next_offset, max_offset=wanted.end_offset
                )
                if on_batches is not None:
                    on_batches(buffer)
                yield columns.finish()
    except TimedOutError:
        _refuse_if_cut_off(wanted, next_offset, bootstrap, settings)
        raise
    finally:
        if connections is None:
            kept.close()


class RangeConnections:
    """The connections of ranges that are read one after the other, made when the first is. To be closed."""

    def __init__(self) -> None:
        self._source: RangeSource | None = None

    def reader(self, bootstrap: str, settings: Settings, place: tuple[str, int, int, int]) -> RangeReader:
        """Return a reader of a range: topic, partition, and the offsets where it begins and ends.

        :param settings: the same as for the ranges before.
        """
        checked = make_config(ConsumerConfig, bootstrap, _in_snake_case(settings))
        chosen = {name: getattr(checked, name) for name in _in_snake_case(settings)}
        if self._source is None:
            self._source = RangeSource(bootstrap, **{name: chosen[name] for name in chosen if name in _CLIENT_NAMES})
        size = {name: chosen[name] for name in chosen if name == "fetch_max_bytes"}
        return RangeReader(self._source, *place, **size)

    def close(self) -> None:
        """End them."""
        if self._source is not None:
            self._source.close()


def read_remaining(
    wanted: OffsetRange,
    bootstrap: str,
    settings: Settings,
    *,
    include_headers: bool = True,
    connections: RangeConnections | None = None,
) -> Iterator[pa.RecordBatch]:
    """Do as `read_range`, but pass over records that were deleted meanwhile, also with all of the topic.

    :raises BarnabasError: no broker can be reached, or what it sent is damaged.
    """
    left = wanted
    while left.count > 0:
        try:
            for records in read_range(
                left, bootstrap, settings, include_headers=include_headers, connections=connections
            ):
                yield records
                if len(records):
                    left = dataclasses.replace(left, start_offset=records.column("offset")[-1].as_py() + 1)
            start_offset = left.end_offset
        except DataLossError as error:
            log.warning("%s", error)
            return
        except ApiError as error:
            start_offset = _start_after(error, left, bootstrap, settings)
            log.warning("%s: offsets %d to %d are gone", wanted, left.start_offset, start_offset - 1)
        left = dataclasses.replace(left, start_offset=start_offset)


def _refuse_if_cut_off(wanted: OffsetRange, next_offset: int, bootstrap: str, settings: Settings) -> None:
    """Look whether a reader waited for records that will not come."""
    tp = wanted.topic_partition
    with open_admin(bootstrap, settings) as admin:
        try:
            end_offset = admin.end_offsets([tp])[tp]
        except BarnabasError:
            return  # then the reader's own error says it
    if end_offset <= next_offset:
        raise DataLossError(
            f"{wanted}: the log ends at {end_offset} now, and was read up to {next_offset}: the topic was deleted and "
            "made again, or a leader lost what was there"
        )


def _start_after(error: ApiError, left: OffsetRange, bootstrap: str, settings: Settings) -> int:
    """Return where what is left of a range begins, after its end where there is nothing.

    :raises ApiError: `error` itself, which is about something else.
    """
    gone = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
    if error.code in gone:
        return left.end_offset
    if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE:
        raise error
    tp = TopicPartition(left.topic, left.partition)
    with open_admin(bootstrap, settings) as admin:
        try:
            first = admin.beginning_offsets([tp])[tp]
        except ApiError as missing:
            if missing.code not in gone:
                raise
            return left.end_offset
    # Where the log begins before, it ends before: what was to be read was cut off.
    return min(first, left.end_offset) if first > left.start_offset else left.end_offset


def open_admin(bootstrap: str, settings: Settings) -> Admin:
    """Return a client that answers what the planning asks.

    :raises ConfigurationError: a setting does not exist, or has a value that it cannot have.
    """
    checked = make_config(ConsumerConfig, bootstrap, _in_snake_case(settings))
    return Admin(
        bootstrap, **{name: getattr(checked, name) for name in _in_snake_case(settings) if name in _ADMIN_NAMES}
    )


def _in_snake_case(settings: Settings) -> dict[str, str]:
    return {name.replace(".", "_"): value for name, value in settings.items()}


def check_reachable(bootstrap: str, settings: Settings) -> None:
    """Find out soon whether there are brokers at all.

    :param settings: of a client of any kind; those that only one kind has are for others to check.

    A broker that is up may take its time, an address at which nobody listens is told of at once. Whoever set
    `default.api.timeout.ms` decided otherwise.

    :raises TimedOutError: nobody listens at any of the addresses, or they do not exist.
    """
    if "default.api.timeout.ms" in settings:
        return
    of_all_clients = {name: value for name, value in _in_snake_case(settings).items() if name in _ADMIN_NAMES}
    patience = dict.fromkeys(("default_api_timeout_ms", "request_timeout_ms"), REACHABLE_WITHIN_MS)
    with Admin(bootstrap, **{**of_all_clients, **patience}) as admin:  # type: ignore[arg-type]
        try:
            admin.brokers()
        except TimedOutError as error:
            if error.reason:  # the operating system's: it was not a broker that is slow
                raise
