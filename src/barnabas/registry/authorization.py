"""The permissions that the routes of the REST interface need.

`ACCESS` is the only place that connects a route to a resource and an operation. The registry does not start while a
route has no entry. Kafka's ACLs contain the permissions, on resources of the type SUBJECT and on the cluster.

A client learns nothing about subjects that it may not describe. Lists leave them out, and a schema id whose subjects
the client may not read looks like an id that does not exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from barnabas.registry.errors import RegistryError
from barnabas.security.acls import CLUSTER_NAME, Operation, ResourceType
from barnabas.security.authorizer import Authorizer
from barnabas.security.principal import Principal


class Scope(Enum):
    """The resource of a route."""

    NOTHING = "none"
    """The route needs authentication only."""
    SUBJECT = "the subject of the path"
    VISIBLE = "each subject of the response"
    """The response contains only what the client may see; it may be empty."""
    ID = "a subject with the schema"
    CLUSTER = "the cluster"


class Access(NamedTuple):
    """The permission that a route needs."""

    scope: Scope
    operation: Operation = Operation.DESCRIBE


Route = tuple[str, str]
"""The method and the path of a route."""

_READ, _WRITE, _DELETE = (Access(Scope.SUBJECT, each) for each in (Operation.READ, Operation.WRITE, Operation.DELETE))
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = (
    Access(Scope.SUBJECT, each) for each in (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
)
_DESCRIBE_GLOBAL, _ALTER_GLOBAL = (
    Access(Scope.CLUSTER, each) for each in (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
)
_BY_ID = Access(Scope.ID, Operation.READ)
_FREE = Access(Scope.NOTHING)

ACCESS: Mapping[Route, Access] = {
    ("GET", "/subjects"): Access(Scope.VISIBLE),
    ("POST", "/subjects/{subject}"): _READ,
    ("DELETE", "/subjects/{subject}"): _DELETE,
    ("GET", "/subjects/{subject}/versions"): Access(Scope.SUBJECT),
    ("POST", "/subjects/{subject}/versions"): _WRITE,
    ("GET", "/subjects/{subject}/versions/{version}"): _READ,
    ("GET", "/subjects/{subject}/metadata"): _READ,
    ("DELETE", "/subjects/{subject}/versions/{version}"): _DELETE,
    ("GET", "/subjects/{subject}/versions/{version}/schema"): _READ,
    ("GET", "/subjects/{subject}/versions/{version}/referencedby"): _READ,
    ("GET", "/schemas"): Access(Scope.VISIBLE, Operation.READ),
    ("GET", "/schemas/types"): _FREE,
    ("GET", "/schemas/ids/{id}"): _BY_ID,
    ("GET", "/schemas/ids/{id}/schema"): _BY_ID,
    ("GET", "/schemas/ids/{id}/subjects"): _BY_ID,
    ("GET", "/schemas/ids/{id}/versions"): _BY_ID,
    ("POST", "/compatibility/subjects/{subject}/versions/{version}"): _READ,
    ("POST", "/compatibility/subjects/{subject}/versions"): _READ,
    ("GET", "/config"): _DESCRIBE_GLOBAL,
    ("PUT", "/config"): _ALTER_GLOBAL,
    ("DELETE", "/config"): _ALTER_GLOBAL,
    ("GET", "/config/{subject}"): _DESCRIBE_CONFIGS,
    ("PUT", "/config/{subject}"): _ALTER_CONFIGS,
    ("DELETE", "/config/{subject}"): _ALTER_CONFIGS,
    ("GET", "/mode"): _DESCRIBE_GLOBAL,
    ("PUT", "/mode"): _ALTER_GLOBAL,
    ("GET", "/mode/{subject}"): _DESCRIBE_CONFIGS,
    ("PUT", "/mode/{subject}"): _ALTER_CONFIGS,
    ("DELETE", "/mode/{subject}"): _ALTER_CONFIGS,
    ("GET", "/"): _FREE,
    ("GET", "/contexts"): Access(Scope.VISIBLE),
    ("GET", "/v1/metadata/version"): _FREE,
    ("GET", "/v1/metadata/id"): _FREE,
}


def check_routes(routes: Iterable[Route]) -> None:
    """Check that each route has an entry, and that each entry has a route.

    :raises ValueError: the table and the routes differ.
    """
    given = set(routes)
    differing = given ^ set(ACCESS)
    if differing:
        raise ValueError(f"routes without access rules, or rules without a route: {sorted(differing)}")


@dataclass(frozen=True, slots=True)
class Caller:
    """The client of a request, with its permissions.

    :param host: the address of the client.
    :param authorizer: None if the brokers have no ACLs, so that everything is allowed.
    """

    principal: Principal
    host: str
    authorizer: Authorizer | None

    def may(self, operation: Operation, subject: str) -> bool:
        """Return whether the client may perform an operation on a subject."""
        return self._may(operation, ResourceType.SUBJECT, subject)

    def may_on_cluster(self, operation: Operation) -> bool:
        """Return whether the client may perform an operation on the cluster."""
        return self._may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def _may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        authorizer = self.authorizer
        return authorizer is None or authorizer.allows(self.principal, self.host, operation, kind, name)

    def visible(self, operation: Operation, subjects: Iterable[str]) -> list[str]:
        """Return the subjects on which the client may perform an operation."""
        return [each for each in subjects if self.may(operation, each)]

    def check(self, access: Access, subject: str) -> None:
        """Check the permission that a route needs.

        :param subject: the subject in the path, qualified with its context; empty without one.
        :raises RegistryError: the client lacks the permission (40301).
        """
        operation = access.operation
        if access.scope is Scope.SUBJECT:
            self.check_subject(operation, subject)
        elif access.scope is Scope.CLUSTER:
            if not self.may_on_cluster(operation):
                raise RegistryError.denied(operation.label, "Cluster")
        elif access.scope is Scope.ID and not self._may_on_any(operation):
            raise RegistryError.denied(operation.label, "any Subject")

    def check_subject(self, operation: Operation, subject: str) -> None:
        """Check that the client may perform an operation on a subject.

        :raises RegistryError: it may not (40301).
        """
        if not self.may(operation, subject):
            raise RegistryError.denied(operation.label, f"Subject: {subject}")

    def _may_on_any(self, operation: Operation) -> bool:
        if self.authorizer is None:
            return True
        return self.authorizer.allows_any(self.principal, self.host, operation, ResourceType.SUBJECT)
