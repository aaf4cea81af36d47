"""Decides which partitions this broker should lead, by the rules in `barnabas.replication.leader_election`.

The candidate with rank 0 claims leadership immediately. Each further candidate waits `PAUSE_S` longer, and claims
leadership if the partition still has no leader. `LeaderElection` gets the metadata image and the time, and returns the
partition states to write. It does no I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice

from barnabas.broker.log_aggregator import named
from barnabas.broker.metadata_cache import MetadataCache
from barnabas.broker.metadata_image import next_state
from barnabas.coordination.change_notifications import StateChange
from barnabas.coordination.topic_metadata_store import PartitionInfo
from barnabas.coordination.values import PartitionState
from barnabas.log_lines import LogEvent, event
from barnabas.model import NO_LEADER_EPOCH, TopicPartition
from barnabas.replication.leader_election import Candidacy, candidacy, waited_for, why_offline
from barnabas.replication.unclean_recovery import (
    doubt,
    doubt_old_tree,
    most_complete_replicas,
    recover,
    report_log_end,
    withdraw,
)
from barnabas.storage.checkpoints import EpochStart

PAUSE_S = 0.3
"""The additional wait in seconds for each rank of a candidate. One claim takes a few milliseconds."""

_PUT_BACK = (
    "restore the log and restart, or set unclean.leader.election.enable to lead with the records of other replicas"
)

_MAY_LACK = logging.WARNING, "this broker was the only in-sync replica; unflushed records may be lost: %s"
_ALONE = {
    "only member": _MAY_LACK,
    "sole": _MAY_LACK,
    "gone": (logging.ERROR, f"this broker was the only in-sync replica, and its log is missing; {_PUT_BACK}: %s"),
    "old": (
        logging.ERROR,
        "this broker was the only in-sync replica, and its log directory is an older copy; when all replicas are back,"
        " the replica with the most records leads. Set unclean.leader.election.enable to lead without the others: %s",
    ),
    "old sole": (
        logging.WARNING,
        "the only replica of these partitions is in an older copy of its log directory; records written after that copy"
        " are lost unless you stop this broker and restore a newer copy: %s",
    ),
}
"""The level and text of the log line about partitions whose only in-sync replica is on this broker, by kind of loss."""

_NAMED_MAX = 3
"""The maximum number of partition names in one log line."""

log = logging.getLogger(__name__)


class LeaderElection:
    """Decides which partitions this broker claims. Used from the event loop's thread only.

    :param is_unclean_allowed: returns the topic's `unclean.leader.election.enable`.
    :param known_epoch: returns the latest leader epoch in this broker's log of a partition. The metadata store may have
        an older epoch: it was restored from a backup, or lost its last writes in a power failure.
    :param end_of: returns the leader epoch of the last record in this broker's log, and the log end offset.
    :param is_ahead: returns whether this broker's log of a partition is in a log directory that is newer than the
        metadata store.
    :param later_epoch: returns the leader epoch to claim instead of the lowest possible one; see
        `RandomSource.later_epoch`.
    :param on_postponed: called when an election is postponed, so that `due` will return its partition later.
    """

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataCache,
        is_unclean_allowed: Callable[[str], bool],
        known_epoch: Callable[[TopicPartition], int],
        end_of: Callable[[TopicPartition], EpochStart],
        is_ahead: Callable[[TopicPartition], bool] = lambda _where: False,
        later_epoch: Callable[[int], int] = lambda epoch: epoch,
        on_postponed: Callable[[], None] = lambda: None,
    ) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self._is_unclean_allowed = is_unclean_allowed
        self._known_epoch = known_epoch
        self._end_of = end_of
        self._is_ahead = is_ahead
        self._later_epoch = later_epoch
        self._later: dict[TopicPartition, float] = {}
        self._on_postponed = on_postponed
        self._logged_offline: set[TopicPartition] = set()
        self._wanted_unclean: frozenset[TopicPartition] = frozenset()
        self.unclean_count = 0
        """The number of elections in which this broker became leader and acknowledged records may be lost."""

    @property
    def next_deadline(self) -> float | None:
        """The monotonic time in seconds of the next postponed election, or None if no election is postponed."""
        return min(self._later.values(), default=None)

    def due(self, now_s: float) -> list[TopicPartition]:
        """Return the partitions whose postponed elections are due.

        The caller passes these partitions to `elect` again.
        """
        return [where for where, due_s in self._later.items() if due_s <= now_s]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Cancel the postponed elections of partitions."""
        for where in partitions:
            self._later.pop(where, None)

    @contextmanager
    def allowing_unclean(self, partitions: Iterable[TopicPartition]) -> Iterator[None]:
        """Allow unclean elections of partitions inside the `with` block."""
        self._wanted_unclean = frozenset(partitions)
        try:
            yield
        finally:
            self._wanted_unclean = frozenset()

    def retry_soon(self, partitions: Iterable[TopicPartition], now_s: float) -> None:
        """Postpone the elections of partitions by `PAUSE_S`, because the metadata store rejected their new states."""
        self._later.update(dict.fromkeys(partitions, now_s + PAUSE_S))
        self._on_postponed()

    def elect(self, partitions: Iterable[TopicPartition], now_s: float) -> list[StateChange]:
        """Return the partition states that this broker should write now, to become leader, report its log end, or
        repair a state.
        """
        changes = []
        offline: dict[TopicPartition, str] = {}
        losses: dict[TopicPartition, str] = {}
        for where in partitions:
            info = self._metadata.image.partition(where)
            if info is None:
                continue
            change = self._log_end_report(where, info) or self._repaired(where, info)
            found = None if change is not None else self._candidacy_of(where, info, now_s, offline)
            if found is not None:
                change = self._take(where, info, found, losses)
            if change is not None:
                changes.append(change)
        _log_partitions(logging.ERROR, LogEvent.PARTITION_OFFLINE, offline)
        _log_partitions(logging.WARNING, LogEvent.UNCLEAN_ELECTION, losses)
        return changes

    def withdraw(
        self,
        partitions: Iterable[TopicPartition],
        is_gone: Callable[[TopicPartition], bool],
        is_in_old_copy: Callable[[TopicPartition], bool] = lambda _where: False,
    ) -> list[StateChange]:
        """Return the partition states that remove this broker from ISRs, because its logs may lack acknowledged
        records.

        If the broker is the only member of an ISR, it stays in the ISR
        (`barnabas.replication.unclean_recovery.withdraw`). If a partition has only one replica, this replica leads with
        the records that it has.

        :param is_gone: returns whether the log of a partition is missing.
        :param is_in_old_copy: returns whether the log of a partition is in an older copy of its log directory.
        """
        changes = []
        alone: dict[str, list[TopicPartition]] = {}
        for where in partitions:
            info = self._metadata.image.partition(where)
            if info is None:
                continue
            is_sole = len(info.replicas) == 1
            is_old = is_in_old_copy(where)
            state = None if is_sole else self._withdrawn(info, is_gone(where), is_old)
            if state is not None:
                changes.append(next_state(where, self._metadata.image.topics[where.topic], state))
            if info.state.isr == (self._broker_id,):
                kind = "old sole" if is_old else "sole"
                if not is_sole:
                    kind = "gone" if is_gone(where) else "old" if is_old else "only member"
                alone.setdefault(kind, []).append(where)
        for kind, them in alone.items():
            log.log(*_ALONE[kind], named(them), extra=event(LogEvent.RECORDS_IN_DOUBT))
        return changes

    def _withdrawn(self, info: PartitionInfo, is_gone: bool, is_old: bool) -> PartitionState | None:
        in_old_copy_of = info.replicas if is_old else ()
        return withdraw(self._broker_id, info.state, is_gone=is_gone, in_old_copy_of=in_old_copy_of)

    def doubt(self, partitions: Iterable[TopicPartition]) -> list[StateChange]:
        """Return the states to write for partitions whose logs on this broker are newer than the metadata store.

        These states make all replicas report their log end offsets, and the replica with the most records becomes
        leader. If only the life counter shows that the metadata store is older, a live leader stays leader. A follower
        on this broker then refuses to truncate its log (`FollowerReplica.truncate_to`).
        """
        changes = []
        for where in partitions:
            info = self._metadata.image.partition(where)
            if info is None:
                continue
            state = doubt(info.replicas, info.state, self._known_epoch(where))
            if state is None and self._is_ahead(where) and not self._is_led(where, info.state):
                state = doubt_old_tree(info.replicas, info.state)
            if state is not None:
                changes.append(next_state(where, self._metadata.image.topics[where.topic], state))
        if changes:
            message = (
                "the metadata store is older than the logs of this broker; all replicas must report their logs: %s"
            )
            extra = event(LogEvent.TREE_OLDER, changes[0].where if len(changes) == 1 else None)
            log.error(message, named([each.where for each in changes]), extra=extra)
        return changes

    def _is_led(self, where: TopicPartition, state: PartitionState) -> bool:
        """Return whether a live broker leads a partition.

        This broker leads only in a leader epoch that began after its registration.
        """
        if state.leader == self._broker_id:
            return self._metadata.leads_in_this_incarnation(self._broker_id, where, state)
        return state.leader in self._metadata.image.brokers

    def resign(self, partitions: Iterable[TopicPartition]) -> list[StateChange]:
        """Return the states to write for partitions that this broker led before its restart and cannot lead now.

        This broker is alive, so other brokers claim its partitions only if it resigns.
        """
        changes = []
        for where in partitions:
            info = self._metadata.image.partition(where)
            if info is None or info.state.leader != self._broker_id or len(info.replicas) == 1:
                continue
            state = withdraw(self._broker_id, info.state)
            if state is not None and not self._metadata.leads_in_this_incarnation(self._broker_id, where, info.state):
                changes.append(next_state(where, self._metadata.image.topics[where.topic], state))
        if changes:
            log.warning(
                "cannot open the logs of %s; resigning the leadership of these partitions",
                named([each.where for each in changes]),
            )
        return changes

    def _log_end_report(self, where: TopicPartition, info: PartitionInfo) -> StateChange | None:
        """Return a partition state with this broker's log end report, if an election waits for this report."""
        if not info.state.lost_memory:
            return None
        reported = report_log_end(self._broker_id, info.state, *self._end_of(where))
        if reported is None:
            return None
        self.forget([where])
        return next_state(where, self._metadata.image.topics[where.topic], reported)

    def _repaired(self, where: TopicPartition, info: PartitionInfo) -> StateChange | None:
        """Return a partition state that replaces an invalid state in the metadata store.

        No broker of the cluster wrote the invalid state.
        """
        state, why = info.state, ""
        leads = self._metadata.leads_in_this_incarnation(self._broker_id, where, state)
        found = self._metadata.disbelieved.get(where)
        if found is not None and leads:
            why = "the metadata store has a state that no broker can write; this leader writes its own state again"
            if found.leader_epoch == state.leader_epoch and found.leader != state.leader:
                # The other leader may also write its own state again. Without a new epoch, both leaders would overwrite
                # each other forever.
                state = replace(state, leader_epoch=self._later_epoch(state.leader_epoch + 1))
                why = (
                    f"the metadata store has another leader, {found.leader}, in the same leader epoch,"
                    f" {found.leader_epoch}; this broker leads in a new epoch"
                )
        elif not leads and (recovered := recover(info.replicas, state)) is not None:
            state, why = (
                recovered,
                "the metadata store has a state without replicas; all replicas must report their logs",
            )
        if not why:
            return None
        log.error("%s: %s", where, why, extra=event(LogEvent.TREE_DAMAGED))
        self.forget([where])
        return next_state(where, self._metadata.image.topics[where.topic], state)

    def _candidacy_of(
        self, where: TopicPartition, info: PartitionInfo, now_s: float, offline: dict[TopicPartition, str]
    ) -> Candidacy | None:
        """Return the candidacy of this broker if it may claim the leadership of a partition now, or None."""
        due_s, state = self._later.pop(where, None), info.state
        is_leading = self._metadata.leads_in_this_incarnation(self._broker_id, where, state)
        found = candidacy(
            self._broker_id,
            info.replicas,
            state,
            self._metadata.image.brokers.keys(),
            is_new_incarnation=state.leader == self._broker_id and not is_leading,
            is_unclean_allowed=where in self._wanted_unclean or self._is_unclean_allowed(where.topic),
            adding=info.adding,
        )
        if found is None:
            if self._is_newly_offline(where, info):
                offline[where] = why_offline(info.replicas, state, self._metadata.image.brokers.keys())
            return None
        self._logged_offline.discard(where)
        if found.rank and (due_s is None or due_s > now_s):
            self._later[where] = now_s + found.rank * PAUSE_S if due_s is None else due_s
            self._on_postponed()
            return None
        return found

    def _take(
        self, where: TopicPartition, info: PartitionInfo, found: Candidacy, losses: dict[TopicPartition, str]
    ) -> StateChange:
        lost = [each.broker_id for each in info.state.lost_memory]
        self.unclean_count += found.is_unclean
        if self._broker_id in most_complete_replicas(info.state):
            losses[where] = self._loss_of(where, lost)
        elif found.is_unclean:
            losses[where] = (
                f"this broker leads and was not in sync (in-sync replicas: {[*info.state.isr, *lost]});"
                " records that only the in-sync replicas have are lost"
            )
        epoch = max(found.state.leader_epoch, self._known_epoch(where) + 1)
        if len(info.replicas) > 1:
            epoch = self._later_epoch(epoch)
        state = PartitionState(found.state.leader, epoch, found.state.isr)
        return next_state(where, self._metadata.image.topics[where.topic], state)

    def _loss_of(self, where: TopicPartition, lost: list[int]) -> str:
        """Return a description of the data loss if no replica is in sync and this broker leads with the most
        records.
        """
        epoch, end = self._end_of(where)
        if epoch == NO_LEADER_EPOCH and end:
            has = f"no replica has any records; broker {self._broker_id} leads, and its log continues at offset {end};"
            gone = "all earlier records"
        else:
            has = f"broker {self._broker_id} has the most records and leads, with log end offset {end};"
            gone = "later records"
        return (
            f"replicas {lost} lost unflushed records or have older copies of their log directories; {has} {gone} are"
            " lost unless you stop the brokers and restore a newer copy of a log directory"
        )

    def _is_newly_offline(self, where: TopicPartition, info: PartitionInfo) -> bool:
        """Return whether a partition is offline and this has not been logged yet."""
        live, is_logged, state = self._metadata.image.brokers.keys(), where in self._logged_offline, info.state
        is_offline = state.leader not in live and bool(waited_for(state, live) or not (state.isr or state.lost_memory))
        (self._logged_offline.add if is_offline else self._logged_offline.discard)(where)
        return is_offline and not is_logged


def _log_partitions(level: int, what: LogEvent, lines: Mapping[TopicPartition, str]) -> None:
    """Log one line for all partitions, because many partitions may wait for the same broker when a cluster starts."""
    if not lines:
        return
    first = [f"{where}: {why}" for where, why in islice(lines.items(), _NAMED_MAX)]
    more = len(lines) - len(first)
    extra = event(what, next(iter(lines)) if len(lines) == 1 else None)
    log.log(level, "%s%s", "; ".join(first), f"; and {more} more partitions" if more else "", extra=extra)
