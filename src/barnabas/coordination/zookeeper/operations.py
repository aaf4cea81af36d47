"""Reads of many nodes in one call, and writes.

A write is applied once or not at all; if its outcome is unknown, it raises `UnknownOutcomeError`.

A write is sent once on one connection. If the connection is lost before the response, the session reads the nodes on
its next connection, after a `sync` (`outcomes`). At that time, a write that reached the servers in time has been
applied. The servers reject a write that arrives later, because the session has moved to another connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo

from barnabas.coordination.metadata_store import (
    Check,
    Create,
    MetadataStoreUnavailableError,
    NodeData,
    Operation,
    OperationResult,
    Set,
    TooLargeError,
    parent_of,
    size_of,
)
from barnabas.coordination.zookeeper.answers import as_node, as_stat, refuse
from barnabas.coordination.zookeeper.outcomes import Moment, Verdict, decide, is_named, is_sequential
from barnabas.coordination.zookeeper.session import (
    Deadline,
    NoAnswerError,
    Session,
    SessionLostError,
    UnknownOutcomeError,
)


def read_nodes(session: Session, paths: Sequence[str], deadline: Deadline) -> dict[str, NodeData]:
    """Return the existing nodes by path. Missing nodes are left out."""
    answers = _read_all(session, paths, lambda path: lambda client: client.get_async(path), deadline)
    return {path: as_node(answer) for path, answer in answers.items()}


def read_children(session: Session, paths: Sequence[str], deadline: Deadline) -> list[str]:
    """Return the paths of all children of the nodes at `paths`. Missing nodes are ignored."""
    answers = _read_all(session, paths, lambda path: lambda client: client.get_children_async(path), deadline)
    return [f"{path.rstrip('/')}/{name}" for path, names in answers.items() for name in names]


def _read_all(
    session: Session, paths: Sequence[str], read: Callable[[str], Callable[[Any], Any]], deadline: Deadline
) -> dict[str, Any]:
    """Return kazoo's results by path. Missing nodes are left out."""
    found = {}
    for path, answer in zip(paths, session.read_all([read(path) for path in paths], deadline), strict=True):
        if isinstance(answer, kazoo.NoNodeError):
            continue
        if isinstance(answer, kazoo.ZookeeperError):
            refuse(path, answer)
        found[path] = answer
    return found


REQUEST_BYTES_MAX = 1_000_000
"""The maximum size of a request.

ZooKeeper's servers close the connection if a request is larger than `jute.maxbuffer`.
"""
SIBLINGS_AT_ONCE = 64
"""The number of nodes per batch in the search for a created sequential node. The newest nodes are read first."""

_NOT_TO_BLAME = (kazoo.RolledBackError, kazoo.RuntimeInconsistency)
"""The results of the operations before and after the failed operation in a transaction."""


def write(session: Session, operations: Sequence[Operation], deadline: Deadline) -> list[OperationResult]:
    """Apply all operations or none; see `MetadataStore.multi`."""
    _check_size(operations)
    while operations:
        session.wait_until_connected(deadline)
        moment = Moment(session.last_change, session.session_id)
        try:
            return _results(operations, session.write(operations, deadline))
        except NoAnswerError:
            verdict, results = decide(operations, _read_now(session, operations, moment, deadline), moment)
        if verdict is Verdict.DONE:
            return results
        if verdict is Verdict.UNKNOWN:
            paths = ", ".join(sorted({each.path for each in operations})[:3])
            raise UnknownOutcomeError(
                f"the connection was lost during a write of {paths}, which other sessions have changed since"
            )
    return []


def _results(operations: Sequence[Operation], results: Sequence[Any]) -> list[OperationResult]:
    for operation, result in zip(operations, results, strict=False):
        if isinstance(result, Exception) and not isinstance(result, _NOT_TO_BLAME):
            refuse(operation.path, result)
    return [_result(operation, result) for operation, result in zip(operations, results, strict=True)]


def _result(operation: Operation, result: Any) -> OperationResult:
    match operation:
        case Create():
            return str(result)
        case Set():
            return as_stat(result)
    return None


def _read_now(
    session: Session, operations: Sequence[Operation], moment: Moment, deadline: Deadline
) -> dict[str, NodeData]:
    """Return the current state of the nodes that a write changes.

    The result includes all nodes that its sequential creations may have created.
    """
    try:
        paths = {each.path for each in operations if not isinstance(each, Check) and not is_sequential(each)}
        found = read_nodes(session, sorted(paths), deadline)
        for operation in operations:
            if is_sequential(operation):
                found.update(_made_since(session, operation, moment, deadline))
    except SessionLostError:
        raise
    except MetadataStoreUnavailableError as error:
        raise UnknownOutcomeError(f"the connection was lost during a write; afterwards: {error}") from error
    return found


def _made_since(session: Session, operation: Operation, moment: Moment, deadline: Deadline) -> dict[str, NodeData]:
    """Return the nodes that a sequential creation may have created. The result may include a few older nodes."""
    siblings = read_children(session, [parent_of(operation.path)], deadline)
    named = sorted((path for path in siblings if is_named(path, operation)), reverse=True)
    found: dict[str, NodeData] = {}
    for start in range(0, len(named), SIBLINGS_AT_ONCE):
        nodes = read_nodes(session, named[start : start + SIBLINGS_AT_ONCE], deadline)
        found |= nodes
        if any(node.stat.created_at <= moment.last_change for node in nodes.values()):
            break  # The remaining nodes are older, because sequence numbers increase.
    return found


def _check_size(operations: Sequence[Operation]) -> None:
    size = 0
    for operation in operations:
        size += size_of(operation)
        if size > REQUEST_BYTES_MAX:
            raise TooLargeError(
                operation.path,
                f"the request of {len(operations)} operations exceeds ZooKeeper's limit of {REQUEST_BYTES_MAX} bytes",
            )
