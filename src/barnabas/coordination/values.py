"""The JSON that stands in the nodes: written with Kafka's field names, read with every field checked.

Fields that Kafka's own tools expect and that mean nothing here (`jmx_port`, `controller_epoch`) are written with
Kafka's value for "none". Fields that are not known are passed over, so that nodes which another version wrote
can be read.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from barnabas.addresses import host_port
from barnabas.coordination.tree import NodeError
from barnabas.model import LIFE_MAX, NO_LEADER_EPOCH, NO_OFFSET, LifeMark, OffsetAndMetadata

_TOPIC_ID_BYTES = 16
_GONE = -2

NO_LEADER = -1
"""The leader of a partition that has none."""

BROKER_EPOCH_MAX = 2**63 - 1
"""A fetch request has 64 signed bits for the broker epoch."""


class BadNodeError(NodeError):
    """What stands in a node is not what Barnabas or Kafka write there."""

    reason = "the node's value cannot be understood"


class NewerFormatError(NodeError):
    """The nodes are of a format that only newer releases know."""

    reason = "a newer release of Barnabas has written what stands in the tree"


FORMAT = 1
"""Of the nodes, all together; a release reads those of its own and of less. It grows when a release writes what those
before it would take for something else; a field that they pass over is no such thing."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker that is alive, as `/brokers/ids/<id>` tells it. Its node is ephemeral.

    :param host: at which clients reach it, at `port`.
    :param replication_host: at which other brokers fetch from it, at `replication_port`; 0 where none can.
    :param rack: where it stands; empty where nobody said.
    :param folder_id: of its data folder: who has it is this broker, and no other one with the same id.
    :param is_leaving: whether it is shutting down: it is not to become a leader, nor in sync again.
    :param release: of Barnabas; empty where it does not say.
    :param epoch: the broker epoch, a random number; 0 for a broker of release 0.1, which has `created_at`.
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


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A broker that is alive, and its broker epoch (KIP-380).

    Each registration has another epoch. Epochs are random, because any client that reaches the inter-broker listener
    could otherwise guess one and act as a follower. So epochs are compared for equality only.

    :param created_at: the `Stat.created_at` of the registration's node: the epoch for brokers of release 0.1.
    """

    registration: BrokerRegistration
    epoch: int
    created_at: int = field(default=0, compare=False)

    @classmethod
    def of(cls, registration: BrokerRegistration, created_at: int) -> LiveBroker:
        """Return the broker whose registration stands in a node."""
        return cls(registration, registration.epoch or created_at, created_at)

    @property
    def has_random_epoch(self) -> bool:
        """Whether the broker knows random epochs, which release 0.1 does not."""
        return self.registration.epoch > 0


@dataclass(frozen=True, slots=True)
class Remnant:
    """What a replica has left that may have lost records with the memory of its machine, or with its disk.

    :param epoch: of its last record.
    :param end_offset: where its log ends; -1 while it has not told.
    """

    broker_id: int
    epoch: int = NO_LEADER_EPOCH
    end_offset: int = NO_OFFSET

    @classmethod
    def gone(cls, broker_id: int) -> Remnant:
        """Return that a replica's log is gone: it has nothing to tell, unless that is put back."""
        return cls(broker_id, NO_LEADER_EPOCH, _GONE)

    @property
    def is_told(self) -> bool:
        """Whether it has told what it has."""
        return self.end_offset >= 0

    @property
    def is_gone(self) -> bool:
        """Whether its log is gone."""
        return self.end_offset == _GONE

    @property
    def extent(self) -> tuple[int, int]:
        """By which it is compared with others: of two replicas the one with the greater has all that both have."""
        return self.epoch, self.end_offset


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who leads a partition, since which epoch, and which replicas are in sync (design of Kafka 0.8).

    :param lost_memory: those that were in sync until they lost memory (`barnabas.replication.lost_memory`).
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    lost_memory: tuple[Remnant, ...] = ()


class ReplicaSet(NamedTuple):
    """The brokers that hold a partition, the preferred leader first; and, while they are being changed, which of them
    are new and which are to go (KIP-455). One that is new, and is not wanted any more, is both.

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
        """Those that are to hold it in the end."""
        return tuple(each for each in self.replicas if each not in self.removing)

    @property
    def origin(self) -> tuple[int, ...]:
        """Those that held it before."""
        return tuple(each for each in self.replicas if each not in self.adding)

    @property
    def is_moving(self) -> bool:
        """Whether they are being changed."""
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """A topic as `/brokers/topics/<topic>` tells it: its id (16 bytes), and each partition's replicas.

    :param adding: of partitions whose replicas are being changed, by number, those that are new.
    :param removing: likewise, those that are to go.
    """

    topic_id: bytes
    replicas: tuple[tuple[int, ...], ...]
    adding: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def replica_set(self, number: int) -> ReplicaSet:
        """Return the replicas of a partition."""
        return ReplicaSet(self.replicas[number], self.adding.get(number, ()), self.removing.get(number, ()))

    def changed(self, sets: Mapping[int, ReplicaSet]) -> TopicAssignment:
        """Return the same with other replicas of some partitions, by number."""
        all_sets = {number: self.replica_set(number) for number in range(len(self.replicas))} | dict(sets)
        return TopicAssignment(
            self.topic_id,
            tuple(all_sets[number].replicas for number in range(len(self.replicas))),
            {number: each.adding for number, each in all_sets.items() if each.adding},
            {number: each.removing for number, each in all_sets.items() if each.removing},
        )


@dataclass(frozen=True, slots=True)
class Deletion:
    """A topic that was deleted: the name it had, and the brokers that may have folders or offsets of it yet."""

    name: str
    brokers: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CommittedOffset:
    """A group's offset in one partition, and when it was committed."""

    offset: OffsetAndMetadata
    committed_ms: int


def encode_broker(broker: BrokerRegistration) -> bytes:
    """Return what `/brokers/ids/<id>` holds: Kafka's version 5, and what only Barnabas needs."""
    endpoints = [f"PLAINTEXT://{host_port(broker.host, broker.port)}"]
    if broker.replication_port:
        # Without brackets: release 0.1.0 reads this endpoint, and takes brackets for a part of an IPv6 address.
        endpoints.append(f"REPLICATION://{broker.replication_host}:{broker.replication_port}")
    return _dump(
        {
            "version": 5,
            "host": broker.host,
            "port": broker.port,
            "jmx_port": -1,
            "timestamp": str(broker.timestamp_ms),
            "endpoints": endpoints,
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT", "REPLICATION": "PLAINTEXT"},
            "rack": broker.rack or None,
            "features": {},
            "folder_id": broker.folder_id,
            "is_leaving": broker.is_leaving,
            "release": broker.release,
            "epoch": broker.epoch,
        }
    )


def decode_broker(path: str, data: bytes) -> BrokerRegistration:
    """Read what `/brokers/ids/<id>` holds; the id stands in the path alone."""
    fields = _Fields(path, data)
    name = path.rsplit("/", 1)[1]
    if not (name.isascii() and name.isdigit()):
        raise BadNodeError(path, f"a broker's id is a number, not {name!r}")
    replication_host, replication_port = _replication_endpoint(path, fields)
    epoch = fields.integer("epoch", 0)
    if not 0 <= epoch <= BROKER_EPOCH_MAX:
        raise BadNodeError(path, f"its broker epoch {epoch} is not a positive number of 63 bits")
    return BrokerRegistration(
        int(name),
        fields.string("host"),
        fields.integer("port"),
        fields.integer("timestamp"),
        replication_host,
        replication_port,
        fields.optional_string("rack"),
        fields.string("folder_id", ""),
        is_leaving=fields.boolean("is_leaving"),
        release=fields.string("release", ""),
        epoch=epoch,
    )


def _replication_endpoint(path: str, fields: _Fields) -> tuple[str, int]:
    for endpoint in fields.sequence("endpoints", ()):
        if isinstance(endpoint, str) and endpoint.startswith("REPLICATION://"):
            host, _, port = endpoint.removeprefix("REPLICATION://").rpartition(":")
            if not (port.isascii() and port.isdigit()):
                raise BadNodeError(path, f"its endpoint {endpoint!r} has no port")
            return host.removeprefix("[").removesuffix("]"), int(port)
    return "", 0


def encode_topic(topic: TopicAssignment) -> bytes:
    """Return what `/brokers/topics/<topic>` holds, in Kafka's version 3, which has the topic id (KIP-516)."""
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
    """Read what `/brokers/topics/<topic>` holds."""
    fields = _Fields(path, data)
    partitions = fields.mapping("partitions")
    try:
        replicas = tuple(_brokers(partitions[str(index)]) for index in range(len(partitions)))
        topic_id = base64.urlsafe_b64decode(fields.string("topic_id") + "==")
        adding, removing = (_replicas_by_number(fields, name) for name in ("adding_replicas", "removing_replicas"))
    except (KeyError, TypeError, ValueError) as error:
        raise BadNodeError(path, repr(error)) from error
    if len(topic_id) != _TOPIC_ID_BYTES:
        raise BadNodeError(path, f"a topic id of {len(topic_id)} bytes")
    return TopicAssignment(topic_id, replicas, adding, removing)


def _replicas_by_number(fields: _Fields, name: str) -> dict[int, tuple[int, ...]]:
    """Read what a topic's node says of partitions whose replicas are being changed; earlier versions say nothing."""
    found = fields.mapping(name, {})
    return {int(number): _brokers(each) for number, each in found.items() if each}


def encode_partition_state(state: PartitionState) -> bytes:
    """Return what a partition's `state` node holds: Kafka's version 1, and what only Barnabas needs, where there is
    any."""
    fields: dict[str, Any] = {
        "controller_epoch": 0,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.lost_memory:
        fields["lost_memory"] = encode_remnants(state.lost_memory)
    return _dump(fields)


def decode_partition_state(path: str, data: bytes) -> PartitionState:
    """Read what a partition's `state` node holds."""
    fields = _Fields(path, data)
    isr, lost = fields.sequence("isr"), fields.sequence("lost_memory", ())
    try:
        return PartitionState(
            fields.integer("leader"), fields.integer("leader_epoch"), _brokers(isr), decode_remnants(lost)
        )
    except (TypeError, ValueError) as error:
        raise BadNodeError(path, repr(error)) from error


def encode_remnants(remnants: Iterable[Remnant]) -> list[list[int]]:
    """Return the broker, epoch and end offset of each."""
    return [[each.broker_id, each.epoch, each.end_offset] for each in remnants]


def decode_remnants(found: Iterable[Any]) -> tuple[Remnant, ...]:
    """Read what `encode_remnants` made.

    :raises TypeError, ValueError: it is something else.
    """
    return tuple(Remnant(*_integers(each)) for each in found)


def encode_deletion(deletion: Deletion) -> bytes:
    """Return what `/admin/deleted_topic_ids/<id>` holds."""
    return _dump({"version": 1, "name": deletion.name, "brokers": list(deletion.brokers)})


def decode_deletion(path: str, data: bytes) -> Deletion:
    """Read what `/admin/deleted_topic_ids/<id>` holds; earlier releases wrote the bare name, or nothing."""
    if not data.startswith(b"{"):
        return Deletion(data.decode(errors="replace"), ())
    fields = _Fields(path, data)
    try:
        return Deletion(fields.string("name"), _brokers(fields.sequence("brokers")))
    except ValueError as error:
        raise BadNodeError(path, str(error)) from error


def encode_life(broker_id: int, mark: LifeMark) -> bytes:
    """Return what `/brokers/lives/<directory id>` holds."""
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
    """Read what `/brokers/lives/<directory id>` holds.

    :raises BadNodeError: a broker does not write such a value.
    """
    fields = _Fields(path, data)
    mark = LifeMark(fields.integer("life"), fields.integer("timestamp", 0), fields.integer("records", 0))
    if not all(0 <= each <= LIFE_MAX for each in mark):
        raise BadNodeError(path, f"a number is not within 0 and 2^53: {str(tuple(mark))[:100]}")
    return mark


def encode_config(config: Mapping[str, str]) -> bytes:
    """Return what `/config/topics/<topic>` and its kin hold."""
    return _dump({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Read what `/config/topics/<topic>` and its kin hold."""
    return {str(name): str(value) for name, value in _Fields(path, data).mapping("config").items()}


def encode_offset(offset: OffsetAndMetadata, committed_ms: int) -> bytes:
    """Return what a committed offset's node holds; fields that say nothing are left out."""
    fields: dict[str, Any] = {"version": 1, "offset": offset.offset, "timestamp": committed_ms}
    if offset.leader_epoch != NO_LEADER_EPOCH:
        fields["leader_epoch"] = offset.leader_epoch
    if offset.metadata:
        fields["metadata"] = offset.metadata
    return _dump(fields)


def decode_offset(path: str, data: bytes) -> CommittedOffset:
    """Read a committed offset; a bare number, as Kafka 0.8 writes it, is one too."""
    if data.isdigit():
        return CommittedOffset(OffsetAndMetadata(int(data)), 0)
    fields = _Fields(path, data)
    offset = OffsetAndMetadata(
        fields.integer("offset"),
        fields.string("metadata", ""),
        fields.integer("leader_epoch", NO_LEADER_EPOCH),
    )
    return CommittedOffset(offset, fields.integer("timestamp", 0))


def encode_consumer(topics: Iterable[str], registered_ms: int) -> bytes:
    """Return what a consumer's node holds: Kafka 0.8's version 1, with one stream of each topic."""
    subscription = dict.fromkeys(sorted(topics), 1)
    return _dump({"version": 1, "subscription": subscription, "pattern": "static", "timestamp": str(registered_ms)})


def decode_consumer(path: str, data: bytes) -> frozenset[str]:
    """Read the topics that a consumer subscribes to."""
    return frozenset(_Fields(path, data).mapping("subscription"))


def encode_cluster_id(cluster_id: str) -> bytes:
    """Return what `/cluster/id` holds: what Kafka writes there, and the format of all nodes."""
    return _dump({"version": "1", "id": cluster_id, "format": FORMAT})


def decode_cluster_id(path: str, data: bytes) -> str:
    """Read what `/cluster/id` holds.

    :raises NewerFormatError: this release does not know the format of the nodes.
    """
    fields = _Fields(path, data)
    found = fields.integer("format", 1)  # the nodes of 0.1.0 did not say it at first
    if found > FORMAT:
        raise NewerFormatError(path, f"its format is {found}, and this release knows {FORMAT}; start a newer one")
    return fields.string("id")


def encode_producer_id_block(broker_id: int, start: int, end: int) -> bytes:
    """Return what `/latest_producer_id_block` holds: the block taken last, both ends included."""
    return _dump({"version": 1, "broker": broker_id, "block_start": str(start), "block_end": str(end)})


def decode_producer_id_block_end(path: str, data: bytes) -> int:
    """Read the highest producer id that was given out."""
    return _Fields(path, data).integer("block_end")


class _Fields:
    """The fields of a JSON object, read with the type that they must have."""

    def __init__(self, path: str, data: bytes) -> None:
        self._path = path
        try:
            self._fields = json.loads(data)
        except (RecursionError, ValueError) as error:
            raise BadNodeError(path, str(error)) from error
        if not isinstance(self._fields, dict):
            raise BadNodeError(path, "it is not a JSON object")

    def string(self, name: str, default: str | None = None) -> str:
        value = self._fields.get(name, default)
        if not isinstance(value, str):
            raise self._wrong(name, value)
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        """Return a number; Kafka writes some of them as strings."""
        value = self._fields.get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise self._wrong(name, value)
        try:
            return int(value)
        except ValueError as error:
            raise self._wrong(name, value) from error

    def mapping(self, name: str, default: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        value = self._fields.get(name, default)
        if not isinstance(value, dict):
            raise self._wrong(name, value)
        return value

    def sequence(self, name: str, default: Sequence[Any] | None = None) -> Sequence[Any]:
        value = self._fields.get(name, default)
        if not isinstance(value, list | tuple):
            raise self._wrong(name, value)
        return value

    def optional_string(self, name: str) -> str:
        """Return a string, empty where there is none or null."""
        return "" if self._fields.get(name) is None else self.string(name)

    def boolean(self, name: str) -> bool:
        """Return whether it is so; false where nothing is said."""
        value = self._fields.get(name, False)
        if not isinstance(value, bool):
            raise self._wrong(name, value)
        return value

    def _wrong(self, name: str, value: object) -> BadNodeError:
        return BadNodeError(self._path, f"its field {name!r} is {value!r}")


def _brokers(ids: Sequence[Any]) -> tuple[int, ...]:
    if not all(isinstance(each, int) for each in ids):
        raise ValueError(f"these are no brokers: {ids!r}")
    return tuple(ids)


def _integers(found: Any) -> tuple[int, int, int]:
    broker_id, epoch, end_offset = found
    if not all(isinstance(each, int) for each in found):
        raise ValueError(f"these are no numbers: {found!r}")
    return broker_id, epoch, end_offset


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
