"""The settings of the clients. Each setting is declared once, here: its name, type, default, rule and description.

A program gives a setting as a keyword argument (`linger_ms=5`), or in a dict under Kafka's dotted name (`{"linger.ms":
5}`). A value may be a string, as in a properties file. An unknown name is an error.

`tools/client_settings.py` derives two files from the declarations: `setting_types.py`, the keyword arguments for type
checkers and editors, and `docs/reference/client-settings.md`.

A program may pass settings of the client that it used before. The last part of this module lists settings of other
clients that Barnabas lacks. A client accepts such a setting only if its value would change nothing in Barnabas. The
names are those of Kafka's Java client, and the most common ones of librdkafka and kafka-python.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, TypeVar

from barnabas.addresses import PORT_MAX, Address, split_host_port
from barnabas.errors import ConfigurationError
from barnabas.security.jaas import parse_jaas
from barnabas.security.protocols import OAUTHBEARER, SASL_MECHANISMS, SecurityProtocol
from barnabas.security.secrets import Secret

DEFAULT_PORT = 9092
NO_LIMIT = 2**31 - 1
BYTES_MAX = 2**62

SIMILARITY_MIN = 0.8
"""The minimum similarity (0 to 1) of a misspelled name and the suggested setting."""

Bootstrap = str | Iterable[str] | Mapping[str, Any] | None
"""Bootstrap addresses, or a dict of settings under Kafka's names. None means the default address."""

Check = Callable[[str, Any], Any]
"""Converts the value of the setting with this name, or raises ConfigurationError."""

ConfigT = TypeVar("ConfigT", bound="ClientConfig")


class Rule(NamedTuple):
    """The permitted values of a setting."""

    check: Check
    argument_type: str
    """The type of the keyword argument, as source code."""
    values: str
    """The description of the values for the reference page."""


def parse_addresses(servers: object) -> tuple[Address, ...]:
    """Return the (host, port) pairs of `"a:9092,b:9093"`, or of a list of such strings. The port is optional.

    :raises ConfigurationError: there is no address, or a port is not a number.

    >>> parse_addresses("localhost, [::1]:9093")
    (('localhost', 9092), ('::1', 9093))
    """
    parts = servers.split(",") if isinstance(servers, str) else servers
    if not isinstance(parts, Iterable):
        raise ConfigurationError(f"bootstrap_servers must be 'host:port' or a list of such strings, not {servers!r}")
    addresses = tuple(_parse_address(str(part).strip()) for part in parts if str(part).strip())
    if not addresses:
        raise ConfigurationError("bootstrap_servers is empty; give 'host:port', for example 'localhost:9092'")
    return addresses


def _parse_address(text: str) -> Address:
    try:
        address = split_host_port(text, DEFAULT_PORT)
    except ValueError as error:
        raise ConfigurationError(f"{error}, for example 'localhost:9092'") from None
    if not address[1]:
        raise ConfigurationError(f"{text!r}: a broker's port is a number from 1 to {PORT_MAX}")
    return address


def _addresses(_name: str, value: object) -> tuple[Address, ...]:
    if isinstance(value, tuple) and all(isinstance(part, tuple) for part in value):
        return value
    return parse_addresses(value)


ADDRESSES = Rule(_addresses, "str | Iterable[str]", "`host:port,...`, or a list")


def _integer(minimum: int, maximum: int = NO_LIMIT) -> Rule:
    def check(name: str, value: object) -> int:
        number = _whole_number(value)
        if number is None:
            raise ConfigurationError(f"{name} must be a whole number, not {value!r}")
        if not minimum <= number <= maximum:
            raise ConfigurationError(f"{name}={number} must lie between {minimum} and {maximum}")
        return number

    return Rule(check, "int", f"{minimum} or more")


def _optional_integer(minimum: int) -> Rule:
    rule = _integer(minimum)
    return Rule(lambda name, value: None if value is None else rule.check(name, value), "int | None", rule.values)


def _whole_number(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        return None
    try:
        return int(value) if int(value) == float(value) else None
    except (ValueError, OverflowError):
        return None


def _boolean(name: str, value: object) -> bool:
    words = {"true": True, "false": False}
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.strip().lower() in words:
        return words[value.strip().lower()]
    raise ConfigurationError(f"{name} must be true or false, not {value!r}")


BOOLEAN = Rule(_boolean, "bool", "`true`, `false`")


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{name} must be a non-empty string, not {value!r}")
    return value


def _optional_text(name: str, value: object) -> str | None:
    return None if value is None else _text(name, value)


TEXT = Rule(_text, "str", "text")
OPTIONAL_TEXT = Rule(_optional_text, "str | None", "text")


def _choice(choices: Mapping[str, Any]) -> Rule:
    """Return a rule that allows the keys of `choices`, and converts each key to its value in `choices`."""

    def check(name: str, value: object) -> Any:
        key = str(value).strip().lower()
        if value in choices.values() and not isinstance(value, bool):
            return value
        if key not in choices:
            raise ConfigurationError(f"{name}={value!r} must be one of {', '.join(choices)}")
        return choices[key]

    words = [word for word, value in choices.items() if word.isalpha() and not isinstance(value, str)]
    arguments = ", ".join(repr(value).replace("'", '"') for value in dict.fromkeys([*words, *choices.values()]))
    return Rule(check, f"Literal[{arguments}]", ", ".join(f"`{word}`" for word in choices))


def _names_of(*choices: str) -> Rule:
    def check(name: str, value: object) -> tuple[str, ...]:
        parts = value.split(",") if isinstance(value, str) else value
        if not isinstance(parts, Iterable):
            raise ConfigurationError(f"{name} must be a list of names, not {value!r}")
        names = tuple(str(part).strip().lower() for part in parts)
        for given in names:
            if given not in choices:
                raise ConfigurationError(f"{name}: {given!r} is not one of {', '.join(choices)}")
        if not names:
            raise ConfigurationError(f"{name} is empty; give one or more of {', '.join(choices)}")
        return names

    return Rule(check, "str | Iterable[str]", "one or more of " + ", ".join(f"`{choice}`" for choice in choices))


def _partition_function(name: str, value: object) -> object:
    if value is not None and not callable(value):
        raise ConfigurationError(f"{name} must be a function (topic, key, partition_count) -> partition, or None")
    return value


PARTITION_FUNCTION = Rule(
    _partition_function,
    "Callable[[str, bytes | None, int], int] | None",
    "a function of topic, key and number of partitions",
)

DAY_MS = 86_400_000


def _window(name: str, value: object) -> int:
    width_ms: int = _integer(1_000).check(name, value)
    if DAY_MS % width_ms:
        raise ConfigurationError(f"{name}={width_ms} must divide a day (86400000 ms), for example 60000 or 3600000")
    return width_ms


WINDOW = Rule(_window, "int", "1000 or more, a divisor of a day")

ZOOKEEPER = "zookeeper://"


def _coordination(name: str, value: object) -> str | None:
    text = _optional_text(name, value)
    if text is not None and not (text.startswith(ZOOKEEPER) and len(text) > len(ZOOKEEPER)):
        raise ConfigurationError(f"{name}={value!r} must be 'zookeeper://host:port,host:port/chroot', or None")
    return text


COORDINATION = Rule(_coordination, "str | None", "`zookeeper://host:port,host:port/chroot`")


def _rack(name: str, value: object) -> str:
    return (_optional_text(name, value) or "") if value else ""


RACK = Rule(_rack, "str", "text")


def _optional_boolean(name: str, value: object) -> bool | None:
    return None if value is None else _boolean(name, value)


OPTIONAL_BOOLEAN = Rule(_optional_boolean, "bool | None", BOOLEAN.values)


def _protocol(name: str, value: object) -> SecurityProtocol:
    if isinstance(value, SecurityProtocol):
        return value
    try:
        return SecurityProtocol(str(value).strip().upper())
    except ValueError:
        names = ", ".join(each.value for each in SecurityProtocol)
        raise ConfigurationError(f"{name}={value!r} must be one of {names}") from None


PROTOCOL = Rule(
    _protocol,
    'Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]',
    ", ".join(f"`{each.value}`" for each in SecurityProtocol),
)


def _secret(name: str, value: object) -> Secret | None:
    if value is None or isinstance(value, Secret):
        return value
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{name} must be a non-empty string")
    return Secret(value)


SECRET = Rule(_secret, "str | None", "text")


def _host_check(name: str, value: object) -> bool:
    words = {"https": True, "": False, "none": False}
    word = str(value).strip().lower()
    return words[word] if word in words else _boolean(name, value)


HOST_CHECK = Rule(_host_check, "bool", "`true`, `false`")


def _token_function(name: str, value: object) -> object:
    if isinstance(value, str):
        from barnabas.security.secret_sources import names_source, read_secret  # noqa: PLC0415 - slow to import

        if names_source(value):
            return functools.partial(read_secret, name, Secret(value))
    if value is not None and not callable(value):
        raise ConfigurationError(
            f"{name} must be a function that returns a token, a source such as ${{file:PATH}}, or None"
        )
    return value


TOKEN_FUNCTION = Rule(
    _token_function, "Callable[[], str] | str | None", "a function without arguments, or `${file:PATH}`"
)

RESET_POLICIES = {
    "earliest": "earliest",
    "latest": "latest",
    "none": "none",
    "smallest": "earliest",
    "largest": "latest",
    "beginning": "earliest",
    "end": "latest",
}


def setting(default: Any, rule: Rule, meaning: str, *aliases: str) -> Any:
    """Declare a setting.

    :param meaning: the description for the reference page; empty if the name is clear enough.
    :param aliases: other names of the setting, which other clients use.
    """
    return dataclasses.field(default=default, metadata={"rule": rule, "meaning": meaning, "aliases": aliases})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The settings of every client.

    :cvar topic_operations: the operations that the client needs on its topics, and `group_operations` on its group.
    """

    topic_operations: ClassVar[str] = "describe"
    group_operations: ClassVar[str] = "describe"

    bootstrap_servers: tuple[Address, ...] = setting(
        (("localhost", DEFAULT_PORT),),
        ADDRESSES,
        "Brokers for the first connection. They return the addresses of the other brokers.",
    )
    client_id: str = setting("barnabas", TEXT, "The name of the client in the brokers' logs and quotas.")
    request_timeout_ms: int = setting(
        30_000, _integer(1), "Time limit of a request. When it ends, the client closes the connection."
    )
    default_api_timeout_ms: int = setting(
        60_000, _integer(1), "Time limit of a call, retries included, where the caller gives no timeout."
    )
    retry_backoff_ms: int = setting(
        50, _integer(0), "Pause before the first retry. Each further pause is twice as long."
    )
    retry_backoff_max_ms: int = setting(1_000, _integer(0), "The longest pause between retries.")
    connect_timeout_ms: int = setting(
        10_000, _integer(1), "Time limit of a connection attempt.", "socket_connection_setup_timeout_ms"
    )
    metadata_max_age_ms: int = setting(300_000, _integer(1), "The client refreshes its metadata at least this often.")
    metadata_max_idle_ms: int = setting(
        300_000, _integer(5_000), "The client removes an unused topic from its metadata after this time."
    )
    enable_metrics_push: bool = setting(
        True,
        BOOLEAN,
        "Producers and consumers push their metrics to brokers that request them (KIP-714). Needs `barnabas[otel]`.",
    )

    security_protocol: SecurityProtocol = setting(  # noqa: RUF009 - `setting` returns a dataclass field
        SecurityProtocol.PLAINTEXT,
        PROTOCOL,
        "The protocol of connections: `SSL` is TLS; `SASL_SSL` is TLS with a user name or token.",
    )
    ssl_cafile: str | None = setting(
        None,
        OPTIONAL_TEXT,
        "PEM file with the CA certificates that the client trusts. Default: those of the operating system.",
        "ssl_ca_location",
        "ssl_truststore_location",
    )
    ssl_certfile: str | None = setting(
        None,
        OPTIONAL_TEXT,
        "PEM file with the certificate chain of the client, and its private key unless `ssl_keyfile` is set.",
        "ssl_certificate_location",
        "ssl_keystore_location",
    )
    ssl_keyfile: str | None = setting(
        None, OPTIONAL_TEXT, "PEM file with the private key of the client.", "ssl_key_location"
    )
    ssl_password: Secret | None = setting(  # noqa: RUF009 - `setting` returns a dataclass field
        None, SECRET, "Password of an encrypted private key. See `sasl_password`.", "ssl_key_password"
    )
    ssl_check_hostname: bool = setting(
        True,
        HOST_CHECK,
        "The certificate of a broker must name its host. Do not switch this off outside of tests.",
        "ssl_endpoint_identification_algorithm",
    )
    ssl_verify: bool = setting(
        True,
        BOOLEAN,
        "A trusted CA must have signed the certificate of a broker. Do not switch this off outside of tests.",
        "enable_ssl_certificate_verification",
    )
    sasl_mechanism: str = setting(
        "SCRAM-SHA-512",
        _choice({each.lower(): each for each in SASL_MECHANISMS}),
        "The SASL mechanism.",
        "sasl_mechanisms",
    )
    sasl_username: str | None = setting(None, OPTIONAL_TEXT, "User name.", "sasl_plain_username")
    sasl_password: Secret | None = setting(  # noqa: RUF009 - `setting` returns a dataclass field
        None,
        SECRET,
        "Password, or its source: `${file:PATH}`, `${env:NAME}` or `${command:PROGRAM ARGUMENTS}`.",
        "sasl_plain_password",
    )
    sasl_oauth_token: Callable[[], str] | None = setting(  # noqa: RUF009 - `setting` returns a dataclass field
        None,
        TOKEN_FUNCTION,
        "Returns the token for OAUTHBEARER, or names its source. Called on a thread for each authentication.",
    )
    sasl_jaas_config: Secret | None = setting(  # noqa: RUF009 - `setting` returns a dataclass field
        None, SECRET, "The setting of Kafka's Java clients, instead of `sasl_username` and `sasl_password`."
    )

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = field.metadata["rule"].check(field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)
        self._take_jaas()
        self._check_security()

    @property
    def principal(self) -> str | None:
        """The principal of the client; None if only the broker knows it, as for tokens and certificates."""
        if self.security_protocol.uses_sasl:
            return None if self.sasl_username is None else f"User:{self.sasl_username}"
        return None if self.ssl_certfile is not None else "User:ANONYMOUS"

    def _take_jaas(self) -> None:
        """Use the options of `sasl_jaas_config`."""
        if self.sasl_jaas_config is None:
            return
        module, options = parse_jaas(self.sasl_jaas_config.reveal())
        if module not in {"PlainLoginModule", "ScramLoginModule"}:
            raise ConfigurationError(
                f"sasl_jaas_config names {module}; it can name PlainLoginModule or ScramLoginModule. OAUTHBEARER needs"
                " sasl_oauth_token"
            )
        object.__setattr__(self, "sasl_username", self.sasl_username or options.get("username"))
        if self.sasl_password is None and options.get("password"):
            object.__setattr__(self, "sasl_password", Secret(options["password"]))

    def _check_security(self) -> None:
        """Check that no security setting is ignored or missing.

        :raises ConfigurationError: a setting needs another security protocol, or a credential is missing.
        """
        protocol = self.security_protocol
        if not protocol.uses_tls:
            for name in ("ssl_cafile", "ssl_certfile", "ssl_keyfile", "ssl_password"):
                if getattr(self, name) is not None:
                    raise ConfigurationError(f"{name} needs security_protocol SSL or SASL_SSL, not {protocol.value}")
        if self.ssl_keyfile is not None and self.ssl_certfile is None:
            raise ConfigurationError("ssl_keyfile needs ssl_certfile, the certificate of the key")
        if not protocol.uses_sasl:
            for name in ("sasl_username", "sasl_password", "sasl_oauth_token"):
                if getattr(self, name) is not None:
                    raise ConfigurationError(
                        f"{name} needs security_protocol SASL_SSL or SASL_PLAINTEXT, not {protocol.value}"
                    )
        elif self.sasl_mechanism == OAUTHBEARER:
            if self.sasl_oauth_token is None:
                raise ConfigurationError("OAUTHBEARER needs sasl_oauth_token, a function that returns the token")
        elif self.sasl_username is None or self.sasl_password is None:
            raise ConfigurationError(f"{self.sasl_mechanism} needs sasl_username and sasl_password")


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """The settings of `Admin` and `AsyncAdmin`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The settings of `Producer` and `AsyncProducer`."""

    topic_operations = "write,create"

    acks: int = setting(
        -1,
        _choice({"all": -1, "-1": -1, "0": 0, "1": 1}),
        "Replicas that must have a record before it is acknowledged: all in-sync replicas, the leader, or none.",
    )
    enable_idempotence: bool = setting(
        True,
        BOOLEAN,
        "Retries neither duplicate nor reorder records. Needs `acks=all`; off by default with other `acks`.",
    )
    linger_ms: int = setting(
        5,
        _integer(0),
        "The longest time that a batch waits for more records. It does not wait while a caller waits for a delivery.",
    )
    batch_size: int = setting(131_072, _integer(1), "Bytes of a full batch, before compression.")
    buffer_memory: int = setting(
        64 * 1024 * 1024,
        _integer(1, BYTES_MAX),
        "Bytes of memory for unacknowledged records. When it is full, `send` blocks, up to `max_block_ms`.",
    )
    max_block_ms: int = setting(60_000, _integer(0), "The longest time that `send` blocks for memory or metadata.")
    max_request_size: int = setting(
        1_048_576, _integer(1), "Bytes of the largest request, and so of the largest record."
    )
    compression_type: str = setting(
        "none",
        _choice({name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")}),
        "The compression type of the batches.",
        "compression_codec",
    )
    max_in_flight_requests_per_connection: int = setting(
        5,
        _integer(1),
        "Maximum number of requests in flight to one broker. At most 5 with idempotence.",
        "max_in_flight",
        "max_in_flight_requests",
    )
    delivery_timeout_ms: int = setting(
        120_000, _integer(1), "Time limit of a delivery, from `send` on, retries included.", "message_timeout_ms"
    )
    retries: int = setting(NO_LIMIT, _integer(0), "Retries of a batch within `delivery_timeout_ms`.")
    partitioner: Callable[[str, bytes | None, int], int] | None = setting(  # noqa: RUF009  `setting` returns a dataclass field
        None, PARTITION_FUNCTION, "Chooses the partition of each record. Default: Kafka's partitioner."
    )
    allow_auto_create_topics: bool = setting(True, BOOLEAN, "If true, a record may create its topic.")
    audit: bool = setting(
        False,
        BOOLEAN,
        "Counts acknowledged records and reports the counts to the topic `_audit`. `barnabas audit` uses the counts to "
        "find lost and duplicate records.",
    )
    audit_window_ms: int = setting(
        60_000, WINDOW, "Width of the audit's windows of event time. Wide windows suit records of many years."
    )

    def __post_init__(self) -> None:
        # `super()` does not work here: a dataclass with slots is a new class.
        ClientConfig.__post_init__(self)
        if self.enable_idempotence and self.acks != -1:
            raise ConfigurationError(
                f"enable_idempotence needs acks='all', not acks={self.acks}; remove one of the two settings"
            )
        if self.audit and not self.enable_idempotence:
            raise ConfigurationError("audit needs enable_idempotence, because sequence numbers identify records")
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            raise ConfigurationError(
                "enable_idempotence allows at most 5 requests in flight, because brokers remember 5 batches; "
                f"max_in_flight_requests_per_connection={self.max_in_flight_requests_per_connection}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The settings of `Consumer` and `AsyncConsumer`."""

    topic_operations = "read"
    group_operations = "read"

    group: str | None = setting(None, OPTIONAL_TEXT, "The group of the consumer; an argument of its own.", "group_id")
    coordination: str | None = setting(
        None,
        COORDINATION,
        "The members of the group assign the partitions in ZooKeeper, by the paper's Algorithm 1. All members need the "
        "same value. Default: the brokers coordinate the group.",
    )
    offsets_storage: str = setting(
        "zookeeper",
        _choice({"zookeeper": "zookeeper", "kafka": "kafka"}),
        "The store for the offsets of a group with `coordination`. Other groups always commit to the brokers.",
    )
    zookeeper_auth: Secret | None = setting(  # noqa: RUF009 - `setting` returns a dataclass field
        None,
        SECRET,
        "`user:password` for the ZooKeeper of `coordination`, or its source. See `sasl_password`. All members of the "
        "group need the same value.",
    )
    zookeeper_set_acl: bool | None = setting(
        None,
        OPTIONAL_BOOLEAN,
        "Only clients with the same credentials may change the nodes of the group in ZooKeeper. Default: true with "
        "`zookeeper_auth`.",
    )
    zookeeper_ssl_client_enable: bool = setting(False, BOOLEAN, "Connections to ZooKeeper use TLS.")
    zookeeper_ssl_cafile: str | None = setting(
        None,
        OPTIONAL_TEXT,
        "PEM file with the CA certificates that the client trusts for ZooKeeper. Default: those of the operating "
        "system.",
        "zookeeper_ssl_truststore_location",
    )
    zookeeper_ssl_certfile: str | None = setting(
        None,
        OPTIONAL_TEXT,
        "PEM file with the certificate chain of the client for ZooKeeper, and its private key unless "
        "`zookeeper_ssl_keyfile` is set.",
        "zookeeper_ssl_keystore_location",
    )
    zookeeper_ssl_keyfile: str | None = setting(
        None, OPTIONAL_TEXT, "PEM file with the private key of the client for ZooKeeper."
    )
    zookeeper_ssl_password: Secret | None = setting(  # noqa: RUF009 - `setting` returns a dataclass field
        None,
        SECRET,
        "Password of an encrypted private key for ZooKeeper. See `sasl_password`.",
        "zookeeper_ssl_keystore_password",
    )
    zookeeper_ssl_check_hostname: bool = setting(
        True,
        HOST_CHECK,
        "The certificate of a ZooKeeper server must name its host. Do not switch this off outside of tests.",
        "zookeeper_ssl_endpoint_identification_algorithm",
    )
    group_instance_id: str | None = setting(
        None, OPTIONAL_TEXT, "The name of a static member, which keeps its partitions over a restart."
    )
    auto_offset_reset: str = setting(
        "latest",
        _choice(RESET_POLICIES),
        "The start position without a committed offset, or if an offset is out of range. `none` raises an error.",
    )
    enable_auto_commit: bool = setting(True, BOOLEAN, "Commits the offsets of processed records in the background.")
    auto_commit_interval_ms: int = setting(5_000, _integer(1), "Time between two auto-commits.")
    session_timeout_ms: int = setting(
        45_000, _integer(1), "The group removes a member without heartbeats for this time."
    )
    heartbeat_interval_ms: int = setting(3_000, _integer(1), "Time between heartbeats; less than `session_timeout_ms`.")
    max_poll_interval_ms: int = setting(
        300_000, _integer(1), "A member that does not poll for this time leaves the group."
    )
    max_poll_records: int = setting(500, _integer(1), "An iteration checks the group after this many records.")
    partition_assignment_strategy: tuple[str, ...] = setting(
        ("range", "cooperative-sticky"),
        _names_of("range", "roundrobin", "sticky", "cooperative-sticky"),
        "Assignors in order of preference; the group uses one that all members have. As with Kafka's client, the "
        "default allows members to move to `cooperative-sticky` one by one.",
    )
    fetch_min_bytes: int = setting(1, _integer(0), "The broker waits for this many bytes, up to `fetch_max_wait_ms`.")
    fetch_max_wait_ms: int = setting(
        500, _integer(0), "The longest time that a fetch waits at the broker.", "fetch_wait_max_ms"
    )
    fetch_max_bytes: int = setting(52_428_800, _integer(1), "Bytes of a response to a fetch.")
    max_partition_fetch_bytes: int | None = setting(
        None,
        _optional_integer(1),
        "Bytes of one partition in a response, except for a single larger batch. Default: a share of 6 MiB, between "
        "256 KiB and 2 MiB.",
    )
    fetch_buffer_bytes: int = setting(
        32 * 1024 * 1024,
        _integer(1, BYTES_MAX),
        "Bytes of fetched batches that wait for the application: the limit of the prefetch.",
    )
    check_crcs: bool = setting(True, BOOLEAN, "Checks the CRC of each batch.")
    client_rack: str = setting(
        "",
        RACK,
        "The rack of the consumer. Brokers with `replica.selector.class=RackAwareReplicaSelector` let it read from a "
        "replica in its rack (KIP-392).",
    )
    allow_auto_create_topics: bool = setting(False, BOOLEAN, "If true, a subscription may create its topics.")
    audit: bool = setting(
        False,
        BOOLEAN,
        "Counts returned records and reports the counts to the topic `_audit`. `barnabas audit --group` uses the "
        "counts to find records that the group missed or received twice.",
    )

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        if self.audit and self.group is None:
            raise ConfigurationError("audit needs a group: Consumer(..., group=..., audit=True)")
        if self.coordination is not None and self.group is None:
            raise ConfigurationError("coordination needs a group: Consumer(..., group=...)")
        if self.coordination is not None and self.group_instance_id is not None:
            raise ConfigurationError("group_instance_id requires a group that brokers coordinate; remove it")
        self._check_zookeeper_security()
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigurationError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be less than session_timeout_ms="
                f"{self.session_timeout_ms}; a third of it is usual"
            )

    def _check_zookeeper_security(self) -> None:
        """Check that no setting for the security of ZooKeeper is ignored.

        :raises ConfigurationError: a setting needs another setting.
        """
        for name in ("cafile", "certfile", "keyfile", "password"):
            if getattr(self, f"zookeeper_ssl_{name}") is not None and not self.zookeeper_ssl_client_enable:
                raise ConfigurationError(f"zookeeper_ssl_{name} needs zookeeper_ssl_client_enable=True")
        if self.zookeeper_ssl_keyfile is not None and self.zookeeper_ssl_certfile is None:
            raise ConfigurationError("zookeeper_ssl_keyfile needs zookeeper_ssl_certfile, the certificate of the key")
        if self.zookeeper_set_acl and self.zookeeper_auth is None and self.zookeeper_ssl_certfile is None:
            raise ConfigurationError("zookeeper_set_acl needs zookeeper_auth or zookeeper_ssl_certfile")


def make_config(cls: type[ConfigT], bootstrap: Bootstrap, settings: Mapping[str, object]) -> ConfigT:
    """Return the checked settings of a client.

    :param bootstrap: `"host:port,..."`, a list of such strings, or a dict of settings. None means the default address.
    :param settings: keyword arguments; they override the dict.
    :raises ConfigurationError: an unknown name, or a value that breaks its rule.

    >>> make_config(ProducerConfig, {"bootstrap.servers": "log:9092", "acks": "1"}, {}).acks
    1
    >>> make_config(ProducerConfig, "log", {"linger": 5})
    Traceback (most recent call last):
    barnabas.errors.ConfigurationError: 'linger' is not a setting of Producer; did you mean 'linger_ms'?
    """
    given: dict[str, Any] = {}
    if isinstance(bootstrap, Mapping):
        given.update(_known_names(cls, bootstrap))
    elif bootstrap is not None:
        given["bootstrap_servers"] = bootstrap
    given.update(_known_names(cls, settings))
    if cls is ProducerConfig and "enable_idempotence" not in given:
        # As in Kafka, `acks` other than `all` disables idempotence unless the program enables it.
        given["enable_idempotence"] = str(given.get("acks", "all")).lower() in ("all", "-1")
    return cls(**given)


def settings_of_all_clients(settings: Mapping[str, object]) -> dict[str, Any]:
    """Return the settings without those that only producers or only consumers have.

    >>> settings_of_all_clients({"linger.ms": "5", "sasl.username": "alice"})
    {'sasl.username': 'alice'}
    """
    others = (_names(ProducerConfig).keys() | _names(ConsumerConfig).keys()) - _names(ClientConfig).keys()
    return {name: value for name, value in settings.items() if name.replace(".", "_") not in others}


def contains_secret(name: str, value: str) -> bool:
    """Return whether a setting contains a secret, instead of naming the source of the secret.

    >>> contains_secret("sasl.password", "s3cret"), contains_secret("sasl.password", "${file:/run/password}")
    (True, False)
    >>> contains_secret("schema.registry.token", "abc"), contains_secret("schema.registry.url", "https://a:b@host")
    (True, True)
    """
    from barnabas.security.secret_sources import names_source  # noqa: PLC0415 - slow to import
    from barnabas.serialization.registry_settings import PREFIX, is_secret  # noqa: PLC0415 - rarely needed

    dotted = name.replace("_", ".")
    if dotted.startswith(PREFIX):
        return is_secret(dotted.removeprefix(PREFIX), value) and not names_source(value)
    return any(
        field.metadata["rule"] is SECRET and _names(config).get(name.replace(".", "_")) == field.name
        for config in (ClientConfig, ProducerConfig, ConsumerConfig)
        for field in dataclasses.fields(config)
    ) and not names_source(value)


def _known_names(cls: type[ClientConfig], settings: Mapping[str, object]) -> dict[str, Any]:
    names = _names(cls)
    known = {}
    for given, value in settings.items():
        name = names.get(given.replace(".", "_"))
        if name is not None:
            known[name] = value
        elif not _changes_nothing(given, value):
            raise ConfigurationError(_unknown(cls, given, names))
    return known


def _names(cls: type[ClientConfig]) -> dict[str, str]:
    """Return all names of the settings, including aliases, and the field of each."""
    names = {field.name: field.name for field in dataclasses.fields(cls)}
    for field in dataclasses.fields(cls):
        names.update(dict.fromkeys(field.metadata["aliases"], field.name))
    return names


def _unknown(cls: type[ClientConfig], given: str, names: Iterable[str]) -> str:
    name, client = given.replace(".", "_"), _client(cls)
    for other in (ProducerConfig, ConsumerConfig):
        if name in _names(other):
            return f"{given!r} is a setting of {_client(other)}, not of {client}"
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=SIMILARITY_MIN)
    if near:
        suggestion = near[0].replace("_", ".") if "." in given else near[0]
        return f"{given!r} is not a setting of {client}; did you mean {suggestion!r}?"
    return f"{given!r} is not a setting of {client}; known are {', '.join(sorted(names))}"


def _client(cls: type[ClientConfig]) -> str:
    return cls.__name__.removesuffix("Config")


# --- settings of other clients ---

WITHOUT_EFFECT = frozenset(
    {
        "api_version",
        "api_version_auto_timeout_ms",
        "api_version_fallback_ms",
        "api_version_request",
        "auto_include_jmx_reporter",
        "broker_version_fallback",
        "client_dns_lookup",
        "connections_max_idle_ms",
        "log_connection_close",
        "metadata_recovery_rebootstrap_trigger_ms",
        "metadata_recovery_strategy",
        "metric_reporters",
        "metrics_num_samples",
        "metrics_recording_level",
        "metrics_sample_window_ms",
        "partitioner_adaptive_partitioning_enable",
        "partitioner_availability_timeout_ms",
        "receive_buffer_bytes",
        "reconnect_backoff_max_ms",
        "reconnect_backoff_ms",
        "send_buffer_bytes",
        "socket_connection_setup_timeout_max_ms",
        "socket_keepalive_enable",
        "socket_nagle_disable",
        "transaction_timeout_ms",
    }
)
"""Settings without effect: Barnabas does not have the feature, or adjusts it automatically."""

SOLE_VALUES = {
    "client_rack": ("",),
    "enable_auto_offset_store": ("true",),
    "enable_partition_eof": ("false",),
    "exclude_internal_topics": ("true",),
    "group_protocol": ("classic",),
    "interceptor_classes": ("",),
    # Both isolation levels have the same effect, because there are no transactions.
    "isolation_level": ("read_uncommitted", "read_committed"),
    "partitioner_ignore_keys": ("false",),
    "statistics_interval_ms": ("0",),
}
"""Settings of other clients with the values that Barnabas accepts, because they change nothing. Other values are not
supported yet.
"""

NOT_YET = frozenset(
    {
        "compression_gzip_level",
        "compression_level",
        "compression_lz4_level",
        "compression_zstd_level",
        "group_remote_assignor",
        "partitioner_class",
        "security_providers",
        "transactional_id",
        "transaction_two_phase_commit_enable",
    }
)
FAMILIES_NOT_YET = ("sasl_", "ssl_")
"""The prefixes of further settings of other clients: those for Kerberos, OAuth over HTTP, and Java's key stores."""

FUNCTIONS = frozenset({"key_serializer", "value_serializer", "key_deserializer", "value_deserializer"})
"""Settings of other clients that are keyword arguments of Barnabas's clients."""


def _changes_nothing(given: str, value: object) -> bool:
    """Return whether this is a setting of another client with a value that changes nothing in Barnabas.

    :raises ConfigurationError: Barnabas does not support this value of the setting yet.

    >>> _changes_nothing("group.protocol", "classic"), _changes_nothing("linger", 5)
    (True, False)
    """
    name = given.replace(".", "_")
    if name in WITHOUT_EFFECT:
        return True
    ways = SOLE_VALUES.get(name)
    if ways is not None:
        if ("" if value is None else str(value).strip().lower()) in ways:
            return True
        usual = " or ".join(way or "nothing" for way in ways)
        raise ConfigurationError(f"{given}={value!r} is not supported yet; it must be {usual}; or remove the setting")
    if name in NOT_YET or name.startswith(FAMILIES_NOT_YET):
        raise ConfigurationError(f"{given!r} is not supported yet; remove it")
    if name in FUNCTIONS:
        raise ConfigurationError(f"pass {name} to the client as a keyword argument whose value is a function")
    return False
