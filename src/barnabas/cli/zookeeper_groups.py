"""Consumer groups that coordinate through ZooKeeper, for the commands that describe and change groups."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import click

from barnabas.cli.connection import Connection
from barnabas.clock import SYSTEM_CLOCK
from barnabas.coordination import consumer_groups
from barnabas.coordination.metadata_store import MetadataStore, MetadataStoreUnavailableError
from barnabas.coordination.offsets import read_offsets
from barnabas.coordination.paths import TOPICS
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from barnabas import Admin, GroupDescription
    from barnabas.client.admin.groups import GroupListing

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

CONNECT_TIMEOUT_S = 5.0
SESSION_TIMEOUT_S = 18.0
ZOOKEEPER = "zookeeper"
"""The type that listings show for groups in ZooKeeper."""


def zookeeper_option(function: Decorated) -> Decorated:
    """Add `--zookeeper`, which selects groups that coordinate through ZooKeeper instead of through the brokers."""
    return click.option(
        "--zookeeper",
        metavar="HOST:PORT,.../PATH",
        help="Use groups that coordinate through this ZooKeeper, instead of the brokers' groups.",
    )(function)


class Groups(Protocol):
    """The group operations that the commands need; `Admin` implements them for groups that the brokers coordinate."""

    def list_groups(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]: ...
    def describe_group(self, group: str) -> GroupDescription: ...
    def delete_group(self, group: str) -> None: ...
    def group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]: ...
    def set_group_offsets(self, group: str, offsets: Mapping[tuple[str, int], OffsetAndMetadata | int]) -> None: ...
    def delete_group_offsets(self, group: str, tps: Iterable[tuple[str, int]]) -> None: ...


@contextmanager
def groups_of(admin: Admin, zookeeper: str | None, connection: Connection) -> Iterator[Groups]:
    """Provide the operations on groups in ZooKeeper, or on the groups of the brokers if `zookeeper` is None.

    :param connection: contains the settings for the security of ZooKeeper.
    :raises click.ClickException: ZooKeeper does not respond, or has no topics at that path.
    """
    if zookeeper is None:
        yield admin
        return
    tree = _open(zookeeper.removeprefix("zookeeper://"), connection)
    try:
        if tree.exists(TOPICS) is None:
            raise click.ClickException(
                f"ZooKeeper at {zookeeper} has no topics; give the address from the brokers' settings, with its path"
            )
        yield ZooKeeperGroups(tree, admin)
    finally:
        tree.close()


def _open(connect: str, connection: Connection) -> MetadataStore:
    from barnabas.client.config import ConsumerConfig, make_config
    from barnabas.client.consumer.zookeeper_group_session import zookeeper_config
    from barnabas.coordination.zookeeper.metadata_store import ZooKeeperMetadataStore

    security = {name: value for name, value in connection.properties.items() if name.startswith("zookeeper.")}
    config = make_config(ConsumerConfig, None, security)
    try:
        return ZooKeeperMetadataStore(zookeeper_config(config, connect, SESSION_TIMEOUT_S, CONNECT_TIMEOUT_S))
    except MetadataStoreUnavailableError as error:
        raise click.ClickException(str(error)) from error


class ZooKeeperGroups:
    """The groups that have nodes in ZooKeeper. The methods raise the same errors as `Admin`.

    Committed offsets are in ZooKeeper. If a group has committed offsets only at the brokers
    (`offsets_storage="kafka"`), the methods read and write the offsets there.
    """

    def __init__(self, tree: MetadataStore, admin: Admin) -> None:
        self._tree = tree
        self._admin = admin

    def list_groups(self, *, states: Collection[str] = (), types: Collection[str] = ()) -> list[GroupListing]:
        """Return the groups in ZooKeeper, filtered by states and types and sorted by name."""
        from barnabas.client.admin.groups import GroupListing

        wanted, kinds = {each.lower() for each in states}, {each.lower() for each in types}
        if kinds and ZOOKEEPER not in kinds:
            return []
        names = consumer_groups.list_groups(self._tree)
        listed = [GroupListing(name, self._state(name), "consumer", ZOOKEEPER) for name in names]
        return [each for each in listed if not wanted or each.state.lower() in wanted]

    def _state(self, group: str) -> str:
        consumers = consumer_groups.consumers_of(self._tree, group)
        return "Dead" if consumers is None else "Stable" if consumers else "Empty"

    def describe_group(self, group: str) -> GroupDescription:
        """Return the members of a group with their partitions; the state of a missing group is Dead."""
        from barnabas.client.admin.groups import GroupDescription, MemberDescription

        consumers = consumer_groups.consumers_of(self._tree, group)
        members = [
            MemberDescription(each.consumer_id, "", "", None, each.topics, each.partitions) for each in consumers or ()
        ]
        state = "Dead" if consumers is None else "Stable" if members else "Empty"
        assignor = "range" if members else ""
        return GroupDescription(group, state, "consumer", assignor, tuple(members), coordination=ZOOKEEPER)

    def group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group."""
        return read_offsets(self._tree, group) or self._admin.group_offsets(group)

    def set_group_offsets(self, group: str, offsets: Mapping[tuple[str, int], OffsetAndMetadata | int]) -> None:
        """Commit offsets for a group without members, in the store that the group uses."""
        self._require_no_members(group)
        if not read_offsets(self._tree, group) and self._admin.group_offsets(group):
            self._admin.set_group_offsets(group, offsets)
            return
        given = {
            TopicPartition(*tp): OffsetAndMetadata(each) if isinstance(each, int) else each
            for tp, each in offsets.items()
        }
        consumer_groups.set_offsets(self._tree, group, given, SYSTEM_CLOCK.time_ms())

    def delete_group(self, group: str) -> None:
        """Delete a group without members, and its offsets in both stores."""
        consumer_groups.delete_group(self._tree, group)
        if self._admin.group_offsets(group):
            self._admin.delete_group(group)

    def delete_group_offsets(self, group: str, tps: Iterable[tuple[str, int]]) -> None:
        """Delete the committed offsets of some partitions. The group must have no members."""
        self._require_no_members(group)
        partitions = [TopicPartition(*tp) for tp in tps]
        if read_offsets(self._tree, group):
            consumer_groups.delete_offsets(self._tree, group, partitions)
        else:
            self._admin.delete_group_offsets(group, partitions)

    def _require_no_members(self, group: str) -> None:
        if consumer_groups.consumers_of(self._tree, group):
            raise ApiError.about(ErrorCode.NON_EMPTY_GROUP, f"group {group!r}", " has members; stop them first")
