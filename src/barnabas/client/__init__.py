"""The clients: an I/O-free core in small state machines, and a shell that runs them on a background thread."""

from barnabas.client.admin import Admin
from barnabas.client.administration import PartitionDescription, TopicDescription
from barnabas.client.broker_administration import ClusterDescription, LogDir
from barnabas.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from barnabas.client.config_administration import ConfigSetting, ConfigSource
from barnabas.client.consumer.async_consumer import AsyncConsumer
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.group_administration import GroupDescription, GroupListing, MemberDescription
from barnabas.client.producer.async_producer import AsyncProducer
from barnabas.client.producer.delivery import Deliveries, Delivery
from barnabas.client.producer.producer import Producer
from barnabas.client.range_reader import RangeReader
from barnabas.client.streams import MessageStream

__all__ = [
    "Admin",
    "AdminConfig",
    "AsyncConsumer",
    "AsyncProducer",
    "ClusterDescription",
    "ConfigSetting",
    "ConfigSource",
    "Consumer",
    "ConsumerConfig",
    "Deliveries",
    "Delivery",
    "GroupDescription",
    "GroupListing",
    "LogDir",
    "MemberDescription",
    "MessageStream",
    "PartitionDescription",
    "Producer",
    "ProducerConfig",
    "RangeReader",
    "TopicDescription",
]
