"""The settings of the clients: typed, frozen, with Kafka's names and Kafka's defaults where Kafka has them.

A setting may be given as a keyword argument in snake_case (`linger_ms=5`) or in a dict under Kafka's dotted
name (`{"linger.ms": 5}`); values may be strings, as they come out of a properties file. A name that does not
exist is an error: a setting that is silently ignored is a trap. `setting_types.py` says the same to type checkers.
"""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from barnabas.addresses import PORT_MAX, Address, split_host_port
from barnabas.client.kafka_settings import changes_nothing
from barnabas.client.setting_types import Bootstrap
from barnabas.errors import ConfigurationError

DEFAULT_PORT = 9092
NO_LIMIT = 2**31 - 1

NEAR = 0.8
"""How alike two names are, of 1, where one may be a slip for the other; below that a suggestion misleads."""

Check = Callable[[str, Any], Any]
ConfigT = TypeVar("ConfigT", bound="ClientConfig")


def parse_addresses(servers: object) -> tuple[Address, ...]:
    """Return the (host, port) pairs of `"a:9092,b:9093"`, or of a list of such strings. The port may be left out.

    :raises ConfigurationError: nothing is given, or a port is not a number.

    >>> parse_addresses("localhost, [::1]:9093")
    (('localhost', 9092), ('::1', 9093))
    """
    parts = servers.split(",") if isinstance(servers, str) else servers
    if not isinstance(parts, Iterable):
        raise ConfigurationError(f"bootstrap_servers must be 'host:port', not {servers!r}")
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


def _integer(minimum: int, maximum: int = NO_LIMIT) -> Check:
    def check(name: str, value: object) -> int:
        number = _whole_number(value)
        if number is None:
            raise ConfigurationError(f"{name} must be a whole number, not {value!r}")
        if not minimum <= number <= maximum:
            raise ConfigurationError(f"{name}={number} must lie between {minimum} and {maximum}")
        return number

    return check


def _optional_integer(minimum: int) -> Check:
    check = _integer(minimum)
    return lambda name, value: None if value is None else check(name, value)


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


def _text(name: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigurationError(f"{name} must be a string that is not empty, not {value!r}")
    return value


def _optional_text(name: str, value: object) -> str | None:
    return None if value is None else _text(name, value)


def _choice(choices: Mapping[str, Any]) -> Check:
    def check(name: str, value: object) -> Any:
        key = str(value).strip().lower()
        if value in choices.values() and not isinstance(value, bool):
            return value
        if key not in choices:
            raise ConfigurationError(f"{name}={value!r} must be one of {', '.join(choices)}")
        return choices[key]

    return check


def _names_of(choices: tuple[str, ...]) -> Check:
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

    return check


def _partition_function(name: str, value: object) -> object:
    if value is not None and not callable(value):
        raise ConfigurationError(f"{name} must be a function (topic, key, partition_count) -> partition, or None")
    return value


def setting(default: Any, check: Check, *aliases: str) -> Any:
    """Declare a setting: its default, the function that checks and converts what a user gives, other names."""
    return dataclasses.field(default=default, metadata={"check": check, "aliases": aliases})


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """What every client needs to find the brokers and to be patient with them."""

    bootstrap_servers: tuple[Address, ...] = setting((("localhost", DEFAULT_PORT),), _addresses)
    client_id: str = setting("barnabas", _text)
    request_timeout_ms: int = setting(30_000, _integer(1))
    """How long one request may take before its connection is given up."""
    default_api_timeout_ms: int = setting(60_000, _integer(1))
    """How long a call may take, with all its retries, when the caller names no timeout."""
    retry_backoff_ms: int = setting(50, _integer(0))
    retry_backoff_max_ms: int = setting(1_000, _integer(0))
    connect_timeout_ms: int = setting(10_000, _integer(1), "socket_connection_setup_timeout_ms")
    metadata_max_age_ms: int = setting(300_000, _integer(1))
    metadata_max_idle_ms: int = setting(300_000, _integer(5_000))
    """How long a topic that is not used any more stays in the metadata that is asked for."""

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            value = field.metadata["check"](field.name, getattr(self, field.name))
            object.__setattr__(self, field.name, value)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminConfig(ClientConfig):
    """The settings of `Admin`."""


DAY_MS = 86_400_000


def _window(name: str, value: object) -> int:
    width_ms: int = _integer(1_000)(name, value)
    if DAY_MS % width_ms:
        raise ConfigurationError(f"{name}={width_ms} must be a whole part of a day, as 60000 or 3600000 is")
    return width_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig(ClientConfig):
    """The settings of `Producer`."""

    acks: int = setting(-1, _choice({"all": -1, "-1": -1, "0": 0, "1": 1}))
    enable_idempotence: bool = setting(True, _boolean)
    linger_ms: int = setting(5, _integer(0))
    """How long a batch may wait for more records. A delivery that somebody waits for does not linger."""
    batch_size: int = setting(131_072, _integer(1))
    """Bytes at which a batch counts as full, before compression."""
    buffer_memory: int = setting(64 * 1024 * 1024, _integer(1, 2**62))
    """Bytes of records that may wait to be delivered; beyond it `send` blocks up to `max_block_ms`."""
    max_block_ms: int = setting(60_000, _integer(0))
    max_request_size: int = setting(1_048_576, _integer(1))
    """The largest request in bytes, and so the largest record."""
    compression_type: str = setting(
        "none", _choice({name: name for name in ("none", "gzip", "snappy", "lz4", "zstd")}), "compression_codec"
    )
    max_in_flight_requests_per_connection: int = setting(5, _integer(1), "max_in_flight", "max_in_flight_requests")
    delivery_timeout_ms: int = setting(120_000, _integer(1), "message_timeout_ms")
    retries: int = setting(NO_LIMIT, _integer(0))
    partitioner: Callable[[str, bytes | None, int], int] | None = setting(None, _partition_function)  # noqa: RUF009  as its neighbours
    """The paper's own partition function: (topic, key, partition count) -> partition. None: Kafka's."""
    allow_auto_create_topics: bool = setting(True, _boolean)
    audit: bool = setting(False, _boolean)
    """Count what is acknowledged, and tell it in the topic `_audit`: `barnabas audit` proves by that that nothing was
    lost or doubled."""
    audit_window_ms: int = setting(60_000, _window)
    """How wide the audit's windows of event time are. Wider ones are fewer, for records of years at once."""

    def __post_init__(self) -> None:
        # Named in full: a slotted dataclass is a new class, which `super()` without arguments does not know.
        ClientConfig.__post_init__(self)
        if self.enable_idempotence and self.acks != -1:
            raise ConfigurationError(
                f"enable_idempotence needs acks='all', not acks={self.acks}; leave one of the two out"
            )
        if self.audit and not self.enable_idempotence:
            raise ConfigurationError("audit needs enable_idempotence: its sequence numbers tell records apart")
        if self.enable_idempotence and self.max_in_flight_requests_per_connection > 5:
            raise ConfigurationError(
                "enable_idempotence allows at most 5 requests in flight, because brokers remember 5 batches; "
                f"max_in_flight_requests_per_connection={self.max_in_flight_requests_per_connection}"
            )


ZOOKEEPER = "zookeeper://"


def _coordination(name: str, value: object) -> str | None:
    text = _optional_text(name, value)
    if text is not None and not (text.startswith(ZOOKEEPER) and len(text) > len(ZOOKEEPER)):
        raise ConfigurationError(f"{name}={value!r} must be 'zookeeper://host:port,host:port/chroot', or None")
    return text


def _rack(name: str, value: object) -> str:
    return (_optional_text(name, value) or "") if value else ""


RESET_POLICIES = {
    "earliest": "earliest",
    "latest": "latest",
    "none": "none",
    "smallest": "earliest",
    "largest": "latest",
    "beginning": "earliest",
    "end": "latest",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerConfig(ClientConfig):
    """The settings of `Consumer`."""

    group: str | None = setting(None, _optional_text, "group_id")
    coordination: str | None = setting(None, _coordination)
    """`zookeeper://host:port,host:port/chroot`: the group's consumers share the partitions out among themselves there,
    by the paper's Algorithm 1; all of a group must do the same. None: the brokers coordinate the group."""
    offsets_storage: str = setting("zookeeper", _choice({"zookeeper": "zookeeper", "kafka": "kafka"}))
    """Where offsets are committed with `coordination`: there too, or with the brokers. Without, always the brokers."""
    group_instance_id: str | None = setting(None, _optional_text)
    auto_offset_reset: str = setting("latest", _choice(RESET_POLICIES))
    enable_auto_commit: bool = setting(True, _boolean)
    auto_commit_interval_ms: int = setting(5_000, _integer(1))
    session_timeout_ms: int = setting(45_000, _integer(1))
    heartbeat_interval_ms: int = setting(3_000, _integer(1))
    max_poll_interval_ms: int = setting(300_000, _integer(1))
    max_poll_records: int = setting(500, _integer(1))
    """Records handed out before the group is looked after again, when iterating."""
    partition_assignment_strategy: tuple[str, ...] = setting(
        ("range", "cooperative-sticky"), _names_of(("range", "roundrobin", "sticky", "cooperative-sticky"))
    )
    """In order of preference; the group takes one that all its members have. The second default is there so that
    a group can be moved to `cooperative-sticky` member by member, as with Kafka's own client."""
    fetch_min_bytes: int = setting(1, _integer(0))
    fetch_max_wait_ms: int = setting(500, _integer(0), "fetch_wait_max_ms")
    fetch_max_bytes: int = setting(52_428_800, _integer(1))
    max_partition_fetch_bytes: int | None = setting(None, _optional_integer(1))
    """Bytes that a fetch may bring of one partition, but for a single batch that is larger. None: a share of 6 MiB,
    from 256 KiB to 2 MiB; larger fetches cost no less per record, smaller ones more."""
    fetch_buffer_bytes: int = setting(32 * 1024 * 1024, _integer(1, 2**62))
    """Bytes of fetched batches that may wait for the application: the bound of the prefetch. Two fetches' worth of
    each partition is kept at hand, if there is room for that."""
    check_crcs: bool = setting(True, _boolean)
    client_rack: str = setting("", _rack)
    """Where this consumer stands. Brokers with `replica.selector.class=RackAwareReplicaSelector` let it read from a
    replica in its rack (KIP-392)."""
    allow_auto_create_topics: bool = setting(False, _boolean)
    """Whether asking for a topic that does not exist may create it. Reading creates none, unless this says so."""
    audit: bool = setting(False, _boolean)
    """Count what is handed to the application, and tell it in the topic `_audit`: `barnabas audit --group` shows by
    that what the group has missed or had twice."""

    def __post_init__(self) -> None:
        ClientConfig.__post_init__(self)
        if self.audit and self.group is None:
            raise ConfigurationError("audit needs a group for which is counted: Consumer(..., group=..., audit=True)")
        if self.coordination is not None and self.group is None:
            raise ConfigurationError("coordination needs a group whose consumers coordinate: Consumer(..., group=...)")
        if self.coordination is not None and self.group_instance_id is not None:
            raise ConfigurationError("group_instance_id is for groups that brokers coordinate; leave it out")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigurationError(
                f"heartbeat_interval_ms={self.heartbeat_interval_ms} must be less than session_timeout_ms="
                f"{self.session_timeout_ms}; a third of it is usual"
            )


def make_config(cls: type[ConfigT], bootstrap: Bootstrap, settings: Mapping[str, object]) -> ConfigT:
    """Return a checked `cls` from what a user gave: addresses or a dict first, keyword arguments second.

    :param bootstrap: `"host:port,..."`, a list of those, or a dict of settings; None takes the default.
    :param settings: keyword arguments; they win over the dict.
    :raises ConfigurationError: an unknown name, a value that cannot be.

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
        # As in Kafka: a user who asks for weaker acknowledgements has not asked for idempotence.
        given["enable_idempotence"] = str(given.get("acks", "all")).lower() in ("all", "-1")
    return cls(**given)


def _known_names(cls: type[ClientConfig], settings: Mapping[str, object]) -> dict[str, Any]:
    names = _names(cls)
    known = {}
    for given, value in settings.items():
        name = names.get(given.replace(".", "_"))
        if name is not None:
            known[name] = value
        elif not changes_nothing(given, value):
            raise ConfigurationError(_unknown(cls, given, names))
    return known


def _names(cls: type[ClientConfig]) -> dict[str, str]:
    """Return the names that a user may give, each with that of the field."""
    names = {field.name: field.name for field in dataclasses.fields(cls)}
    for field in dataclasses.fields(cls):
        names.update(dict.fromkeys(field.metadata["aliases"], field.name))
    return names


def _unknown(cls: type[ClientConfig], given: str, names: Iterable[str]) -> str:
    name, client = given.replace(".", "_"), _client(cls)
    for other in (ProducerConfig, ConsumerConfig):
        if name in _names(other):
            return f"{given!r} is a setting of {_client(other)}, not of {client}"
    near = difflib.get_close_matches(name, list(names), n=1, cutoff=NEAR)
    if near:
        suggestion = near[0].replace("_", ".") if "." in given else near[0]
        return f"{given!r} is not a setting of {client}; did you mean {suggestion!r}?"
    return f"{given!r} is not a setting of {client}; known are {', '.join(sorted(names))}"


def _client(cls: type[ClientConfig]) -> str:
    return cls.__name__.removesuffix("Config")
