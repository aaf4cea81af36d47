"""Converts kazoo's results and errors to the results and errors of a `MetadataStore`."""

from __future__ import annotations

from typing import Any, NoReturn

from kazoo import exceptions as kazoo

from barnabas.coordination.metadata_store import (
    BadVersionError,
    MetadataStoreUnavailableError,
    NoChildrenForEphemeralsError,
    NodeData,
    NodeError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Stat,
)


class NotAllowedError(NodeError):
    """The node's ACL does not permit this session's operation, or the servers do not permit the ACL of a new node."""

    reason = (
        "ZooKeeper does not permit the operation to these credentials; check zookeeper.auth, which must be the same for"
        " all brokers and the same for all consumers of a group"
    )


_ERRORS: dict[type[Exception], type[NodeError]] = {
    kazoo.NoNodeError: NoNodeError,
    kazoo.NodeExistsError: NodeExistsError,
    kazoo.BadVersionError: BadVersionError,
    kazoo.NotEmptyError: NotEmptyError,
    kazoo.NoChildrenForEphemeralsError: NoChildrenForEphemeralsError,
    kazoo.NoAuthError: NotAllowedError,
    kazoo.InvalidACLError: NotAllowedError,
}


def refuse(path: str, error: Exception) -> NoReturn:
    """Raise the `MetadataStore` error that corresponds to kazoo's error for an operation on a node."""
    kind = _ERRORS.get(type(error))
    if kind is not None:
        raise kind(path) from None
    raise MetadataStoreUnavailableError(f"ZooKeeper rejected an operation on {path}: {error!r}") from error


def as_node(answer: Any) -> NodeData:
    """Return a node from kazoo's pair of data and stat."""
    data, stat = answer
    return NodeData(data or b"", as_stat(stat))


def as_stat(stat: Any) -> Stat:
    """Convert kazoo's stat of a node."""
    return Stat(
        version=stat.version,
        created_at=stat.czxid,
        modified_at=stat.mzxid,
        created_ms=stat.ctime,
        modified_ms=stat.mtime,
        owner=stat.ephemeralOwner,
        children_count=stat.numChildren,
        data_size=stat.dataLength,
    )
