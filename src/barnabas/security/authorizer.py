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

import functools
import ipaddress
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from barnabas.security.acls import (
    EVERYONE,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    network_of,
)
from barnabas.security.principal import Principal, parse_principals

SUPER_USERS = "super.users"
DECISIONS_KEPT_MAX = 50_000
"""The maximum number of decisions in memory."""
NAME_KEPT_CHARACTERS_MAX = 256
"""The maximum length of a resource name in a decision in memory."""
HOSTS_KEPT_MAX = 1_000
"""The maximum number of parsed addresses in memory."""

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
    """An immutable set of ACLs, indexed by resource, principal and host.

    So the time of a decision depends on the number of matching ACLs only. `with_patterns` returns a changed copy, which
    shares its unchanged parts with the original.
    """

    __slots__ = ("_by_type", "_entries")

    def __init__(self, bindings: Iterable[AclBinding] = ()) -> None:
        by_pattern: dict[ResourcePattern, dict[AclEntry, None]] = {}
        for pattern, entry in bindings:
            by_pattern.setdefault(pattern, {})[entry] = None
        self._entries: dict[ResourcePattern, tuple[AclEntry, ...]] = {}
        self._by_type: dict[ResourceType, _RulesOfType] = {}
        self._put({pattern: tuple(each) for pattern, each in by_pattern.items()})

    @classmethod
    def of_patterns(cls, entries: Mapping[ResourcePattern, Sequence[AclEntry]]) -> Acls:
        """Return the ACLs of these patterns."""
        return cls().with_patterns(entries)

    def with_patterns(self, changed: Mapping[ResourcePattern, Sequence[AclEntry]]) -> Acls:
        """Return a copy with these entries for these patterns. Return the same object if nothing changes."""
        new = {
            pattern: tuple(entries)
            for pattern, entries in changed.items()
            if tuple(entries) != self._entries.get(pattern, ())
        }
        if not new:
            return self
        copy = Acls()
        copy._entries, copy._by_type = dict(self._entries), dict(self._by_type)
        copy._put(new)
        return copy

    def _put(self, changed: Mapping[ResourcePattern, tuple[AclEntry, ...]]) -> None:
        by_type: dict[ResourceType, dict[ResourcePattern, tuple[AclEntry, ...]]] = {}
        for pattern, entries in changed.items():
            by_type.setdefault(pattern.type, {})[pattern] = entries
            if entries:
                self._entries[pattern] = entries
            else:
                self._entries.pop(pattern, None)
        for kind, each in by_type.items():
            self._by_type[kind] = self._by_type.get(kind, _NO_RULES).with_patterns(each)

    def __iter__(self) -> Iterator[AclBinding]:
        for pattern, entries in self._entries.items():
            for entry in entries:
                yield AclBinding(pattern, entry)

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Acls):
            return NotImplemented
        return self is other or self.by_pattern() == other.by_pattern()

    __hash__ = None  # type: ignore[assignment]

    def by_pattern(self) -> Mapping[ResourcePattern, frozenset[AclEntry]]:
        """Return the entries of each pattern."""
        return {pattern: frozenset(entries) for pattern, entries in self._entries.items()}

    @property
    def patterns(self) -> Set[ResourcePattern]:
        """All patterns."""
        return self._entries.keys()

    def entries(self, pattern: ResourcePattern) -> tuple[AclEntry, ...]:
        """Return the entries of a pattern."""
        return self._entries.get(pattern, ())

    def candidates(self, acl_filter: AclFilter) -> Iterable[ResourcePattern]:
        """Return the patterns that can match a filter, and maybe others."""
        name = acl_filter.name
        if name is None:
            return self._entries
        kinds = [*self._by_type] if acl_filter.type is ResourceType.ANY else [acl_filter.type]
        if acl_filter.pattern_type is PatternType.MATCH:
            return [rules.pattern for kind in kinds for rules in self.rules(kind, name)]
        both = (PatternType.LITERAL, PatternType.PREFIXED)
        return [
            pattern
            for kind in kinds
            for each in both
            if (pattern := ResourcePattern(kind, name, each)) in self._entries
        ]

    def concerning(self, kind: ResourceType, name: str) -> Iterator[AclBinding]:
        """Yield the ACLs that concern a resource: by its name, by `*`, and by its prefixes."""
        for rules in self.rules(kind, name):
            for entry in self._entries[rules.pattern]:
                yield AclBinding(rules.pattern, entry)

    def rules(self, kind: ResourceType, name: str) -> Iterable[Rules]:
        """Return the rules of the patterns that concern a resource."""
        of_type = self._by_type.get(kind)
        return () if of_type is None else of_type.concerning(name)

    def all_rules(self, kind: ResourceType) -> Iterable[Rules]:
        """Return the rules of all patterns of a type."""
        of_type = self._by_type.get(kind)
        return () if of_type is None else (*of_type.literal.values(), *of_type.prefixed.values())


class Rules:
    """The entries of a pattern, indexed by principal and host."""

    __slots__ = ("_by_principal", "pattern")

    def __init__(self, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> None:
        self.pattern = pattern
        by_principal: dict[str, list[AclEntry]] = {}
        for entry in entries:
            by_principal.setdefault(entry.principal, []).append(entry)
        self._by_principal = {principal: _EntriesByHost(each) for principal, each in by_principal.items()}

    def fitting(self, principal: str, host: str) -> Iterator[AclEntry]:
        """Yield the entries that concern a principal at an address."""
        for name in (principal, EVERYONE) if principal != EVERYONE else (principal,):
            found = self._by_principal.get(name)
            if found is not None:
                yield from found.fitting(host)


class _RulesOfType(NamedTuple):
    """The rules of the patterns of one type, by name."""

    literal: Mapping[str, Rules]
    prefixed: Mapping[str, Rules]
    prefix_lengths: Sequence[int]

    def with_patterns(self, changed: Mapping[ResourcePattern, tuple[AclEntry, ...]]) -> _RulesOfType:
        literal, prefixed = dict(self.literal), dict(self.prefixed)
        for pattern, entries in changed.items():
            by_name = prefixed if pattern.pattern_type is PatternType.PREFIXED else literal
            if entries:
                by_name[pattern.name] = Rules(pattern, entries)
            else:
                by_name.pop(pattern.name, None)
        return _RulesOfType(literal, prefixed, sorted(set(map(len, prefixed))))

    def concerning(self, name: str) -> list[Rules]:
        names = (name,) if name == WILDCARD else (name, WILDCARD)
        found = [rules for each in names if (rules := self.literal.get(each)) is not None]
        for length in self.prefix_lengths:
            if length > len(name):
                break
            rules = self.prefixed.get(name[:length])
            if rules is not None:
                found.append(rules)
        return found


_NO_RULES = _RulesOfType({}, {}, ())


class _EntriesByHost:
    """The entries of a principal, indexed by host.

    There is one dictionary for each size of a network, so thousands of networks take a few lookups.
    """

    __slots__ = ("_by_name", "_by_network", "_names_no_hosts")

    def __init__(self, entries: Iterable[AclEntry]) -> None:
        self._by_name: dict[str, list[AclEntry]] = {}
        self._by_network: dict[tuple[int, int], dict[int, list[AclEntry]]] = {}
        for entry in entries:
            network = None if entry.host == WILDCARD else network_of(entry.host)
            if network is None:
                self._by_name.setdefault(_parsed(entry.host).text, []).append(entry)
            else:
                left_out = network.max_prefixlen - network.prefixlen
                by_number = self._by_network.setdefault((network.version, left_out), {})
                by_number.setdefault(int(network.network_address) >> left_out, []).append(entry)
        self._names_no_hosts = not self._by_network and not self._by_name.keys() - {WILDCARD}

    def fitting(self, host: str) -> Iterator[AclEntry]:
        yield from self._by_name.get(WILDCARD, ())
        if host == WILDCARD or self._names_no_hosts:
            return
        text, version, number = _parsed(host)
        yield from self._by_name.get(text, ())
        for (version_of_network, left_out), by_number in self._by_network.items():
            if version_of_network == version:
                yield from by_number.get(number >> left_out, ())


class _Host(NamedTuple):
    """A host, and the version and the number of its address. The version is 0 if the host is not an address."""

    text: str
    version: int
    number: int


@functools.lru_cache(maxsize=HOSTS_KEPT_MAX)
def _parsed(host: str) -> _Host:
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return _Host(host, 0, 0)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return _Host(str(address), address.version, int(address))


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
            found = self._is_super_user(principal)
            if not found:
                is_concerned, rule = self._deciding_rule(str(principal), host, operation, kind, name)
                found = self._is_allowed(rule, is_concerned=is_concerned)
            if len(name) <= NAME_KEPT_CHARACTERS_MAX:  # clients choose the names
                if len(self._decided) >= DECISIONS_KEPT_MAX:
                    self._decided.clear()
                self._decided[key] = found
        return found

    def decide(self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str) -> Decision:
        """Return the decision about an operation, with the rule that leads to it."""
        if self._is_super_user(principal):
            return Decision(True, None, f"{principal} is in super.users")
        is_concerned, rule = self._deciding_rule(str(principal), host, operation, kind, name)
        is_allowed = self._is_allowed(rule, is_concerned=is_concerned)
        if rule is not None:
            return Decision(is_allowed, rule, f"an ACL {'allows' if is_allowed else 'denies'} it: {rule}")
        if is_concerned:
            return Decision(is_allowed, None, "no ACL of the resource allows it")
        if is_allowed:
            return Decision(is_allowed, None, "no ACL concerns the resource, and allow.everyone.if.no.acl.found=true")
        return Decision(is_allowed, None, "no ACL concerns the resource")

    def _deciding_rule(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> tuple[bool, AclBinding | None]:
        """Return whether an ACL concerns a resource, and the ACL that decides; None if no ACL decides."""
        implying = _implying(operation)
        allowing: AclBinding | None = None
        is_concerned = False
        for rules in self._acls.rules(kind, name):
            is_concerned = True
            for entry in rules.fitting(principal, host):
                if entry.permission is not Permission.ALLOW:
                    if entry.operation in (operation, Operation.ALL):
                        return True, AclBinding(rules.pattern, entry)
                elif allowing is None and entry.operation in implying:
                    allowing = AclBinding(rules.pattern, entry)
        return is_concerned, allowing

    def _is_allowed(self, rule: AclBinding | None, *, is_concerned: bool) -> bool:
        if rule is not None:
            return rule.entry.permission is Permission.ALLOW
        return not is_concerned and self._allow_everyone_if_no_acl

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
        everything = ResourcePattern(kind, WILDCARD)
        for rules in self._acls.all_rules(kind):
            for entry in rules.fitting(principal, host):
                if entry.permission is not Permission.ALLOW:
                    if entry.operation in (operation, Operation.ALL):
                        denied.add(rules.pattern)
                elif entry.operation in implying:
                    allowed.append(rules.pattern)
        if everything in denied:
            return False
        if self._allow_everyone_if_no_acl and not self._acls.entries(everything):
            return True
        return any(not _is_covered(pattern, denied) for pattern in allowed)


def authorizer_of_broker(acls: Acls, kind: ResourceType, settings: Mapping[str, str | None]) -> Authorizer:
    """Return an authorizer that decides as a broker does about resources of a type.

    Registries decide about subjects. They do not use the settings of the brokers.

    :param settings: the settings of the broker.
    :raises ConfigurationError: `super.users` contains no valid principals.
    """
    if kind is ResourceType.SUBJECT:
        return Authorizer(acls)
    super_users = parse_principals(settings.get(SUPER_USERS) or "")
    allows_everyone = settings.get("allow.everyone.if.no.acl.found") == "true"
    return Authorizer(acls, super_users.__contains__, allow_everyone_if_no_acl=allows_everyone)


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
