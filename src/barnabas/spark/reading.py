"""Reads a range of offsets straight from the brokers; runs on Spark's executors and on the driver alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping

import pyarrow as pa

from barnabas.client.admin import Admin
from barnabas.client.config import AdminConfig, ClientConfig, ConsumerConfig, make_config
from barnabas.client.range_reader import RangeReader
from barnabas.records.arrow import ArrowReader
from barnabas.spark.planning import OffsetRange

Settings = Mapping[str, str]
"""Settings of the client under Kafka's dotted names. Those that only matter to members of a group, or to a
reader without end, are accepted and have no effect."""

_RANGE_READER_NAMES = frozenset({"fetch_max_bytes"}) | {field.name for field in dataclasses.fields(ClientConfig)}
_ADMIN_NAMES = frozenset(field.name for field in dataclasses.fields(AdminConfig))


def read_range(
    wanted: OffsetRange, bootstrap: str, settings: Settings, *, include_headers: bool = True
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range in Arrow columns, one answer of the broker at a time, which bounds the memory.

    :raises KafkaError: OFFSET_OUT_OF_RANGE where the log has no longer what is asked for, and others.
    :raises BarnabasError: no broker can be reached, or what it sent is damaged.
    """
    checked = make_config(ConsumerConfig, bootstrap, _in_snake_case(settings))
    chosen = {name: getattr(checked, name) for name in _in_snake_case(settings) if name in _RANGE_READER_NAMES}
    place = (wanted.topic, wanted.partition, wanted.start_offset, wanted.end_offset)
    with RangeReader(bootstrap, *place, **chosen) as reader:
        columns = ArrowReader(include_headers=include_headers)
        next_offset = wanted.start_offset
        for buffer in reader:
            next_offset = columns.read(
                buffer, wanted.topic, wanted.partition, min_offset=next_offset, max_offset=wanted.end_offset
            )
            yield columns.finish()


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
