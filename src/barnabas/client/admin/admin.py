"""The administrator that programs use: topics, settings, offsets and records of partitions, groups, brokers.

Each call imports what it asks: messages take time to declare, and the most that a program asks are a few.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from barnabas.addresses import host_ports
from barnabas.client.cluster import Cluster
from barnabas.client.config import AdminConfig, make_config
from barnabas.client.dialing import dial_with
from barnabas.client.loop_thread import LoopThread
from barnabas.client.offset_queries import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, list_offsets
from barnabas.client.setting_types import Bootstrap, ClientSettings
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ConfigurationError
from barnabas.model import Node, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin.brokers import ClusterDescription, LogDir
    from barnabas.client.admin.configs import ConfigResource, ConfigSetting
    from barnabas.client.admin.groups import GroupDescription, GroupListing
    from barnabas.client.admin.reassignments import Reassignment
    from barnabas.client.admin.topics import TopicDescription
    from barnabas.errors import ErrorCode

T = TypeVar("T")


class Admin:
    """Looks at topics, settings, offsets, groups and brokers, and changes them. Safe to use from several threads.

    :param bootstrap: `"host:port,..."`, or a dict of settings under Kafka's names.
    :param settings: see `barnabas.client.config.AdminConfig`.
    :raises ConfigurationError: a setting that does not exist or cannot be.

    Every call raises KafkaError where a broker refuses, and TimedOutError where none answers within
    `default_api_timeout_ms`.

        with barnabas.Admin("localhost:9092") as admin:
            admin.create_topic("clicks", partitions=6)
    """

    def __init__(self, bootstrap: Bootstrap = None, **settings: Unpack[ClientSettings]) -> None:
        self._config = make_config(AdminConfig, bootstrap, settings)
        self._closed = False
        self._cluster = Cluster(self._config, dial=dial_with(self._config), clock=SYSTEM_CLOCK, random=random.random)
        # Without uvloop: for a few requests it takes longer to load than it saves.
        self._thread = LoopThread("barnabas-admin", asyncio.new_event_loop)
        self._thread.serves(self, self._cluster.finish, "an Admin")

    # --- topics -----------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; `config` has Kafka's names, for example `{"retention.ms": "86400000"}`.

        :param replication_factor: how many brokers keep each partition; None: as many as the brokers' setting
            default.replication.factor says (brokers older than Kafka 2.4 want a number).
        :raises KafkaError: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_CONFIG ...
        """
        from barnabas.client.admin.topic_changes import create_topic

        self._call(
            create_topic(
                self._cluster,
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                config=config or {},
                timeout_ms=self._config.request_timeout_ms,
            )
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records.

        :raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION ...
        """
        from barnabas.client.admin.topic_changes import delete_topics

        self._call(delete_topics(self._cluster, [name], timeout_ms=self._config.request_timeout_ms))

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted.

        :param include_internal: whether the brokers' own topics are among them, as `__consumer_offsets`.
        """
        return [topic.name for topic in self._describe(None) if include_internal or not topic.is_internal]

    def describe_topics(
        self, names: Iterable[str] | None = None, *, include_internal: bool = False
    ) -> list[TopicDescription]:
        """Return the partitions of topics, or of all topics if no names are given.

        Of all topics, one that the brokers cannot describe now has its `error` and no partitions: it says nothing of
        the others.

        :param include_internal: whether the brokers' own topics are among all topics, as `__consumer_offsets`.
        :raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION for a name that does not exist; it says which names failed.
        """
        from barnabas.client.admin.topics import describe, require

        if names is not None:
            return require(map(describe, self._describe(names)))
        return [describe(topic) for topic in self._describe(None) if include_internal or not topic.is_internal]

    def _describe(self, names: Iterable[str] | None) -> list[Any]:
        wanted = None if names is None else list(names)
        cluster = self._cluster
        return self._call(cluster.retrying(lambda: cluster.describe(wanted), what="topics are not known"))

    def add_partitions(self, name: str, total: int) -> None:
        """Let a topic grow to `total` partitions. Records stay where they are; keys may go elsewhere from then on.

        :raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS: it has as many already, or more.
        """
        from barnabas.client.admin.topic_changes import add_partitions

        self._call(add_partitions(self._cluster, name, total, timeout_ms=self._config.request_timeout_ms))

    def alter_partition_reassignments(self, targets: Mapping[tuple[str, int], Sequence[int] | None]) -> None:
        """Have partitions move to other brokers (KIP-455). They do so while they serve; this returns when it has begun.

        :param targets: for each partition the ids of the brokers that are to hold it, the preferred leader first; None
            takes a move back that is under way.
        :raises KafkaError: INVALID_REPLICA_ASSIGNMENT, UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS: why the
            first of those does not move that do not; others may.

            admin.alter_partition_reassignments({("clicks", 0): [2, 3]})
        """
        from barnabas.client.admin.reassignments import alter_reassignments

        given = {TopicPartition(*tp): replicas for tp, replicas in targets.items()}
        if given:
            self._call(alter_reassignments(self._cluster, given, timeout_ms=self._config.request_timeout_ms))

    def list_partition_reassignments(
        self, tps: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return those of the partitions, or of all, that are on their way to other brokers."""
        from barnabas.client.admin.reassignments import list_reassignments

        wanted = None if tps is None else [TopicPartition(*tp) for tp in tps]
        return self._call(list_reassignments(self._cluster, wanted, timeout_ms=self._config.request_timeout_ms))

    # --- settings ---------------------------------------------------------------------------------------

    def describe_config(
        self,
        topic: str | None = None,
        *,
        broker: int | None = None,
        group: str | None = None,
        all_brokers: bool = False,
    ) -> dict[str, ConfigSetting]:
        """Return all settings of a topic, of a broker by its id, or of a group (whether there is one or not).

        Each has its value, its default, where the value comes from, and documentation. With `all_brokers`: what was
        changed of all of them while they run, which holds for a broker of which nothing else was said.

        :raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_REQUEST: a broker that knows no settings of groups.
        :raises ConfigurationError: none of these is given, or several.
        """
        from barnabas.client.admin.configs import describe_config

        return self._call(describe_config(self._cluster, _resource(topic, broker, group, all_brokers=all_brokers)))

    def describe_topic_configs(
        self, topics: Iterable[str], settings: Iterable[str]
    ) -> dict[str, dict[str, ConfigSetting]]:
        """Return some settings of many topics, by topic and name; topics that do not exist are left out."""
        from barnabas.client.admin.configs import describe_topic_configs

        return self._call(describe_topic_configs(self._cluster, list(topics), list(settings)))

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
        """Set single settings, and unset others so that their defaults hold again: all of them, or none.

        :raises KafkaError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_CONFIG: a setting that does not exist or cannot have
            the value; INVALID_REQUEST: a broker's setting that cannot be changed while it runs.
        :raises ConfigurationError: none of topic, broker, group and all_brokers is given, or several.

            admin.alter_config("clicks", to_set={"retention.ms": "86400000"}, to_unset=["retention.bytes"])
        """
        from barnabas.client.admin.configs import alter_config

        resource = _resource(topic, broker, group, all_brokers=all_brokers)
        self._call(alter_config(self._cluster, resource, to_set or {}, to_unset))

    # --- brokers ----------------------------------------------------------------------------------------

    def brokers(self) -> list[Node]:
        """Return the live brokers."""
        cluster = self._cluster
        self._call(cluster.retrying(lambda: cluster.describe([]), what="brokers are not known"))
        return sorted(cluster.view.brokers.values(), key=lambda node: node.id)

    def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, its controller and its live brokers.

        :raises UnsupportedVersionError: the broker is older than Kafka 2.8.
        """
        from barnabas.client.admin.brokers import describe_cluster

        return self._call(describe_cluster(self._cluster))

    def log_dirs(self, broker: int | None = None, *, with_sizes: bool = True) -> list[LogDir]:
        """Return the folders of one broker or all live ones: where they are, how full, how large each log is.

        :param with_sizes: whether to ask for the logs in them.
        """
        from barnabas.client.admin.brokers import log_dirs

        return self._call(log_dirs(self._cluster, broker, with_sizes=with_sizes))

    def alter_replica_log_dirs(
        self, broker: int, folders: Mapping[tuple[str, int], str]
    ) -> dict[TopicPartition, ErrorCode]:
        """Ask a broker to move logs to other data folders of its own; `log_dirs` tells how far that is.

        :param folders: of each partition, by the names that `log_dirs` gives.
        :returns: what the broker says of each: NONE where it is moved; REPLICA_NOT_AVAILABLE where it has none yet, and
            the choice is remembered until it is made; LOG_DIR_NOT_FOUND; KAFKA_STORAGE_ERROR where it is offline.
        :raises UnsupportedVersionError: the broker does not know it.
        """
        from barnabas.client.admin.brokers import alter_replica_log_dirs

        return self._call(alter_replica_log_dirs(self._cluster, broker, folders))

    # --- offsets ----------------------------------------------------------------------------------------

    def beginning_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition."""
        return self._ends(tps, EARLIEST_TIMESTAMP)

    def end_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each partition."""
        return self._ends(tps, LATEST_TIMESTAMP)

    def _ends(self, tps: Iterable[tuple[str, int]], which: int) -> dict[TopicPartition, int]:
        found = self.offsets_for_times(dict.fromkeys(tps, which))
        return {tp: at.offset for tp, at in found.items() if at is not None}

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return for each partition the first offset with a timestamp of at least the one given, or None."""
        wanted = {TopicPartition(*tp): at_ms for tp, at_ms in timestamps_ms.items()}
        return self._call(list_offsets(self._cluster, wanted)) if wanted else {}

    def delete_records(self, offsets: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
        """Forget the records before an offset in each partition; -1: all of them. Return where each begins now.

        :raises KafkaError: OFFSET_OUT_OF_RANGE: the partition ends before; UNKNOWN_TOPIC_OR_PARTITION. Other
            partitions may be done.
        """
        from barnabas.client.admin.records import delete_records

        given = {TopicPartition(*tp): offset for tp, offset in offsets.items()}
        timeout_ms = self._config.request_timeout_ms
        return self._call(delete_records(self._cluster, given, timeout_ms=timeout_ms)) if given else {}

    # --- groups -----------------------------------------------------------------------------------------

    def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = (), broker: int | None = None
    ) -> list[GroupListing]:
        """Return all groups that have members or committed offsets, by name.

        :param states: only groups in one of these, for example `["Empty", "Stable"]`; case does not matter.
        :param types: only groups of one of these, for example `["classic"]`.
        :param broker: only those that the broker with this id coordinates.
        :raises UnsupportedVersionError: a broker is too old to choose by state (Kafka 2.6) or type (3.8).
        """
        from barnabas.client.admin.groups import list_groups

        return self._call(list_groups(self._cluster, states, types, broker))

    def describe_group(self, group: str) -> GroupDescription:
        """Return a group's state, and its members with their partitions.

        A group that does not exist is no error: its `exists` is False.

        :raises KafkaError: INVALID_GROUP_ID.
        """
        from barnabas.client.admin.groups import describe_group

        return self._call(describe_group(self._cluster, group))

    def describe_groups(self, groups: Iterable[str]) -> list[GroupDescription]:
        """Return groups as `describe_group` does, in the order given."""
        return [self.describe_group(group) for group in groups]

    def delete_group(self, group: str) -> None:
        """Forget a group and its offsets.

        :raises KafkaError: NON_EMPTY_GROUP: it has members, stop them first; GROUP_ID_NOT_FOUND.
        """
        from barnabas.client.admin.groups import delete_group

        self._call(delete_group(self._cluster, group))

    def group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all offsets that a group has committed."""
        from barnabas.client.committed_offsets import committed_offsets

        return self._call(committed_offsets(self._cluster, group, None))

    def set_group_offsets(self, group: str, offsets: Mapping[tuple[str, int], OffsetAndMetadata | int]) -> None:
        """Commit offsets for a group that has no members now.

        :raises KafkaError: UNKNOWN_MEMBER_ID: the group has members; stop them first.
        """
        from barnabas.client.committed_offsets import commit_offsets

        given = {
            TopicPartition(*tp): OffsetAndMetadata(each) if isinstance(each, int) else each
            for tp, each in offsets.items()
        }
        self._call(commit_offsets(self._cluster, group, given))

    def delete_group_offsets(self, group: str, tps: Iterable[tuple[str, int]]) -> None:
        """Forget the offsets that a group has committed in some partitions.

        :raises KafkaError: GROUP_SUBSCRIBED_TO_TOPIC: members read the topic, stop them first; GROUP_ID_NOT_FOUND;
            UNKNOWN_TOPIC_OR_PARTITION. The offsets of the other partitions are forgotten.
        """
        from barnabas.client.admin.groups import delete_group_offsets

        self._call(delete_group_offsets(self._cluster, group, [TopicPartition(*tp) for tp in tps]))

    # --- finishing --------------------------------------------------------------------------------------

    def _call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        return self._thread.call(coroutine)

    def close(self) -> None:
        """End the connections and the background thread. May be called again; does nothing in a forked child."""
        if self._thread.may_close():
            self._closed = True
            self._thread.stop(self._cluster.finish)

    def __repr__(self) -> str:
        servers = host_ports(self._config.bootstrap_servers)
        return f"<barnabas.Admin {servers}{' closed' if self._closed else ''}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _resource(topic: str | None, broker: int | None, group: str | None, *, all_brokers: bool) -> ConfigResource:
    from barnabas.client.admin.configs import ConfigResource

    given = [
        *([] if topic is None else [ConfigResource.topic(topic)]),
        *([] if broker is None else [ConfigResource.broker(broker)]),
        *([] if group is None else [ConfigResource.group(group)]),
        *([ConfigResource.all_brokers()] if all_brokers else []),
    ]
    if len(given) != 1:
        raise ConfigurationError(
            "whose settings? give a topic's name, or broker= with a broker's id, or group= with a group's name,"
            " or all_brokers=True"
        )
    return given[0]
