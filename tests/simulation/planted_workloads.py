"""Bugs in groups, compaction, retention, deletion, ownership, producers and ACLs, each planted by patching a rule of
production code."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from barnabas.broker import partition_reassignment
from barnabas.broker.authorization.cluster_acls import ClusterAcls
from barnabas.broker.authorization.stage import Authorization
from barnabas.broker.coordinators.appends import ShardLog
from barnabas.broker.pipeline.call import Call
from barnabas.broker.replica_storage import ReplicaStorage
from barnabas.client.consumer.zookeeper_assignment import ZooKeeperAssignment
from barnabas.client.producer.sender import Send, Sender
from barnabas.coordination.consumers import ConsumerRegistry
from barnabas.coordination.values import PartitionState, ReplicaSet
from barnabas.errors import BarnabasError, ErrorCode
from barnabas.groups.classic_group import ClassicGroup
from barnabas.groups.results import SyncResult
from barnabas.storage import retention
from barnabas.storage.cleaner import rewriting
from barnabas.storage.log_manager import LogManager
from tests.support.counter_machine import CounterMachine


def answer_before_replication(patch: pytest.MonkeyPatch) -> None:
    """A coordinator answers when a record is in its own log."""

    async def confirmed(self: ShardLog[Any], outcomes: Any) -> Any:
        del self
        return await outcomes if isinstance(outcomes, asyncio.Future) else outcomes

    patch.setattr(ShardLog, "_confirmed", confirmed)


def keep_what_failed(patch: pytest.MonkeyPatch) -> None:
    """The state of a coordinator stays when the append of its record has failed."""
    patch.setattr(CounterMachine, "roll_back", lambda *_: None)


def give_all_members_the_same(patch: pytest.MonkeyPatch) -> None:
    """Each member is told what the first one shall have."""

    def assignment_of(self: ClassicGroup, member: object) -> SyncResult:
        del member
        first = next(iter(self.members))
        return SyncResult(ErrorCode.NONE, self.members.protocol_type, self.protocol_name, first.assignment)

    patch.setattr(ClassicGroup, "_assignment_of", assignment_of)


def take_away_a_segment_too_many(patch: pytest.MonkeyPatch) -> None:
    """What the cleaner has written takes the place of the segment behind as well."""
    original = ReplicaStorage.replace_segments

    async def replace(self: ReplicaStorage, replaced: Any, size: int) -> Any:
        sealed = self.log.segments_before(self.log.active_base_offset)
        behind = [each for each in sealed if each.base_offset > replaced[-1].base_offset]
        return await original(self, [*replaced, *behind[:1]], size)

    patch.setattr(ReplicaStorage, "replace_segments", replace)


def let_tombstones_go_too_early(patch: pytest.MonkeyPatch) -> None:
    """A tombstone goes when it is compacted for the second time, whatever `delete.retention.ms` says."""
    original = rewriting.Filtering

    def filtering(now_ms: int, delete_retention_ms: int, *rest: Any) -> Any:
        del delete_retention_ms
        return original(now_ms, 0, *rest)

    patch.setattr(rewriting, "Filtering", filtering)


def leave_folders(patch: pytest.MonkeyPatch) -> None:
    """The folders of a topic that was deleted stay."""
    patch.setattr(LogManager, "purge_deleted", lambda _: None)


def end_moves_too_early(patch: pytest.MonkeyPatch) -> None:
    """A partition has moved before the new replicas have what the others have."""
    patch.setattr(partition_reassignment, "is_complete", lambda replicas, isr, min_insync_replicas: replicas.is_moving)

    def end_state(replicas: ReplicaSet, state: PartitionState) -> PartitionState:
        return PartitionState(state.leader, state.leader_epoch, replicas.target)

    patch.setattr(partition_reassignment, "end_state", end_state)


def keep_too_little(patch: pytest.MonkeyPatch) -> None:
    """Retention takes a tenth of what it may leave."""
    original = retention.count_deletable

    def count(segments: Any, config: Any, *rest: Any) -> int:
        return original(segments, dataclasses.replace(config, retention_bytes=config.retention_bytes // 10), *rest)

    patch.setattr(retention, "count_deletable", count)


def read_on_without_a_word(patch: pytest.MonkeyPatch) -> None:
    """A consumer among others hands records out until somebody has told it that its session is lost."""
    patch.setattr(ZooKeeperAssignment, "on_answered", lambda *_: None)


def take_what_is_anothers(patch: pytest.MonkeyPatch) -> None:
    """A consumer does not wait until a partition that another owns is released."""
    original = ConsumerRegistry.claim

    def claim(self: ConsumerRegistry, partitions: Any) -> str | None:
        while (refused := original(self, partitions)) is not None:
            self._tree.delete(refused)
        return None

    patch.setattr(ConsumerRegistry, "claim", claim)


def number_anew_what_may_be_stored(patch: pytest.MonkeyPatch) -> None:
    """A producer that has no answer to a batch begins a new epoch with it."""
    original = Sender.on_failure

    def on_failure(self: Sender, send: Send, error: BarnabasError, now_s: float) -> set[str]:
        for partition, batch in zip(send.partitions, send.batches, strict=True):
            if not batch.done:
                partition.sequences._restart = True
        return original(self, send, error, now_s)

    patch.setattr(Sender, "on_failure", on_failure)


def trust_a_template_that_has_passed(patch: pytest.MonkeyPatch) -> None:
    """A broker checks the permissions for a template once, and not for the requests that repeat it later."""
    passes = Authorization.passes
    trusted: dict[int, object] = {}

    def passes_once(self: Authorization, call: Call, request: Any) -> bool:
        if id(request) in trusted:
            return True
        has_passed = passes(self, call, request)
        if has_passed:
            trusted[id(request)] = request  # a reference, so that no other request gets this id
        return has_passed

    patch.setattr(Authorization, "passes", passes_once)


def keep_acls_over_a_lost_session(patch: pytest.MonkeyPatch) -> None:
    """A broker does not read the ACLs again when it has a new session."""
    load = ClusterAcls.load

    async def load_once(self: ClusterAcls) -> None:
        if self._applied == 0:
            await load(self)

    patch.setattr(ClusterAcls, "load", load_once)
