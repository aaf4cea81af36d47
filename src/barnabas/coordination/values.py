"""The JSON in the nodes of the metadata store, with Kafka's field names. Decoders check each field.

Some fields have no meaning in Barnabas, but Kafka's tools expect them (`jmx_port`, `controller_epoch`). They have
Kafka's value for "none". Unknown fields are ignored, so a release can read nodes that another release has written.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from barnabas.addresses import host_port
from barnabas.coordination.fields import (
    BROKER_ID_MAX,
    EPOCH_MAX,
    INT32_MAX,
    INT64_MAX,
    BadValueError,
    DamagedNodeError,
    Fields,
    broker_ids,
    host,
    is_text,
    is_topic_name,
    port,
    shown,
    whole_number,
)
from barnabas.coordination.metadata_store import NodeError
from barnabas.model import LIFE_MAX, NO_LEADER_EPOCH, NO_OFFSET, NO_PRODUCER_ID, LifeMark, OffsetAndMetadata

_GONE = -2
_TOPIC_ID = re.compile("[A-Za-z0-9_-]{21}[AQgw](==)?")
_CLUSTER_ID = re.compile(r"[!-~]{1,255}")
_BARE_NUMBER = re.compile(rb"[0-9]{1,19}")

PRODUCER_ID_MAX = 2**62
"""The highest allocated producer id that a broker accepts from the metadata store."""
SETTING_NAME_BYTES_MAX = 249
"""The maximum length of a setting's name in a configuration node; settings with longer names are ignored."""
FORMAT_MAX = 1_000
"""The highest plausible format of a later release. A higher number means that the node is damaged."""

NO_LEADER = -1
"""The value of `PartitionState.leader` for a partition without a leader."""

BROKER_EPOCH_MAX = 2**63 - 1
"""The highest broker epoch, because the field in a fetch request is a signed 64-bit integer."""


class NewerFormatError(NodeError):
    """The nodes have a format that only newer releases of Barnabas support."""

    reason = "a newer release of Barnabas has written the metadata"


FORMAT = 1
"""The format of all nodes together. A release can read its own format and all lower formats.

A release with a new format writes values that earlier releases would misinterpret. New fields that earlier releases
ignore need no new format.
"""


class BrokerEndpoint(NamedTuple):
    """The advertised address of one listener.

    :ivar listener: the name of the listener in upper case.
    :ivar protocol: its security protocol, such as `SASL_SSL`.
    """

    listener: str
    host: str
    port: int
    protocol: str = "PLAINTEXT"


CLIENT_LISTENER, BROKER_LISTENER = "PLAINTEXT", "REPLICATION"
"""The listeners that `BrokerRegistration.host` and `replication_host` describe."""
_USUAL = {(CLIENT_LISTENER, "PLAINTEXT"), (BROKER_LISTENER, "PLAINTEXT")}
SECURITY_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
ENDPOINTS_MAX = 64
"""The maximum number of endpoints of a broker; further endpoints are ignored."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """The registration of a live broker in the ephemeral node `/brokers/ids/<id>`.

    :param host: the host to which clients connect. `port` is the port for clients.
    :param replication_host: the host from which other brokers fetch. `replication_port` is the port for other brokers;
        0 if there is none.
    :param rack: the rack of the broker; empty if it has none.
    :param machine: the label of the broker's machine; empty if it has none.
    :param folder_id: the id of the data directory. It distinguishes this broker from another broker with the same id.
    :param is_leaving: True if the broker is shutting down. It must not become a leader or join the ISR.
    :param release: the release of Barnabas; empty if unknown.
    :param epoch: the broker epoch, a random number. It is 0 for a broker of release 0.1, whose broker epoch is
        `LiveBroker.created_at`.
    :param endpoints: all endpoints; empty if the broker has only the listeners PLAINTEXT and REPLICATION.
    """

    id: int
    host: str
    port: int
    timestamp_ms: int = 0
    replication_host: str = ""
    replication_port: int = 0
    rack: str = ""
    folder_id: str = ""
    is_leaving: bool = False
    release: str = ""
    epoch: int = 0
    endpoints: tuple[BrokerEndpoint, ...] = ()
    machine: str = ""

    def endpoint(self, listener: str) -> BrokerEndpoint | None:
        """Return the endpoint of a listener; None if the broker does not have the listener."""
        return next((each for each in self.all_endpoints() if each.listener == listener), None)

    def all_endpoints(self) -> tuple[BrokerEndpoint, ...]:
        """Return the endpoints of all listeners."""
        if self.endpoints:
            return self.endpoints
        clients = BrokerEndpoint(CLIENT_LISTENER, self.host, self.port)
        if not self.replication_port:
            return (clients,)
        return clients, BrokerEndpoint(BROKER_LISTENER, self.replication_host or self.host, self.replication_port)


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A live broker and its broker epoch (KIP-380).

    Each registration has a different epoch. Epochs are random: otherwise, a client that can reach the inter-broker
    listener could guess an epoch and act as a follower. So epochs are only compared for equality.

    :param created_at: the `Stat.created_at` of the registration's node. It is the broker epoch of a broker of release
        0.1.
    """

    registration: BrokerRegistration
    epoch: int
    created_at: int = field(default=0, compare=False)

    @classmethod
    def of(cls, registration: BrokerRegistration, created_at: int) -> LiveBroker:
        """Return the live broker with this registration. `created_at` belongs to the registration's node."""
        return cls(registration, registration.epoch or created_at, created_at)

    @property
    def has_random_epoch(self) -> bool:
        """True if the broker uses random broker epochs; False for release 0.1."""
        return self.registration.epoch > 0


@dataclass(frozen=True, slots=True)
class Remnant:
    """A former member of the ISR that may have lost records, and its reported log end.

    :param epoch: the leader epoch of its last record.
    :param end_offset: its log end offset; -1 until the broker has reported it.
    """

    broker_id: int
    epoch: int = NO_LEADER_EPOCH
    end_offset: int = NO_OFFSET

    @classmethod
    def gone(cls, broker_id: int) -> Remnant:
        """Return the entry for a replica whose log no longer exists.

        It has no log end until an operator restores the log.
        """
        return cls(broker_id, NO_LEADER_EPOCH, _GONE)

    @property
    def has_reported(self) -> bool:
        """True if the broker has reported its log end."""
        return self.end_offset >= 0

    @property
    def is_gone(self) -> bool:
        """True if the log of the replica no longer exists."""
        return self.end_offset == _GONE

    @property
    def extent(self) -> tuple[int, int]:
        """The sort key for log ends.

        Of two replicas, the one with the greater extent has all records that both replicas have.
        """
        return self.epoch, self.end_offset


@dataclass(frozen=True, slots=True)
class PartitionState:
    """The leader, the leader epoch and the in-sync replicas of a partition.

    :param lost_memory: the former members of the ISR that may lack records (`barnabas.replication.unclean_recovery`).
    :param is_doubted: True if the state is doubted: all replicas must report their log ends, because the metadata store
        is older than a log or another program wrote the state. A leader that such a state replaces may have records
        that no other replica has.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    lost_memory: tuple[Remnant, ...] = ()
    is_doubted: bool = False


UNREADABLE = PartitionState(NO_LEADER, NO_LEADER_EPOCH, ())
"""The value for a damaged partition state. Its leader epoch is lower than the leader epoch of any valid state."""


class ReplicaSet(NamedTuple):
    """The brokers that hold a partition, and the changes of a reassignment (KIP-455).

    The first replica is the preferred replica.

    A replica that an earlier reassignment added and that is no longer wanted is in both `adding` and `removing`.

    >>> ReplicaSet((1, 4, 2), adding=(4,), removing=(2,)).target
    (1, 4)
    >>> ReplicaSet((1, 4, 2), adding=(4,), removing=(2,)).origin
    (1, 2)
    """

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas after the completion of the reassignment."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """The replicas before the reassignment."""
        return tuple(each for each in self.replicas if each not in self.adding)

    @property
    def is_moving(self) -> bool:
        """True if the partition is being reassigned."""
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """The content of `/brokers/topics/<topic>`: the topic id (16 bytes) and the replicas of each partition.

    :param adding: the replicas that unfinished reassignments add, by partition number.
    :param removing: the replicas that unfinished reassignments remove, by partition number.
    """

    topic_id: bytes
    replicas: tuple[tuple[int, ...], ...]
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def replica_set(self, number: int) -> ReplicaSet:
        """Return the replicas of a partition, including an unfinished reassignment."""
        return ReplicaSet(self.replicas[number], self.adding.get(number, ()), self.removing.get(number, ()))

    def changed(self, sets: Mapping[int, ReplicaSet]) -> TopicAssignment:
        """Return a copy in which the given partitions have other replicas."""
        all_sets = {number: self.replica_set(number) for number in range(len(self.replicas))} | dict(sets)
        return TopicAssignment(
            self.topic_id,
            tuple(all_sets[number].replicas for number in range(len(self.replicas))),
            {number: each.adding for number, each in all_sets.items() if each.adding},
            {number: each.removing for number, each in all_sets.items() if each.removing},
        )


@dataclass(frozen=True, slots=True)
class Deletion:
    """A deletion note: the name of a deleted topic, and the brokers that may still have its files or offsets."""

    name: str
    brokers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A committed offset of a group in one partition, with the time of the commit."""

    offset: OffsetAndMetadata
    committed_ms: int


def encode_broker(broker: BrokerRegistration) -> bytes:
    """Return the data of `/brokers/ids/<id>`: the fields of Kafka's version 5, and additional fields of Barnabas."""
    endpoints = [
        # The host has no brackets, because release 0.1.0 would treat brackets as part of an IPv6 address.
        f"{BROKER_LISTENER}://{broker.replication_host}:{broker.replication_port}"
        if each.listener == BROKER_LISTENER and not broker.endpoints
        else f"{each.listener}://{host_port(each.host, each.port)}"
        for each in broker.all_endpoints()
    ]
    protocols = {CLIENT_LISTENER: "PLAINTEXT", BROKER_LISTENER: "PLAINTEXT"}
    if broker.endpoints:
        protocols = {each.listener: each.protocol for each in broker.endpoints}
    return _dump(
        {
            "version": 5,
            "host": broker.host,
            "port": broker.port,
            "jmx_port": -1,
            "timestamp": str(broker.timestamp_ms),
            "endpoints": endpoints,
            "listener_security_protocol_map": protocols,
            "rack": broker.rack or None,
            "features": {},
            "folder_id": broker.folder_id,
            "is_leaving": broker.is_leaving,
            "release": broker.release,
            "epoch": broker.epoch,
            **({"machine": broker.machine} if broker.machine else {}),
        }
    )


def decode_broker(path: str, data: bytes) -> BrokerRegistration:
    """Decode the data of `/brokers/ids/<id>`. The data does not contain the broker id; it is part of the path."""
    fields = Fields(path, data)
    name = path.rsplit("/", 1)[1]
    try:
        broker_id = whole_number(name, 0, BROKER_ID_MAX)
        endpoints = _endpoints(fields)
        _, replication_host, replication_port, _ = next(
            (each for each in endpoints if each.listener == BROKER_LISTENER), BrokerEndpoint(BROKER_LISTENER, "", 0)
        )
        return BrokerRegistration(
            broker_id,
            host(fields.value("host")),
            port(fields.value("port")),
            fields.integer("timestamp", -INT64_MAX, INT64_MAX),
            replication_host,
            replication_port,
            fields.optional_string("rack"),
            fields.string("folder_id", ""),
            is_leaving=fields.boolean("is_leaving"),
            release=fields.string("release", ""),
            epoch=fields.integer("epoch", 0, BROKER_EPOCH_MAX, 0),
            endpoints=() if all((each.listener, each.protocol) in _USUAL for each in endpoints) else endpoints,
            machine=fields.optional_string("machine"),
        )
    except BadValueError as error:
        raise DamagedNodeError(path, str(error)) from error


def _endpoints(fields: Fields) -> tuple[BrokerEndpoint, ...]:
    """Return the valid endpoints. Invalid endpoints, which other programs may have registered, are left out."""
    protocols = fields.mapping("listener_security_protocol_map", {})
    found = []
    for endpoint in fields.sequence("endpoints", ())[:ENDPOINTS_MAX]:
        if not isinstance(endpoint, str):
            continue
        name, separator, address = endpoint.partition("://")
        protocol = protocols.get(name, "PLAINTEXT")
        if not separator or not is_text(name) or protocol not in SECURITY_PROTOCOLS:
            continue
        host_name, _, number = address.rpartition(":")
        try:
            found.append(BrokerEndpoint(name, host(host_name), port(number), protocol))
        except BadValueError:
            if name == BROKER_LISTENER:
                raise
    return tuple(found)


def encode_topic(topic: TopicAssignment) -> bytes:
    """Return the data of `/brokers/topics/<topic>` in Kafka's version 3, which contains the topic id (KIP-516)."""
    return _dump(
        {
            "version": 3,
            "topic_id": base64.urlsafe_b64encode(topic.topic_id).rstrip(b"=").decode(),
            "partitions": {str(index): list(replicas) for index, replicas in enumerate(topic.replicas)},
            "adding_replicas": {str(number): list(each) for number, each in topic.adding.items()},
            "removing_replicas": {str(number): list(each) for number, each in topic.removing.items()},
        }
    )


def decode_topic(path: str, data: bytes) -> TopicAssignment:
    """Decode the data of `/brokers/topics/<topic>`.

    The result has no partitions if the topic is being created or deleted.
    """
    fields = Fields(path, data)
    partitions = fields.mapping("partitions")
    try:
        replicas = tuple(_replicas(partitions.get(str(index))) for index in range(len(partitions)))
        topic_id = decode_topic_id(fields.string("topic_id"))
        adding, removing = (_replicas_by_number(fields, name) for name in ("adding_replicas", "removing_replicas"))
        found = TopicAssignment(topic_id, replicas, adding, removing)
        for number in adding.keys() | removing.keys():
            _check_move(found.replica_set(number) if number < len(replicas) else ReplicaSet(()))
    except BadValueError as error:
        raise DamagedNodeError(path, str(error)) from error
    return found


def _replicas(found: object) -> tuple[int, ...]:
    if not (replicas := broker_ids(found)):
        raise BadValueError("a partition has no replicas")
    return replicas


def decode_topic_id(found: object) -> bytes:
    """Return a topic id.

    :raises BadValueError: the value is not a topic id.
    """
    if not isinstance(found, str) or not _TOPIC_ID.fullmatch(found):
        raise BadValueError(f"{shown(found)} is not a topic id")
    return base64.urlsafe_b64decode(found.rstrip("=") + "==")


def _replicas_by_number(fields: Fields, name: str) -> dict[int, tuple[int, ...]]:
    """Return the added or removed replicas by partition number. The field is missing in data of versions before 3."""
    found = fields.mapping(name, {})
    return {whole_number(number, 0, BROKER_ID_MAX): broker_ids(each) for number, each in found.items() if each}


def _check_move(found: ReplicaSet) -> None:
    """Check the changes of a reassignment.

    :raises BadValueError: an added or removed broker is not in the replicas, or all replicas are removed.
    """
    if not {*found.adding, *found.removing} <= set(found.replicas) or not found.target:
        moves = {"adding": list(found.adding), "removing": list(found.removing)}
        raise BadValueError(f"replicas {shown(list(found.replicas))} cannot change by {shown(moves)}")


def encode_partition_state(state: PartitionState) -> bytes:
    """Return the data of a partition's `state` node: Kafka's version 1 and additional fields of Barnabas."""
    fields: dict[str, Any] = {
        "controller_epoch": 0,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.lost_memory:
        fields["lost_memory"] = encode_remnants(state.lost_memory)
    if state.is_doubted:
        fields["doubted"] = True
    return _dump(fields)


def decode_partition_state(path: str, data: bytes) -> PartitionState:
    """Decode the data of a partition's `state` node."""
    fields = Fields(path, data)
    try:
        leader, epoch, isr = (fields.value(name) for name in ("leader", "leader_epoch", "isr"))
        state = checked_state(leader, epoch, isr, fields.value("lost_memory", ()))
        return replace(state, is_doubted=True) if fields.boolean("doubted") else state
    except BadValueError as error:
        raise DamagedNodeError(path, str(error)) from error


def checked_state(leader: object, leader_epoch: object, isr: object, lost_memory: object = ()) -> PartitionState:
    """Return a partition state from unchecked values.

    :raises BadValueError: no broker writes such a state.
    """
    state = PartitionState(
        whole_number(leader, NO_LEADER, BROKER_ID_MAX),
        whole_number(leader_epoch, 0, EPOCH_MAX),
        broker_ids(isr),
        decode_remnants(lost_memory),
    )
    if state.isr and state.leader not in (NO_LEADER, *state.isr):
        raise BadValueError(f"leader {state.leader} is not in the ISR {shown(list(state.isr))}")
    return state


def encode_remnants(remnants: Iterable[Remnant]) -> list[list[int]]:
    """Return the broker id, epoch and log end offset of each former member of the ISR."""
    return [[each.broker_id, each.epoch, each.end_offset] for each in remnants]


def decode_remnants(found: object) -> tuple[Remnant, ...]:
    """Decode the result of `encode_remnants`.

    :raises BadValueError: the value has another form.
    """
    if not isinstance(found, list | tuple) or not all(isinstance(each, list) and len(each) == 3 for each in found):
        raise BadValueError(f"{shown(found)} is not a list of reported log ends")
    remnants = tuple(
        Remnant(
            whole_number(broker_id, 0, BROKER_ID_MAX),
            whole_number(epoch, NO_LEADER_EPOCH, EPOCH_MAX),
            whole_number(end_offset, _GONE, INT64_MAX),
        )
        for broker_id, epoch, end_offset in found
    )
    if len({each.broker_id for each in remnants}) < len(remnants):
        raise BadValueError(f"{shown(found)} names a broker twice")
    return remnants


def encode_deletion(deletion: Deletion) -> bytes:
    """Return the data of `/admin/deleted_topic_ids/<id>`."""
    return _dump({"version": 1, "name": deletion.name, "brokers": list(deletion.brokers)})


def decode_deletion(path: str, data: bytes) -> Deletion:
    """Decode the data of `/admin/deleted_topic_ids/<id>`. Earlier releases wrote only the topic name, or no data."""
    brokers: tuple[int, ...] = ()
    if not data.startswith(b"{"):
        name = data.decode(errors="replace")
    else:
        fields = Fields(path, data)
        name, brokers = fields.string("name"), fields.brokers("brokers")
    if name and not is_topic_name(name):
        raise DamagedNodeError(path, f"{shown(name)} is not a topic name")
    return Deletion(name, brokers)


def encode_life(broker_id: int, mark: LifeMark) -> bytes:
    """Return the data of `/brokers/lives/<directory id>`."""
    return _dump(
        {
            "version": 1,
            "broker": broker_id,
            "life": mark.life,
            "timestamp": mark.noted_ms,
            "records": mark.record_count,
        }
    )


def decode_life(path: str, data: bytes) -> LifeMark:
    """Decode the data of `/brokers/lives/<directory id>`.

    :raises DamagedNodeError: no broker writes such a value.
    """
    fields = Fields(path, data)
    return LifeMark(
        fields.integer("life", 0, LIFE_MAX),
        fields.integer("timestamp", 0, LIFE_MAX, 0),
        fields.integer("records", 0, LIFE_MAX, 0),
    )


def encode_config(config: Mapping[str, str]) -> bytes:
    """Return the data of a configuration node such as `/config/topics/<topic>`."""
    return _dump({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Decode the data of a configuration node such as `/config/topics/<topic>`.

    A value that is not a string, or is too long, is replaced with a string that no setting accepts. So the later check
    of the settings rejects this value and reports the name of the setting.

    :raises DamagedNodeError: the node contains no settings.
    """
    found = Fields(path, data).mapping("config", {}) if data else {}
    return {name: _setting(value) for name, value in found.items() if is_text(name, SETTING_NAME_BYTES_MAX)}


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if is_text(value) or isinstance(value, int) else shown(value)


def encode_offset(offset: OffsetAndMetadata, committed_ms: int) -> bytes:
    """Return the data of a committed offset's node. Empty fields are left out."""
    fields: dict[str, Any] = {"version": 1, "offset": offset.offset, "timestamp": committed_ms}
    if offset.leader_epoch != NO_LEADER_EPOCH:
        fields["leader_epoch"] = offset.leader_epoch
    if offset.metadata:
        fields["metadata"] = offset.metadata
    return _dump(fields)


def decode_offset(path: str, data: bytes) -> CommittedOffset:
    """Decode a committed offset. The data is JSON, or only a number if Kafka 0.8 wrote it."""
    if _BARE_NUMBER.fullmatch(data):
        data = b'{"offset":"%s"}' % data
    fields = Fields(path, data)
    offset = OffsetAndMetadata(
        fields.integer("offset", 0, INT64_MAX),
        fields.string("metadata", ""),
        fields.integer("leader_epoch", NO_LEADER_EPOCH, INT32_MAX, NO_LEADER_EPOCH),
    )
    return CommittedOffset(offset, fields.integer("timestamp", -INT64_MAX, INT64_MAX, 0))


def encode_consumer(topics: Iterable[str], registered_ms: int) -> bytes:
    """Return the data of a consumer's node in Kafka 0.8's version 1, with one stream per topic."""
    subscription = dict.fromkeys(sorted(topics), 1)
    return _dump({"version": 1, "subscription": subscription, "pattern": "static", "timestamp": str(registered_ms)})


def decode_consumer(path: str, data: bytes) -> frozenset[str]:
    """Decode the topics that a consumer subscribes to."""
    return frozenset(Fields(path, data).mapping("subscription"))


def encode_cluster_id(cluster_id: str) -> bytes:
    """Return the data of `/cluster/id`: Kafka's fields and the format of all nodes."""
    return _dump({"version": "1", "id": cluster_id, "format": FORMAT})


def decode_cluster_id(path: str, data: bytes) -> str:
    """Decode the data of `/cluster/id`.

    :raises NewerFormatError: this release does not support the format of the nodes.
    """
    fields = Fields(path, data)
    found = fields.integer("format", 1, FORMAT_MAX, 1)  # Nodes of early builds of release 0.1.0 have no format.
    if found > FORMAT:
        raise NewerFormatError(path, f"format {found}, but this release supports up to {FORMAT}; start a newer release")
    found_id = fields.string("id")
    if not _CLUSTER_ID.fullmatch(found_id):
        raise DamagedNodeError(path, f"{shown(found_id)} is not a cluster id")
    return found_id


@dataclass(frozen=True, slots=True)
class ProducerIdCounter:
    """The counter of allocated producer ids.

    :param end: the highest allocated id; -1 if there is none.
    :param raised_to: the highest producer id above the counter that a broker has found in a log. Brokers must not use
        blocks below this id.
    """

    end: int = NO_PRODUCER_ID
    raised_to: int = NO_PRODUCER_ID


def encode_producer_id_block(broker_id: int, start: int, end: int, raised_to: int = NO_PRODUCER_ID) -> bytes:
    """Return the data of `/latest_producer_id_block`: the ends of the latest block, and `raised_to` if it is set."""
    fields = {"version": 1, "broker": broker_id, "block_start": str(start), "block_end": str(end)}
    return _dump(fields if raised_to == NO_PRODUCER_ID else {**fields, "raised_to": str(raised_to)})


def decode_producer_id_counter(path: str, data: bytes) -> ProducerIdCounter:
    """Decode the counter of allocated producer ids."""
    fields = Fields(path, data)
    end = fields.integer("block_end", NO_PRODUCER_ID, PRODUCER_ID_MAX)
    return ProducerIdCounter(end, fields.integer("raised_to", NO_PRODUCER_ID, PRODUCER_ID_MAX, NO_PRODUCER_ID))


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
