"""Which partitions this broker is to take over, and when: it goes by the rules of `barnabas.replication.claiming`.

The first in line takes over at once, and each one behind it a pause later, if nobody has until then. Pure: the picture
and the time come in, states to be written come out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from itertools import islice

from barnabas.broker.picture import Picture, next_state
from barnabas.coordination.changes import StateChange
from barnabas.coordination.registry import PartitionInfo
from barnabas.coordination.values import NO_LEADER, PartitionState
from barnabas.model import TopicPartition
from barnabas.replication.claiming import claim, why_offline

PAUSE_S = 0.3
"""How much longer each broker waits than the one before it in line; it takes a few milliseconds to claim."""

_PUT_BACK = "put it back and start again, or set unclean.leader.election.enable to go on with what the others have"

_NAMED_MAX = 3
"""So many partitions are named in a line of the log."""

log = logging.getLogger(__name__)


class Claims:
    """Used from the event loop's thread only.

    :param is_unclean_allowed: whether a topic's partitions may be led by a replica that was not in sync.
    :param known_epoch: the latest leader epoch that this broker's log of a partition knows: the tree may be older than
        the log, from a backup, or its last changes lost with the power.
    """

    def __init__(
        self,
        broker_id: int,
        picture: Picture,
        is_unclean_allowed: Callable[[str], bool],
        known_epoch: Callable[[TopicPartition], int],
    ) -> None:
        self._broker_id = broker_id
        self._picture = picture
        self._is_unclean_allowed = is_unclean_allowed
        self._known_epoch = known_epoch
        self._later: dict[TopicPartition, float] = {}
        self.on_later: Callable[[], None] = lambda: None
        """Called when `due` will have something later."""
        self._told_offline: set[TopicPartition] = set()

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

    def look_again(self, partitions: Iterable[TopicPartition], now_s: float) -> None:
        """Have partitions looked at again soon, since what was to be written could not be."""
        self._later.update(dict.fromkeys(partitions, now_s + PAUSE_S))
        self.on_later()

    def look(self, partitions: Iterable[TopicPartition], now_s: float) -> list[StateChange]:
        """Return what is to be written now."""
        changes = []
        offline: dict[TopicPartition, str] = {}
        for where in partitions:
            info = self._picture.partition(where)
            change = None if info is None else self._look_at(where, info, now_s, offline)
            if change is not None:
                changes.append(change)
        self._tell_offline(offline)
        return changes

    def withdraw(
        self, partitions: Iterable[TopicPartition], is_gone: Callable[[TopicPartition], bool]
    ) -> list[StateChange]:
        """Return what is to be written by a broker whose machine lost its memory: it may lack what it had acknowledged,
        so it leaves all in-sync replicas that have other members.

        As the only member it stays, since nobody has more (KIP-966 tells of the trap); but not with a log that is gone:
        all others have more than that, so it is for the topic's unclean election to say whether one of them leads.

        Where it is no member, the state is written as it is: a leader that is about to take it in, by what it had in
        its life before, finds another version, and by then knows of this life (KIP-903).

        :param is_gone: whether the log of a partition is gone.
        """
        changes = []
        for where in partitions:
            info = self._picture.partition(where)
            if info is None:
                continue
            state = info.state
            others = tuple(each for each in state.isr if each != self._broker_id)
            is_alone = state.isr == (self._broker_id,)
            if is_alone and not is_gone(where):
                log.warning("%s: this broker alone was in sync, and may lack what was not yet on its disk", where)
                continue
            if is_alone:
                log.error("%s: this broker alone was in sync, and its log is gone; %s", where, _PUT_BACK)
            led = state.leader == self._broker_id
            given_up = PartitionState(NO_LEADER, state.leader_epoch + 1, others)
            new = given_up if led else PartitionState(state.leader, state.leader_epoch, others)
            changes.append(next_state(where, self._picture.topics[where.topic], new))
        return changes

    def _look_at(
        self, where: TopicPartition, info: PartitionInfo, now_s: float, offline: dict[TopicPartition, str]
    ) -> StateChange | None:
        due_s, state = self._later.pop(where, None), info.state
        is_leading = self._picture.leads_in_this_life(self._broker_id, where, state)
        found = claim(
            self._broker_id,
            info.replicas,
            info.state,
            self._picture.brokers.keys(),
            frozenset(),
            is_new_incarnation=state.leader == self._broker_id and not is_leading,
            is_unclean_allowed=self._is_unclean_allowed(where.topic),
        )
        if found is None:
            if self._is_newly_offline(where, info):
                offline[where] = why_offline(info.replicas, state, self._picture.brokers.keys(), frozenset())
            return None
        self._told_offline.discard(where)
        if found.rank and (due_s is None or due_s > now_s):
            self._later[where] = now_s + found.rank * PAUSE_S if due_s is None else due_s
            self.on_later()
            return None
        if found.is_unclean:
            log.warning(
                "%s: taken over by a replica that was not in sync (in sync were %s); what only those had is lost",
                where,
                list(info.state.isr),
            )
        epoch = max(found.state.leader_epoch, self._known_epoch(where) + 1)
        state = PartitionState(found.state.leader, epoch, found.state.isr)
        return next_state(where, self._picture.topics[where.topic], state)

    def _is_newly_offline(self, where: TopicPartition, info: PartitionInfo) -> bool:
        """Whether nobody can lead a partition, which was not told yet."""
        live, is_told = self._picture.brokers.keys(), where in self._told_offline
        is_offline = info.state.leader not in live and not live & set(info.state.isr)
        (self._told_offline.add if is_offline else self._told_offline.discard)(where)
        return is_offline and not is_told

    def _tell_offline(self, offline: Mapping[TopicPartition, str]) -> None:
        """One line, however many there are: at the start of a cluster all wait for the broker that stopped last."""
        if not offline:
            return
        lines = [f"{where}: {why}" for where, why in islice(offline.items(), _NAMED_MAX)]
        more = len(offline) - len(lines)
        log.error("%s%s", "; ".join(lines), f"; and {more} partitions more" if more else "")
