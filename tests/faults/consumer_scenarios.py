"""Members of groups that are killed, in both kinds of coordination: scenario 16."""

from __future__ import annotations

from typing import Any

from tests.faults.stage import Scenario, Stage
from tests.support.driven_consumer import DrivenConsumer
from tests.support.reading import wait_until

SESSION_TIMEOUT_MS = 4_000
AT_ONCE = 2_000


def members_are_killed(stage: Stage) -> None:
    """Of two members one is killed, in the middle of its work; the other reads on where it has committed: no gap."""
    kinds: dict[str, dict[str, Any]] = {
        "by the brokers": {},
        "among themselves": {"coordination": f"zookeeper://{stage.cluster.zookeeper}"},
    }
    for how, settings in kinds.items():
        _one_is_killed(stage, how, settings)
    stage.note("members killed in groups " + " and ".join(kinds))


def _one_is_killed(stage: Stage, how: str, settings: dict[str, Any]) -> None:
    def member() -> DrivenConsumer:
        return DrivenConsumer(
            stage.cluster.bootstrap,
            stage.topic,
            group=f"killed, {how}",
            auto_offset_reset="earliest",
            auto_commit_interval_ms=200,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=500,
            records_max=AT_ONCE,
            **settings,
        )

    count = len(stage.load.places)
    with member() as dies, member() as lives:

        def share() -> bool:
            dies.poll()
            lives.poll()
            return bool(dies.assigned and lives.assigned) and dies.assigned + lives.assigned == count

        wait_until(share, f"both have partitions, coordinated {how}")
        wait_until(lambda: dies.poll() and lives.poll(), "both read")
        stage.tell(f"a member is killed, coordinated {how}")
        dies.kill()
        ends = {place: stage.history.highest(place) for place in stage.load.places}

        def missing() -> list[tuple[int, int]]:
            lives.poll()
            seen = dies.places | lives.places
            return [(place[1], end) for place, end in ends.items() if (place[1], end) not in seen]

        # What the one that was killed was handed last may be all that there was.
        wait_until(lambda: not missing() and lives.assigned == count, "the other has all, and has read what there was")
        seen = dies.places | lives.places
        for place, end in ends.items():
            gaps = [offset for offset in range(end + 1) if (place[1], offset) not in seen]
            assert not gaps, f"{how}: nobody was handed offsets {gaps[:5]} of {place}"


SCENARIOS = (Scenario("16", "a member of a group is killed, in both kinds of coordination", members_are_killed),)
