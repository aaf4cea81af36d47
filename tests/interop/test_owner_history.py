"""The history of owner nodes finds polls that brought what another owned, and no others."""

from __future__ import annotations

from tests.support.owner_history import Claim, Handed, not_owned

CLAIMS = [
    Claim(0, 10, "a", after_s=1.0, seen_s=1.1),
    Claim(1, 10, "a", after_s=1.0, seen_s=1.1),
    Claim(0, 20, "b", after_s=5.0, seen_s=5.1),
    Claim(0, 30, "a", after_s=9.0, seen_s=9.1),
]


def test_owner_is_handed_what_it_owns() -> None:
    handed = [
        Handed(0, "a", 1.2, 2.0),
        Handed(0, "a", 4.9, 5.3),  # it may have been handed them before the other came
        Handed(0, "b", 4.9, 5.05),
        Handed(0, "b", 6.0, 9.05),
        Handed(0, "a", 8.9, 9.2),
        Handed(0, "a", 100.0, 101.0),
        Handed(1, "a", 6.0, 7.0),
    ]
    assert not_owned(CLAIMS, handed) == []


def test_poll_that_brings_what_another_owns_is_found() -> None:
    handed = [
        Handed(0, "a", 5.2, 8.9),  # stopped since before the other came, and going on
        Handed(0, "b", 9.2, 9.3),
        Handed(0, "b", 1.2, 4.9),
        Handed(1, "b", 6.0, 7.0),
        Handed(2, "a", 6.0, 7.0),
    ]
    assert not_owned(reversed(CLAIMS), handed) == handed
