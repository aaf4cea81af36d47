"""The clients: an I/O-free core in small state machines, and a shell that runs them on a background thread."""

from barnabas.client.admin import Admin
from barnabas.client.administration import PartitionDescription, TopicDescription
from barnabas.client.config import AdminConfig, ConsumerConfig, ProducerConfig
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.producer.delivery import Deliveries, Delivery
from barnabas.client.producer.producer import Producer
from barnabas.client.range_reader import RangeReader
from barnabas.client.streams import MessageStream

__all__ = [
    "Admin",
    "AdminConfig",
    "Consumer",
    "ConsumerConfig",
    "Deliveries",
    "Delivery",
    "MessageStream",
    "PartitionDescription",
    "Producer",
    "ProducerConfig",
    "RangeReader",
    "TopicDescription",
]
