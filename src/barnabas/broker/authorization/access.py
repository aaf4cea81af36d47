"""The permissions of one client, and the check of one of its requests."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from barnabas.errors import ErrorCode
from barnabas.security.acls import CLUSTER_NAME, OPERATIONS_ON, Operation, ResourceType
from barnabas.security.authorizer import Authorizer
from barnabas.security.principal import Principal

ERROR_OF = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error of a missing permission, by the type of the resource."""
NO_SUCH_ID = "no topic with this id exists"


class KnownTopics(Protocol):
    """The topics of the cluster, as far as rules need them."""

    def name_of_id(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with an id; None if no topic has the id."""
        ...

    def has_topic(self, name: str) -> bool:
        """Return whether a topic exists."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        ...

    @property
    def creates_topics(self) -> bool:
        """True if Metadata creates topics (`auto.create.topics.enable`)."""
        ...


class Reader(NamedTuple):
    """The owner of a fetch session. Requests with the same permissions have equal owners."""

    principal: Principal
    host: str
    version: int

    def is_before(self, other: Reader | None) -> bool:
        """Return whether this is the same client at an earlier version of the ACLs."""
        return other is not None and self[:2] == other[:2] and self.version < other.version


class Access:
    """The permissions of a principal at an address, at one version of the ACLs."""

    __slots__ = ("_authorizer", "host", "principal", "version")

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str) -> None:
        self._authorizer = authorizer
        self.principal = principal
        self.host = host
        self.version = authorizer.version

    def is_for(self, principal: Principal) -> bool:
        """Return whether these are the permissions of a principal by the current ACLs."""
        return self.principal == principal and not self.is_outdated

    @property
    def is_outdated(self) -> bool:
        """True if the ACLs have changed."""
        return self.version != self._authorizer.version

    @property
    def reader(self) -> Reader:
        """The owner of a fetch session."""
        return Reader(self.principal, self.host, self.version)

    def may(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether an operation on a resource is allowed."""
        return self._authorizer.allows(self.principal, self.host, operation, kind, name)

    def may_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Return whether an operation is allowed on at least one resource of a type."""
        return self._authorizer.allows_any(self.principal, self.host, operation, kind)

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the allowed operations on a resource as bits (KIP-430)."""
        return sum(1 << each for each in OPERATIONS_ON[kind] if self.may(each, kind, name))


class Need(NamedTuple):
    """An operation on a resource that a request needs."""

    operation: Operation
    kind: ResourceType
    name: str


class Check:
    """The check of one request.

    :param is_at_once: True if the handler runs immediately after the check, so that both know the same topics.
    :ivar refused: the operations that the request needs, and that are not allowed.
    """

    __slots__ = ("access", "is_at_once", "refused", "topics", "version")

    def __init__(self, access: Access, topics: KnownTopics, version: int, *, is_at_once: bool = False) -> None:
        self.access = access
        self.topics = topics
        self.version = version
        self.is_at_once = is_at_once
        self.refused: list[Need] = []

    def permits(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether an operation is allowed, and note a refusal."""
        if self.access.may(operation, kind, name):
            return True
        self.refused.append(Need(operation, kind, name))
        return False
