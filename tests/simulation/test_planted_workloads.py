"""The simulation finds bugs in groups, compaction, deletion, retention, ownership, producers and ACLs that are put
into it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation import planted_workloads
from tests.simulation.plan import LEADER, Fault, Plan
from tests.simulation.seeds import first_that_finds

SECONDS = 15.0


EACH_DIES_ALONE = Plan(
    9.0,
    tuple(
        fault
        for number in (1, 2, 3)
        for fault in (
            Fault(3.0 * number - 2.5, "isolate", (number,), (0.5,)),
            Fault(3.0 * number - 2.15, "kill", (number,), (2.2,)),
        )
    ),
)

LEADERS_LOSE_SESSIONS = Plan(
    9.0,
    tuple(Fault(0.7 + 1.4 * number, "cut_from_tree", (LEADER,), (1.3,)) for number in range(6)),
    scale=0.15,
    machines=3,
)


@pytest.mark.parametrize(
    ("workload", "told"), [("groups", "had been acknowledged"), ("counters", "is answered")], ids=["groups", "counters"]
)
def test_a_reply_before_its_record_is_replicated_is_found(
    monkeypatch: pytest.MonkeyPatch, workload: str, told: str
) -> None:
    planted_workloads.answer_before_replication(monkeypatch)
    first_that_finds(told, 3, plan=EACH_DIES_ALONE, workloads=[workload])


@pytest.mark.parametrize(
    ("plant", "likely"),
    [
        (planted_workloads.trust_a_template_that_has_passed, 1),
        (planted_workloads.keep_acls_over_a_lost_session, 1),
    ],
)
def test_a_broker_that_serves_revoked_principals_is_found(
    monkeypatch: pytest.MonkeyPatch, plant: Callable[[pytest.MonkeyPatch], None], likely: int
) -> None:
    plant(monkeypatch)
    first_that_finds("was revoked", likely, plan=LEADERS_LOSE_SESSIONS, workloads=["acls"])


@pytest.mark.parametrize(
    ("plant", "workload", "likely", "told"),
    [
        (planted_workloads.keep_what_failed, "counters", 1, "were added"),
        (planted_workloads.give_all_members_the_same, "groups", 1, "belongs to"),
        (planted_workloads.take_away_a_segment_too_many, "compaction", 7, "was acknowledged"),
        (planted_workloads.let_tombstones_go_too_early, "compaction", 11, "is to go too early"),
        (planted_workloads.leave_folders, "topics", 1, "left of a topic that was deleted"),
        (planted_workloads.keep_too_little, "retention", 1, "bytes left"),
        (planted_workloads.end_moves_too_early, "moves", 1, "is in sync, and ends at"),
        (planted_workloads.read_on_without_a_word, "owners", 20, "was handed records of"),
        (planted_workloads.take_what_is_anothers, "owners", 3, "was handed records of"),
        (planted_workloads.number_anew_what_may_be_stored, "pipelined", 1, ""),
    ],
)
def test_what_was_planted_is_found(
    monkeypatch: pytest.MonkeyPatch,
    plant: Callable[[pytest.MonkeyPatch], None],
    workload: str,
    likely: int,
    told: str,
) -> None:
    plant(monkeypatch)
    first_that_finds(told, likely, seconds=SECONDS, workloads=[workload])
