"""The partitions that this broker has to lead, and when (rules: `barnabas.replication.leader_election`).

The candidate with rank 0 takes over at once. Each further candidate waits one pause longer, and takes over if the
partition has no leader by then. Pure: takes the image and the time, returns states to write.
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
"""How much longer each broker waits than the one before it in line; it takes a few milliseconds to claim."""

_PUT_BACK = "put it back and start again, or set unclean.leader.election.enable to go on with what the others have"

_MAY_LACK = logging.WARNING, "alone in sync was this broker, and may lack what was not yet on its disk: %s"
_ALONE = {
    "only member": _MAY_LACK,
    "sole": _MAY_LACK,
    "gone": (logging.ERROR, f"alone in sync was this broker, and its log is gone; {_PUT_BACK}: %s"),
    "old": (
        logging.ERROR,
        "this broker was the only in-sync replica, and its log directory is an older copy; all replicas must come back,"
        " and the one with the most records leads. Set unclean.leader.election.enable to go on without the others: %s",
    ),
    "old sole": (
        logging.WARNING,
        "these partitions have one replica, in an older copy of its log directory; records since that copy are lost"
        " unless you stop this broker and put a newer copy in its place: %s",
    ),
}
"""What is logged of partitions in which this broker was the only in-sync replica, and may lack records."""

_NAMED_MAX = 3
"""So many partitions are named in a line of the log."""

log = logging.getLogger(__name__)


class LeaderElection:
    """Used from the event loop's thread only.

    :param is_unclean_allowed: whether a topic's partitions may be led by a replica that was not in sync.
    :param known_epoch: the latest leader epoch that this broker's log of a partition knows: the tree may be older than
        the log, from a backup, or its last changes lost with the power.
    :param end_of: of which epoch the last record is of this broker's log of a partition, and where that ends.
    :param is_ahead: returns whether this broker's log of a partition is in a directory that is newer than the tree.
    :param later_epoch: returns the leader epoch to claim for the lowest possible one; see `RandomSource.later_epoch`.
    :param on_postponed: called when `due` will have something later.
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
        """The claims of partitions of which acknowledged records may be lost."""

    @property
    def next_deadline(self) -> float | None:
        """When `due` has something, in monotonic seconds."""
        return min(self._later.values(), default=None)

    def due(self, now_s: float) -> list[TopicPartition]:
        """Return the partitions whose time has come, to be looked at again."""
        return [where for where, due_s in self._later.items() if due_s <= now_s]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Look at partitions no longer that were to be looked at later."""
        for where in partitions:
            self._later.pop(where, None)

    @contextmanager
    def allowing_unclean(self, partitions: Iterable[TopicPartition]) -> Iterator[None]:
        """Meanwhile allow that partitions are led by a replica that was not in sync."""
        self._wanted_unclean = frozenset(partitions)
        try:
            yield
        finally:
            self._wanted_unclean = frozenset()

    def retry_soon(self, partitions: Iterable[TopicPartition], now_s: float) -> None:
        """Have partitions looked at again soon, since what was to be written could not be."""
        self._later.update(dict.fromkeys(partitions, now_s + PAUSE_S))
        self._on_postponed()

    def elect(self, partitions: Iterable[TopicPartition], now_s: float) -> list[StateChange]:
        """Return what is to be written now."""
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
        _tell(logging.ERROR, LogEvent.PARTITION_OFFLINE, offline)
        _tell(logging.WARNING, LogEvent.UNCLEAN_ELECTION, losses)
        return changes

    def withdraw(
        self,
        partitions: Iterable[TopicPartition],
        is_gone: Callable[[TopicPartition], bool],
        is_in_old_copy: Callable[[TopicPartition], bool] = lambda _where: False,
    ) -> list[StateChange]:
        """Return the states by which a broker that may lack acknowledged records leaves the in-sync replicas.

        It stays where it is the only member (`barnabas.replication.unclean_recovery.withdraw`). A sole replica is led
        with the records that it has.

        :param is_gone: whether the log of a partition is gone.
        :param is_in_old_copy: whether the log of a partition is in an older copy of its log directory.
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
        """Return the states to be written of partitions whose logs here are newer than the tree: all replicas report
        what they have, and the one with the most leads.

        If only the life counter shows that the tree is older, a live leader stays, and the follower here does not
        truncate its log silently (`FollowerReplica.truncate_to`).
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
            told = "the tree is older than the logs here; all replicas have to tell what they have: %s"
            extra = event(LogEvent.TREE_OLDER, changes[0].where if len(changes) == 1 else None)
            log.error(told, named([each.where for each in changes]), extra=extra)
        return changes

    def _is_led(self, where: TopicPartition, state: PartitionState) -> bool:
        """Return whether a live broker leads; this one does only in an epoch that it began after it registered."""
        if state.leader == self._broker_id:
            return self._metadata.leads_in_this_incarnation(self._broker_id, where, state)
        return state.leader in self._metadata.image.brokers

    def resign(self, partitions: Iterable[TopicPartition]) -> list[StateChange]:
        """Return what is to be written of partitions that this broker cannot lead, so that others do: of those that it
        led in an earlier life. They see that it lives, and would leave them to it."""
        changes = []
        for where in partitions:
            info = self._metadata.image.partition(where)
            if info is None or info.state.leader != self._broker_id or len(info.replicas) == 1:
                continue
            state = withdraw(self._broker_id, info.state)
            if state is not None and not self._metadata.leads_in_this_incarnation(self._broker_id, where, info.state):
                changes.append(next_state(where, self._metadata.image.topics[where.topic], state))
        if changes:
            log.warning("this broker led %s, and cannot use their logs now", named([each.where for each in changes]))
        return changes

    def _log_end_report(self, where: TopicPartition, info: PartitionInfo) -> StateChange | None:
        """Return what is to be written where those are waited for that lost memory, and this broker is one of them."""
        if not info.state.lost_memory:
            return None
        told = report_log_end(self._broker_id, info.state, *self._end_of(where))
        if told is None:
            return None
        self.forget([where])
        return next_state(where, self._metadata.image.topics[where.topic], told)

    def _repaired(self, where: TopicPartition, info: PartitionInfo) -> StateChange | None:
        """Return what is to be written where a stranger wrote a partition's state."""
        state, why = info.state, ""
        leads = self._metadata.leads_in_this_incarnation(self._broker_id, where, state)
        found = self._metadata.disbelieved.get(where)
        if found is not None and leads:
            why = "somebody wrote a state that no broker can write; writing the state of this leader again"
            if found.leader_epoch == state.leader_epoch and found.leader != state.leader:
                # The other leader may believe its own state and write it again: both would do so without end.
                state = replace(state, leader_epoch=self._later_epoch(state.leader_epoch + 1))
                why = (
                    f"somebody wrote a state with another leader, {found.leader}, in the same epoch,"
                    f" {found.leader_epoch}; this broker leads in a new epoch"
                )
        elif not leads and (recovered := recover(info.replicas, state)) is not None:
            state, why = recovered, "somebody wrote a state without replicas; all replicas report the records they have"
        if not why:
            return None
        log.error("%s: %s", where, why, extra=event(LogEvent.TREE_DAMAGED))
        self.forget([where])
        return next_state(where, self._metadata.image.topics[where.topic], state)

    def _candidacy_of(
        self, where: TopicPartition, info: PartitionInfo, now_s: float, offline: dict[TopicPartition, str]
    ) -> Candidacy | None:
        """Return what this broker may take over, if its turn has come."""
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
                f"taken over by a replica that was not in sync (in sync were {[*info.state.isr, *lost]});"
                " what only those had is lost"
            )
        epoch = max(found.state.leader_epoch, self._known_epoch(where) + 1)
        if len(info.replicas) > 1:
            epoch = self._later_epoch(epoch)
        state = PartitionState(found.state.leader, epoch, found.state.isr)
        return next_state(where, self._metadata.image.topics[where.topic], state)

    def _loss_of(self, where: TopicPartition, lost: list[int]) -> str:
        """Return what is lost where this broker has the most of all replicas that lost memory."""
        epoch, end = self._end_of(where)
        if epoch == NO_LEADER_EPOCH and end:
            has = f"no replica has a record left; broker {self._broker_id} leads, and its log goes on at offset {end};"
            gone = "all earlier records"
        else:
            has = f"broker {self._broker_id} has the most and leads, with log end offset {end};"
            gone = "later records"
        return (
            f"replicas {lost} lost memory or came back with older copies of their disks; {has} {gone} are lost unless"
            " you stop the brokers and put a newer copy of a disk in its place"
        )

    def _is_newly_offline(self, where: TopicPartition, info: PartitionInfo) -> bool:
        """Whether nobody can lead a partition, which was not told yet."""
        live, is_told, state = self._metadata.image.brokers.keys(), where in self._logged_offline, info.state
        is_offline = state.leader not in live and bool(waited_for(state, live) or not (state.isr or state.lost_memory))
        (self._logged_offline.add if is_offline else self._logged_offline.discard)(where)
        return is_offline and not is_told


def _tell(level: int, what: LogEvent, lines: Mapping[TopicPartition, str]) -> None:
    """One line, however many there are: at the start of a cluster all wait for the broker that stopped last."""
    if not lines:
        return
    first = [f"{where}: {why}" for where, why in islice(lines.items(), _NAMED_MAX)]
    more = len(lines) - len(first)
    extra = event(what, next(iter(lines)) if len(lines) == 1 else None)
    log.log(level, "%s%s", "; ".join(first), f"; and {more} partitions more" if more else "", extra=extra)
