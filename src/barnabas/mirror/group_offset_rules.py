"""Decides how the committed offset of a group in one partition is synchronised. Pure.

A group works in one cluster at a time. Where it has committed something new since the two offsets were last made to
stand for each other, that side is the one to follow; the other side gets the offset that stands for it
(`offset_map.py`: never too far on). Where both sides have moved, the group works in both, and neither is touched.
"""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.mirror.ledger import GroupMark
from barnabas.mirror.offset_map import OffsetMap

PENDING_MAX = 16
"""So many offsets of one side a mark has: what is committed, what is about to be, and what was tried before. Where a
commit is refused for days, as by members that do nothing, each round tries another one."""


@dataclass(frozen=True, slots=True)
class OffsetMove:
    """Write `mark`, commit (None: nothing) on a side, then write `settled`."""

    mark: GroupMark
    commit_source: int | None
    commit_target: int | None
    settled: GroupMark


@dataclass(frozen=True, slots=True)
class Conflict:
    """Both sides have moved, or nobody knows which one did."""


def _move(mark: GroupMark | None, now: int | None, source: int, target: int, *, to_source: bool) -> OffsetMove:
    """Return the move after which the two offsets stand for each other.

    :param now: what is committed on the side on which it is to be changed.
    """
    before = mark or GroupMark()
    settled = GroupMark((source,), (target,))
    if to_source:
        pending = GroupMark(_several(_pending(before.source, now, source)), (target,))
        return OffsetMove(pending, source, None, settled)
    pending = GroupMark((source,), _pending(before.target, now, target))
    return OffsetMove(pending, None, target, settled)


def _pending(before: tuple[int, ...], now: int | None, wanted: int) -> tuple[int, ...]:
    """Return the offsets one of which is committed when a commit was tried; of those tried before the last ones."""
    last = [each for each in (now, wanted) if each is not None]
    return tuple(dict.fromkeys([*(each for each in before if each not in last), *last]))[-PENDING_MAX:]


def _several(offsets: tuple[int, ...]) -> tuple[int, ...]:
    """Return offsets, the only one twice: a mark with several tells of a commit that may not have come to pass.

    Where the target has no offset that is known without; where the source has none its group may have been deleted.
    """
    return offsets if len(offsets) > 1 else (*offsets, *offsets)


Decision = OffsetMove | Conflict | GroupMark | None

Metadata = tuple[str, str]
"""What was committed with the offsets in source and target."""


def metadata_to_sync(now: Metadata, seen: Metadata | None) -> str | None:
    """Return the metadata that the other side gets as well, where no offset moves; None: nothing changes.

    :param seen: the metadata at the look before; None: this is the first one.

    >>> metadata_to_sync(("new", "old"), ("old", "old")), metadata_to_sync(("old", "new"), ("old", "old"))
    ('new', 'new')
    >>> metadata_to_sync(("a", "b"), ("c", "d")), metadata_to_sync(("a", "b"), None)
    (None, None)
    """
    source, target = now
    if source == target:
        return None
    if seen is None:  # of two that differ an empty one is that of a mirror of an earlier release
        return None if source and target else source or target
    has_moved = (source != seen[0], target != seen[1])
    if has_moved == (True, False):
        return source
    return target if has_moved == (False, True) else None


def decide(source: int | None, target: int | None, mark: GroupMark | None, offsets: OffsetMap) -> Decision:
    """Return what to do: a move, a mark to be written because both sides agree already, or nothing.

    :param source, target: the committed offsets; None: there is none.
    """
    if source is None:
        if target is None or (mark is not None and len(mark.source) < 2):
            return None  # what was committed there once was deleted
        return _move(mark, source, offsets.to_source(target), target, to_source=True)
    if target is None:
        return _move(mark, target, source, offsets.to_target(source), to_source=False)
    if mark is None or (source not in mark.source and target not in mark.target):
        agree = offsets.to_target(source) == target or offsets.to_source(target) == source
        return GroupMark((source,), (target,)) if agree else Conflict()
    return _follow(source, target, mark, offsets)


def _follow(source: int, target: int, mark: GroupMark, offsets: OffsetMap) -> Decision:
    """Return what to do where one side has moved at most. A mark with several offsets on a side tells of a commit there
    that may not have come to pass: it is made again."""
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
    # Neither has moved. More may be mirrored by now of what the group had read when it was translated.
    if better > target and offsets.to_source(target) < source:
        return _move(mark, target, source, better, to_source=False)
    return None
