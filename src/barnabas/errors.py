"""The errors that Barnabas raises, and the error codes of the wire protocol.

All errors are subclasses of `BarnabasError`. The property `retriable` is True if the same call may succeed later.
`ApiError` carries an error code of the protocol, which a broker returns to a client; no other error is sent over the
network. The codes, and the set of retriable codes, are those of Apache Kafka.
"""

from __future__ import annotations

import enum
import warnings
from dataclasses import dataclass
from typing import Any, Self


class ErrorCode(enum.IntEnum):
    """The error codes of the Kafka protocol.

    >>> ErrorCode.of(3).name, ErrorCode.of(3).retriable
    ('UNKNOWN_TOPIC_OR_PARTITION', True)
    """

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118

    @property
    def retriable(self) -> bool:
        """True if the same request may succeed later, perhaps at another broker."""
        return self in _RETRIABLE

    @classmethod
    def of(cls, code: int) -> ErrorCode:
        """Return the member for `code`, or UNKNOWN_SERVER_ERROR for a code that this version of Barnabas does not
        define.
        """
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR


_RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    }
)


class BarnabasError(Exception):
    """The base class of all errors that Barnabas raises on purpose."""

    @property
    def retriable(self) -> bool:
        """True if the same call may succeed later without any change by the caller."""
        return False


@dataclass(frozen=True, slots=True)
class Failure:
    """The type and the arguments of an exception as a value. Each call of `error` returns a new exception.

    A raised exception gets another traceback entry each time it is raised again. Each entry keeps the local variables
    of its function alive.

    >>> failure = Failure.of(ClosedError("this client is closed"))
    >>> failure.error() is failure.error(), str(failure.error())
    (False, 'this client is closed')
    """

    kind: type[BarnabasError]
    arguments: tuple[Any, ...]

    @classmethod
    def of(cls, error: BarnabasError) -> Self:
        """Return the type and the arguments of `error`, without its traceback, cause and context."""
        made_by = error.__reduce__()
        assert isinstance(made_by, tuple)
        return cls(made_by[0], made_by[1])

    def error(self) -> BarnabasError:
        return self.kind(*self.arguments)


class RetriableError(BarnabasError):
    """A temporary failure, such as a lost connection or a timeout.

    :param reason: the reason that the operating system gives, or an empty string; the message contains it too.
    """

    def __init__(self, message: str = "", reason: str = "") -> None:
        self.reason = reason
        super().__init__(message)

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        return type(self), (str(self), self.reason)

    @property
    def retriable(self) -> bool:
        return True


class ApiError(BarnabasError):
    """An error code of the protocol.

    A client raises the code that a broker returned; a broker raises the code to return.

    :param code: an `ErrorCode`, or its number.
    :param reason: the cause in words; empty if the code is clear enough.
    :param subject: the topic, partition, group or other object of the failed request; empty if the reason names it.

    `message` joins subject and reason.

    >>> error = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, subject="topic 'clicks'")
    >>> str(error), error.retriable, error.reason
    ("UNKNOWN_TOPIC_OR_PARTITION: topic 'clicks'", True, '')
    >>> str(ApiError(ErrorCode.INVALID_CONFIG, "retention.ms is 'x'", subject="topic 'clicks'"))
    "INVALID_CONFIG: topic 'clicks': retention.ms is 'x'"
    """

    def __init__(self, code: ErrorCode | int, reason: str = "", subject: str = "") -> None:
        self.code = ErrorCode.of(code)
        self.reason = reason
        self.subject = subject
        self.message = ": ".join(part for part in (subject, reason) if part)
        super().__init__(f"{self.code.name}: {self.message}" if self.message else self.code.name)

    @classmethod
    def about(cls, code: ErrorCode | int, subject: str, advice: str = "") -> Self:
        """Return an error whose reason is the subject followed by the advice.

        :param advice: the rest of a sentence that begins with the subject; empty for an error without a reason.

        >>> ApiError.about(ErrorCode.NON_EMPTY_GROUP, "group 'ctr'", " has members; stop them first").reason
        "group 'ctr' has members; stop them first"
        """
        return cls(code, f"{subject}{advice}") if advice else cls(code, subject=subject)

    def __reduce__(self) -> tuple[type[ApiError], tuple[ErrorCode, str, str]]:
        return type(self), (self.code, self.reason, self.subject)

    @property
    def retriable(self) -> bool:
        return self.code.retriable


class AuthenticationError(BarnabasError):
    """A client or server could not prove its identity."""


class MalformedMessageError(BarnabasError):
    """The bytes are not a valid message of the protocol: for example, a length exceeds the end of the frame."""


class UnsupportedVersionError(BarnabasError):
    """The client or the broker does not support this version of a request, or a field of the request."""


class CorruptBatchError(BarnabasError):
    """The length, the CRC or the structure of a record batch is wrong. Such a batch is neither stored nor served.

    :ivar next_offset: the offset after the batch, where a consumer can continue; None if it is unknown.
    """

    next_offset: int | None = None


class ConfigurationError(BarnabasError):
    """A setting or an argument does not exist or cannot have the given value."""


class MissingExtraError(ConfigurationError):
    """A package of an optional extra is not installed. The message contains the command that installs it."""


class UnavailableError(ConfigurationError):
    """An address or a broker id is in use by another process, or the machine does not have the address."""

    @property
    def retriable(self) -> bool:
        return True


class DisconnectedError(RetriableError, ConnectionError):
    """The connection was closed before the response arrived. The broker may have executed the request."""


class TimedOutError(RetriableError, TimeoutError):
    """An operation exceeded its timeout."""


class BufferFullError(TimedOutError):
    """The producer's memory (`buffer_memory`) stayed full for longer than `max_block_ms`."""


class ClosedError(BarnabasError):
    """The client, log or connection is closed."""


class StorageError(BarnabasError):
    """A disk is full, broken or read-only. The log on this disk goes offline."""


class DataFolderError(BarnabasError):
    """Another broker has locked the data folder, or the folder has a newer format, or it is read-only."""


class CoordinationError(BarnabasError):
    """The metadata store refused an operation. `barnabas.coordination.metadata_store` defines the subclasses."""


class FencedError(BarnabasError):
    """Another producer with the same id, or another group member with the same instance id, is active.

    This client must stop.
    """


class SerializationError(BarnabasError):
    """A value does not match its schema, or bytes do not contain a value with a schema."""


class SchemaRegistryError(BarnabasError):
    """A schema registry returned an error.

    :param code: Confluent's error code, for example 40403 for a schema that does not exist; 0 if the response has none.
    :param message: the message of the registry.
    """

    def __init__(self, code: int, message: str) -> None:
        super().__init__(code, message)
        self.code, self.message = code, message

    @property
    def is_about_schema(self) -> bool:
        """True if the registry cannot return the requested schema: it, or a schema that it references, is missing, or
        the requested format is not supported.

        All other errors, including a plain 404, concern the registry itself.
        """
        return 40401 <= self.code <= 40407 or self.code == 42201

    def __str__(self) -> str:
        return f"{self.message} ({self.code})" if self.code else self.message


class DeserializationError(BarnabasError):
    """A deserializer of the application raised an exception for a key or a value.

    The position of the consumer stays before that record; `seek` skips the record.

    :param offset: the offset of the record in its partition.

    >>> error = DeserializationError("clicks", 0, 42, "value_deserializer: ValueError('no JSON')")
    >>> str(error), error.offset
    ("clicks-0 at offset 42: value_deserializer: ValueError('no JSON')", 42)
    """

    def __init__(self, topic: str, partition: int, offset: int, message: str) -> None:
        super().__init__(topic, partition, offset, message)
        self.topic, self.partition, self.offset, self.message = topic, partition, offset, message

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at offset {self.offset}: {self.message}"


RENAMED = {"KafkaError": "ApiError"}
"""The current names of renamed errors, by deprecated name. Deprecated names work for one more release
(docs/reference/api-stability.md).
"""


def warn_of_old_name(module: str, name: str) -> None:
    """Issue a DeprecationWarning for the old name of a class of `module`."""
    message = f"{module}.{name} is now {module}.{RENAMED[name]}; version 0.3 removes the old name"
    warnings.warn(message, DeprecationWarning, stacklevel=3)


def __getattr__(name: str) -> object:
    if name not in RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warn_of_old_name(__name__, name)
    return globals()[RENAMED[name]]


def reason_of(error: BaseException, otherwise: str = "") -> str:
    """Return the message of an error for a log line. Timeouts and reset connections often have no message.

    :param otherwise: the text for an error without a message; by default the name of its type.

    >>> reason_of(TimeoutError()), reason_of(TimeoutError(), "no answer within 5 s"), reason_of(OSError("disk full"))
    ('TimeoutError', 'no answer within 5 s', 'disk full')
    """
    return str(error) or otherwise or type(error).__name__
