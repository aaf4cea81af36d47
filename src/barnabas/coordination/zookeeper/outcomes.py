"""Was a write done whose answer never came? Decided from what its nodes are now.

All operations of a write are done or none, with one number for all (`Stat.created_at`, `Stat.modified_at`). So one node
that shows for certain that its operation was done, or was not, decides for all. What is certain:

- created: the node is younger than the write, nobody has changed it since, and it has the write's data and owner;
- not created: the node is older than the write, or has other data since it was made;
- set: the version is the next one, with the write's data; not set: it is still the one named, or the next with others'
  data; for any version: it was not changed since, or was and has the write's data;
- deleted, and not: whether the node is there, as old as before.

A node that is missing, though it was to be created or set, says that it was not done, or that somebody has deleted it
since: the first is believed. Where nodes contradict one another, or others have changed them since, the outcome stays
unknown.

Two callers who write the same data to the same node at the same moment are told apart by nothing; so data that must be
written by one alone has to name its writer, as all of Barnabas's does.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.coordination.metadata_store import (
    ANY_VERSION,
    Check,
    Create,
    Delete,
    NodeData,
    Operation,
    OperationResult,
    Set,
    Stat,
)

SEQUENCE_DIGITS = 10

_UNCHANGED = 0
"""The version of a node that nobody has changed since it was made."""


@dataclass(frozen=True, slots=True)
class Moment:
    """When a write began: the number of the last change that its session had heard of, and that session."""

    last_change: int
    session_id: int


class Verdict(enum.Enum):
    """What became of a write."""

    DONE = "done"
    NOT_DONE = "not done"
    UNKNOWN = "unknown"


class Outcome(NamedTuple):
    """What became of a write; its results if it was done."""

    verdict: Verdict
    results: list[OperationResult]


class _Evidence(enum.Enum):
    DONE = "certainly done"
    SEEMS_DONE = "gone, as it was to be"
    NOT_DONE = "certainly not done"
    SEEMS_NOT_DONE = "missing, or made or changed by somebody"
    NONE = "says nothing"


class _Finding(NamedTuple):
    evidence: _Evidence
    result: OperationResult = None
    change: int = 0
    """The number of the change that did it, where it was certainly done."""


def is_sequential(operation: Operation) -> bool:
    """Whether the servers add digits to the name of the node."""
    return isinstance(operation, Create) and operation.sequential


def is_named(path: str, operation: Operation) -> bool:
    """Whether a node may be the one that a sequential creation made."""
    digits = path.removeprefix(operation.path)
    return path.startswith(operation.path) and len(digits) == SEQUENCE_DIGITS and digits.isdigit()


def decide(operations: Sequence[Operation], found: Mapping[str, NodeData], moment: Moment) -> Outcome:
    """Return what became of a write that began at `moment`.

    :param found: what its nodes are now, by their paths; for a sequential creation all nodes that may be its.
    """
    times = Counter(operation.path for operation in operations if not isinstance(operation, Check))
    if not times:
        return Outcome(Verdict.NOT_DONE, [])
    told_by_path = [
        None if is_sequential(operation) else _look(operation, found, moment, times[operation.path])
        for operation in operations
    ]
    changes = {each.change for each in told_by_path if each is not None and each.evidence is _Evidence.DONE}
    findings = [
        each or _look_for_sequential(operation, found, moment, changes)
        for operation, each in zip(operations, told_by_path, strict=True)
    ]
    verdict = _verdict(findings)
    if verdict is Verdict.DONE and not _are_all_known(operations, findings):
        verdict = Verdict.UNKNOWN
    return Outcome(verdict, [each.result for each in findings] if verdict is Verdict.DONE else [])


def _verdict(findings: Sequence[_Finding]) -> Verdict:
    seen = {each.evidence for each in findings}
    if len({each.change for each in findings if each.evidence is _Evidence.DONE}) > 1:
        return Verdict.UNKNOWN
    if _Evidence.NOT_DONE in seen:
        return Verdict.UNKNOWN if _Evidence.DONE in seen else Verdict.NOT_DONE
    if _Evidence.DONE in seen:
        return Verdict.DONE
    if _Evidence.SEEMS_DONE in seen:
        return Verdict.UNKNOWN if _Evidence.SEEMS_NOT_DONE in seen else Verdict.DONE
    return Verdict.NOT_DONE if _Evidence.SEEMS_NOT_DONE in seen else Verdict.UNKNOWN


def _are_all_known(operations: Sequence[Operation], findings: Sequence[_Finding]) -> bool:
    """Whether there is a result for each operation that has one."""
    pairs = zip(operations, findings, strict=True)
    return all(each.result is not None for operation, each in pairs if isinstance(operation, Create | Set))


def _look(operation: Operation, found: Mapping[str, NodeData], moment: Moment, times: int) -> _Finding:
    """Look at the node of an operation, one of so many on that node."""
    if times > 1:
        # What one of them did another has undone or changed; what it would have returned is known all the same.
        return _Finding(_Evidence.NONE, operation.path if isinstance(operation, Create) else None)
    node = found.get(operation.path)
    match operation:
        case Create():
            return _look_at_created(operation, node, moment)
        case Set(_, data, version):
            return _look_at_set(data, version, node, moment)
        case Delete():
            is_old = node is not None and node.stat.created_at <= moment.last_change
            return _Finding(_Evidence.NOT_DONE if is_old else _Evidence.SEEMS_DONE)
        case Check():
            return _Finding(_Evidence.NONE)


def _look_at_created(create: Create, node: NodeData | None, moment: Moment) -> _Finding:
    if node is None:
        return _Finding(_Evidence.SEEMS_NOT_DONE)
    data, stat = node
    if stat.created_at <= moment.last_change:
        return _Finding(_Evidence.NOT_DONE)
    if stat.owner != (moment.session_id if create.ephemeral else 0):
        return _Finding(_Evidence.NOT_DONE)
    if stat.version != _UNCHANGED:
        return _Finding(_Evidence.NONE)
    if data != create.data:
        return _Finding(_Evidence.NOT_DONE)
    return _Finding(_Evidence.DONE, create.path, stat.created_at)


def _look_for_sequential(
    create: Operation, found: Mapping[str, NodeData], moment: Moment, changes: Collection[int]
) -> _Finding:
    """Look for the node that a sequential creation made; if the write was done, in one of these changes."""
    assert isinstance(create, Create)
    looks = {
        path: _look_at_created(create, node, moment)
        for path, node in found.items()
        if is_named(path, create) and (not changes or node.stat.created_at in changes)
    }
    made = [(path, each.change) for path, each in looks.items() if each.evidence is _Evidence.DONE]
    if len(made) == 1:
        return _Finding(_Evidence.DONE, *made[0])
    is_open = made or any(each.evidence is _Evidence.NONE for each in looks.values())
    return _Finding(_Evidence.NONE if is_open else _Evidence.SEEMS_NOT_DONE)


def _look_at_set(data: bytes, version: int, node: NodeData | None, moment: Moment) -> _Finding:
    if node is None:
        return _Finding(_Evidence.SEEMS_NOT_DONE)
    stat = node.stat
    is_changed = stat.modified_at > moment.last_change
    has_data = node.data == data
    if not is_changed or stat.version <= version:
        return _Finding(_Evidence.NOT_DONE)
    if version == ANY_VERSION:
        return _done(stat) if has_data else _Finding(_Evidence.SEEMS_NOT_DONE)
    if stat.version == version + 1:
        return _done(stat) if has_data else _Finding(_Evidence.NOT_DONE)
    return _Finding(_Evidence.NONE)


def _done(stat: Stat) -> _Finding:
    return _Finding(_Evidence.DONE, stat, stat.modified_at)
