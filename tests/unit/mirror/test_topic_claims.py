"""One writer for each topic of the target, and no circles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.mirror.ledger import Claim
from barnabas.mirror.topic_claims import ClaimCheck, Create, Proceed, Refused, WriteClaim

NEW = ClaimCheck("clicks", "A", "B", "a1", "clicks", None, target_is_empty=True, claim=None, upstream=None)
THERE = replace(NEW, target_topic_id="b1")
CLAIM = Claim("A", "clicks", "a1", "b1", ("A",))


def reason(standing: ClaimCheck) -> str:
    decision = standing.decide()
    assert isinstance(decision, Refused)
    return decision.reason


def test_topic_is_made_then_claimed_then_mirrored() -> None:
    assert NEW.decide() == Create()
    assert THERE.decide() == WriteClaim(CLAIM)
    assert replace(THERE, claim=CLAIM, target_is_empty=False).decide() == Proceed()


def test_claim_on_a_topic_that_was_deleted_since_counts_for_nothing() -> None:
    old = replace(CLAIM, target_topic_id="b0")
    assert replace(THERE, claim=old).decide() == WriteClaim(CLAIM)
    assert "no mirror wrote" in reason(replace(THERE, claim=old, target_is_empty=False))


def test_topics_of_others_are_refused() -> None:
    assert "no mirror wrote" in reason(replace(THERE, target_is_empty=False))
    assert "cluster C" in reason(replace(THERE, claim=replace(CLAIM, source_cluster="C")))
    assert "mirror of 'views'" in reason(replace(THERE, claim=replace(CLAIM, source_topic="views")))
    assert "created again" in reason(replace(THERE, claim=replace(CLAIM, source_topic_id="a0")))


@pytest.mark.parametrize("path", [("B",), ("B", "C"), ("C", "B", "D")])
def test_records_do_not_come_back_to_where_they_have_been(path: tuple[str, ...]) -> None:
    upstream = Claim(path[-1], "clicks", "x", "a1", path)
    decision = replace(NEW, upstream=upstream).decide()
    assert isinstance(decision, Refused)
    assert decision.is_circle
    elsewhere = replace(NEW, upstream=replace(upstream, target_topic_id="a0"))
    assert elsewhere.decide() == Create(), "the topic that came from there was deleted"


def test_path_grows_with_each_mirror() -> None:
    upstream = Claim("C", "clicks", "c1", "a1", ("C",))
    assert replace(THERE, upstream=upstream).decide() == WriteClaim(replace(CLAIM, path=("C", "A")))
    assert replace(THERE, claim=CLAIM, upstream=upstream).decide() == WriteClaim(replace(CLAIM, path=("C", "A")))


def test_of_two_mirrors_that_face_each_other_one_at_least_sees_the_other() -> None:
    """Each writes its claim, then reads the other ledger; whoever reads last sees both claims."""
    back = Claim("B", "clicks", "b1", "a1", ("B",))
    assert isinstance(replace(THERE, claim=CLAIM, upstream=back).decide(), Refused)
