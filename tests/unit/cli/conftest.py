"""A cluster in memory, behind the clients that the command imports: just what the command asks of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import pytest

import barnabas
from barnabas.cli.main import main
from barnabas.client.admin.brokers import ClusterDescription, LogDir
from barnabas.client.admin.configs import ConfigSetting, ConfigSource, ConfigSynonym, ConfigType
from barnabas.client.admin.groups import GroupDescription, GroupListing, MemberDescription
from barnabas.client.admin.reassignments import Reassignment
from barnabas.client.admin.topics import PartitionDescription, TopicDescription
from barnabas.errors import ApiError, BarnabasError, DisconnectedError, ErrorCode, TimedOutError
from barnabas.model import (
    Node,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RecordMetadata,
    TimestampType,
    TopicPartition,
)
from barnabas.records import Record


@dataclass
class FakeCluster:
    """Topics as lists of records per partition, committed offsets, and what clients were told."""

    partitions: dict[TopicPartition, list[Record]] = field(default_factory=dict)
    committed: dict[str, dict[TopicPartition, OffsetAndMetadata]] = field(default_factory=dict)
    members: dict[str, list[MemberDescription]] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    bootstrap: Any = None
    produce_error: BarnabasError | None = None
    is_down: bool = False
    nodes: list[Node] = field(default_factory=lambda: [Node(0, "localhost", 9092)])
    silent: set[int] = field(default_factory=set)
    """Brokers that do not answer."""
    offline_folders: dict[int, str] = field(default_factory=dict)
    """A folder of each of these brokers."""
    folders: dict[int, dict[str, LogDir]] = field(default_factory=dict)
    """Those of brokers that have several, by path."""
    asked_to_move: dict[TopicPartition, str] = field(default_factory=dict)
    move_refusal: ErrorCode = ErrorCode.NONE
    placed: dict[TopicPartition, PartitionDescription] = field(default_factory=dict)
    """Partitions that are not led and kept by broker 0 alone."""

    undescribed: dict[str, ErrorCode] = field(default_factory=dict)
    """Further topics, of which the brokers tell no more than why."""
    moving: dict[TopicPartition, Reassignment] = field(default_factory=dict)
    log_starts: dict[TopicPartition, int] = field(default_factory=dict)
    """The log start offsets that are not 0."""
    on_look: Callable[[], None] = lambda: None
    """Called when it is asked what moves."""
    on_reassign: Callable[[], None] = lambda: None
    """Called when partitions are to move."""

    def where(self, tp: TopicPartition) -> PartitionDescription:
        return self.placed.get(tp, PartitionDescription(tp.partition, 0, (0,), (0,)))

    def place(self, topic: str, partition: int, leader: int, replicas: Sequence[int], isr: Sequence[int]) -> None:
        tp = TopicPartition(topic, partition)
        self.partitions.setdefault(tp, [])
        self.placed[tp] = PartitionDescription(partition, leader, tuple(replicas), tuple(isr))

    def create(self, topic: str, partition_count: int = 1) -> None:
        for partition in range(partition_count):
            self.partitions[TopicPartition(topic, partition)] = []

    def append(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        partition: int = 0,
        headers: Any = (),
        timestamp_ms: int | None = None,
    ) -> int:
        log = self.partitions[TopicPartition(topic, partition)]
        stamp = 1_000 + len(log) if timestamp_ms is None else timestamp_ms
        log.append(
            Record(topic, partition, len(log), stamp, TimestampType.CREATE_TIME, key, value, tuple(headers or ()))
        )
        return len(log) - 1

    def topics(self) -> list[str]:
        return sorted({tp.topic for tp in self.partitions})

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for tp in sorted(self.partitions) if tp.topic == topic for record in self.partitions[tp]]


GROUP_SETTINGS = {"consumer.session.timeout.ms": "45000"}
SETTINGS = {"retention.ms": "604800000", "segment.bytes": "1073741824"}
THROTTLED = {"leader.replication.throttled.replicas": "", "follower.replication.throttled.replicas": ""}


def setting(name: str, own: str | None, default: str) -> ConfigSetting:
    """A setting as a broker describes it."""
    synonyms = [ConfigSynonym(name, default, ConfigSource.DEFAULT)]
    if own is not None:
        synonyms.insert(0, ConfigSynonym(name, own, ConfigSource.TOPIC))
    first = synonyms[0]
    return ConfigSetting(
        name, first.value, first.source, ConfigType.LONG, f"About {name}.", False, False, tuple(synonyms)
    )


class FakeClient:
    def __init__(self, cluster: FakeCluster, bootstrap: Any, **settings: Any) -> None:
        self.cluster = cluster
        self.settings = {**bootstrap, **settings} if isinstance(bootstrap, dict) else settings
        cluster.bootstrap = bootstrap["bootstrap.servers"] if isinstance(bootstrap, dict) else bootstrap

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_details: object) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is held."""


class FakeAdmin(FakeClient):
    def brokers(self) -> list[Node]:
        if self.cluster.is_down:
            at = self.cluster.bootstrap
            reason = "Connection refused"
            raise DisconnectedError(f"no broker at {at}: cannot connect to {at}: {reason}; is it running?", reason)
        return list(self.cluster.nodes)

    def alter_partition_reassignments(self, targets: Mapping[tuple[str, int], Sequence[int] | None]) -> None:
        self.cluster.on_reassign()
        for where, target in targets.items():
            tp = TopicPartition(*where)
            before = self.cluster.where(tp)
            if target is None:
                del self.cluster.moving[tp]
                continue
            replicas = tuple(dict.fromkeys((*target, *before.replicas)))
            adding = tuple(each for each in replicas if each not in before.replicas)
            removing = tuple(each for each in replicas if each not in target)
            self.cluster.moving[tp] = Reassignment(replicas, adding, removing)

    def list_partition_reassignments(
        self, tps: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        wanted = None if tps is None else set(tps)
        found = {tp: each for tp, each in self.cluster.moving.items() if wanted is None or tp in wanted}
        self.cluster.on_look()
        return found

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        return self.cluster.topics()

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        if name in self.cluster.topics():
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, subject=f"topic {name!r}")
        self.cluster.create(name, partitions)
        self.cluster.settings[name] = dict(config or {})

    def add_partitions(self, name: str, total: int) -> None:
        if total <= len([tp for tp in self.cluster.partitions if tp.topic == name]):
            raise ApiError(ErrorCode.INVALID_PARTITIONS, subject=f"topic {name!r}")
        for partition in range(total):
            self.cluster.partitions.setdefault(TopicPartition(name, partition), [])

    def describe_config(
        self,
        topic: str | None = None,
        *,
        broker: int | None = None,
        group: str | None = None,
        all_brokers: bool = False,
    ) -> dict[str, ConfigSetting]:
        if all_brokers:
            changed = self.cluster.settings.get("brokers", {})
            return {name: setting(name, value, "") for name, value in changed.items()}
        if group is not None:
            own = self.cluster.settings.get(f"group {group}", {})
            return {name: setting(name, own.get(name), default) for name, default in GROUP_SETTINGS.items()}
        own = self.cluster.settings.get(topic or "", {})
        return {name: setting(name, own.get(name), default) for name, default in SETTINGS.items()}

    def alter_config(
        self,
        topic: str | None = None,
        *,
        broker: int | None = None,
        group: str | None = None,
        all_brokers: bool = False,
        to_set: Mapping[str, str] | None = None,
        to_unset: Iterable[str] = (),
    ) -> None:
        if broker is not None:
            raise ApiError(ErrorCode.INVALID_REQUEST, "only topics' settings can be changed")
        for name in () if all_brokers else to_set or {}:
            if name not in (SETTINGS | THROTTLED if group is None else GROUP_SETTINGS):
                raise ApiError(ErrorCode.INVALID_CONFIG, f"there is no setting {name!r}")
        whose = "brokers" if all_brokers else (topic or "") if group is None else f"group {group}"
        own = self.cluster.settings.setdefault(whose, {})
        own.update(to_set or {})
        for name in to_unset:
            own.pop(name, None)

    def delete_topic(self, name: str) -> None:
        for tp in [tp for tp in self.cluster.partitions if tp.topic == name]:
            del self.cluster.partitions[tp]

    def describe_topics(
        self, names: Iterable[str] | None = None, *, include_internal: bool = False
    ) -> list[TopicDescription]:
        return [
            TopicDescription(
                name,
                f"id-of-{name}",
                tuple(self.cluster.where(tp) for tp in sorted(self.cluster.partitions) if tp.topic == name),
            )
            for name in (self.cluster.topics() if names is None else names)
            if include_internal or names is not None or not name.startswith("__")
        ] + [TopicDescription(name, "", (), error) for name, error in self.cluster.undescribed.items() if names is None]

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.cluster.log_starts.get(tp, 0) for tp in partitions}

    def delete_records(self, offsets: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
        self.cluster.log_starts |= {TopicPartition(*tp): offset for tp, offset in offsets.items()}
        return {TopicPartition(*tp): offset for tp, offset in offsets.items()}

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        assert all(self.cluster.where(tp).leader >= 0 for tp in partitions), "nobody can tell"
        return {tp: len(self.cluster.partitions[tp]) for tp in partitions}

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        return {
            tp: next(
                (
                    OffsetAndTimestamp(record.offset, record.timestamp_ms)
                    for record in self.cluster.partitions[tp]
                    if record.timestamp_ms >= time
                ),
                None,
            )
            for tp, time in timestamps_ms.items()
        }

    def group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        return self.cluster.committed.get(group, {})

    def set_group_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        committed = self.cluster.committed.setdefault(group, {})
        committed.update({TopicPartition(*tp): OffsetAndMetadata(offset) for tp, offset in offsets.items()})

    def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("its-id", self.cluster.nodes[0], tuple(self.cluster.nodes))

    def describe_topic_configs(
        self, topics: Iterable[str], settings: Iterable[str]
    ) -> dict[str, dict[str, ConfigSetting]]:
        return {
            topic: {
                name: setting(name, self.cluster.settings.get(topic, {}).get(name), THROTTLED.get(name, "1"))
                for name in settings
            }
            for topic in topics
        }

    def list_groups(
        self, *, states: Sequence[str] = (), types: Sequence[str] = (), broker: int | None = None
    ) -> list[GroupListing]:
        if broker in self.cluster.silent:
            raise TimedOutError("no answer")
        names = sorted({*self.cluster.committed, *self.cluster.members})
        listed = [GroupListing(name, self.describe_group(name).state, "consumer", "classic") for name in names]
        return [
            each for each in listed if each.state in (states or [each.state]) and each.type in (types or ["classic"])
        ]

    def log_dirs(self, broker: int | None = None, *, with_sizes: bool = True) -> list[LogDir]:
        if broker is None:
            return [folder for node in self.cluster.nodes for folder in self.log_dirs(node.id, with_sizes=with_sizes)]
        if broker in self.cluster.silent:
            raise TimedOutError("no answer")
        if broker in self.cluster.folders:
            self.cluster.on_look()
            return list(self.cluster.folders[broker].values())
        sizes = dict.fromkeys(self.cluster.partitions, 1000) if with_sizes else {}
        offline = self.cluster.offline_folders.get(broker)
        good = LogDir(broker, "/data", ErrorCode.NONE, None, None, sizes)
        return [good, LogDir(broker, offline, ErrorCode.KAFKA_STORAGE_ERROR, None, None, {})] if offline else [good]

    def alter_replica_log_dirs(
        self, broker: int, folders: Mapping[tuple[str, int], str]
    ) -> dict[TopicPartition, ErrorCode]:
        assert broker in self.cluster.folders
        self.cluster.asked_to_move |= {TopicPartition(*where): path for where, path in folders.items()}
        return {TopicPartition(*where): self.cluster.move_refusal for where in folders}

    def describe_group(self, group: str) -> GroupDescription:
        members = tuple(self.cluster.members.get(group, ()))
        state = "Stable" if members else "Empty" if group in self.cluster.committed else "Dead"
        return GroupDescription(
            group, state, "consumer", "range" if members else "", members, Node(0, "localhost", 9092)
        )

    def describe_groups(self, groups: Iterable[str]) -> list[GroupDescription]:
        return [self.describe_group(group) for group in groups]

    def offsets_of_groups(self, groups: Iterable[str]) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        return {group: self.group_offsets(group) for group in groups}

    def delete_group_offsets(self, group: str, tps: Iterable[TopicPartition]) -> None:
        for tp in tps:
            del self.cluster.committed[group][tp]

    def delete_group(self, group: str) -> None:
        if self.cluster.members.get(group):
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, f"group {group!r} has members; stop them first")
        del self.cluster.committed[group]


class FakeConsumer(FakeClient):
    def __init__(self, cluster: FakeCluster, bootstrap: Any, **settings: Any) -> None:
        super().__init__(cluster, bootstrap, **settings)
        self.positions: dict[TopicPartition, int] = {}
        self.paused: set[TopicPartition] = set()

    def assign(self, partitions: Sequence[TopicPartition]) -> None:
        self.positions = dict.fromkeys(partitions, 0)

    def subscribe(
        self,
        topics: Sequence[str] = (),
        *,
        pattern: str | None = None,
        on_assign: Callable[..., object],
        on_revoke: Callable[..., object] = lambda _tps: None,
    ) -> None:
        group = self.settings.get("group")
        if group and self.cluster.members.get(group):
            on_assign([])  # the others have all there is
            return
        if pattern is not None:
            topics = [name for name in self.cluster.topics() if re.fullmatch(pattern, name)]
        offsets = self.cluster.committed.get(group, {}) if group else {}
        self.positions = {
            tp: offsets[tp].offset if tp in offsets else 0 for tp in self.cluster.partitions if tp.topic in topics
        }
        on_assign(list(self.positions))

    def assignment(self) -> set[TopicPartition]:
        return set(self.positions)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        self.positions[partition] = offset

    def position(self, partition: TopicPartition) -> int:
        return self.positions[partition]

    def pause(self, *partitions: TopicPartition) -> None:
        self.paused.update(partitions)

    def poll(self, max_records: int = 500, timeout_s: float = 1.0) -> list[Record]:
        taken: list[Record] = []
        for tp in sorted(self.positions.keys() - self.paused):
            records = self.cluster.partitions[tp][self.positions[tp] :][: max_records - len(taken)]
            self.positions[tp] += len(records)
            taken += records
        return taken

    def commit(self) -> None:
        self.cluster.committed[self.settings["group"]] = {
            tp: OffsetAndMetadata(offset) for tp, offset in self.positions.items()
        }


@dataclass
class FakeDelivery:
    metadata: RecordMetadata
    error: BarnabasError | None

    def done(self) -> bool:
        return True

    def exception(self) -> BarnabasError | None:
        return self.error


class FakeDeliveries(list[FakeDelivery]):
    def result(self) -> list[RecordMetadata]:
        for delivery in self:
            if delivery.error is not None:
                raise delivery.error
        return [delivery.metadata for delivery in self]

    def done(self) -> bool:
        return True

    def exception(self) -> BarnabasError | None:
        return next((delivery.error for delivery in self if delivery.error is not None), None)

    def check(self) -> None:
        self.result()


class FakeProducer(FakeClient):
    def send_many(
        self,
        topic: str,
        values: Sequence[bytes],
        *,
        keys: Sequence[bytes | None] | None = None,
        partition: int | None = None,
        timestamps_ms: Sequence[int] | None = None,
        headers: Sequence[Any] | None = None,
    ) -> FakeDeliveries:
        error, cluster = self.cluster.produce_error, self.cluster
        deliveries = FakeDeliveries()
        for at, value in enumerate(values):
            key, header = keys[at] if keys else None, headers[at] if headers else ()
            offset = (
                -1
                if error
                else cluster.append(
                    topic, value, key, partition or 0, header, timestamps_ms[at] if timestamps_ms else None
                )
            )
            deliveries.append(FakeDelivery(RecordMetadata(topic, partition or 0, offset, 0), error))
        return deliveries

    def flush(self, timeout_s: float | None = None) -> None:
        """Everything is delivered at once."""


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    """An empty cluster that the command's clients talk to."""
    cluster = FakeCluster()

    def client(kind: type[FakeClient]) -> Callable[..., FakeClient]:
        return lambda bootstrap, **settings: kind(cluster, bootstrap, **settings)

    monkeypatch.setattr(barnabas, "Admin", client(FakeAdmin), raising=False)
    monkeypatch.setattr(barnabas, "Consumer", client(FakeConsumer), raising=False)
    monkeypatch.setattr(barnabas, "Producer", client(FakeProducer), raising=False)
    monkeypatch.delenv("BARNABAS_BOOTSTRAP", raising=False)
    monkeypatch.delenv("BARNABAS_DEBUG", raising=False)
    return cluster


@dataclass(frozen=True)
class Outcome:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs the command with its arguments."""

    def run_command(*arguments: object) -> Outcome:
        code = main([str(argument) for argument in arguments])
        captured = capfd.readouterr()
        return Outcome(code, captured.out, captured.err)

    return run_command
