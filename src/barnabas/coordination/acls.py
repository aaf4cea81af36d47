"""The ACLs in the metadata store, at the paths and in the JSON of Kafka's ZooKeeper authorizer.

    /kafka-acl/Topic/clicks                    the ACLs of a literal name
    /kafka-acl-extended/prefixed/Topic/logs-   the ACLs of a prefix

A node contains all ACLs of its resource pattern. A change starts from the node, so neither of two concurrent changes is
lost. If a node is damaged, its resources are denied to everybody except super users, because the node may have
contained an ACL that denies.

Each change also writes the node `/kafka-acl-changes`, which contains the paths of the last changed nodes. Its version
counts the changes. Brokers watch this node instead of the change notifications of topics, because a broker reads no
notifications while it creates a large topic, and a revocation must not wait for that.

Kafka writes names without an encoding, so a name such as `my group` may have a node that Kafka wrote, and one that a
broker wrote. Both belong to the resource pattern. The next change moves all ACLs to the second node.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from barnabas.coordination import paths
from barnabas.coordination.damaged_nodes import report_damaged
from barnabas.coordination.fields import BadValueError, DamagedNodeError, Fields, shown
from barnabas.coordination.metadata_store import (
    BadVersionError,
    Create,
    Delete,
    MetadataStore,
    NodeData,
    NodeExistsError,
    NoNodeError,
    Set,
    Watch,
)
from barnabas.coordination.metadata_store import Operation as StoreOperation
from barnabas.coordination.subtrees import ensure_paths
from barnabas.errors import ConfigurationError
from barnabas.security.acls import (
    EVERYONE,
    RESOURCE_NAME_BYTES_MAX,
    WILDCARD,
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    checked_binding,
)

ATTEMPTS = 100
"""The maximum number of attempts to write a change. Each concurrent change by another broker makes one attempt fail."""
VERSION = 1
"""The version of the JSON, as in Kafka."""
CHANGED_MAX = 100
"""The number of changed nodes in `/kafka-acl-changes`. A broker that has missed more changes reads all ACLs."""
PATH_CHARACTERS_MAX = 3 * RESOURCE_NAME_BYTES_MAX + 100
"""The maximum length of the path of a node: each byte of the name takes at most three characters."""
NODE_BYTES_MAX = 500_000
"""The maximum size of a node in bytes. ZooKeeper's limit is 1 MiB for a whole request."""
NODES_AT_ONCE = 500
"""The number of nodes that are read together."""

Entries = tuple[AclEntry, ...]

_TYPES = {each.label: each for each in ResourceType if each > ResourceType.ANY}
_OPERATIONS = {each.label: each for each in Operation if each > Operation.ANY}
_PERMISSIONS = {each.label: each for each in Permission if each > Permission.ANY}
_DENIED: Entries = (AclEntry(EVERYONE, WILDCARD, Operation.ALL, Permission.DENY),)


class TooManyAclsError(ConfigurationError):
    """A resource pattern has so many ACLs that they do not fit into a node."""


class Changes(NamedTuple):
    """The last changes of ACLs.

    :ivar created_at: the change number of the creation of the node. It is different if the node was created again.
    :ivar number: the number of changes since the creation.
    :ivar patterns: the changed patterns, the newest last; None for a path that is no path of ACLs.
    """

    created_at: int
    number: int
    patterns: tuple[ResourcePattern | None, ...]

    def since(self, before: Changes) -> list[ResourcePattern] | None:
        """Return the patterns that have changed since an earlier read; None if they are unknown."""
        missed = self.number - before.number
        if self.created_at != before.created_at or not 0 <= missed <= len(self.patterns):
            return None
        found = self.patterns[len(self.patterns) - missed :]
        return None if None in found else list(dict.fromkeys(each for each in found if each is not None))


def read_changes(tree: MetadataStore, watch: Watch | None = None) -> Changes:
    """Read the last changes of ACLs.

    :param watch: called after the next change.
    """
    data, stat = _get_changes(tree, watch)
    return Changes(stat.created_at, stat.version, tuple(map(pattern_of, _changed_paths(data))))


def _get_changes(tree: MetadataStore, watch: Watch | None = None) -> NodeData:
    try:
        return tree.get(paths.ACL_CHANGES, watch)
    except NoNodeError:
        ensure_paths(tree, [paths.ACL_CHANGES])
        return tree.get(paths.ACL_CHANGES, watch)


def _changed_paths(data: bytes) -> list[str]:
    try:
        found = json.loads(data) if data else []
    except (ValueError, RecursionError):
        return []
    if not isinstance(found, list):
        return []
    # An empty path stands for a foreign value, so that the number of changes stays right and the node stays small.
    return [each if isinstance(each, str) and len(each) <= PATH_CHARACTERS_MAX else "" for each in found[-CHANGED_MAX:]]


def _note_change(tree: MetadataStore, path: str) -> StoreOperation:
    """Return the operation that adds a node to the last changes."""
    data, stat = _get_changes(tree)
    changed = [*_changed_paths(data), path][-CHANGED_MAX:]
    return Set(paths.ACL_CHANGES, json.dumps(changed, separators=(",", ":")).encode(), stat.version)


def read_acls(tree: MetadataStore) -> dict[ResourcePattern, Entries]:
    """Read all ACLs. Nodes of types that this release does not know are logged and ignored."""
    found: dict[ResourcePattern, Entries] = {}
    for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
        root = paths.acl_root(pattern_type)
        for label in _children(tree, root):
            kind = _TYPES.get(label)
            if kind is None:
                report_damaged(tree, [DamagedNodeError(f"{root}/{label}", "not a type of resources")], "ignoring")
                continue
            parts = _children(tree, f"{root}/{label}")
            for start in range(0, len(parts), NODES_AT_ONCE):
                nodes = [f"{root}/{label}/{part}" for part in parts[start : start + NODES_AT_ONCE]]
                for path, node in tree.get_all(nodes).items():
                    pattern = ResourcePattern(kind, paths.decode_resource(path.rpartition("/")[2]), pattern_type)
                    entries = (*found.get(pattern, ()), *_decode_or_deny(tree, path, node.data))
                    found[pattern] = tuple(dict.fromkeys(entries))
    return {pattern: entries for pattern, entries in found.items() if entries}


def read_pattern(tree: MetadataStore, pattern: ResourcePattern) -> Entries:
    """Read the ACLs of a resource pattern."""
    return _entries_in(tree, tree.get_all(paths.acl_nodes(pattern)))


def pattern_of(path: str) -> ResourcePattern | None:
    """Return the resource pattern of the path in a change notification; None if it is no path of ACLs."""
    for pattern_type in (PatternType.LITERAL, PatternType.PREFIXED):
        root = paths.acl_root(pattern_type)
        if path.startswith(f"{root}/"):
            label, slash, part = path[len(root) + 1 :].partition("/")
            kind = _TYPES.get(label)
            if kind is not None and slash and part:
                return ResourcePattern(kind, paths.decode_resource(part), pattern_type)
    return None


def add(tree: MetadataStore, pattern: ResourcePattern, entries: Iterable[AclEntry]) -> Entries:
    """Add ACLs to a resource pattern; return all its ACLs. They are durable after `MetadataStore.flush`.

    :raises TooManyAclsError: they do not fit into a node.
    """
    return _change(tree, pattern, lambda before: tuple(dict.fromkeys((*before, *entries))))


def remove(
    tree: MetadataStore, pattern: ResourcePattern, is_unwanted: Callable[[AclEntry], bool]
) -> tuple[Entries, Entries]:
    """Remove ACLs from a resource pattern; return its remaining and its removed ACLs.

    The change is durable after `MetadataStore.flush`.
    """
    removed: Entries = ()

    def without_unwanted(before: Entries) -> Entries:
        nonlocal removed
        removed = tuple(each for each in before if is_unwanted(each))
        return tuple(each for each in before if each not in removed)

    return _change(tree, pattern, without_unwanted), removed


def _change(tree: MetadataStore, pattern: ResourcePattern, changed: Callable[[Entries], Entries]) -> Entries:
    path = paths.acl(pattern)
    for attempt in range(1, ATTEMPTS + 1):
        nodes = tree.get_all(paths.acl_nodes(pattern))
        before = _entries_in(tree, nodes)
        after = changed(before)
        if after == before:
            return after
        data = encode_acls(after)
        if len(data) > NODE_BYTES_MAX:
            raise TooManyAclsError(f"the ACLs of {pattern} have {len(data)} bytes; at most {NODE_BYTES_MAX}")
        if not nodes or attempt > 1:
            ensure_paths(tree, [path.rpartition("/")[0]])
        operations: list[StoreOperation] = [
            Delete(each, node.stat.version) for each, node in nodes.items() if each != path or not after
        ]
        if after:
            own = nodes.get(path)
            operations.append(Create(path, data) if own is None else Set(path, data, own.stat.version))
        try:
            tree.multi([*operations, _note_change(tree, path)])
        except (BadVersionError, NodeExistsError, NoNodeError):
            if attempt == ATTEMPTS:
                raise
        else:
            return after
    raise AssertionError("the last attempt returns or raises")


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    """Return the data of a node, in Kafka's JSON."""
    acls = [
        {
            "principal": each.principal,
            "permissionType": each.permission.label,
            "operation": each.operation.label,
            "host": each.host,
        }
        for each in entries
    ]
    return json.dumps({"version": VERSION, "acls": acls}, separators=(",", ":")).encode()


def _children(tree: MetadataStore, path: str) -> list[str]:
    try:
        return sorted(tree.children(path))
    except NoNodeError:
        return []


def _entries_in(tree: MetadataStore, nodes: Mapping[str, NodeData]) -> Entries:
    found = (entry for path, node in nodes.items() for entry in _decode_or_deny(tree, path, node.data))
    return tuple(dict.fromkeys(found))


def _decode_or_deny(tree: MetadataStore, path: str, data: bytes) -> Entries:
    try:
        return _decode(path, data)
    except DamagedNodeError as error:
        consequence = "denying everything to everybody except super users by"
        report_damaged(tree, [error], consequence)
        return _DENIED


def _decode(path: str, data: bytes) -> Entries:
    """Return the ACLs in a node.

    :raises DamagedNodeError: the data is not in Kafka's form.
    """
    pattern = pattern_of(path)
    assert pattern is not None
    fields = Fields(path, data)
    try:
        return tuple(dict.fromkeys(_entry(pattern, each) for each in fields.sequence("acls")))
    except BadValueError as error:
        raise DamagedNodeError(path, str(error)) from error


def _entry(pattern: ResourcePattern, found: Any) -> AclEntry:
    """Return an ACL.

    :raises BadValueError: it is not in Kafka's form.
    """
    if not isinstance(found, Mapping) or not all(isinstance(each, str) for each in found.values()):
        raise BadValueError(f"{shown(found)} is not an ACL")
    operation = _OPERATIONS.get(found.get("operation", ""))
    permission = _PERMISSIONS.get(found.get("permissionType", ""))
    if operation is None or permission is None:
        raise BadValueError(f"{shown(found)} is not an ACL")
    entry = AclEntry(found.get("principal", ""), found.get("host", ""), operation, permission)
    try:
        checked_binding(AclBinding(pattern, entry))
    except ConfigurationError as error:
        raise BadValueError(str(error)) from error
    return entry
