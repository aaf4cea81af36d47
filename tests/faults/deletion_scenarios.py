"""Records that are deleted while others read them, and while a follower is away: scenario 15."""

from __future__ import annotations

import contextlib

import barnabas
from barnabas.protocol.messages.list_offsets import EARLIEST_TIMESTAMP
from tests.faults.load import PARTITIONS
from tests.faults.stage import Scenario, Stage
from tests.support.direct_clients import DirectReader, Told
from tests.support.reading import wait_until

ROUNDS = 3


def records_are_deleted(stage: Stage) -> None:
    """A follower that is away, and lacks what is deleted, starts again; no log begins earlier than it began before."""
    cluster = stage.cluster
    deleted = 0
    # What is deleted on request has reached all that may lead: one counts for all.
    told = Told()
    with contextlib.ExitStack() as readers:
        for broker in cluster.brokers.values():
            readers.enter_context(DirectReader(broker, stage.topic, EARLIEST_TIMESTAMP, told))
        for _ in range(1 if stage.is_short else ROUNDS):
            leader = stage.leader()
            away = stage.random.choice(cluster.others(leader))
            stage.tell(f"follower {away} is stopped")
            cluster.pause(away)
            wait_until(
                lambda away=away, leader=leader: not any(away in each for each in in_sync_sets(stage, leader)),
                f"{away} is out of sync",
            )
            stage.progress()
            deleted = delete_most(stage, *cluster.others(away))
            with stage.recovery():
                stage.tell(f"follower {away} goes on")
                cluster.go_on(away)
            stage.in_sync()
            stage.lose(leader)
        wait_until(lambda: told.greatest >= deleted, lambda: f"told is {told.greatest} of {deleted} that are deleted")
    stage.note(f"{deleted} records deleted")
    assert told.greatest == deleted, (told.greatest, deleted)
    assert not told.steps_back, told.steps_back


def in_sync_sets(stage: Stage, asked: int) -> list[set[int]]:
    """Return for each partition which replicas are in sync, as one of the brokers says."""
    return [stage.cluster.in_sync(stage.topic, partition, asked) for partition in range(PARTITIONS)]


def delete_most(stage: Stage, *asked: int) -> int:
    """Delete nearly all that partition 0 has, also what a follower that is away lacks; return what is left begins."""
    place = (stage.topic, 0)
    with barnabas.Admin(stage.cluster.bootstrap_of(*asked)) as admin:
        before = admin.end_offsets([place])[place] - 10  # type: ignore[index]
        stage.history.deleted(place, before)
        stage.tell(f"what is before offset {before} is deleted")
        admin.delete_records({place: before})
    return before


SCENARIOS = (
    Scenario(
        "15",
        "records deleted under readers and a follower that is away",
        records_are_deleted,
        topic={"segment.bytes": "10000"},
        is_cut=True,
    ),
)
