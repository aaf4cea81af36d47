"""Links that are cut, and clients that are cut off: scenarios 5, 6 and 14."""

from __future__ import annotations

from barnabas.errors import ErrorCode
from barnabas.model import Acks
from tests.faults.load import DirectWriter, direct_writers
from tests.faults.stage import Scenario, Stage
from tests.support.reading import wait_until

FENCED = "stopping leadership of all partitions"


def leader_without_zookeeper(stage: Stage) -> None:
    """It leads until its fence, another from then on; no two acknowledge anything."""
    cluster, leader = stage.cluster, stage.leader()
    seen = stage.log_of(leader).count(FENCED)
    how = stage.random.choice(["cut", "stall"])
    with direct_writers(stage.history, cluster.brokers, stage.topic) as writers:
        writers[leader].wait_for_progress()
        with stage.recovery():
            stage.note(f"{how} between leader {leader} and ZooKeeper")
            getattr(cluster.to_zookeeper[leader], how)()
            stage.wait_for_line(leader, FENCED, seen)
            writers[leader].wait_for_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            after = cluster.wait_for_another_leader(stage.topic, leader)
        writers[after].wait_for_progress()
        writers[leader].wait_for_answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        cluster.to_zookeeper[leader].mend()
        stage.in_sync()


def leader_without_followers(stage: Stage) -> None:
    """It is in sync alone; acks=all is refused, acks=1 goes on; what others lead goes on."""
    cluster, leader = stage.cluster, stage.leader()
    how = stage.random.choice(["cut", "stall"])
    with (
        DirectWriter(stage.history, cluster.brokers[leader], stage.topic) as to_all,
        DirectWriter(stage.history, cluster.brokers[leader], stage.topic, Acks.LEADER) as to_one,
    ):
        to_all.wait_for_progress()
        stage.note(f"{how} between leader {leader} and its followers")
        getattr(cluster.to_listener[leader], how)()
        wait_until(lambda: cluster.in_sync(stage.topic) == {leader}, "the leader is in sync alone")
        to_all.wait_for_answer(ErrorCode.NOT_ENOUGH_REPLICAS)
        to_one.wait_for_progress()
        with stage.recovery():
            cluster.to_listener[leader].mend()
        stage.in_sync()
        to_all.wait_for_progress()


LOST_SHARE = 0.02


def clients_lose_connections(stage: Stage) -> None:
    """Requests and answers are lost again and again, and leaders change: nothing is there twice, all is in order."""
    for number, link in stage.cluster.for_clients.items():
        link.shake(stage.random.randrange(1 << 30), lost_share=LOST_SHARE)
        stage.tell(f"{LOST_SHARE:.0%} of what clients and broker {number} send is lost, with its connection")
    stage.progress()
    stage.change_leader_twice()
    stage.note(f"{LOST_SHARE:.0%} lost, two leaders change")


SCENARIOS = (
    Scenario("5", "the leader is cut off from ZooKeeper alone", leader_without_zookeeper),
    Scenario("6", "the leader is cut off from its followers alone", leader_without_followers),
    Scenario("14", "idempotent producers lose requests and answers, and leaders change", clients_lose_connections),
)
