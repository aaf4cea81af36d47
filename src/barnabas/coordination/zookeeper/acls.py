"""The ACLs of the cluster's nodes in ZooKeeper.

Brokers own all nodes except those of consumer groups. All clients may read the brokers' nodes, except nodes with
secrets. As in Kafka, all clients may create groups below `/consumers`. The consumers of a group own the group's nodes,
so they need no credentials of brokers.
"""

from __future__ import annotations

from collections.abc import Sequence

from kazoo.security import ACL, CREATOR_ALL_ACL, READ_ACL_UNSAFE, make_acl

from barnabas.coordination import paths

_GROUPS_ACL = [make_acl("world", "anyone", read=True, create=True, delete=True)]
_ALL_PERMISSIONS = 31


def acl_of(path: str) -> Sequence[ACL]:
    """Return the ACL of a node that only clients with the session's credentials may change."""
    if paths.is_secret(path):
        return [*CREATOR_ALL_ACL]
    return [*CREATOR_ALL_ACL, *(_GROUPS_ACL if path == paths.CONSUMERS else READ_ACL_UNSAFE)]


def is_secured(path: str, acl: Sequence[ACL], owner: str | None) -> bool:
    """Return whether the ACL of an existing node is equivalent to `acl_of`.

    :param owner: the digest of the session's credentials; None if they are unknown. An ACL of other credentials then
        counts as equivalent.
    """
    owned = any(each.perms == _ALL_PERMISSIONS and owner in (None, each.id.id) for each in acl if not _is_world(each))
    return owned and _world_permissions(acl) == _world_permissions(acl_of(path))


def is_world_readable(acl: Sequence[ACL]) -> bool:
    """Return whether all clients can read a node."""
    return bool(_world_permissions(acl) & READ_ACL_UNSAFE[0].perms)


def _world_permissions(acl: Sequence[ACL]) -> int:
    permissions = 0
    for each in acl:
        if _is_world(each):
            permissions |= each.perms
    return permissions


def _is_world(entry: ACL) -> bool:
    return bool(entry.id.scheme == "world")
