"""Access control lists (ACLs): the rules that allow or deny operations on resources, as in Kafka (KIP-11, KIP-290).

The numbers of the enumerations are those of the protocol. `barnabas.security.authorizer` decides by the ACLs, and
`barnabas.coordination.acls` stores them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from barnabas.errors import ConfigurationError
from barnabas.security.principal import NAME_BYTES_MAX, Principal

WILDCARD = "*"
"""The resource name, and the host, that stands for all."""
EVERYONE = "User:*"
"""The principal that stands for all users."""
CLUSTER_NAME = "kafka-cluster"
"""The only name of a resource of the type CLUSTER."""
RESOURCE_NAME_BYTES_MAX = 1024
HOST_CHARACTERS_MAX = 64
BITS_BEFORE_IPV4 = 96
"""The number of bits before the IPv4 address in an IPv6 address that contains one."""


class _Named(IntEnum):
    __hash__ = int.__hash__  # faster than the hash of the name, which each decision would need twice

    @classmethod
    def _missing_(cls, value: object) -> _Named:
        """Return UNKNOWN for a number without meaning, because clients may send any number."""
        return cls(0)

    @property
    def label(self) -> str:
        """The name in Kafka's metadata nodes and commands, such as `DescribeConfigs`.

        >>> Operation.DESCRIBE_CONFIGS.label, ResourceType.TRANSACTIONAL_ID.label
        ('DescribeConfigs', 'TransactionalId')
        """
        return "".join(part.capitalize() for part in self.name.split("_"))


class ResourceType(_Named):
    """The type of a resource.

    SUBJECT is an addition of Barnabas: a subject of the schema registry. Kafka's clients do not know it.
    """

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7
    SUBJECT = 100


class PatternType(_Named):
    """The relation between the name of an ACL and the names of its resources. ANY and MATCH occur in filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(_Named):
    """An operation on a resource. ANY occurs in filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(_Named):
    """The effect of an ACL. ANY occurs in filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS_ON = {
    ResourceType.TOPIC: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset(
        {
            Operation.READ,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT}),
    ResourceType.DELEGATION_TOKEN: frozenset({Operation.DESCRIBE}),
    ResourceType.USER: frozenset({Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS}),
    ResourceType.SUBJECT: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
}
"""The operations that exist on resources of a type, without ALL (Kafka's AclEntry.supportedOperations)."""


class ResourcePattern(NamedTuple):
    """The resources of an ACL.

    >>> ResourcePattern(ResourceType.TOPIC, "logs-", PatternType.PREFIXED).matches("logs-eu")
    True
    """

    type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def matches(self, name: str) -> bool:
        """Return whether a resource of this type with a name belongs to the pattern."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, WILDCARD)

    def __str__(self) -> str:
        star = "*" if self.pattern_type is PatternType.PREFIXED else ""
        return f"{self.type.name.lower()}:{self.name}{star}"


class AclEntry(NamedTuple):
    """A principal, and the operation that an ACL allows or denies to it.

    :ivar principal: such as `User:alice`; `User:*` is every principal.
    :ivar host: an address, a network such as `10.0.0.0/8`, or `*`.
    """

    principal: str
    host: str
    operation: Operation
    permission: Permission


class AclBinding(NamedTuple):
    """One ACL: the resources and the entry."""

    pattern: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        own = self.entry
        origin = "" if own.host == WILDCARD else f" from {own.host}"
        return f"{own.permission.name.lower()} {own.principal} {own.operation.name.lower()} {self.pattern}{origin}"


def checked_binding(binding: AclBinding) -> AclBinding:
    """Return an ACL that a client wants to create.

    As in Kafka, an ACL may name a host that no address matches, or an operation that its type of resources lacks.

    :raises ConfigurationError: it is not complete, or contradicts Kafka's rules.
    """
    (kind, name, pattern_type), (principal, host, operation, permission) = binding
    if kind in (ResourceType.UNKNOWN, ResourceType.ANY):
        raise ConfigurationError(f"an ACL needs one type of resource, not {kind.name}")
    if pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise ConfigurationError(f"an ACL needs the pattern type LITERAL or PREFIXED, not {pattern_type.name}")
    if operation in (Operation.UNKNOWN, Operation.ANY):
        raise ConfigurationError(f"an ACL needs one operation or ALL, not {operation.name}")
    if permission not in (Permission.ALLOW, Permission.DENY):
        raise ConfigurationError(f"an ACL must ALLOW or DENY, not {permission.name}")
    if not name or len(name.encode("utf-8", "surrogatepass")) > RESOURCE_NAME_BYTES_MAX or not name.isprintable():
        raise ConfigurationError(f"the name of a resource must have 1 to {RESOURCE_NAME_BYTES_MAX} printable bytes")
    if kind is ResourceType.CLUSTER and (name != CLUSTER_NAME or pattern_type is not PatternType.LITERAL):
        raise ConfigurationError(f"the only resource of the type CLUSTER is {CLUSTER_NAME}")
    if len(principal) > NAME_BYTES_MAX or not principal.isprintable():
        raise ConfigurationError("a principal has printable characters, and at most 1024 bytes")
    Principal.parse(principal)
    if not 0 < len(host) <= HOST_CHARACTERS_MAX or not host.isprintable():
        raise ConfigurationError(f"the host of an ACL has 1 to {HOST_CHARACTERS_MAX} printable characters")
    return binding


def acl_as_fields(binding: AclBinding) -> dict[str, str]:
    """Return an ACL as fields of JSON, as `barnabas acl list --json` prints them.

    >>> pattern = ResourcePattern(ResourceType.TOPIC, "logs-", PatternType.PREFIXED)
    >>> binding = AclBinding(pattern, AclEntry("User:a", "*", Operation.DESCRIBE_CONFIGS, Permission.ALLOW))
    >>> acl_as_fields(binding)["operation"], acl_of_fields(acl_as_fields(binding)) == binding
    ('describe-configs', True)
    """
    pattern, entry = binding
    return {
        "principal": entry.principal,
        "host": entry.host,
        "operation": _field_of(entry.operation),
        "permission": _field_of(entry.permission),
        "resource_type": _field_of(pattern.type),
        "resource_name": pattern.name,
        "pattern_type": _field_of(pattern.pattern_type),
    }


def acl_of_fields(fields: Mapping[str, str]) -> AclBinding:
    """Return the ACL of `acl_as_fields`.

    :raises ConfigurationError: a field is missing or malformed, or the ACL is not complete.
    """
    try:
        pattern = ResourcePattern(
            ResourceType[_member_of(fields["resource_type"])],
            str(fields["resource_name"]),
            PatternType[_member_of(fields["pattern_type"])],
        )
        entry = AclEntry(
            str(fields["principal"]),
            str(fields["host"]),
            Operation[_member_of(fields["operation"])],
            Permission[_member_of(fields["permission"])],
        )
    except (KeyError, TypeError, AttributeError):
        raise ConfigurationError("an ACL lacks a field, or a field has an unknown value") from None
    return checked_binding(AclBinding(pattern, entry))


def _field_of(member: _Named) -> str:
    return member.name.lower().replace("_", "-")


def _member_of(field: str) -> str:
    return field.upper().replace("-", "_")


def is_host(host: str) -> bool:
    """Return whether an address can match the host of an ACL.

    >>> is_host("*"), is_host("10.1.2.3"), is_host("10.0.0.0/8"), is_host("::1"), is_host("a.example"), is_host("")
    (True, True, True, True, False, False)
    >>> is_host("fe80::1%eth0")
    True
    """
    address, percent, _ = host.partition("%")
    is_known = network_of(host) is not None or (percent and "/" not in host and network_of(address) is not None)
    return len(host) <= HOST_CHARACTERS_MAX and (host == WILDCARD or bool(is_known))


def network_of(host: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    """Return an address or a network of addresses; None if a text is neither.

    An address with a zone, such as `fe80::1%eth0`, is not the address of other zones, so it has no network.

    >>> network_of("10.0.0.7/8"), network_of("::ffff:10.0.0.7"), network_of("fe80::1%eth0")
    (IPv4Network('10.0.0.0/8'), IPv4Network('10.0.0.7/32'), None)
    """
    if "%" in host:
        return None
    try:
        network = ipaddress.ip_network(host, strict=False)
    except ValueError:
        return None
    if isinstance(network, ipaddress.IPv6Network) and network.prefixlen >= BITS_BEFORE_IPV4:
        mapped = network.network_address.ipv4_mapped
        if mapped is not None:
            return ipaddress.IPv4Network((int(mapped), network.prefixlen - BITS_BEFORE_IPV4))
    return network


class AclFilter(NamedTuple):
    """A filter of DescribeAcls and DeleteAcls. None, and the members ANY, match everything.

    The pattern type MATCH matches each ACL that concerns a resource with this name.
    """

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @property
    def has_unknown(self) -> bool:
        """True if a number of the filter has no meaning, so that nothing can be found."""
        return 0 in (self.type, self.pattern_type, self.operation, self.permission)

    def matches(self, binding: AclBinding) -> bool:
        """Return whether an ACL fits the filter.

        >>> logs = ResourcePattern(ResourceType.TOPIC, "logs-", PatternType.PREFIXED)
        >>> binding = AclBinding(logs, AclEntry("User:a", "*", Operation.READ, Permission.ALLOW))
        >>> AclFilter(name="logs-eu", pattern_type=PatternType.MATCH).matches(binding)
        True
        >>> AclFilter(name="logs-eu").matches(binding)
        False
        """
        pattern, entry = binding
        return (
            self.type in (ResourceType.ANY, pattern.type)
            and self._matches_name(pattern)
            and self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def _matches_name(self, pattern: ResourcePattern) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        return pattern.matches(self.name) if self.pattern_type is PatternType.MATCH else self.name == pattern.name
