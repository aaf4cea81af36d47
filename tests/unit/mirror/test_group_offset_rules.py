"""Groups that move between two clusters: the side that moved is followed, whatever was interrupted."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from barnabas.mirror.group_offset_rules import PENDING_MAX, Conflict, Decision, OffsetMove, decide
from barnabas.mirror.ledger import GroupMark
from barnabas.mirror.offset_map import OffsetMap


def offsets(end: int = 200) -> OffsetMap:
    made = OffsetMap(100, 0)
    made.add(end, end - 100)
    return made


def move(decision: Decision) -> OffsetMove:
    assert isinstance(decision, OffsetMove)
    return decision


def test_group_of_one_cluster_comes_to_the_other() -> None:
    assert move(decide(150, None, None, offsets())).commit_target == 50
    assert move(decide(None, 50, None, offsets())).commit_source == 150
    assert decide(None, None, None, offsets()) is None


def test_side_that_moved_is_followed() -> None:
    mark = GroupMark((150,), (50,))
    assert decide(150, 50, mark, offsets()) is None
    assert move(decide(160, 50, mark, offsets())).commit_target == 60
    assert move(decide(120, 50, mark, offsets())).commit_target == 20, "back as well"
    assert move(decide(150, 70, mark, offsets())).commit_source == 170
    assert isinstance(decide(160, 70, mark, offsets()), Conflict)
    assert isinstance(decide(160, 50, None, offsets()), Conflict)
    assert decide(160, 60, None, offsets()) == GroupMark((160,), (60,))


def test_group_that_was_ahead_of_the_mirror_is_corrected_when_more_is_mirrored() -> None:
    found = move(decide(190, None, None, offsets(150)))
    assert found.commit_target == 50
    assert decide(190, 50, found.settled, offsets(150)) is None
    assert move(decide(190, 50, found.settled, offsets(200))).commit_target == 90


def test_commit_that_was_interrupted_is_made_again() -> None:
    found = move(decide(120, 50, GroupMark((150,), (50,)), offsets()))
    assert found.mark == GroupMark((120,), (20, 50)) or found.mark == GroupMark((120,), (50, 20))
    assert move(decide(120, 50, found.mark, offsets())).commit_target == 20
    assert decide(120, 20, found.mark, offsets()) == GroupMark((120,), (20,))
    back = move(decide(150, 30, GroupMark((150,), (50,)), offsets()))
    assert move(decide(150, 30, back.mark, offsets())).commit_source == 130
    assert decide(130, 30, back.mark, offsets()) == GroupMark((130,), (30,))


def test_first_commit_in_the_source_is_made_again_where_it_was_interrupted_and_not_where_it_was_deleted() -> None:
    found = move(decide(None, 50, None, offsets()))
    assert move(decide(None, 50, found.mark, offsets())).commit_source == 150
    further = move(decide(None, 60, found.mark, offsets()))
    assert further.commit_source == 160
    assert move(decide(None, 60, further.mark, offsets())).commit_source == 160
    assert decide(None, 50, found.settled, offsets()) is None


def test_group_that_went_on_after_an_interrupted_commit_is_not_taken_back() -> None:
    back = move(decide(150, 30, GroupMark((150,), (50,)), offsets()))
    assert move(decide(135, 30, back.mark, offsets())).commit_target == 35


def test_commits_that_are_refused_for_days_leave_a_mark_of_some_offsets_with_which_the_group_is_followed_then() -> None:
    made, mark = offsets(5_000), GroupMark((150,), (50,))
    for target in range(51, 2_000):
        mark = move(decide(150, target, mark, made)).mark
        assert len(mark.source) <= PENDING_MAX
    assert move(decide(150, 1_999, mark, made)).commit_source == 2_099
    assert decide(2_099, 1_999, mark, made) == GroupMark((2_099,), (1_999,)), "the last try came to pass"
    mark = GroupMark((150,), (50,))
    for source in range(151, 2_000):
        mark = move(decide(source, 50, mark, made)).mark
        assert len(mark.target) <= PENDING_MAX
    assert move(decide(1_999, 50, mark, made)).commit_target == 1_899
    assert decide(1_999, 1_899, mark, made) == GroupMark((1_999,), (1_899,))


STEP = st.tuples(st.sampled_from(["read in a", "read in b", "mirror"]), st.integers(0, 20), st.integers(0, 3))


@example([("read in b", 0, 0), ("mirror", 0, 1), ("read in b", 1, 0), ("mirror", 0, 0), ("read in a", 2, 0)])
@given(st.lists(STEP, max_size=30))
def test_group_that_moves_never_skips_a_record(steps: list[tuple[str, int, int]]) -> None:
    """It reads in one cluster or the other, the mirror follows, or dies after so many of its three writes."""
    made = offsets()
    source: int | None = None
    target: int | None = None
    mark: GroupMark | None = None
    reached = 100  # all before this source offset was read
    behind = False  # whether the other side has not followed yet
    for step, count, writes in steps:
        if step == "mirror":
            found = decide(source, target, mark, made)
            if isinstance(found, OffsetMove):
                mark = found.mark if writes > 0 else mark
                if writes > 1:
                    source = source if found.commit_source is None else found.commit_source
                    target = target if found.commit_target is None else found.commit_target
                mark = found.settled if writes > 2 else mark
            elif isinstance(found, GroupMark):
                mark = found
            assert not isinstance(found, Conflict)
            behind = decide(source, target, mark, made) is not None
        elif not behind:
            begins = (100 if source is None else source) if step == "read in a" else 100 + (target or 0)
            assert begins <= reached, "nothing was left out"
            reached = max(reached, min(begins + count, 200))
            if step == "read in a":
                source = min(begins + count, 200)
            else:
                target = min(begins + count, 200) - 100
            behind = True
