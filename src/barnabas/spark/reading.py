"""Reads a range of offsets straight from the brokers; runs on Spark's executors and on the driver alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

from barnabas.client import Admin
from barnabas.client.config import AdminConfig
from barnabas.client.range_reader import RangeReader
from barnabas.records import Columns, read_columns
from barnabas.spark.planning import OffsetRange


def read_range(wanted: OffsetRange, bootstrap: str, client_options: Mapping[str, str]) -> Iterator[Columns]:
    """Yield the records of a range, one answer of the broker at a time, which bounds the memory.

    :param client_options: settings of the client, under Kafka's dotted names.
    :raises KafkaError: OFFSET_OUT_OF_RANGE where the log has no longer what is asked for, and others.
    :raises BarnabasError: no broker can be reached, or what it sent is damaged.
    """
    settings = {name.replace(".", "_"): value for name, value in client_options.items()}
    place = (wanted.topic, wanted.partition, wanted.start_offset, wanted.end_offset)
    with RangeReader(bootstrap, *place, **settings) as reader:
        for buffer in reader:
            yield read_columns(buffer, wanted.start_offset, wanted.end_offset)


def open_admin(bootstrap: str, client_options: Mapping[str, str]) -> Admin:
    """Return a client that answers what the planning asks, with those of the settings that it knows."""
    known = {field.name for field in dataclasses.fields(AdminConfig)}
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap}
    settings |= {name: value for name, value in client_options.items() if name.replace(".", "_") in known}
    return Admin(settings)
