"""The JSON that stands in the nodes: written with Kafka's field names, read with every field checked.

Fields that Kafka's own tools expect and that mean nothing here (`jmx_port`, `controller_epoch`) are written with
Kafka's value for "none". Fields that are not known are passed over, so that nodes which another version wrote
can be read.
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
"""The highest producer id that a broker believes the tree to have given out; as many are left above it."""
SETTING_NAME_BYTES_MAX = 249
"""Longer names are no settings'."""
FORMAT_MAX = 1_000
"""What is above is no format of a later release."""

NO_LEADER = -1
"""The leader of a partition that has none."""

BROKER_EPOCH_MAX = 2**63 - 1
"""A fetch request has 64 signed bits for the broker epoch."""


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

    :param lost_memory: those that were in sync until they lost memory (`barnabas.replication.unclean_recovery`).
    :param is_doubted: all replicas report what they have, because the tree is older than a log, or a stranger wrote the
        state. A leader that such a state deposes may have records that no later leader has.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    lost_memory: tuple[Remnant, ...] = ()
    is_doubted: bool = False


UNREADABLE = PartitionState(NO_LEADER, NO_LEADER_EPOCH, ())
"""Stands for a state that no broker writes; its epoch is below that of each other state."""


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
    fields = Fields(path, data)
    name = path.rsplit("/", 1)[1]
    try:
        broker_id = whole_number(name, 0, BROKER_ID_MAX)
        replication_host, replication_port = _replication_endpoint(fields)
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
        )
    except BadValueError as error:
        raise DamagedNodeError(path, str(error)) from error


def _replication_endpoint(fields: Fields) -> tuple[str, int]:
    for endpoint in fields.sequence("endpoints", ()):
        if isinstance(endpoint, str) and endpoint.startswith("REPLICATION://"):
            name, _, number = endpoint.removeprefix("REPLICATION://").rpartition(":")
            return host(name), port(number)
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
    """Read what `/brokers/topics/<topic>` holds; of a topic that is being made or deleted that is no partition."""
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
    """Return the id of a topic.

    :raises BadValueError: it is none.
    """
    if not isinstance(found, str) or not _TOPIC_ID.fullmatch(found):
        raise BadValueError(f"{shown(found)} is no topic id")
    return base64.urlsafe_b64decode(found.rstrip("=") + "==")


def _replicas_by_number(fields: Fields, name: str) -> dict[int, tuple[int, ...]]:
    """Read what a topic's node says of partitions whose replicas are being changed; earlier versions say nothing."""
    found = fields.mapping(name, {})
    return {whole_number(number, 0, BROKER_ID_MAX): broker_ids(each) for number, each in found.items() if each}


def _check_move(found: ReplicaSet) -> None:
    """:raises BadValueError: the replicas that come and go are none, or nobody stays."""
    if not {*found.adding, *found.removing} <= set(found.replicas) or not found.target:
        moves = {"adding": list(found.adding), "removing": list(found.removing)}
        raise BadValueError(f"replicas {shown(list(found.replicas))} cannot change by {shown(moves)}")


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
    if state.is_doubted:
        fields["doubted"] = True
    return _dump(fields)


def decode_partition_state(path: str, data: bytes) -> PartitionState:
    """Read what a partition's `state` node holds."""
    fields = Fields(path, data)
    try:
        leader, epoch, isr = (fields.value(name) for name in ("leader", "leader_epoch", "isr"))
        state = checked_state(leader, epoch, isr, fields.value("lost_memory", ()))
        return replace(state, is_doubted=True) if fields.boolean("doubted") else state
    except BadValueError as error:
        raise DamagedNodeError(path, str(error)) from error


def checked_state(leader: object, leader_epoch: object, isr: object, lost_memory: object = ()) -> PartitionState:
    """Return a partition's state.

    :raises BadValueError: no broker writes such a state.
    """
    state = PartitionState(
        whole_number(leader, NO_LEADER, BROKER_ID_MAX),
        whole_number(leader_epoch, 0, EPOCH_MAX),
        broker_ids(isr),
        decode_remnants(lost_memory),
    )
    if state.isr and state.leader not in (NO_LEADER, *state.isr):
        raise BadValueError(f"its leader {state.leader} is not in sync; in sync are {shown(list(state.isr))}")
    return state


def encode_remnants(remnants: Iterable[Remnant]) -> list[list[int]]:
    """Return the broker, epoch and end offset of each."""
    return [[each.broker_id, each.epoch, each.end_offset] for each in remnants]


def decode_remnants(found: object) -> tuple[Remnant, ...]:
    """Read what `encode_remnants` made.

    :raises BadValueError: it is something else.
    """
    if not isinstance(found, list | tuple) or not all(isinstance(each, list) and len(each) == 3 for each in found):
        raise BadValueError(f"{shown(found)} does not say what replicas have left")
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
    """Return what `/admin/deleted_topic_ids/<id>` holds."""
    return _dump({"version": 1, "name": deletion.name, "brokers": list(deletion.brokers)})


def decode_deletion(path: str, data: bytes) -> Deletion:
    """Read what `/admin/deleted_topic_ids/<id>` holds; earlier releases wrote the bare name, or nothing."""
    brokers: tuple[int, ...] = ()
    if not data.startswith(b"{"):
        name = data.decode(errors="replace")
    else:
        fields = Fields(path, data)
        name, brokers = fields.string("name"), fields.brokers("brokers")
    if name and not is_topic_name(name):
        raise DamagedNodeError(path, f"{shown(name)} is no name of a topic")
    return Deletion(name, brokers)


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

    :raises DamagedNodeError: a broker does not write such a value.
    """
    fields = Fields(path, data)
    return LifeMark(
        fields.integer("life", 0, LIFE_MAX),
        fields.integer("timestamp", 0, LIFE_MAX, 0),
        fields.integer("records", 0, LIFE_MAX, 0),
    )


def encode_config(config: Mapping[str, str]) -> bytes:
    """Return what `/config/topics/<topic>` and its kin hold."""
    return _dump({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Read what `/config/topics/<topic>` and its kin hold.

    A value that is no text of a bounded length becomes one that no setting can have. So the check of the settings
    refuses it, and knows its name.

    :raises DamagedNodeError: there are no settings in it.
    """
    found = Fields(path, data).mapping("config", {}) if data else {}
    return {name: _setting(value) for name, value in found.items() if is_text(name, SETTING_NAME_BYTES_MAX)}


def _setting(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if is_text(value) or isinstance(value, int) else shown(value)


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
    """Return what a consumer's node holds: Kafka 0.8's version 1, with one stream of each topic."""
    subscription = dict.fromkeys(sorted(topics), 1)
    return _dump({"version": 1, "subscription": subscription, "pattern": "static", "timestamp": str(registered_ms)})


def decode_consumer(path: str, data: bytes) -> frozenset[str]:
    """Read the topics that a consumer subscribes to."""
    return frozenset(Fields(path, data).mapping("subscription"))


def encode_cluster_id(cluster_id: str) -> bytes:
    """Return what `/cluster/id` holds: what Kafka writes there, and the format of all nodes."""
    return _dump({"version": "1", "id": cluster_id, "format": FORMAT})


def decode_cluster_id(path: str, data: bytes) -> str:
    """Read what `/cluster/id` holds.

    :raises NewerFormatError: this release does not know the format of the nodes.
    """
    fields = Fields(path, data)
    found = fields.integer("format", 1, FORMAT_MAX, 1)  # the nodes of 0.1.0 did not say it at first
    if found > FORMAT:
        raise NewerFormatError(path, f"its format is {found}, and this release knows {FORMAT}; start a newer one")
    found_id = fields.string("id")
    if not _CLUSTER_ID.fullmatch(found_id):
        raise DamagedNodeError(path, f"{shown(found_id)} is no id of a cluster")
    return found_id


@dataclass(frozen=True, slots=True)
class ProducerIdCounter:
    """How far producer ids are allocated.

    :param end: the highest id that was allocated; -1 if there is none.
    :param raised_to: the highest id that a broker found in a log above the counter; blocks below it are not to be used.
    """

    end: int = NO_PRODUCER_ID
    raised_to: int = NO_PRODUCER_ID


def encode_producer_id_block(broker_id: int, start: int, end: int, raised_to: int = NO_PRODUCER_ID) -> bytes:
    """Return what `/latest_producer_id_block` holds: the block taken last, both ends included, and how far it was
    raised, if it was."""
    fields = {"version": 1, "broker": broker_id, "block_start": str(start), "block_end": str(end)}
    return _dump(fields if raised_to == NO_PRODUCER_ID else {**fields, "raised_to": str(raised_to)})


def decode_producer_id_counter(path: str, data: bytes) -> ProducerIdCounter:
    """Read how far producer ids are allocated."""
    fields = Fields(path, data)
    end = fields.integer("block_end", NO_PRODUCER_ID, PRODUCER_ID_MAX)
    return ProducerIdCounter(end, fields.integer("raised_to", NO_PRODUCER_ID, PRODUCER_ID_MAX, NO_PRODUCER_ID))


def _dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
