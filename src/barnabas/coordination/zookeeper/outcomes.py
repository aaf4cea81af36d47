"""Determines the outcome of a write whose response was lost, from the current state of its nodes.

Either all operations of a write are applied, with the same change number (`Stat.created_at`, `Stat.modified_at`), or
none. So certainty about one operation determines the outcome of the write. An operation is certainly applied
("created", "set") or certainly not applied ("not created", "not set", "not deleted") in these cases:

- Created: the node is younger than the write, unchanged since its creation, and has the write's data and owner.
- Not created: the node is older than the write, or has had other data since its creation.
- Set: the version is the next one, with the write's data. Not set: the version is still the expected one, or the next
  one with other data. If the write accepts any version: not set if the node is unchanged, and set if the node was
  changed and has the write's data.
- Deleted: the node does not exist. Not deleted: the node exists and is older than the write.

If a node to create or set is missing, either the write was not applied, or another session has deleted the node since.
This module assumes that the write was not applied. The outcome is unknown if nodes contradict each other or have been
changed since the write.

If two sessions write equal data at the same moment, their writes cannot be distinguished. So data that only one writer
may write must identify the writer. All such data of Barnabas does.
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
"""The version of a node that has not been changed since its creation."""


@dataclass(frozen=True, slots=True)
class Moment:
    """The session at the start of a write: the number of the last change that it has seen, and its id."""

    last_change: int
    session_id: int


class Verdict(enum.Enum):
    """The outcome of a write."""

    DONE = "done"
    NOT_DONE = "not done"
    UNKNOWN = "unknown"


class Outcome(NamedTuple):
    """The outcome of a write, and its results if it was done."""

    verdict: Verdict
    results: list[OperationResult]


class _Evidence(enum.Enum):
    DONE = "certainly done"
    SEEMS_DONE = "node missing, as after a deletion"
    NOT_DONE = "certainly not done"
    SEEMS_NOT_DONE = "node missing, or created or changed by another session"
    NONE = "no evidence"


class _Finding(NamedTuple):
    evidence: _Evidence
    result: OperationResult = None
    change: int = 0
    """The change number of the operation if it was certainly applied."""


def is_sequential(operation: Operation) -> bool:
    """Return whether ZooKeeper appends digits to the name of the node."""
    return isinstance(operation, Create) and operation.sequential


def is_named(path: str, operation: Operation) -> bool:
    """Return whether a path may be the result of a sequential creation."""
    digits = path.removeprefix(operation.path)
    return path.startswith(operation.path) and len(digits) == SEQUENCE_DIGITS and digits.isdigit()


def decide(operations: Sequence[Operation], found: Mapping[str, NodeData], moment: Moment) -> Outcome:
    """Return the outcome of a write that started at `moment`.

    :param found: the current nodes at the paths of the write, including all possible results of its sequential
        creations.
    """
    times = Counter(operation.path for operation in operations if not isinstance(operation, Check))
    if not times:
        return Outcome(Verdict.NOT_DONE, [])
    by_path = [
        None if is_sequential(operation) else _look(operation, found, moment, times[operation.path])
        for operation in operations
    ]
    changes = {each.change for each in by_path if each is not None and each.evidence is _Evidence.DONE}
    findings = [
        each or _look_for_sequential(operation, found, moment, changes)
        for operation, each in zip(operations, by_path, strict=True)
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
    """Return whether the results of all creations and sets are known."""
    pairs = zip(operations, findings, strict=True)
    return all(each.result is not None for operation, each in pairs if isinstance(operation, Create | Set))


def _look(operation: Operation, found: Mapping[str, NodeData], moment: Moment, times: int) -> _Finding:
    """Return the evidence about one operation. `times` is the number of operations in the write on the same node."""
    if times > 1:
        # Another operation on the same node may have reverted or changed the effect. Only the result of a creation is
        # known.
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
    """Return the evidence about a sequential creation.

    If `changes` is not empty, the write was applied with one of these change numbers.
    """
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
