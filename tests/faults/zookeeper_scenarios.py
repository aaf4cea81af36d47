"""ZooKeeper that goes away, changes its leader, ends sessions, or does things without a word: scenarios 7 and 8."""

from __future__ import annotations

from barnabas.clock import SYSTEM_CLOCK
from tests.faults.links import AnswerLosingLink
from tests.faults.stage import CHROOT, Scenario, Stage
from tests.support.reading import wait_until

AWAY_S = 60.0
AWAY_SHORT_S = 5.0


def zookeeper_goes(stage: Stage) -> None:
    """Its leader is killed, sessions expire, and it is away for a minute: nothing is lost, and nobody has to help."""
    with stage.recovery():
        stage.tell(f"ZooKeeper's leader {stage.ensemble.kill_leader()} is killed")
        stage.ensemble.leader()
    stage.ensemble.heal()
    # A session may have ended while nobody led; its node may be there a little longer than that of the next one.
    wait_until(stage.cluster.is_complete, "all brokers know all brokers")
    with stage.recovery():
        ended = stage.ensemble.expire_all(CHROOT)
        stage.tell(f"{len(ended)} sessions expire")
        assert len(ended) >= len(stage.cluster.brokers), ended
    wait_until(stage.cluster.is_complete, "all brokers know all brokers")
    stage.ensemble.down()
    away_s = AWAY_SHORT_S if stage.is_short else AWAY_S
    stage.note(f"leader killed, sessions expired, away for {away_s:.0f} s")
    SYSTEM_CLOCK.sleep(away_s)
    with stage.recovery():
        stage.ensemble.heal()


def answers_are_lost(stage: Stage) -> None:
    """The answer of each write of a broker is lost once, with the connection: nothing is done twice."""
    stage.change_leader_twice()
    links = [link for ways in stage.cluster.to_zookeeper.values() for link in ways.all]
    lost = sum(link.answers_lost for link in links if isinstance(link, AnswerLosingLink))
    assert lost > len(links), lost
    stage.note(f"{lost} answers lost")


SCENARIOS = (
    Scenario("7", "ZooKeeper: leader killed, all sessions expired, away for a minute", zookeeper_goes, servers=3),
    Scenario("8", "each answer to a write in ZooKeeper is lost once", answers_are_lost, loses_answers=True),
)
