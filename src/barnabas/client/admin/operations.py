"""The admin clients' calls as coroutines, shared by `Admin` and `AsyncAdmin`. Each call imports the messages that it
sends, because importing all messages takes time and most programs need few.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Coroutine, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.client.cluster import Cluster, dial_with
from barnabas.client.config import AdminConfig
from barnabas.client.offset_requests import list_offsets
from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import ConfigurationError
from barnabas.model import Node, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from barnabas.protocol.messages.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

if TYPE_CHECKING:
    from barnabas.client.admin.brokers import ClusterDescription, LogDir
    from barnabas.client.admin.configs import ConfigResource, ConfigSetting
    from barnabas.client.admin.groups import GroupDescription, GroupListing
    from barnabas.client.admin.quotas import ClientQuota
    from barnabas.client.admin.reassignments import Reassignment
    from barnabas.client.admin.share_groups import DeliveredRange, ShareGroupDescription, ShareGroupOffset
    from barnabas.client.admin.topics import TopicDescription
    from barnabas.client.admin.transactions import (
        ProducerDescription,
        TransactionDescription,
        TransactionListing,
    )
    from barnabas.client.admin.users import UserDescription
    from barnabas.errors import ErrorCode
    from barnabas.security.acls import AclBinding, AclFilter

T = TypeVar("T")

ISOLATION_LEVELS = ("read_uncommitted", "read_committed")
"""The isolation levels, in the order of their numbers in the protocol."""


def cluster_of(config: AdminConfig) -> Cluster:
    """Return the `Cluster` of an admin client. It has no open connection yet."""
    return Cluster(config, dial=dial_with(config), clock=SYSTEM_CLOCK, random=random.random)


class AdminOperations:
    """The methods of `Admin` as coroutines, with the same arguments, results and errors. Runs on one event loop."""

    def __init__(self, config: AdminConfig, cluster: Cluster) -> None:
        self._config = config
        self._cluster = cluster

    async def _run(self, request: Coroutine[Any, Any, T]) -> T:
        return await request

    # --- topics -----------------------------------------------------------------------------------------

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        from barnabas.client.admin.topic_changes import create_topic

        await self._run(
            create_topic(
                self._cluster,
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                config=config or {},
                timeout_ms=self._config.request_timeout_ms,
            )
        )

    async def delete_topic(self, name: str) -> None:
        from barnabas.client.admin.topic_changes import delete_topics

        await self._run(delete_topics(self._cluster, [name], timeout_ms=self._config.request_timeout_ms))

    async def list_topics(self, *, include_internal: bool = False) -> list[str]:
        return [topic.name for topic in await self._describe(None) if include_internal or not topic.is_internal]

    async def describe_topics(
        self, names: Iterable[str] | None = None, *, include_internal: bool = False
    ) -> list[TopicDescription]:
        from barnabas.client.admin.topics import describe, require

        if names is not None:
            return require(map(describe, await self._describe(names)), self._config.principal)
        return [describe(topic) for topic in await self._describe(None) if include_internal or not topic.is_internal]

    async def _describe(self, names: Iterable[str] | None) -> list[Any]:
        wanted = None if names is None else list(names)
        cluster = self._cluster
        return await self._run(cluster.retrying(lambda: cluster.describe(wanted), what="cannot list topics"))

    async def eligible_leader_replicas(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, ...]]:
        from barnabas.client.admin.topics import eligible_leader_replicas

        return await self._run(eligible_leader_replicas(self._cluster, list(topics)))

    async def add_partitions(self, name: str, total: int) -> None:
        from barnabas.client.admin.topic_changes import add_partitions

        await self._run(add_partitions(self._cluster, name, total, timeout_ms=self._config.request_timeout_ms))

    async def alter_partition_reassignments(self, targets: Mapping[tuple[str, int], Sequence[int] | None]) -> None:
        from barnabas.client.admin.reassignments import alter_reassignments

        given = {TopicPartition(*tp): replicas for tp, replicas in targets.items()}
        if given:
            await self._run(alter_reassignments(self._cluster, given, timeout_ms=self._config.request_timeout_ms))

    async def list_partition_reassignments(
        self, tps: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        from barnabas.client.admin.reassignments import list_reassignments

        wanted = None if tps is None else [TopicPartition(*tp) for tp in tps]
        return await self._run(list_reassignments(self._cluster, wanted, timeout_ms=self._config.request_timeout_ms))

    # --- settings ---------------------------------------------------------------------------------------

    async def describe_config(
        self,
        topic: str | None = None,
        *,
        broker: int | None = None,
        group: str | None = None,
        all_brokers: bool = False,
    ) -> dict[str, ConfigSetting]:
        from barnabas.client.admin.configs import describe_config

        return await self._run(describe_config(self._cluster, _resource(topic, broker, group, all_brokers=all_brokers)))

    async def describe_topic_configs(
        self, topics: Iterable[str], settings: Iterable[str]
    ) -> dict[str, dict[str, ConfigSetting]]:
        from barnabas.client.admin.configs import describe_topic_configs

        return await self._run(describe_topic_configs(self._cluster, list(topics), list(settings)))

    async def alter_config(
        self,
        topic: str | None = None,
        *,
        broker: int | None = None,
        group: str | None = None,
        all_brokers: bool = False,
        to_set: Mapping[str, str] | None = None,
        to_unset: Iterable[str] = (),
    ) -> None:
        from barnabas.client.admin.configs import alter_config

        resource = _resource(topic, broker, group, all_brokers=all_brokers)
        await self._run(alter_config(self._cluster, resource, to_set or {}, to_unset))

    # --- brokers ----------------------------------------------------------------------------------------

    async def brokers(self) -> list[Node]:
        cluster = self._cluster
        await self._run(cluster.retrying(lambda: cluster.describe([]), what="cannot list brokers"))
        return sorted(cluster.view.brokers.values(), key=lambda node: node.id)

    async def describe_cluster(self) -> ClusterDescription:
        from barnabas.client.admin.brokers import describe_cluster

        return await self._run(describe_cluster(self._cluster))

    async def api_versions(self, broker: int | None = None) -> dict[str, range]:
        from barnabas.client.admin.brokers import api_versions

        return await self._run(api_versions(self._cluster, broker))

    async def log_dirs(self, broker: int | None = None, *, with_sizes: bool = True) -> list[LogDir]:
        from barnabas.client.admin.brokers import log_dirs

        return await self._run(log_dirs(self._cluster, broker, with_sizes=with_sizes))

    async def alter_replica_log_dirs(
        self, broker: int, folders: Mapping[tuple[str, int], str]
    ) -> dict[TopicPartition, ErrorCode]:
        from barnabas.client.admin.brokers import alter_replica_log_dirs

        return await self._run(alter_replica_log_dirs(self._cluster, broker, folders))

    # --- offsets ----------------------------------------------------------------------------------------

    async def beginning_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        return await self._ends(tps, EARLIEST_TIMESTAMP)

    async def end_offsets(
        self, tps: Iterable[tuple[str, int]], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        return await self._ends(tps, LATEST_TIMESTAMP, isolation_level)

    async def _ends(
        self, tps: Iterable[tuple[str, int]], which: int, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        if isolation_level not in ISOLATION_LEVELS:
            raise ConfigurationError(f"isolation_level must be one of {', '.join(ISOLATION_LEVELS)}")
        wanted = {TopicPartition(*tp): which for tp in tps}
        if not wanted:
            return {}
        found = await self._run(
            list_offsets(self._cluster, wanted, isolation_level=ISOLATION_LEVELS.index(isolation_level))
        )
        return {tp: at.offset for tp, at in found.items() if at is not None}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        wanted = {TopicPartition(*tp): at_ms for tp, at_ms in timestamps_ms.items()}
        return await self._run(list_offsets(self._cluster, wanted)) if wanted else {}

    async def delete_records(self, offsets: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
        from barnabas.client.admin.records import delete_records

        given = {TopicPartition(*tp): offset for tp, offset in offsets.items()}
        timeout_ms = self._config.request_timeout_ms
        return await self._run(delete_records(self._cluster, given, timeout_ms=timeout_ms)) if given else {}

    # --- groups -----------------------------------------------------------------------------------------

    async def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = (), broker: int | None = None
    ) -> list[GroupListing]:
        from barnabas.client.admin.groups import list_groups

        return await self._run(list_groups(self._cluster, states, types, broker))

    async def describe_group(self, group: str) -> GroupDescription:
        from barnabas.client.admin.groups import describe_group

        return await self._run(describe_group(self._cluster, group))

    async def describe_groups(self, groups: Iterable[str]) -> list[GroupDescription]:
        return [await self.describe_group(group) for group in groups]

    async def delete_group(self, group: str) -> None:
        from barnabas.client.admin.groups import delete_group

        await self._run(delete_group(self._cluster, group))

    async def group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        from barnabas.client.committed_offsets import committed_offsets

        return await self._run(committed_offsets(self._cluster, group, None))

    async def offsets_of_groups(self, groups: Iterable[str]) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        from barnabas.client.committed_offsets import offsets_of_groups

        return await self._run(offsets_of_groups(self._cluster, list(groups)))

    async def set_group_offsets(self, group: str, offsets: Mapping[tuple[str, int], OffsetAndMetadata | int]) -> None:
        from barnabas.client.committed_offsets import commit_offsets

        given = {
            TopicPartition(*tp): OffsetAndMetadata(each) if isinstance(each, int) else each
            for tp, each in offsets.items()
        }
        await self._run(commit_offsets(self._cluster, group, given))

    async def delete_group_offsets(self, group: str, tps: Iterable[tuple[str, int]]) -> None:
        from barnabas.client.admin.groups import delete_group_offsets

        await self._run(delete_group_offsets(self._cluster, group, [TopicPartition(*tp) for tp in tps]))

    # --- share groups -----------------------------------------------------------------------------------

    async def describe_share_group(self, group: str) -> ShareGroupDescription:
        from barnabas.client.admin.share_groups import describe_share_group

        return await self._run(describe_share_group(self._cluster, group))

    async def share_group_offsets(self, group: str) -> dict[TopicPartition, ShareGroupOffset]:
        from barnabas.client.admin.share_groups import share_group_offsets

        return await self._run(share_group_offsets(self._cluster, group))

    async def share_group_deliveries(
        self, group: str, offsets: Mapping[TopicPartition, ShareGroupOffset]
    ) -> dict[TopicPartition, list[DeliveredRange]]:
        from barnabas.client.admin.share_groups import share_group_deliveries

        return await self._run(share_group_deliveries(self._cluster, group, dict(offsets)))

    # --- transactions -----------------------------------------------------------------------------------

    async def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int | None = None,
    ) -> list[TransactionListing]:
        from barnabas.client.admin.transactions import list_transactions

        return await self._run(list_transactions(self._cluster, states, producer_ids, longer_than_ms))

    async def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        from barnabas.client.admin.transactions import describe_transactions

        return await self._run(describe_transactions(self._cluster, list(transactional_ids)))

    async def describe_producers(
        self, tps: Iterable[tuple[str, int]]
    ) -> dict[TopicPartition, list[ProducerDescription]]:
        from barnabas.client.admin.transactions import describe_producers

        return await self._run(describe_producers(self._cluster, [TopicPartition(*tp) for tp in tps]))

    # --- users ------------------------------------------------------------------------------------------

    async def describe_users(self, names: Iterable[str] | None = None) -> list[UserDescription]:
        from barnabas.client.admin.users import describe_users

        return await self._run(describe_users(self._cluster, None if names is None else list(names)))

    async def set_user_password(
        self,
        user: str,
        password: str,
        *,
        mechanisms: Iterable[str] = ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        iterations: int = 4096,
    ) -> None:
        from barnabas.client.admin.users import set_user_password

        await self._run(
            set_user_password(self._cluster, user, password, mechanisms=list(mechanisms), iterations=iterations)
        )

    async def delete_user(self, user: str, *, mechanisms: Iterable[str] | None = None) -> None:
        from barnabas.client.admin.users import delete_user

        wanted = None if mechanisms is None else list(mechanisms)
        await self._run(delete_user(self._cluster, user, mechanisms=wanted))

    # --- quotas -----------------------------------------------------------------------------------------

    async def describe_client_quotas(
        self, match: Mapping[str, str | None] | None = None, *, types: Iterable[str] = (), strict: bool = False
    ) -> list[ClientQuota]:
        from barnabas.client.admin.quotas import describe_client_quotas

        return await self._run(describe_client_quotas(self._cluster, match or {}, list(types), strict=strict))

    async def alter_client_quotas(
        self, entity: Mapping[str, str | None], quotas: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        from barnabas.client.admin.quotas import alter_client_quotas

        await self._run(alter_client_quotas(self._cluster, entity, quotas, validate_only=validate_only))

    # --- access control lists ---------------------------------------------------------------------------

    async def describe_acls(self, acl_filter: AclFilter | None = None) -> list[AclBinding]:
        from barnabas.client.admin.acls import describe_acls

        return await self._run(describe_acls(self._cluster, acl_filter))

    async def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        from barnabas.client.admin.acls import create_acls

        await self._run(create_acls(self._cluster, list(bindings)))

    async def delete_acls(self, filters: Iterable[AclFilter]) -> dict[AclFilter, list[AclBinding]]:
        from barnabas.client.admin.acls import delete_acls

        return await self._run(delete_acls(self._cluster, list(filters)))


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
            "settings need exactly one owner: a topic's name, broker= with a broker's id, group= with a group's name,"
            " or all_brokers=True"
        )
    return given[0]
