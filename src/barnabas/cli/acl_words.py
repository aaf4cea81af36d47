"""The words of `barnabas acl`: principals (`User:alice`), operations (`read,write`) and resources (`topic:logs-*`)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas.errors import ConfigurationError
from barnabas.security.acls import (
    CLUSTER_NAME,
    OPERATIONS_ON,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    is_host,
)
from barnabas.security.principal import Principal

TYPES = {kind.name.lower().replace("_", "-"): kind for kind in ResourceType if kind in OPERATIONS_ON}
"""The types of resources, by their names in commands."""
OPERATIONS = {
    operation.name.lower().replace("_", "-"): operation
    for operation in Operation
    if operation not in (Operation.UNKNOWN, Operation.ANY)
}
"""The operations, by their names in commands."""
PRODUCER = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
"""The operations of a producer on its topics, as in `kafka-acls --producer`."""
CONSUMER = (Operation.READ, Operation.DESCRIBE)
"""The operations of a consumer on its topics, as in `kafka-acls --consumer`. It also needs READ on its group."""


class Selection(NamedTuple):
    """The ACLs that `list` and `remove` find.

    :ivar resources: the types, with the patterns; a type without a pattern stands for all its resources.
    """

    principal: str | None
    operations: tuple[Operation, ...]
    resources: tuple[tuple[ResourceType, ResourcePattern | None], ...]


def parse_principal(text: str) -> str:
    """Return a principal.

    :raises ConfigurationError: the text has another form than `User:NAME`.

    >>> parse_principal("User:alice")
    'User:alice'
    """
    if ":" not in text:
        raise ConfigurationError(f"{text!r} is not a principal; did you mean User:{text}?")
    return str(Principal.parse(text))


def parse_operations(text: str) -> list[Operation]:
    """Return operations, separated by commas. Case, `-` and `_` do not matter.

    :raises ConfigurationError: an operation does not exist.

    >>> [each.name for each in parse_operations("read,DescribeConfigs")]
    ['READ', 'DESCRIBE_CONFIGS']
    """
    return [_operation(each.strip()) for each in text.split(",")]


def _operation(text: str) -> Operation:
    for name, operation in OPERATIONS.items():
        if name.replace("-", "") == text.lower().replace("-", "").replace("_", ""):
            return operation
    raise ConfigurationError(f"no operation {text!r}; {_advice(text, OPERATIONS)}")


def parse_resource(text: str) -> ResourcePattern:
    """Return the resources of a text such as `topic:clicks`, `topic:logs-*` (a prefix), `topic:*` (all) or `cluster`.

    :raises ConfigurationError: the text names no resource.

    >>> parse_resource("topic:logs-*")[1:], parse_resource("group:*")[1:]
    (('logs-', <PatternType.PREFIXED: 4>), ('*', <PatternType.LITERAL: 3>))
    >>> str(parse_resource("cluster"))
    'cluster:kafka-cluster'
    """
    _, pattern = _resource(text)
    if pattern is None:
        kind = text.rstrip(":")
        raise ConfigurationError(f"{text!r} has no name; give {kind}:NAME, or {kind}:'*' for all")
    return pattern


def _resource(text: str) -> tuple[ResourceType, ResourcePattern | None]:
    type_name, _, name = text.partition(":")
    kind = TYPES.get(type_name.replace("_", "-"))
    if kind is None:
        raise ConfigurationError(f"no resource type {type_name!r}; {_advice(type_name, TYPES)}")
    if kind is ResourceType.CLUSTER and name in ("", CLUSTER_NAME):
        return kind, ResourcePattern(kind, CLUSTER_NAME)
    if kind is ResourceType.CLUSTER:
        raise ConfigurationError("a cluster has no name; give: cluster")
    if not name:
        return kind, None
    if name.endswith(WILDCARD) and name != WILDCARD:
        return kind, ResourcePattern(kind, name.removesuffix(WILDCARD), PatternType.PREFIXED)
    return kind, ResourcePattern(kind, name)


def parse_host(text: str) -> str:
    """Return an address, a network or `*`.

    :raises ConfigurationError: no address can match.
    """
    if not is_host(text):
        raise ConfigurationError(
            f"{text!r} is not an IP address, a network such as 10.0.0.0/8, or *; brokers do not look up host names"
        )
    return text


def parse_entries(words: Iterable[str]) -> tuple[list[Operation], list[ResourcePattern]]:
    """Return the operations and the resources of `allow` and `deny`.

    :raises ConfigurationError: a word is neither.
    """
    operations: list[Operation] = []
    resources: list[ResourcePattern] = []
    for word in words:
        if _is_resource(word):
            resources.append(parse_resource(word))
        else:
            operations += parse_operations(word)
    return operations, resources


def parse_selection(words: Iterable[str]) -> Selection:
    """Return the ACLs that `list` and `remove` find. A principal begins with an upper-case letter: `User:alice`.

    :raises ConfigurationError: a word is neither a principal nor an operation nor a resource.
    """
    principals: list[str] = []
    operations: list[Operation] = []
    resources: list[tuple[ResourceType, ResourcePattern | None]] = []
    for word in words:
        if ":" in word and word[0].isupper():
            principals.append(parse_principal(word))
        elif _is_resource(word):
            resources.append(_resource(word))
        else:
            operations += parse_operations(word)
    if len(principals) > 1:
        raise ConfigurationError(f"{' and '.join(principals)}: give one principal, or none for all")
    return Selection(principals[0] if principals else None, tuple(operations), tuple(resources))


def _is_resource(word: str) -> bool:
    return ":" in word or word.replace("_", "-") in TYPES


def filters_of(
    selection: Selection, hosts: Sequence[str], permission: Permission, *, matching: bool
) -> Iterator[AclFilter]:
    """Yield the filters of a selection.

    :param matching: True to find all ACLs that concern a named resource: by its name, by prefixes and by `*`.
    """
    # A filter for all types does not find subjects.
    everything: Iterable[tuple[ResourceType, ResourcePattern | None]] = (
        (ResourceType.ANY, None),
        (ResourceType.SUBJECT, None),
    )
    for kind, pattern in selection.resources or everything:
        is_literal = pattern is not None and pattern.pattern_type is PatternType.LITERAL
        how = PatternType.ANY if pattern is None else pattern.pattern_type
        for operation in selection.operations or (Operation.ANY,):
            for host in hosts or (None,):
                yield AclFilter(
                    kind,
                    None if pattern is None else pattern.name,
                    PatternType.MATCH if matching and is_literal else how,
                    selection.principal,
                    host,
                    operation,
                    permission,
                )


def bindings_of(
    principal: str,
    operations: Iterable[Operation],
    resources: Iterable[ResourcePattern],
    hosts: Sequence[str],
    permission: Permission,
) -> list[AclBinding]:
    """Return the ACLs for each operation on each resource, from each host.

    :raises ConfigurationError: an operation does not exist on a type of resources.
    """
    return [
        AclBinding(pattern, AclEntry(principal, host, checked_operation(operation, pattern.type), permission))
        for pattern in resources
        for operation in operations
        for host in hosts or (WILDCARD,)
    ]


def checked_operation(operation: Operation, kind: ResourceType) -> Operation:
    """Return an operation that exists on a type of resources.

    :raises ConfigurationError: it does not exist there.

    >>> checked_operation(Operation.WRITE, ResourceType.DELEGATION_TOKEN)
    Traceback (most recent call last):
    barnabas.errors.ConfigurationError: no operation write on a delegation-token; it has describe and all
    """
    if operation is Operation.ALL or operation in OPERATIONS_ON[kind]:
        return operation
    known = [name for name, each in OPERATIONS.items() if each in OPERATIONS_ON[kind]]
    raise ConfigurationError(
        f"no operation {name_of(operation)} on a {name_of(kind)}; it has {', '.join(known)} and all"
    )


def exact_filter(binding: AclBinding) -> AclFilter:
    """Return the filter that matches one ACL."""
    pattern, entry = binding
    return AclFilter(
        pattern.type,
        pattern.name,
        pattern.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )


def name_of(member: Operation | ResourceType | Permission) -> str:
    """Return the name in commands.

    >>> name_of(ResourceType.TRANSACTIONAL_ID)
    'transactional-id'
    """
    return member.name.lower().replace("_", "-")


def resource_text(pattern: ResourcePattern) -> str:
    """Return the resources as `parse_resource` reads them.

    >>> resource_text(ResourcePattern(ResourceType.TOPIC, "logs-", PatternType.PREFIXED))
    'topic:logs-*'
    """
    if pattern.type is ResourceType.CLUSTER:
        return name_of(pattern.type)
    star = WILDCARD if pattern.pattern_type is PatternType.PREFIXED else ""
    return f"{name_of(pattern.type)}:{pattern.name}{star}"


def _advice(text: str, known: Iterable[str]) -> str:
    names = list(known)
    near = difflib.get_close_matches(text.lower(), names, n=2)
    return f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(names)}"
