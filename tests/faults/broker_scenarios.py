"""Brokers that are killed and stopped: scenarios 1 to 4, 9, 10 and 17."""

from __future__ import annotations

import contextlib
import itertools
import threading

import barnabas
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.list_offsets import LATEST_TIMESTAMP
from tests.faults.foreign import ForeignProducer
from tests.faults.load import FOREIGN_PAUSE_S, DirectWriter
from tests.faults.stage import Scenario, Stage
from tests.support.direct_clients import DirectReader, Told, values_by_offset
from tests.support.reading import wait_until

ANSWERS = 5
"""So many of a zombie are looked at."""


def leader_is_killed(stage: Stage) -> None:
    """Nothing is lost, and writes go on when the session has ended."""
    leader = stage.leader()
    stage.note(f"broker {leader} leads")
    stage.lose(leader)


def leader_is_stopped(stage: Stage) -> None:
    """What the zombie finds in its sockets is acknowledged by nobody at acks=all, and is in no log in the end."""
    zombie = stage.leader()
    broker = stage.cluster.brokers[zombie]
    with DirectWriter(stage.history, broker, stage.topic) as before:
        before.wait_for_progress()
        with stage.recovery():
            stage.note(f"leader {zombie} is stopped")
            stage.cluster.pause(zombie)
            stage.cluster.wait_for_another_leader(stage.topic, zombie)
        # One was under way: it counts if the followers have it. What came after that waits in the socket.
        allowed = len(before.answers) + 1
        with DirectWriter(stage.history, broker, stage.topic, name="late") as after:
            wait_until(lambda: after.sent, "something waits in its socket")
            stage.tell(f"broker {zombie} goes on")
            stage.cluster.go_on(zombie)
            # Not for long: it may lead again some day, and then it may take what it is sent.
            wait_until(lambda: len(after.answers) >= ANSWERS and len(before.answers) > allowed, "the zombie answers")
        stage.in_sync()
    assert ErrorCode.NONE not in after.answers, after.answers
    assert ErrorCode.NONE not in before.answers[allowed : allowed + ANSWERS], before.answers[allowed:]
    kept = set(values_by_offset(stage.cluster.bootstrap, stage.topic).values()) & set(after.sent)
    assert not kept, kept


def follower_leads_at_once(stage: Stage) -> None:
    """What was acknowledged while it was away, or is not yet known to it to be acknowledged, survives (KIP-101)."""
    leader, cluster = stage.leader(), stage.cluster
    follower, other = stage.random.sample(cluster.others(leader), 2)
    stage.note(f"{follower} restarts and leads instead of {leader}")
    cluster.brokers[follower].kill()
    cluster.brokers[follower].restart()
    stage.in_sync()
    cluster.brokers[other].kill()
    cluster.brokers[leader].kill()

    def leads_or_must_not() -> bool:
        # The leader may have heard of its new life only just before it died, and have taken its place (KIP-903).
        is_in_sync = follower in cluster.in_sync(stage.topic, asked=follower)
        return not is_in_sync or cluster.leader_of(stage.topic, asked=follower) == follower

    wait_until(leads_or_must_not, f"{follower} leads, or is out of sync")
    with stage.recovery():
        stage.tell(f"{leader} and {other} come back")
        for number in (leader, other):
            cluster.brokers[number].restart()
    stage.in_sync()


def leaders_are_killed_fast(stage: Stage) -> None:
    """One leader after the other, and then all at once: the replicas diverge, and are the same in the end (KIP-279)."""
    first = stage.leader()
    stage.cluster.brokers[first].kill()
    second = stage.cluster.wait_for_another_leader(stage.topic, first)
    stage.note(f"{first} and {second} are killed one after the other, then all")
    stage.cluster.brokers[second].kill()
    with stage.recovery():
        for number in stage.random.sample([first, second], 2):
            stage.cluster.brokers[number].restart()
    for broker in stage.random.sample(list(stage.cluster.brokers.values()), 3):
        broker.kill()
    with stage.recovery():
        for broker in stage.random.sample(list(stage.cluster.brokers.values()), 3):
            broker.restart()
    stage.in_sync()


def all_are_killed(stage: Stage) -> None:
    """They come back in every order, and no one is ever told that the log ends earlier than it ended before."""
    orders = list(itertools.permutations(stage.cluster.brokers))
    stage.random.shuffle(orders)
    told = Told()
    with contextlib.ExitStack() as readers:
        for broker in stage.cluster.brokers.values():
            readers.enter_context(DirectReader(broker, stage.topic, LATEST_TIMESTAMP, told))
        for order in orders[: 2 if stage.is_short else None]:
            stage.tell(f"all are killed, and come back as {order}")
            stage.cluster.kill_all()
            with stage.recovery():
                for number in order:
                    stage.cluster.brokers[number].restart()
            stage.in_sync()
    stage.note(f"{len(stage.outages)} orders")
    assert not told.steps_back, told.steps_back


UNCLEAN = "unclean"
SURE, DOUBTFUL = 200, 50


def in_sync_replicas_die(stage: Stage) -> None:
    """Without them a partition is offline; where a loss is allowed, it is bounded, and the broker says so."""
    cluster = stage.cluster
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic(UNCLEAN, 1, 3, {"min.insync.replicas": "1"})
        cluster.wait_until_in_sync(UNCLEAN, 3)
    leader = cluster.leader_of(UNCLEAN)
    survivors = cluster.others(leader)
    send_all(stage, "sure", SURE)
    # On a machine that stands for two seconds a follower may have been out of sync meanwhile, and not have them yet.
    cluster.wait_until_in_sync(UNCLEAN, 3)
    for number in survivors:
        cluster.brokers[number].kill()
    wait_until(lambda: cluster.in_sync(UNCLEAN, asked=leader) == {leader}, "the leader is alone in sync")
    send_all(stage, "doubtful", DOUBTFUL)
    cluster.brokers[leader].kill()
    for number in survivors:
        cluster.brokers[number].restart()
    # Each of them hears of the end of the leader's session at a time of its own.
    wait_until(lambda: all(is_offline(stage, number) for number in survivors), "both that are left say so")
    is_allowed = stage.random.random() < 0.5
    if is_allowed:
        with barnabas.Admin(cluster.bootstrap_of(*survivors)) as admin:
            admin.alter_config(topic=UNCLEAN, to_set={"unclean.leader.election.enable": "true"})
        cluster.wait_for_another_leader(UNCLEAN, leader)
        told = "this broker leads and was not in sync"
        wait_until(lambda: any(told in stage.log_of(number) for number in survivors), "the loss is told")
    # The clients' topic asks for two in sync replicas, and had but one: nobody else may lead it either.
    with stage.recovery():
        cluster.brokers[leader].restart()
    cluster.wait_until_same(UNCLEAN)
    found = set(values_by_offset(cluster.bootstrap, UNCLEAN).values())
    lost = {f"doubtful {number}".encode() for number in range(DOUBTFUL)} - found
    sure_lost = {f"sure {number}".encode() for number in range(SURE)} - found
    assert not sure_lost, sure_lost
    assert is_allowed or not lost, lost
    stage.note(f"unclean election {'on' if is_allowed else 'off'}: {len(lost)} of {SURE + DOUBTFUL} lost")


def is_offline(stage: Stage, number: int) -> bool:
    """Whether a broker has told that nobody may lead: of many partitions it names a few and counts the rest."""
    return "no leader: " in stage.log_of(number) and stage.cluster.leader_of(UNCLEAN, asked=number) == -1


def send_all(stage: Stage, name: str, count: int) -> None:
    """Send values, and have all of them acknowledged."""
    with barnabas.Producer(stage.cluster.bootstrap, acks="all") as producer:
        for each in [producer.send(UNCLEAN, f"{name} {number}".encode()) for number in range(count)]:
            each.result()


NEWCOMERS = "newcomers"
NEWCOMER_PARTITIONS = 12
NEWCOMER_COUNT = 8
PAUSED_AFTER_S, BEGIN_WITHIN_S = 0.5, 3.5
ROUNDS, ROUNDS_SHORT = 4, 1


def producers_begin_meanwhile(stage: Stage) -> None:
    """Their first batches are refused by the leader that was; the second ones may be at the next leader before them.

    librdkafka believes of what it sent before a batch that was acknowledged that it is in the log as well.
    """
    cluster = stage.cluster
    with barnabas.Admin(cluster.bootstrap) as admin:
        admin.create_topic(NEWCOMERS, NEWCOMER_PARTITIONS, 3, {"min.insync.replicas": "2"})
    cluster.wait_until_in_sync(NEWCOMERS, 3)
    stage.topics[NEWCOMERS] = NEWCOMER_PARTITIONS
    places = [(NEWCOMERS, number) for number in range(NEWCOMER_PARTITIONS)]
    for number in range(ROUNDS_SHORT if stage.is_short else ROUNDS):
        zombie = stage.leader()
        stage.note(f"leader {zombie} is stopped")
        with stage.recovery(), contextlib.ExitStack() as begun:
            timers = [threading.Timer(PAUSED_AFTER_S, cluster.pause, [zombie])]
            for each in range(NEWCOMER_COUNT):
                process = f"newcomer {number}.{each}"
                newcomer = ForeignProducer(stage.history, cluster.bootstrap, places, process, pause_s=FOREIGN_PAUSE_S)
                begun.callback(newcomer.stop)
                timers.append(threading.Timer(stage.random.uniform(0, BEGIN_WITHIN_S), newcomer.start))
            for timer in timers:
                timer.start()
            for timer in timers:
                timer.join()
            cluster.wait_for_another_leader(stage.topic, zombie)
            cluster.go_on(zombie)
            stage.in_sync()
            cluster.wait_until_in_sync(NEWCOMERS, 3)


SCENARIOS = (
    Scenario("1", "the leader is killed under load", leader_is_killed),
    Scenario("2", "the leader is stopped past its session, and goes on", leader_is_stopped),
    Scenario("3", "a follower restarts, and leads at once", follower_leads_at_once),
    Scenario("4", "leaders are killed one after the other, then all", leaders_are_killed_fast),
    Scenario("9", "all are killed, and come back in every order", all_are_killed),
    Scenario("17", "producers begin while their leader is stopped, and goes on", producers_begin_meanwhile),
    Scenario("10", "all in-sync replicas die, unclean election off or on", in_sync_replicas_die),
)
