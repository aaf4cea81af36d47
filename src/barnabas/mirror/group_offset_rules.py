"""Decides how to synchronize the committed offset of a group in one partition. The module does no I/O.

A group usually consumes in one cluster at a time. If only one cluster's committed offset changed since the last
synchronization, the mirror commits the corresponding offset in the other cluster. `offset_map.py` never returns an
offset that skips records. If both offsets changed, the group consumes in both clusters, and the mirror changes neither
offset.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.mirror.ledger import GroupMark
from barnabas.mirror.offset_map import OffsetMap

PENDING_MAX = 16
"""The maximum number of offsets per cluster in a mark: committed offset, next offset, and earlier failed commits.

While active members of a group prevent the mirror's commits, each round may add another offset.
"""


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """A planned commit, in three steps: write `mark`, commit the offsets in source or target (None: no commit), and
    write `settled`."""

    mark: GroupMark
    commit_source: int | None
    commit_target: int | None
    settled: GroupMark


@dataclass(frozen=True, slots=True)
class Conflict:
    """Both committed offsets changed, or the ledger does not show which of the two changed."""


def _move(mark: GroupMark | None, now: int | None, source: int, target: int, *, to_source: bool) -> OffsetMove:
    """Return the commit that makes the two committed offsets correspond to each other.

    :param now: the committed offset of the cluster that gets the new offset; None if the group has none.
    """
    before = mark or GroupMark()
    settled = GroupMark((source,), (target,))
    if to_source:
        pending = GroupMark(_several(_pending(before.source, now, source)), (target,))
        return OffsetMove(pending, source, None, settled)
    pending = GroupMark((source,), _pending(before.target, now, target))
    return OffsetMove(pending, None, target, settled)


def _pending(before: tuple[int, ...], now: int | None, wanted: int) -> tuple[int, ...]:
    """Return the offsets that may be committed after a commit attempt, with the latest earlier attempts."""
    last = [each for each in (now, wanted) if each is not None]
    return tuple(dict.fromkeys([*(each for each in before if each not in last), *last]))[-PENDING_MAX:]


def _several(offsets: tuple[int, ...]) -> tuple[int, ...]:
    """Return the offsets; duplicate a single offset, because two offsets in a mark mean that a commit may have failed.

    In the target, a missing committed offset is sufficient to show such a commit. In the source, it may also mean that
    the group was deleted.
    """
    return offsets if len(offsets) > 1 else (*offsets, *offsets)


Decision = OffsetMove | Conflict | GroupMark | None

Metadata = tuple[str, str]
"""The metadata strings of the committed offsets in source and target."""


def metadata_to_sync(now: Metadata, seen: Metadata | None) -> str | None:
    """Return the metadata to copy to the other cluster when no offset changed; None if no copy is needed.

    :param seen: the metadata in the previous round; None in the first round.

    >>> metadata_to_sync(("new", "old"), ("old", "old")), metadata_to_sync(("old", "new"), ("old", "old"))
    ('new', 'new')
    >>> metadata_to_sync(("a", "b"), ("c", "d")), metadata_to_sync(("a", "b"), None)
    (None, None)
    """
    source, target = now
    if source == target:
        return None
    if seen is None:  # a mirror of an earlier release copied offsets with empty metadata
        return None if source and target else source or target
    has_moved = (source != seen[0], target != seen[1])
    if has_moved == (True, False):
        return source
    return target if has_moved == (False, True) else None


def decide(source: int | None, target: int | None, mark: GroupMark | None, offsets: OffsetMap) -> Decision:
    """Return the planned move, a mark to write because both offsets already correspond, a conflict, or None.

    :param source, target: the committed offsets; None if no offset is committed.
    """
    if source is None:
        if target is None or (mark is not None and len(mark.source) < 2):
            return None  # the earlier committed offset in the source was deleted
        return _move(mark, source, offsets.to_source(target), target, to_source=True)
    if target is None:
        return _move(mark, target, source, offsets.to_target(source), to_source=False)
    if mark is None or (source not in mark.source and target not in mark.target):
        agree = offsets.to_target(source) == target or offsets.to_source(target) == source
        return GroupMark((source,), (target,)) if agree else Conflict()
    return _follow(source, target, mark, offsets)


def _follow(source: int, target: int, mark: GroupMark, offsets: OffsetMap) -> Decision:
    """Return the action if at most one offset changed.

    If the mark has several offsets of a cluster, the last commit in that cluster may have failed, so it is repeated.
    """
    if target not in mark.target or (len(mark.source) > 1 and source in mark.source):
        wanted = offsets.to_source(target)
        if source == wanted:
            return GroupMark((source,), (target,))
        return _move(mark, source, wanted, target, to_source=True)
    better = offsets.to_target(source)
    if source not in mark.source or len(mark.target) > 1:
        if target == better:
            return GroupMark((source,), (target,))
        return _move(mark, target, source, better, to_source=False)
    # Neither offset changed, but the offset map may have grown, so that the target's offset can advance.
    if better > target and offsets.to_source(target) < source:
        return _move(mark, target, source, better, to_source=False)
    return None
