"""Barnabas: a distributed log for log and activity data, speaking Kafka's protocol.

    with barnabas.Producer("localhost:9092") as producer:
        producer.send("clicks", b"/jobs", key=b"member-42")

    with barnabas.Consumer("localhost:9092", group="ctr") as consumer:
        consumer.subscribe("clicks")
        for record in consumer:
            ...

What is named here is loaded when it is first used, so that `import barnabas` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from barnabas.client import (
        Admin,
        AsyncConsumer,
        AsyncProducer,
        ClusterDescription,
        ConfigSetting,
        ConfigSource,
        Consumer,
        Deliveries,
        Delivery,
        GroupDescription,
        GroupListing,
        LogDir,
        MemberDescription,
        MessageStream,
        PartitionDescription,
        Producer,
        TopicDescription,
    )
    from barnabas.errors import (
        BarnabasError,
        BufferFullError,
        ClosedError,
        ConfigurationError,
        CorruptBatchError,
        DisconnectedError,
        ErrorCode,
        FencedError,
        KafkaError,
        TimedOutError,
        UnsupportedVersionError,
    )
    from barnabas.model import (
        Node,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        TimestampType,
        TopicPartition,
    )
    from barnabas.records import Record

__version__ = "0.1.0"

_HOMES = {
    "barnabas.client": (
        "Admin",
        "AsyncConsumer",
        "AsyncProducer",
        "ClusterDescription",
        "ConfigSetting",
        "ConfigSource",
        "Consumer",
        "Deliveries",
        "Delivery",
        "GroupDescription",
        "GroupListing",
        "LogDir",
        "MemberDescription",
        "MessageStream",
        "PartitionDescription",
        "Producer",
        "TopicDescription",
    ),
    "barnabas.errors": (
        "BarnabasError",
        "BufferFullError",
        "ClosedError",
        "ConfigurationError",
        "CorruptBatchError",
        "DisconnectedError",
        "ErrorCode",
        "FencedError",
        "KafkaError",
        "TimedOutError",
        "UnsupportedVersionError",
    ),
    "barnabas.model": (
        "Node",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "RecordMetadata",
        "TimestampType",
        "TopicPartition",
    ),
    "barnabas.records": ("Record",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Admin",
    "AsyncConsumer",
    "AsyncProducer",
    "BarnabasError",
    "BufferFullError",
    "ClosedError",
    "ClusterDescription",
    "ConfigSetting",
    "ConfigSource",
    "ConfigurationError",
    "Consumer",
    "CorruptBatchError",
    "Deliveries",
    "Delivery",
    "DisconnectedError",
    "ErrorCode",
    "FencedError",
    "GroupDescription",
    "GroupListing",
    "KafkaError",
    "LogDir",
    "MemberDescription",
    "MessageStream",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionDescription",
    "Producer",
    "Record",
    "RecordMetadata",
    "TimedOutError",
    "TimestampType",
    "TopicDescription",
    "TopicPartition",
    "UnsupportedVersionError",
    "__version__",
]


def __getattr__(name: str) -> object:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
