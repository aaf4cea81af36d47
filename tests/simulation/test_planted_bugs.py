"""The simulation finds bugs that are put into it: one that found none would prove nothing."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulation.plan import FOLLOWER, LEADER, SAME, Fault, Plan
from tests.simulation.seeds import first_that_finds
from tests.support import planted_bugs

NOTHING = Plan(1.0, ())
ALL_KILLED = Plan(3.0, tuple(Fault(at_s, "kill_some", (1, 2, 3), (0.05, 0.1, 0.15)) for at_s in (0.5, 2.0)))
LEADER_COMES_BACK_WITH_MORE = Plan(
    5.0,
    tuple(
        fault
        for at_s in (0.5, 2.8)
        for fault in (Fault(at_s, "isolate", (LEADER,), (0.4,)), Fault(at_s + 0.3, "kill", (LEADER,), (1.5,)))
    ),
)
CUT_FROM_TREE = Plan(5.0, (Fault(0.5, "cut_from_tree", (LEADER,), (4.0,)),))
ALL_KILLED_AND_ONE_ISOLATED = Plan(
    6.0,
    tuple(
        fault
        for number, at_s in enumerate((0.5, 2.0, 3.5), 1)
        for fault in (
            Fault(at_s, "kill_some", (1, 2, 3), (0.1, 0.1, 0.1)),
            Fault(at_s + 0.05, "isolate", (number,), (1.0,)),
        )
    ),
)
NEW_LEADER_IS_ALONE = Plan(
    9.0,
    tuple(
        fault
        for at_s in (0.3, 2.5, 4.7, 6.9)
        for fault in (
            Fault(at_s, "kill", (LEADER,), (0.5,)),
            Fault(at_s + 0.001, "isolate", (LEADER,), (0.5,), upon=("claim",)),
            Fault(at_s + 0.401, "kill", (SAME,), (1.9,)),
        )
    ),
    scale=0.25,
    machines=3,
)
# Both that go on are killed as soon as the third one is out and what it lacks is acknowledged, and forget how far the
# high watermark had come; then one of them leads, hears nothing of the other, and the third one comes back.
ONE_BEHIND_AND_ONE_UNHEARD = Plan(
    10.0,
    tuple(
        fault
        for at_s in (0.3, 3.0, 5.5, 8.0)
        for fault in (
            Fault(at_s, "isolate", (FOLLOWER,), (0.9,)),
            Fault(at_s + 0.001, "kill_some", (LEADER, FOLLOWER), (0.02, 0.02), upon=("leave", "commit", "commit")),
            Fault(at_s + 0.02, "cut", (LEADER, FOLLOWER), (1.0,)),
        )
    ),
    scale=0.25,
    machines=3,
    settings=(("replica_lag_time_max_ms", 500), ("replica_high_watermark_checkpoint_interval_ms", 5_000)),
)
CLAIMS_ARE_SLOW = Plan(
    6.0,
    tuple(
        fault
        for at_s in (0.5, 2.5, 4.5)
        for fault in (
            Fault(at_s, "slow_tree", (1,), (1.9,)),
            Fault(at_s + 0.01, "slow_tree", (2,), (1.9,)),
            Fault(at_s + 0.02, "slow_tree", (3,), (1.9,)),
            Fault(at_s + 0.1, "kill", (LEADER,), (1.2,)),
        )
    ),
)
SESSION_IS_LOST_AND_THE_TREE_SLOW = Plan(
    6.0,
    tuple(
        fault
        for at_s in (0.5, 3.0)
        for fault in (Fault(at_s, "slow_tree", (LEADER,), (2.4,)), Fault(at_s + 0.05, "expire", (LEADER,), (0.0,)))
    ),
)
POWER_FAILS = Plan(6.0, tuple(Fault(at_s, "lose_power", (LEADER,), (0.1,)) for at_s in (0.5, 1.5, 2.5, 3.5)))
# All start once more, so that their life counters grow, and then the leader's older copy starts before all others.
OLD_COPY_STARTS_FIRST = Plan(
    4.0,
    (
        Fault(0.3, "kill_some", (1, 2, 3), (0.05, 0.05, 0.05)),
        Fault(2.0, "restore", (LEADER,), (0.05,), share=0.0),
        Fault(2.01, "kill_some", (1, 2, 3), (1.0, 1.0, 1.0)),
    ),
    scale=0.25,
    machines=3,
)
CLOCK_JUMPS = Plan(6.0, (Fault(1.0, "jump_clock", (LEADER,), (4.0,), share=1.0),))


@pytest.mark.parametrize(
    ("plant", "likely", "plan", "told"),
    [
        (planted_bugs.acknowledge_before_replication, 1, NOTHING, "is in sync, and ends at"),
        (planted_bugs.append_before_truncating, 4, LEADER_COMES_BACK_WITH_MORE, ""),
        (planted_bugs.truncate_to_high_watermark, 1, ALL_KILLED, "cut its log to"),
        (planted_bugs.lead_on_without_session, 1, CUT_FROM_TREE, "leads on, and another leads"),
        (planted_bugs.forget_high_watermark, 3, ALL_KILLED_AND_ONE_ISOLATED, "was told that the log ends at"),
        (planted_bugs.claim_without_comparing, 7, CLAIMS_ARE_SLOW, "in the same epoch"),
        (planted_bugs.join_at_high_watermark, 14, ONE_BEHIND_AND_ONE_UNHEARD, "is in sync, and ends at"),
        (planted_bugs.write_isr_without_comparing, 1, SESSION_IS_LOST_AND_THE_TREE_SLOW, "epoch went back"),
        (planted_bugs.keep_epochs_when_truncating, 1, NEW_LEADER_IS_ALONE, "and knows epoch"),
        (planted_bugs.believe_the_wall_clock, 1, CLOCK_JUMPS, "nobody has deleted what is before"),
        (planted_bugs.keep_membership_without_memory, 3, POWER_FAILS, "lost memory, and leads"),
        (planted_bugs.ignore_the_age_of_a_disk, 1, OLD_COPY_STARTS_FIRST, "lost memory, and leads"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_planted_bug_is_found(
    plant: Callable[[pytest.MonkeyPatch], None],
    likely: int,
    plan: Plan,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By one of many seeds, most often by the one that is tried first: which one it is changes with the code, and with
    all that is drawn. What has to befall the cluster is in the plan."""
    plant(monkeypatch)
    first_that_finds(told, likely, plan=plan)
