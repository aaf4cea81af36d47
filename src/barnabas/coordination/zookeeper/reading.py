"""Reads of many nodes in one call, many under way at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo

from barnabas.coordination.metadata_store import NodeData
from barnabas.coordination.zookeeper.answers import as_node, refuse
from barnabas.coordination.zookeeper.session import Deadline, Session


def read_nodes(session: Session, paths: Sequence[str], deadline: Deadline) -> dict[str, NodeData]:
    """Return the nodes of `paths` that exist."""
    answers = _read_all(session, paths, lambda path: lambda client: client.get_async(path), deadline)
    return {path: as_node(answer) for path, answer in answers.items()}


def read_children(session: Session, paths: Sequence[str], deadline: Deadline) -> list[str]:
    """Return the paths of the children of all `paths` that exist."""
    answers = _read_all(session, paths, lambda path: lambda client: client.get_children_async(path), deadline)
    return [f"{path.rstrip('/')}/{name}" for path, names in answers.items() for name in names]


def _read_all(
    session: Session, paths: Sequence[str], read: Callable[[str], Callable[[Any], Any]], deadline: Deadline
) -> dict[str, Any]:
    """Return the answers for all nodes that exist."""
    found = {}
    for path, answer in zip(paths, session.read_all([read(path) for path in paths], deadline), strict=True):
        if isinstance(answer, kazoo.NoNodeError):
            continue
        if isinstance(answer, kazoo.ZookeeperError):
            refuse(path, answer)
        found[path] = answer
    return found
