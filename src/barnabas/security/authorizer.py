"""Decides whether a principal may perform an operation, by the rules of Kafka's StandardAuthorizer.

The rules, in order:

1. A super user may do everything.
2. An ACL that denies wins over all that allow.
3. An ACL that allows READ, WRITE, DELETE or ALTER also allows DESCRIBE, and ALTER_CONFIGS also allows
   DESCRIBE_CONFIGS. Nothing is implied for ACLs that deny.
4. If no ACL concerns the resource, `allow.everyone.if.no.acl.found` decides; else the answer is no.

An ACL concerns a resource by its literal name, by a prefix of the name, or by the name `*`.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from barnabas.security.acls import (
    EVERYONE,
    WILDCARD,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    network_of,
)
from barnabas.security.principal import Principal

DECISIONS_KEPT_MAX = 50_000
"""The maximum number of decisions in memory."""
NAME_KEPT_CHARACTERS_MAX = 256
"""The maximum length of a resource name in a decision in memory."""

_IMPLYING = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}),
}


class Decision(NamedTuple):
    """A decision, and the rule that led to it.

    :ivar rule: the deciding ACL, or None if no ACL decides.
    :ivar reason: the rule in words.
    """

    is_allowed: bool
    rule: AclBinding | None
    reason: str


class Acls:
    """An immutable set of ACLs, indexed by resource."""

    def __init__(self, bindings: Iterable[AclBinding] = ()) -> None:
        self._entries: dict[ResourcePattern, tuple[AclEntry, ...]] = {}
        by_pattern: dict[ResourcePattern, dict[AclEntry, None]] = {}
        for pattern, entry in bindings:
            by_pattern.setdefault(pattern, {})[entry] = None
        for pattern, entries in by_pattern.items():
            self._entries[pattern] = tuple(entries)
        lengths: dict[ResourceType, set[int]] = {}
        for pattern in self._entries:
            if pattern.pattern_type is PatternType.PREFIXED:
                lengths.setdefault(pattern.type, set()).add(len(pattern.name))
        self._prefix_lengths = {kind: sorted(each) for kind, each in lengths.items()}
        self._networks = _networks_of(entry.host for entries in self._entries.values() for entry in entries)

    @classmethod
    def of_patterns(cls, entries: Mapping[ResourcePattern, Sequence[AclEntry]]) -> Acls:
        """Return the ACLs of these patterns."""
        return cls(AclBinding(pattern, entry) for pattern, each in entries.items() for entry in each)

    def __iter__(self) -> Iterator[AclBinding]:
        for pattern, entries in self._entries.items():
            for entry in entries:
                yield AclBinding(pattern, entry)

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Acls):
            return NotImplemented
        return self.by_pattern() == other.by_pattern()

    __hash__ = None  # type: ignore[assignment]

    def by_pattern(self) -> Mapping[ResourcePattern, frozenset[AclEntry]]:
        """Return the entries of each pattern."""
        return {pattern: frozenset(entries) for pattern, entries in self._entries.items()}

    def patterns(self, kind: ResourceType) -> Iterator[tuple[ResourcePattern, tuple[AclEntry, ...]]]:
        """Yield the patterns of a type, and their entries."""
        return ((pattern, entries) for pattern, entries in self._entries.items() if pattern.type is kind)

    def concerning(self, kind: ResourceType, name: str) -> Iterator[AclBinding]:
        """Yield the ACLs that concern a resource: by its name, by `*`, and by its prefixes."""
        for pattern in self._patterns_of(kind, name):
            for entry in self._entries.get(pattern, ()):
                yield AclBinding(pattern, entry)

    def _patterns_of(self, kind: ResourceType, name: str) -> Iterator[ResourcePattern]:
        yield ResourcePattern(kind, name)
        if name != WILDCARD:
            yield ResourcePattern(kind, WILDCARD)
        for length in self._prefix_lengths.get(kind, ()):
            if length > len(name):
                break
            yield ResourcePattern(kind, name[:length], PatternType.PREFIXED)

    def fits(self, entry: AclEntry, principal: str, host: str) -> bool:
        """Return whether an entry concerns a principal at an address."""
        if entry.principal not in (principal, EVERYONE):
            return False
        if entry.host in (WILDCARD, host):
            return True
        network = self._networks.get(entry.host)
        return network is not None and _is_within(host, network)


_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def _networks_of(hosts: Iterable[str]) -> dict[str, _Network]:
    found = {}
    for host in {each for each in hosts if each != WILDCARD}:
        network = network_of(host)
        if network is not None:
            found[host] = network
    return found


def _is_within(host: str, network: _Network) -> bool:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return address in network


Key = tuple[Principal, str, Operation, ResourceType, str]
AnyKey = tuple[Principal, str, Operation, ResourceType]


class Authorizer:
    """Decides by a set of ACLs. Used from one thread.

    :param super_users: returns whether a principal is a super user.
    :param allow_everyone_if_no_acl: Kafka's `allow.everyone.if.no.acl.found`.
    :ivar version: a number that changes when decisions may have changed.
    """

    def __init__(
        self,
        acls: Acls | None = None,
        super_users: Callable[[Principal], bool] = lambda _principal: False,
        *,
        allow_everyone_if_no_acl: bool = False,
    ) -> None:
        self._acls = acls or Acls()
        self._is_super_user = super_users
        self._allow_everyone_if_no_acl = allow_everyone_if_no_acl
        self._decided: dict[Key, bool] = {}
        self._decided_any: dict[AnyKey, bool] = {}
        self.version = 0

    @property
    def acls(self) -> Acls:
        return self._acls

    @acls.setter
    def acls(self, acls: Acls) -> None:
        self._acls = acls
        self.forget()

    def forget(self) -> None:
        """Forget all decisions, because the ACLs or the super users have changed."""
        self._decided.clear()
        self._decided_any.clear()
        self.version += 1

    def allows(self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Return whether a principal at an address may perform an operation on a resource."""
        key = (principal, host, operation, kind, name)
        found = self._decided.get(key)
        if found is None:
            found = self.decide(principal, host, operation, kind, name).is_allowed
            if len(name) <= NAME_KEPT_CHARACTERS_MAX:  # clients choose the names
                if len(self._decided) >= DECISIONS_KEPT_MAX:
                    self._decided.clear()
                self._decided[key] = found
        return found

    def decide(self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str) -> Decision:
        """Return the decision about an operation, with the rule that leads to it."""
        if self._is_super_user(principal):
            return Decision(True, None, f"{principal} is in super.users")
        text, denying, implying = str(principal), {operation, Operation.ALL}, _implying(operation)
        allowing: AclBinding | None = None
        is_concerned = False
        for binding in self._acls.concerning(kind, name):
            is_concerned = True
            entry = binding.entry
            if not self._acls.fits(entry, text, host):
                continue
            if entry.permission is Permission.DENY and entry.operation in denying:
                return Decision(False, binding, f"an ACL denies it: {binding}")
            if entry.permission is Permission.ALLOW and entry.operation in implying:
                allowing = allowing or binding
        if allowing is not None:
            return Decision(True, allowing, f"an ACL allows it: {allowing}")
        if is_concerned:
            return Decision(False, None, "no ACL of the resource allows it")
        if self._allow_everyone_if_no_acl:
            return Decision(True, None, "no ACL concerns the resource, and allow.everyone.if.no.acl.found=true")
        return Decision(False, None, "no ACL concerns the resource")

    def allows_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType) -> bool:
        """Return whether a principal may perform an operation on at least one resource of a type.

        An ACL that allows counts unless an ACL that denies covers all its resources.
        """
        if self._is_super_user(principal):
            return True
        key = (principal, host, operation, kind)
        found = self._decided_any.get(key)
        if found is None:
            if len(self._decided_any) >= DECISIONS_KEPT_MAX:
                self._decided_any.clear()
            found = self._decided_any[key] = self._finds_any(str(principal), host, operation, kind)
        return found

    def _finds_any(self, principal: str, host: str, operation: Operation, kind: ResourceType) -> bool:
        allowed: list[ResourcePattern] = []
        denied: set[ResourcePattern] = set()
        implying = _implying(operation)
        for pattern, entries in self._acls.patterns(kind):
            for entry in entries:
                if not self._acls.fits(entry, principal, host):
                    continue
                if entry.permission is Permission.DENY and entry.operation in (operation, Operation.ALL):
                    denied.add(pattern)
                elif entry.permission is Permission.ALLOW and entry.operation in implying:
                    allowed.append(pattern)
        if ResourcePattern(kind, WILDCARD) in denied:
            return False
        if self._allow_everyone_if_no_acl:
            return True
        return any(not _is_covered(pattern, denied) for pattern in allowed)


def _implying(operation: Operation) -> frozenset[Operation]:
    """Return the operations of ACLs that allow an operation."""
    return _IMPLYING.get(operation) or frozenset({operation, Operation.ALL})


def _is_covered(pattern: ResourcePattern, denied: set[ResourcePattern]) -> bool:
    """Return whether a denied pattern contains all resources of a pattern."""
    if pattern in denied:
        return True
    if pattern.name == WILDCARD and pattern.pattern_type is PatternType.LITERAL:
        return False
    prefixes = (pattern.name[:length] for length in range(1, len(pattern.name) + 1))
    return any(ResourcePattern(pattern.type, each, PatternType.PREFIXED) in denied for each in prefixes)
