"""Barnabas: a distributed log for log and activity data that speaks Kafka's protocol.

    with barnabas.Producer("localhost:9092") as producer:
        producer.send("clicks", b"/jobs", key=b"member-42")

    with barnabas.Consumer("localhost:9092", group="ctr") as consumer:
        consumer.subscribe("clicks")
        for record in consumer:
            ...

The first use of a name imports the module of that name, so `import barnabas` takes little time. Type checkers read
`__init__.pyi`; a test compares its names with the names in this module.
"""

from __future__ import annotations

import importlib

__version__ = "0.2.0.dev0"

_NAMES_IN = {
    "barnabas.client.admin": ("Admin", "AsyncAdmin"),
    "barnabas.client.admin.brokers": ("ClusterDescription", "LogDir"),
    "barnabas.client.admin.configs": ("ConfigSetting", "ConfigSource"),
    "barnabas.client.admin.groups": ("GroupDescription", "GroupListing", "MemberDescription"),
    "barnabas.client.admin.quotas": ("ClientQuota",),
    "barnabas.client.admin.reassignments": ("Reassignment",),
    "barnabas.client.admin.share_groups": (
        "DeliveredRange",
        "DeliveryState",
        "ShareGroupDescription",
        "ShareGroupMember",
        "ShareGroupOffset",
    ),
    "barnabas.client.admin.topics": ("PartitionDescription", "TopicDescription"),
    "barnabas.client.admin.transactions": ("ProducerDescription", "TransactionDescription", "TransactionListing"),
    "barnabas.client.admin.users": ("ScramCredentialInfo", "UserDescription"),
    "barnabas.client.consumer.async_consumer": ("AsyncConsumer",),
    "barnabas.client.consumer.consumer": ("Consumer",),
    "barnabas.client.interceptors": (
        "ClientContext",
        "ConsumerInterceptor",
        "FetchedBatch",
        "ProducerInterceptor",
        "ProducerRecord",
        "SendBatch",
        "SentBatch",
    ),
    "barnabas.client.producer.async_producer": ("AsyncProducer",),
    "barnabas.client.producer.delivery": ("Deliveries", "Delivery"),
    "barnabas.client.producer.producer": ("Producer",),
    "barnabas.client.consumer.message_streams": ("MessageStream",),
    "barnabas.client.tracing": ("ConsumerTracing", "ProducerTracing", "process_span"),
    "barnabas.errors": (
        "AuthenticationError",
        "BarnabasError",
        "BufferFullError",
        "ClosedError",
        "ConfigurationError",
        "CorruptBatchError",
        "DeserializationError",
        "DisconnectedError",
        "ErrorCode",
        "FencedError",
        "ApiError",
        "SchemaRegistryError",
        "SerializationError",
        "TimedOutError",
        "UnsupportedVersionError",
    ),
    "barnabas.model": (
        "Node",
        "OffsetAndMetadata",
        "OffsetAndTimestamp",
        "RecordHeader",
        "RecordMetadata",
        "TimestampType",
        "TopicPartition",
    ),
    "barnabas.records": ("Record",),
    "barnabas.security.acls": (
        "AclBinding",
        "AclEntry",
        "AclFilter",
        "Operation",
        "PatternType",
        "Permission",
        "ResourcePattern",
        "ResourceType",
    ),
    "barnabas.serialization.avro": ("AvroDeserializer", "AvroSerializer"),
    "barnabas.serialization.json_schema": ("JsonDeserializer", "JsonSerializer"),
    "barnabas.serialization.protobuf": ("ProtobufDeserializer", "ProtobufSerializer"),
    "barnabas.serialization.registry_client": ("Schema", "SchemaReference", "SchemaRegistry"),
}
_MODULE_OF = {name: module for module, names in _NAMES_IN.items() for name in names}


def _names() -> list[str]:
    """Return the public names, without names of an extra that is not installed: `import *` would fail for them."""
    from importlib.util import find_spec  # noqa: PLC0415 - slow to import, and only needed to list the names

    hidden = () if find_spec("opentelemetry") else _NAMES_IN["barnabas.client.tracing"]
    return [*(name for name in _MODULE_OF if name not in hidden), "__version__"]


def __getattr__(name: str) -> object:
    if name == "__all__":
        return _names()
    if name not in _MODULE_OF:
        errors = importlib.import_module("barnabas.errors")
        if name in errors.RENAMED:
            errors.warn_of_old_name(__name__, name)
            return getattr(errors, errors.RENAMED[name])
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULE_OF[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(_names())
