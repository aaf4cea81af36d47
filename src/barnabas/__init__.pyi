# The public names, for type checkers. `__init__.py` has the same names in the same modules, and imports each on first
# use.

from barnabas.client.admin import Admin as Admin
from barnabas.client.admin import AsyncAdmin as AsyncAdmin
from barnabas.client.admin.brokers import ClusterDescription as ClusterDescription
from barnabas.client.admin.brokers import LogDir as LogDir
from barnabas.client.admin.configs import ConfigSetting as ConfigSetting
from barnabas.client.admin.configs import ConfigSource as ConfigSource
from barnabas.client.admin.groups import GroupDescription as GroupDescription
from barnabas.client.admin.groups import GroupListing as GroupListing
from barnabas.client.admin.groups import MemberDescription as MemberDescription
from barnabas.client.admin.reassignments import Reassignment as Reassignment
from barnabas.client.admin.topics import PartitionDescription as PartitionDescription
from barnabas.client.admin.topics import TopicDescription as TopicDescription
from barnabas.client.admin.users import ScramCredentialInfo as ScramCredentialInfo
from barnabas.client.admin.users import UserDescription as UserDescription
from barnabas.client.consumer.async_consumer import AsyncConsumer as AsyncConsumer
from barnabas.client.consumer.consumer import Consumer as Consumer
from barnabas.client.consumer.message_streams import MessageStream as MessageStream
from barnabas.client.interceptors import ClientContext as ClientContext
from barnabas.client.interceptors import ConsumerInterceptor as ConsumerInterceptor
from barnabas.client.interceptors import FetchedBatch as FetchedBatch
from barnabas.client.interceptors import ProducerInterceptor as ProducerInterceptor
from barnabas.client.interceptors import ProducerRecord as ProducerRecord
from barnabas.client.interceptors import SendBatch as SendBatch
from barnabas.client.interceptors import SentBatch as SentBatch
from barnabas.client.producer.async_producer import AsyncProducer as AsyncProducer
from barnabas.client.producer.delivery import Deliveries as Deliveries
from barnabas.client.producer.delivery import Delivery as Delivery
from barnabas.client.producer.producer import Producer as Producer
from barnabas.client.tracing import ConsumerTracing as ConsumerTracing
from barnabas.client.tracing import ProducerTracing as ProducerTracing
from barnabas.client.tracing import process_span as process_span
from barnabas.errors import ApiError as ApiError
from barnabas.errors import AuthenticationError as AuthenticationError
from barnabas.errors import BarnabasError as BarnabasError
from barnabas.errors import BufferFullError as BufferFullError
from barnabas.errors import ClosedError as ClosedError
from barnabas.errors import ConfigurationError as ConfigurationError
from barnabas.errors import CorruptBatchError as CorruptBatchError
from barnabas.errors import DeserializationError as DeserializationError
from barnabas.errors import DisconnectedError as DisconnectedError
from barnabas.errors import ErrorCode as ErrorCode
from barnabas.errors import FencedError as FencedError
from barnabas.errors import SchemaRegistryError as SchemaRegistryError
from barnabas.errors import SerializationError as SerializationError
from barnabas.errors import TimedOutError as TimedOutError
from barnabas.errors import UnsupportedVersionError as UnsupportedVersionError
from barnabas.model import Node as Node
from barnabas.model import OffsetAndMetadata as OffsetAndMetadata
from barnabas.model import OffsetAndTimestamp as OffsetAndTimestamp
from barnabas.model import RecordHeader as RecordHeader
from barnabas.model import RecordMetadata as RecordMetadata
from barnabas.model import TimestampType as TimestampType
from barnabas.model import TopicPartition as TopicPartition
from barnabas.records import Record as Record
from barnabas.serialization.avro import AvroDeserializer as AvroDeserializer
from barnabas.serialization.avro import AvroSerializer as AvroSerializer
from barnabas.serialization.json_schema import JsonDeserializer as JsonDeserializer
from barnabas.serialization.json_schema import JsonSerializer as JsonSerializer
from barnabas.serialization.protobuf import ProtobufDeserializer as ProtobufDeserializer
from barnabas.serialization.protobuf import ProtobufSerializer as ProtobufSerializer
from barnabas.serialization.registry_client import Schema as Schema
from barnabas.serialization.registry_client import SchemaReference as SchemaReference
from barnabas.serialization.registry_client import SchemaRegistry as SchemaRegistry

KafkaError = ApiError  # the old name, for one release

__version__: str
