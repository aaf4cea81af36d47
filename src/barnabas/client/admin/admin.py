"""`Admin`: an admin client for programs without an event loop. A background thread sends the requests."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, Unpack

from barnabas.addresses import host_ports
from barnabas.client.admin.operations import AdminOperations, cluster_of
from barnabas.client.client_lifecycle import LoopThread
from barnabas.client.config import AdminConfig, Bootstrap, make_config
from barnabas.client.setting_types import ClientSettings
from barnabas.model import Node, OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

if TYPE_CHECKING:
    from barnabas.client.admin.brokers import ClusterDescription, LogDir
    from barnabas.client.admin.configs import ConfigSetting
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


class Admin:
    """Describes and changes topics, settings, offsets, groups and brokers. Thread-safe.

    Iterable arguments are consumed on the calling thread, so a generator may itself call this `Admin`.

    :param bootstrap: `"host:port,..."`, or a dict of settings under Kafka's names.
    :param settings: the fields of `barnabas.client.config.AdminConfig`; keyword arguments override the dict.
    :raises ConfigurationError: a setting does not exist or cannot have this value.

    Every method raises ApiError if a broker returns an error code, and TimedOutError if no broker responds within
    `default_api_timeout_ms`.

        with barnabas.Admin("localhost:9092") as admin:
            admin.create_topic("views", partitions=6, config={"retention.ms": "86400000"})
            print(admin.list_topics())
    """

    def __init__(self, bootstrap: Bootstrap = None, **settings: Unpack[ClientSettings]) -> None:
        self._config = make_config(AdminConfig, bootstrap, settings)
        self._cluster = cluster_of(self._config)
        self._operations = AdminOperations(self._config, self._cluster)
        self._closed = False
        # Use asyncio's own event loop: for a few requests, uvloop saves less time than its import takes.
        self._thread = LoopThread("barnabas-admin", asyncio.SelectorEventLoop)
        self._thread.end_with(self, self._cluster.finish, "an Admin")

    # --- topics -----------------------------------------------------------------------------------------

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic.

        :param name: the name: at most 249 letters, digits, `.`, `_` and `-`.
        :param partitions: the number of partitions.
        :param replication_factor: the number of replicas of each partition. None selects the brokers'
            `default.replication.factor`; brokers older than Kafka 2.4 require a number.
        :param config: topic settings under Kafka's names, for example `{"retention.ms": "86400000"}`.
        :raises ApiError: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_PARTITIONS, INVALID_CONFIG and other
            errors.
        """
        self._thread.call(self._operations.create_topic(name, partitions, replication_factor, config))

    def delete_topic(self, name: str) -> None:
        """Delete a topic with all its records.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION and other errors.
        """
        self._thread.call(self._operations.delete_topic(name))

    def list_topics(self, *, include_internal: bool = False) -> list[str]:
        """Return the names of all topics, sorted.

        :param include_internal: include internal topics, such as `__consumer_offsets`.
        """
        return self._thread.call(self._operations.list_topics(include_internal=include_internal))

    def describe_topics(
        self, names: Iterable[str] | None = None, *, include_internal: bool = False
    ) -> list[TopicDescription]:
        """Return descriptions of topics, with their partitions.

        :param names: the topics to describe, or None for all topics. With None, a topic that the brokers cannot
            describe now has an `error` and no partitions.
        :param include_internal: include internal topics, such as `__consumer_offsets`, if `names` is None.
        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION: some topics do not exist; the message lists all of them.
        """
        wanted = None if names is None else list(names)
        return self._thread.call(self._operations.describe_topics(wanted, include_internal=include_internal))

    def eligible_leader_replicas(self, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, ...]]:
        """Return the ids of the eligible leader replicas (KIP-966) of the partitions that have some.

        These replicas have all committed records although they are not in sync, so their election is not unclean.

        :raises UnsupportedVersionError: the broker is older than Kafka 3.8.
        """
        return self._thread.call(self._operations.eligible_leader_replicas(list(topics)))

    def add_partitions(self, name: str, total: int) -> None:
        """Increase the number of partitions of a topic to `total`.

        Stored records stay in their partitions; new records with the same keys may go to other partitions.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_PARTITIONS: the topic already has `total` partitions or
            more.
        """
        self._thread.call(self._operations.add_partitions(name, total))

    def alter_partition_reassignments(self, targets: Mapping[tuple[str, int], Sequence[int] | None]) -> None:
        """Start to move partitions to other brokers (KIP-455). The partitions stay available during the move.

        :param targets: the ids of the new brokers of each partition, with the preferred leader first. None cancels a
            move.
        :raises ApiError: INVALID_REPLICA_ASSIGNMENT, UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS: the error
            of the first rejected partition. Other partitions may already be moving.

            with barnabas.Admin("localhost:9092") as admin:
                admin.alter_partition_reassignments({("clicks", 0): [1]})
        """
        self._thread.call(self._operations.alter_partition_reassignments(targets))

    def list_partition_reassignments(
        self, tps: Iterable[tuple[str, int]] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """Return the reassignments in progress.

        :param tps: (topic, partition number) pairs, or None for all partitions.
        """
        wanted = None if tps is None else list(tps)
        return self._thread.call(self._operations.list_partition_reassignments(wanted))

    # --- settings ---------------------------------------------------------------------------------------

    def describe_config(
        self,
        topic: str | None = None,
        *,
        broker: int | None = None,
        group: str | None = None,
        all_brokers: bool = False,
    ) -> dict[str, ConfigSetting]:
        """Return all settings of a topic, a broker or a group by name. Exactly one of the four arguments is required.

        Each setting has its value, its default, the source of the value, and documentation.

        :param broker: the id of a broker.
        :param group: the name of a group, which need not exist.
        :param all_brokers: return the cluster-wide dynamic settings. A setting of a single broker overrides them.
        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_REQUEST: the broker does not support group settings.
        :raises ConfigurationError: no argument is given, or more than one is given.
        """
        return self._thread.call(
            self._operations.describe_config(topic, broker=broker, group=group, all_brokers=all_brokers)
        )

    def describe_topic_configs(
        self, topics: Iterable[str], settings: Iterable[str]
    ) -> dict[str, dict[str, ConfigSetting]]:
        """Return the named settings of many topics, by topic and name. Topics that do not exist are omitted."""
        return self._thread.call(self._operations.describe_topic_configs(list(topics), list(settings)))

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
        """Set some settings, and reset others to their defaults. Either all changes succeed, or none.

        :param broker: the id of a broker; see `describe_config` for `topic`, `group` and `all_brokers`.
        :param to_set: the new values by name.
        :param to_unset: the names of the settings to reset.
        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; INVALID_CONFIG: a setting does not exist or cannot have the value;
            INVALID_REQUEST: the broker cannot change the setting while it runs.
        :raises ConfigurationError: none of topic, broker, group and all_brokers is given, or more than one is given.

            with barnabas.Admin("localhost:9092") as admin:
                admin.alter_config("clicks", to_set={"retention.ms": "86400000"}, to_unset=["retention.bytes"])
        """
        self._thread.call(
            self._operations.alter_config(
                topic, broker=broker, group=group, all_brokers=all_brokers, to_set=to_set, to_unset=list(to_unset)
            )
        )

    # --- brokers ----------------------------------------------------------------------------------------

    def brokers(self) -> list[Node]:
        """Return the live brokers."""
        return self._thread.call(self._operations.brokers())

    def describe_cluster(self) -> ClusterDescription:
        """Return the cluster's id, its controller and its live brokers.

        :raises UnsupportedVersionError: the broker is older than Kafka 2.8.
        """
        return self._thread.call(self._operations.describe_cluster())

    def api_versions(self, broker: int | None = None) -> dict[str, range]:
        """Return the versions of each API that both a broker and this client support, by Kafka's name of the API.

        :param broker: the id of the broker, or None for any broker.
        """
        return self._thread.call(self._operations.api_versions(broker))

    def log_dirs(self, broker: int | None = None, *, with_sizes: bool = True) -> list[LogDir]:
        """Return the log directories of one broker or of all live brokers: path, free space and logs.

        :param broker: the id of a broker, or None for all live brokers.
        :param with_sizes: include the logs in each directory, with their sizes in bytes.
        """
        return self._thread.call(self._operations.log_dirs(broker, with_sizes=with_sizes))

    def alter_replica_log_dirs(
        self, broker: int, folders: Mapping[tuple[str, int], str]
    ) -> dict[TopicPartition, ErrorCode]:
        """Start to move logs to other log directories of the same broker; `log_dirs` shows the progress.

        :param broker: the id of the broker.
        :param folders: the path of the new log directory of each partition; `log_dirs` returns the paths of all
            directories.
        :returns: an error code for each partition. NONE: the move has started. REPLICA_NOT_AVAILABLE: the broker has no
            replica of this partition; a replica created later uses this directory. LOG_DIR_NOT_FOUND: the broker has no
            such log directory. KAFKA_STORAGE_ERROR: the directory is offline.
        :raises UnsupportedVersionError: the broker does not support this request.
        """
        return self._thread.call(self._operations.alter_replica_log_dirs(broker, folders))

    # --- offsets ----------------------------------------------------------------------------------------

    def beginning_offsets(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition, which is its log start offset."""
        return self._thread.call(self._operations.beginning_offsets(list(tps)))

    def end_offsets(
        self, tps: Iterable[tuple[str, int]], *, isolation_level: str = "read_uncommitted"
    ) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition, which is its high watermark.

        :param isolation_level: `read_committed` returns the last stable offset, which is lower while the partition has
            an open transaction.
        """
        return self._thread.call(self._operations.end_offsets(list(tps), isolation_level=isolation_level))

    def offsets_for_times(
        self, timestamps_ms: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return, for each partition, the offset of the first record at or after a timestamp, or None if there is no
        such record.

        :param timestamps_ms: the timestamp in ms since the epoch, by partition.
        """
        return self._thread.call(self._operations.offsets_for_times(timestamps_ms))

    def delete_records(self, offsets: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
        """Delete the records before an offset in each partition, and return the new log start offsets.

        :param offsets: the offset by partition; -1 deletes all records of a partition.
        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; OFFSET_OUT_OF_RANGE: an offset is greater than the high watermark.
            The records of other partitions may have been deleted.
        """
        return self._thread.call(self._operations.delete_records(offsets))

    # --- groups -----------------------------------------------------------------------------------------

    def list_groups(
        self, *, states: Collection[str] = (), types: Collection[str] = (), broker: int | None = None
    ) -> list[GroupListing]:
        """Return all groups that have members or committed offsets, by name.

        :param states: return only groups in one of these states, for example `["Empty", "Stable"]`; case does not
            matter.
        :param types: return only groups of one of these types, for example `["classic"]`.
        :param broker: return only groups whose coordinator is the broker with this id.
        :raises UnsupportedVersionError: a broker is too old to filter by state (Kafka 2.6) or type (3.8).
        """
        return self._thread.call(self._operations.list_groups(states=states, types=types, broker=broker))

    def describe_group(self, group: str) -> GroupDescription:
        """Return the state of a group, and its members with their partitions.

        If the group does not exist, the call raises no error, and `exists` of the result is False.

        :raises ApiError: INVALID_GROUP_ID.
        """
        return self._thread.call(self._operations.describe_group(group))

    def describe_groups(self, groups: Iterable[str]) -> list[GroupDescription]:
        """Return descriptions of groups, in the given order; see `describe_group`."""
        return self._thread.call(self._operations.describe_groups(list(groups)))

    def delete_group(self, group: str) -> None:
        """Delete a group and its committed offsets.

        :raises ApiError: NON_EMPTY_GROUP: the group has members; stop them first. GROUP_ID_NOT_FOUND: the group does
            not exist.
        """
        self._thread.call(self._operations.delete_group(group))

    def group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all committed offsets of a group, by partition."""
        return self._thread.call(self._operations.group_offsets(group))

    def offsets_of_groups(self, groups: Iterable[str]) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """Return the committed offsets of many groups, by group and partition, with one request per coordinator.

        The result lacks the groups and partitions whose offsets are not available, for example without permission.
        """
        return self._thread.call(self._operations.offsets_of_groups(list(groups)))

    def set_group_offsets(self, group: str, offsets: Mapping[tuple[str, int], OffsetAndMetadata | int]) -> None:
        """Commit offsets for a group without active members.

        :param offsets: the offset of the next record to read in each partition, with or without metadata.
        :raises ApiError: UNKNOWN_MEMBER_ID: the group has members; stop them first.
        """
        self._thread.call(self._operations.set_group_offsets(group, offsets))

    def delete_group_offsets(self, group: str, tps: Iterable[tuple[str, int]]) -> None:
        """Delete the committed offsets of a group for some partitions.

        :raises ApiError: GROUP_SUBSCRIBED_TO_TOPIC: members are subscribed to the topic; stop them first.
            GROUP_ID_NOT_FOUND; UNKNOWN_TOPIC_OR_PARTITION. The offsets of the other partitions are still deleted.
        """
        self._thread.call(self._operations.delete_group_offsets(group, list(tps)))

    # --- share groups -----------------------------------------------------------------------------------

    def describe_share_group(self, group: str) -> ShareGroupDescription:
        """Return the state of a share group (KIP-932), and its members with their partitions.

        If the share group does not exist, the call raises no error, and `exists` of the result is False.

        :raises ApiError: INVALID_GROUP_ID, GROUP_AUTHORIZATION_FAILED.
        :raises UnsupportedVersionError: the broker is older than Kafka 4.1, or is a broker of Barnabas.
        """
        return self._thread.call(self._operations.describe_share_group(group))

    def share_group_offsets(self, group: str) -> dict[TopicPartition, ShareGroupOffset]:
        """Return the start offset and the lag of a share group in each of its partitions.

        :raises ApiError: GROUP_ID_NOT_FOUND, GROUP_AUTHORIZATION_FAILED.
        :raises UnsupportedVersionError: the broker is older than Kafka 4.1, or is a broker of Barnabas.
        """
        return self._thread.call(self._operations.share_group_offsets(group))

    def share_group_deliveries(
        self, group: str, offsets: Mapping[TopicPartition, ShareGroupOffset]
    ) -> dict[TopicPartition, list[DeliveredRange]]:
        """Return the stored delivery states of records above the start offset of a share group, by partition.

        Brokers store a record's state when a member acknowledges, releases or rejects it. No API returns the records
        that members hold at the moment, or the member that holds a record.

        :param offsets: the result of `share_group_offsets`.
        :raises ApiError: CLUSTER_AUTHORIZATION_FAILED: the client lacks CLUSTER_ACTION. FENCED_LEADER_EPOCH: a leader
            has changed since the call of `share_group_offsets`.
        :raises UnsupportedVersionError: the broker is older than Kafka 4.1, or is a broker of Barnabas.
        """
        return self._thread.call(self._operations.share_group_deliveries(group, dict(offsets)))

    # --- transactions -----------------------------------------------------------------------------------

    def list_transactions(
        self,
        *,
        states: Collection[str] = (),
        producer_ids: Collection[int] = (),
        longer_than_ms: int | None = None,
    ) -> list[TransactionListing]:
        """Return the transactional ids of the cluster with their states, in order. Ids without DESCRIBE are left out.

        :param states: return only ids in one of these states, for example `["Ongoing"]`.
        :param producer_ids: return only ids with one of these producer ids.
        :param longer_than_ms: return only ids whose transaction is open for longer.
        :raises UnsupportedVersionError: the broker is older than Kafka 3.0 (3.8 for `longer_than_ms`), or is a broker
            of Barnabas, which has no transactions.
        """
        return self._thread.call(
            self._operations.list_transactions(
                states=list(states), producer_ids=list(producer_ids), longer_than_ms=longer_than_ms
            )
        )

    def describe_transactions(self, transactional_ids: Iterable[str]) -> dict[str, TransactionDescription]:
        """Return the states of transactional ids, with the partitions of their open transactions.

        The result lacks the ids that do not exist.

        :raises ApiError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
        :raises UnsupportedVersionError: the broker is older than Kafka 3.0, or is a broker of Barnabas.

            with barnabas.Admin("localhost:9092") as admin:
                ids = [each.transactional_id for each in admin.list_transactions(states=["Ongoing"])]
                for each in admin.describe_transactions(ids).values():
                    print(each.transactional_id, each.start_ms, each.partitions)
        """
        return self._thread.call(self._operations.describe_transactions(list(transactional_ids)))

    def describe_producers(self, tps: Iterable[tuple[str, int]]) -> dict[TopicPartition, list[ProducerDescription]]:
        """Return the idempotent and transactional producers for which the leader of each partition has state.

        :raises ApiError: UNKNOWN_TOPIC_OR_PARTITION; TOPIC_AUTHORIZATION_FAILED: READ on the topic is missing.
        :raises UnsupportedVersionError: the broker is older than Kafka 2.8.
        """
        return self._thread.call(self._operations.describe_producers(list(tps)))

    # --- users ------------------------------------------------------------------------------------------

    def describe_users(self, names: Iterable[str] | None = None) -> list[UserDescription]:
        """Return users with their SCRAM mechanisms, sorted by name. Brokers never return passwords or keys.

        :param names: the users to describe, or None for all users with SCRAM credentials.
        :raises ApiError: RESOURCE_NOT_FOUND: a user has no SCRAM credentials; CLUSTER_AUTHORIZATION_FAILED.
        :raises UnsupportedVersionError: the broker is older than Kafka 2.7.
        """
        wanted = None if names is None else list(names)
        return self._thread.call(self._operations.describe_users(wanted))

    def set_user_password(
        self,
        user: str,
        password: str,
        *,
        mechanisms: Iterable[str] = ("SCRAM-SHA-256", "SCRAM-SHA-512"),
        iterations: int = 4096,
    ) -> None:
        """Create a user, or replace the password of a user. The client sends a salted hash of the password.

        The credentials of other mechanisms do not change. Connections that are authenticated already stay open.

        :param mechanisms: the SCRAM mechanisms that the user can authenticate with.
        :param iterations: the iterations of the hash: 4096 to 16384. With 4096, a credential is indistinguishable from
            the answers for unknown users.
        :raises ApiError: UNACCEPTABLE_CREDENTIAL: the user name is not valid; CLUSTER_AUTHORIZATION_FAILED.
        :raises ConfigurationError: the password, a mechanism or the iterations are not valid.
        :raises UnsupportedVersionError: the broker is older than Kafka 2.7.

            with barnabas.Admin("localhost:9092") as admin:
                admin.set_user_password("alice", getpass.getpass())
        """
        wanted = list(mechanisms)
        self._thread.call(self._operations.set_user_password(user, password, mechanisms=wanted, iterations=iterations))

    def delete_user(self, user: str, *, mechanisms: Iterable[str] | None = None) -> None:
        """Delete the SCRAM credentials of a user.

        :param mechanisms: the mechanisms whose credentials to delete, or None for all.
        :raises ApiError: RESOURCE_NOT_FOUND: the user has no such credential; CLUSTER_AUTHORIZATION_FAILED.
        :raises UnsupportedVersionError: the broker is older than Kafka 2.7.
        """
        wanted = None if mechanisms is None else list(mechanisms)
        self._thread.call(self._operations.delete_user(user, mechanisms=wanted))

    # --- quotas -----------------------------------------------------------------------------------------

    def describe_client_quotas(
        self, match: Mapping[str, str | None] | None = None, *, types: Iterable[str] = (), strict: bool = False
    ) -> list[ClientQuota]:
        """Return the quotas of users, client ids and addresses, without the defaults in the brokers' settings.

        :param match: the names of the entities to return, by type (`user`, `client-id`, `ip`); None as a name is the
            default entity. Without names, all entities are returned.
        :param types: further types that the entities must have, with any name.
        :param strict: True to leave out entities with other types: a user's client ids, if `match` has only the user.
        :raises ApiError: INVALID_REQUEST; CLUSTER_AUTHORIZATION_FAILED.
        :raises UnsupportedVersionError: the broker is older than Kafka 2.6.

            with barnabas.Admin("localhost:9092") as admin:
                for each in admin.describe_client_quotas({"user": "alice"}):
                    print(each.entity, each.quotas)
        """
        return self._thread.call(self._operations.describe_client_quotas(match, types=list(types), strict=strict))

    def alter_client_quotas(
        self, entity: Mapping[str, str | None], quotas: Mapping[str, float | None], *, validate_only: bool = False
    ) -> None:
        """Set and remove quotas of a user, a client id, a user's client id, or an address.

        They are in force at all brokers within a second.

        :param entity: the names by type (`user`, `client-id`, `ip`); None as a name is the default, which applies to
            all users, client ids or addresses without a quota of their own.
        :param quotas: the new values by key: `producer_byte_rate`, `consumer_byte_rate` (bytes per second),
            `request_percentage` (of the time of a broker's event loop), `controller_mutation_rate` (partitions per
            second), or `connection_creation_rate` (connections per second, of addresses only). None removes a quota.
        :param validate_only: True to check the change, and not to make it.
        :raises ApiError: INVALID_REQUEST; CLUSTER_AUTHORIZATION_FAILED.
        :raises ConfigurationError: the entity or the quotas are empty.
        :raises UnsupportedVersionError: the broker is older than Kafka 2.6.

            with barnabas.Admin("localhost:9092") as admin:
                admin.alter_client_quotas({"user": "alice"}, {"producer_byte_rate": 1_048_576})
        """
        given, values = dict(entity), dict(quotas)
        self._thread.call(self._operations.alter_client_quotas(given, values, validate_only=validate_only))

    # --- access control lists ---------------------------------------------------------------------------

    def describe_acls(self, acl_filter: AclFilter | None = None) -> list[AclBinding]:
        """Return the access control lists (ACLs) that match a filter, in order of their resources.

        :param acl_filter: the filter, or None for all ACLs. Only a filter with the type `ResourceType.SUBJECT` finds
            the ACLs of subjects of the schema registry.
        :raises ApiError: SECURITY_DISABLED: the brokers have no `authorizer.class.name`; CLUSTER_AUTHORIZATION_FAILED:
            DESCRIBE on the cluster is missing; INVALID_REQUEST.

            with barnabas.Admin("localhost:9092") as admin:
                for each in admin.describe_acls(barnabas.AclFilter(principal="User:alice")):
                    print(each.pattern, each.entry)
        """
        return self._thread.call(self._operations.describe_acls(acl_filter))

    def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Create ACLs. They are in force at all brokers within a second. An ACL that exists already stays.

        :param bindings: the ACLs: resources, each with a principal, a host, an operation and a permission.
        :raises ApiError: the error of the first refused ACL; the others exist now. SECURITY_DISABLED: the brokers have
            no `authorizer.class.name`; CLUSTER_AUTHORIZATION_FAILED: ALTER on the cluster is missing; INVALID_REQUEST.
        :raises ConfigurationError: an ACL is not complete; none has been created.

            clicks = barnabas.ResourcePattern(barnabas.ResourceType.TOPIC, "clicks")
            reading = barnabas.AclEntry("User:alice", "*", barnabas.Operation.READ, barnabas.Permission.ALLOW)
            with barnabas.Admin("localhost:9092") as admin:
                admin.create_acls([barnabas.AclBinding(clicks, reading)])
        """
        wanted = list(bindings)
        self._thread.call(self._operations.create_acls(wanted))

    def delete_acls(self, filters: Iterable[AclFilter]) -> dict[AclFilter, list[AclBinding]]:
        """Delete the ACLs that match at least one filter, and return the deleted ACLs by filter.

        :param filters: the filters. The empty filter `AclFilter()` deletes all ACLs, except those of subjects.
        :raises ApiError: the error of the first refused filter; the ACLs of the others are deleted. SECURITY_DISABLED:
            the brokers have no `authorizer.class.name`; CLUSTER_AUTHORIZATION_FAILED: ALTER on the cluster is missing.
        """
        wanted = list(filters)
        return self._thread.call(self._operations.delete_acls(wanted))

    # --- finishing --------------------------------------------------------------------------------------

    def close(self, *, timeout_s: float | None = None) -> None:
        """Close the connections and stop the background thread.

        Further calls, and calls in a forked child, do nothing. The call does not wait for the brokers. If another
        thread is already closing the client, this call waits for that thread.

        :raises TimedOutError: another thread was still closing the client after `timeout_s` seconds.
        """
        if self._thread.begin_close(timeout_s):
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
