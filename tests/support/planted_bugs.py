"""Bugs that systems of this kind once had, or nearly: each is planted by patching one rule of production code.

A simulation that does not find them would find nothing else of their kind (`tests/simulation/test_planted_bugs.py`),
nor would scenarios with real processes (`tests/faults/test_planted.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from barnabas.broker import replica_fetcher
from barnabas.broker.follower_replica import FollowerReplica
from barnabas.broker.isr_updates import IsrUpdates
from barnabas.broker.leader_election import LeaderElection
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.random_source import RandomSource
from barnabas.clock import GuardedClock
from barnabas.coordination import topic_metadata_store
from barnabas.coordination.change_notifications import StateChange
from barnabas.coordination.metadata_store import ANY_VERSION, MetadataStore, Operation, Set
from barnabas.replication.in_sync import RemoteReplicas
from barnabas.storage.checkpoints import EpochStart
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.life_counter import LifeCounter
from barnabas.storage.log_offsets import OffsetTracker


def believe_the_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """Data expires by one reading of the wall clock."""
    patch.setattr(GuardedClock, "expiry_ms", lambda self: self.time_ms())


def acknowledge_before_replication(patch: pytest.MonkeyPatch) -> None:
    """The high watermark is the end of the leader's log, whoever has it."""
    patch.setattr(RemoteReplicas, "high_watermark", lambda self, log_end_offset: log_end_offset)


def append_before_truncating(patch: pytest.MonkeyPatch) -> None:
    """A follower appends what it is sent without asking where its log parts from its leader's."""

    async def truncate_nothing(*_: object) -> None:
        pass

    patch.setattr(replica_fetcher.ReplicaFetcher, "_truncate", truncate_nothing)


def truncate_to_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A follower begins by cutting its log at the high watermark that it knows, as Kafka's once did (KIP-101)."""
    give_up = FollowerReplica.truncate_lost_records

    async def cut(self: FollowerReplica) -> None:
        await give_up(self)
        await self.storage.run_in_queue(lambda: self._cut(self.log.truncate_to, self.log.high_watermark))

    follow = replica_fetcher.ReplicaFetcher.follow

    def cut_and_follow(self: replica_fetcher.ReplicaFetcher, follower: FollowerReplica) -> None:
        if follower.log.lost_from is None:
            follower.log.note_loss(follower.log.log_end_offset)  # so that a thread cuts the log
        follow(self, follower)

    patch.setattr(FollowerReplica, "truncate_lost_records", cut)
    patch.setattr(replica_fetcher.ReplicaFetcher, "follow", cut_and_follow)


def write_isr_without_comparing(patch: pytest.MonkeyPatch) -> None:
    """A leader that changes the in-sync replicas overwrites what others have decided."""
    _without_comparing(patch, IsrUpdates, "_change_of")


def claim_without_comparing(patch: pytest.MonkeyPatch) -> None:
    """Whoever claims a partition overwrites what others have decided."""
    _without_comparing(patch, LeaderElection, "_take")
    # Else the claims have different epochs, and the check of one leader per epoch finds nothing.
    patch.setattr(RandomSource, "later_epoch", lambda self, epoch: epoch)


def _without_comparing(patch: pytest.MonkeyPatch, owner: type, name: str) -> None:
    """Have the changes that a method makes written whatever version the nodes have."""
    meant: set[str] = set()
    make, write = getattr(owner, name), topic_metadata_store._write_states

    def make_and_note(*arguments: Any) -> StateChange | None:
        change: StateChange | None = make(*arguments)
        if change is not None:
            meant.add(str(change))
        return change

    def write_states(tree: MetadataStore, changes: Sequence[StateChange], *rest: Any) -> Sequence[StateChange]:
        paths = {topic_metadata_store.paths.partition_state(each.where) for each in changes if str(each) in meant}
        return write(_Careless(tree, paths), changes, *rest)  # type: ignore[arg-type]

    patch.setattr(owner, name, make_and_note)
    patch.setattr(topic_metadata_store, "_write_states", write_states)


class _Careless:
    """A tree where some nodes are written over whatever is there."""

    def __init__(self, tree: MetadataStore, paths: set[str]) -> None:
        self._tree = tree
        self._paths = paths

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tree, name)

    def multi(self, operations: Sequence[Operation]) -> Any:
        return self._tree.multi([self._any_version(each) for each in operations])

    def _any_version(self, operation: Operation) -> Operation:
        is_meant = isinstance(operation, Set) and operation.path in self._paths
        return replace(operation, version=ANY_VERSION) if is_meant else operation


def lead_on_without_session(patch: pytest.MonkeyPatch) -> None:
    """A leader serves on, however long it has not heard of the tree."""
    patch.setattr(LeaderReplica, "fence", lambda self: None)


def forget_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A broker that starts knows no high watermark, and one that leads tells the one it knows.

    Without the second the first does no harm: a new leader tells no client of an end before it has heard from all
    in-sync replicas (KIP-207).
    """
    patch.setattr(OffsetTracker, "hold_high_watermark", _forget)
    patch.setattr(RemoteReplicas, "knows_high_watermark", True)


def _forget(self: OffsetTracker) -> None:
    was_just_opened = self._stored_high_watermark is not None
    self.release_high_watermark(follows_end=False)
    if was_just_opened:
        self.move_high_watermark(self.current.log_start_offset)


def join_at_high_watermark(patch: pytest.MonkeyPatch) -> None:
    """A follower joins once it has all below the high watermark that the leader knows, though the one before may have
    acknowledged more."""
    belongs = RemoteReplicas._belongs

    def belongs_by_high_watermark(
        self: RemoteReplicas, broker_id: int, is_near: bool, log_start_offset: int, log_end_offset: int
    ) -> bool:
        if broker_id == self._broker_id or broker_id in self._isr:
            return belongs(self, broker_id, is_near, log_start_offset, log_end_offset)
        return self.log_end_offset_of(broker_id) >= self._high_watermark

    patch.setattr(RemoteReplicas, "_belongs", belongs_by_high_watermark)


def keep_epochs_when_truncating(patch: pytest.MonkeyPatch) -> None:
    """A log that is cut keeps the epochs of what was cut off.

    By itself that does little harm: where an epoch begins, those that were thought to begin behind are dropped. So
    that is left out as well.
    """

    def assign(self: LeaderEpochs, epoch: int, start_offset: int) -> bool:
        if epoch > self.latest:
            self._set((*self.entries, EpochStart(epoch, start_offset)))
            return True
        return False

    patch.setattr(LeaderEpochs, "truncate_from", lambda self, offset: False)
    patch.setattr(LeaderEpochs, "assign", assign)


def keep_membership_without_memory(patch: pytest.MonkeyPatch) -> None:
    """A broker that has lost what its machine had in memory goes on as if it had not."""
    patch.setattr(LeaderElection, "withdraw", lambda self, partitions, *_: [])


def ignore_the_age_of_a_disk(patch: pytest.MonkeyPatch) -> None:
    """A broker does not compare the life counter of its disk with that of the metadata tree."""
    patch.setattr(LifeCounter, "compare", lambda self, known: None)


BUGS = {
    plant.__name__: plant
    for plant in (
        acknowledge_before_replication,
        truncate_to_high_watermark,
        append_before_truncating,
        lead_on_without_session,
        forget_high_watermark,
        claim_without_comparing,
        join_at_high_watermark,
        keep_membership_without_memory,
        write_isr_without_comparing,
        keep_epochs_when_truncating,
        ignore_the_age_of_a_disk,
    )
}
"""All of them, by name."""
