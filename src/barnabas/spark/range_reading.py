"""Reads offset ranges from the brokers, on executors and on the driver."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from barnabas.client.admin import Admin
from barnabas.client.config import ConsumerConfig, make_config, settings_of_all_clients
from barnabas.client.range_reader import RangeReader, RangeSource
from barnabas.errors import ApiError, BarnabasError, ErrorCode, TimedOutError
from barnabas.model import TopicPartition
from barnabas.records.arrow import ArrowReader
from barnabas.records.header import Buffer
from barnabas.spark.errors import DataLossError
from barnabas.spark.offset_ranges import OffsetRange

Settings = Mapping[str, str]
"""Client settings under Kafka's dotted names. Settings for group members have no effect on the read of a range."""

OnBatches = Callable[[Buffer], object]

REACHABLE_WITHIN_MS = 3_000

log = logging.getLogger(__name__)


def read_range(
    wanted: OffsetRange,
    bootstrap: str,
    settings: Settings,
    *,
    include_headers: bool = True,
    on_batches: OnBatches | None = None,
    connections: RangeConnections | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range as Arrow batches, one per fetch response. This limits the memory.

    :param on_batches: Called with the record batches of a response before its records are yielded.
    :param connections: Connections for several ranges, read one after the other; None opens own connections.
    :raises ApiError: The broker returned an error, for example OFFSET_OUT_OF_RANGE if the log lacks the offsets.
    :raises DataLossError: The log ended before the range for `default.api.timeout.ms`. A new leader may lag for a
        moment; a topic that was created again never reaches the range.
    :raises BarnabasError: No broker can be reached, or a response is damaged.
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
    """Connections for several ranges, read one after the other. The first range opens them. Call `close` at the end."""

    def __init__(self) -> None:
        self._source: RangeSource | None = None

    def reader(self, bootstrap: str, settings: Settings, place: tuple[str, int, int, int]) -> RangeReader:
        """Return a reader of a range.

        :param settings: Client settings, the same for all ranges.
        :param place: Topic, partition, start offset and end offset of the range.
        """
        checked = make_config(ConsumerConfig, bootstrap, _in_snake_case(settings))
        if self._source is None:
            self._source = RangeSource(settings_of_client(bootstrap, settings))
        size: dict[str, Any] = {}
        if "fetch_max_bytes" in _in_snake_case(settings):
            size = {"fetch_max_bytes": checked.fetch_max_bytes}
        return RangeReader(self._source, *place, **size)

    def close(self) -> None:
        """Close the connections."""
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
    """Yield the records of a range as `read_range` does, but skip records or topics that are deleted during the read.

    :raises BarnabasError: No broker can be reached, or a response is damaged.
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
            log.warning(
                "%s: offsets %d to %d were deleted; the query skips them", wanted, left.start_offset, start_offset - 1
            )
        left = dataclasses.replace(left, start_offset=start_offset)


def _refuse_if_cut_off(wanted: OffsetRange, next_offset: int, bootstrap: str, settings: Settings) -> None:
    """Raise `DataLossError` if a reader waited for offsets after the log end offset."""
    tp = wanted.topic_partition
    with open_admin(bootstrap, settings) as admin:
        try:
            end_offset = admin.end_offsets([tp])[tp]
        except BarnabasError:
            return  # no error here: the caller raises the reader's error
    if end_offset <= next_offset:
        raise DataLossError(
            f"{wanted}: the log end offset is {end_offset}, and the read reached {next_offset}: the topic was deleted "
            "and created again, or a leader lost records"
        )


def _start_after(error: ApiError, left: OffsetRange, bootstrap: str, settings: Settings) -> int:
    """Return the start of the rest of a range after an error; the end offset if no rest is left.

    :raises ApiError: `error` itself, if it has another cause than deleted records.
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
    # If the log starts before the range, the error means that the log ends before it: the rest was truncated.
    return min(first, left.end_offset) if first > left.start_offset else left.end_offset


def settings_of_client(bootstrap: str, settings: Settings) -> dict[str, object]:
    """Return the settings of any client of a load, without those that only consumers have.

    :param settings: Client settings under Kafka's dotted names.
    """
    return {**settings_of_all_clients(settings), "bootstrap.servers": bootstrap}


def open_admin(bootstrap: str, settings: Settings) -> Admin:
    """Return an admin client for planning.

    :raises ConfigurationError: A setting does not exist, or has an invalid value.
    """
    check_client_settings(bootstrap, settings)
    return Admin(settings_of_client(bootstrap, settings))


def check_client_settings(bootstrap: str, settings: Settings) -> None:
    """Check the settings of the clients of a load, without a connection.

    :raises ConfigurationError: A setting does not exist, or has an invalid value.
    """
    make_config(ConsumerConfig, bootstrap, _in_snake_case(settings))


def _in_snake_case(settings: Settings) -> dict[str, str]:
    return {name.replace(".", "_"): value for name, value in settings.items()}


def check_reachable(bootstrap: str, settings: Settings) -> None:
    """Raise an error early if no broker listens at the addresses.

    A refused connection raises an error at once; a broker that accepts a connection may respond slowly. A setting
    `default.api.timeout.ms` disables this check.

    :param settings: Settings of any kind of client. Settings of single kinds are not checked here.
    :raises TimedOutError: No broker listens at any of the addresses, or the host names do not exist.
    """
    if "default.api.timeout.ms" in settings:
        return
    patience = dict.fromkeys(("default_api_timeout_ms", "request_timeout_ms"), REACHABLE_WITHIN_MS)
    with Admin(settings_of_client(bootstrap, settings), **patience) as admin:  # type: ignore[arg-type]
        try:
            admin.brokers()
        except TimedOutError as error:
            if error.reason:  # the reason is an operating system error; a slow broker causes no such error
                raise
