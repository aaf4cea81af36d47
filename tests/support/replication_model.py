"""One partition on three brokers in memory, which agree by the rules of `barnabas.replication` and by nothing else.

What is around the rules is as small as it can be: a log is a list, the tree is one state and the registrations, a
message is a value that may be delivered late or never. What brokers know of each other is what they read last.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from barnabas.coordination.values import PartitionState
from barnabas.replication.in_sync import RemoteReplicas
from barnabas.replication.leader_election import Candidacy, candidacy, transfer_leadership
from barnabas.replication.truncation import diverging_epoch, last_epoch, truncation_point
from barnabas.replication.unclean_recovery import report_log_end, withdraw
from barnabas.storage.checkpoints import EpochStart
from barnabas.storage.leader_epochs import LeaderEpochs

REPLICAS = (1, 2, 3)
LAG_TIME_MAX_S = 10.0
RECORDS_PER_FETCH = 3


class Record(NamedTuple):
    epoch: int
    value: int


class MetadataStore:
    """The state of the partition, and who is registered; `changes` counts as ZooKeeper's transaction ids do."""

    def __init__(self) -> None:
        self.changes = 0
        self.state = PartitionState(1, 0, REPLICAS)
        self.stood = REPLICAS
        """The ISR as it last was by the word of a leader: those that lost memory since are members of it still."""
        self.written_at = 0
        self.brokers: dict[int, int] = {}
        """When each live broker registered, which is its broker epoch."""

    def register(self, broker_id: int) -> int:
        self.changes += 1
        self.brokers[broker_id] = self.changes
        return self.changes

    def expire(self, broker_id: int) -> None:
        self.brokers.pop(broker_id, None)

    def write(self, state: PartitionState, version: int, *, by_a_leader: bool = True) -> bool:
        """Write a state, if the last one is that of `version`."""
        if version != self.written_at:
            return False
        self.changes += 1
        self.state, self.written_at = state, self.changes
        if by_a_leader:
            self.stood = state.isr
        return True


@dataclass
class Reply:
    """The answer to a fetch on its way: records, or where the logs part."""

    leader_epoch: int
    content: list[Record] | EpochStart
    high_watermark: int


class Broker:
    """A broker with its replica; `read`, `claim` and `settle` are its shell, which talks to the tree."""

    def __init__(self, broker_id: int, tree: MetadataStore) -> None:
        self.id = broker_id
        self.tree = tree
        self.log: list[Record] = []
        self.epochs = LeaderEpochs()
        self.high_watermark = 0
        self.has_lost_memory = False
        self.is_running = False
        self.broker_epoch = self.epoch_at_start = 0
        self.state, self.version, self.seen = tree.state, tree.written_at, dict(tree.brokers)
        self.leading: RemoteReplicas | None = None
        self.proposal: tuple[int, ...] | None = None
        self.reply: Reply | None = None

    @property
    def end(self) -> int:
        return len(self.log)

    @property
    def is_registered(self) -> bool:
        return self.is_running and self.tree.brokers.get(self.id) == self.broker_epoch

    # -- the log -------------------------------------------------------------------------------------------------

    def append(self, records: list[Record]) -> None:
        for record in records:
            self.epochs.assign(record.epoch, self.end)
            self.log.append(record)

    def truncate(self, offset: int) -> None:
        del self.log[offset:]
        self.epochs.truncate_from(self.end)
        self.high_watermark = min(self.high_watermark, self.end)

    # -- life ----------------------------------------------------------------------------------------------------

    def start(self, now_s: float) -> None:
        """Register, with an end to what it led and followed before: a new process, or a session lost."""
        self.is_running = True
        self.leading = self.proposal = self.reply = None
        self.broker_epoch = self.tree.register(self.id)
        self.epoch_at_start = self.tree.state.leader_epoch
        if self.has_lost_memory:
            self.withdraw()
        self.read(now_s)

    def withdraw(self) -> None:
        """Leave the ISR for having lost memory, unless nobody else ever was in it; write the state anew in any case."""
        state = withdraw(self.id, self.tree.state)
        if state is not None:
            self.tree.write(state, self.tree.written_at, by_a_leader=False)
            self.has_lost_memory = False

    def kill(self, kept: int | None = None) -> None:
        """End the process; where the machine loses its memory, only `kept` records are left."""
        self.is_running = False
        self.leading = self.proposal = self.reply = None
        if kept is not None:
            self.has_lost_memory = True
            self.truncate(min(kept, self.end))

    # -- the tree ------------------------------------------------------------------------------------------------

    def read(self, now_s: float) -> None:
        """Read the state and the registrations, and act on them."""
        before = self.state.leader_epoch
        self.state, self.version, self.seen = self.tree.state, self.tree.written_at, dict(self.tree.brokers)
        self.proposal = None
        if self.state.leader != self.id or (self.leading and self.leading.leader_epoch != self.state.leader_epoch):
            self.leading = None
        if self.state.leader_epoch != before:
            self.reply = None
        if self.leading is not None:
            self.leading.adopt(self.state.isr)
        elif self.state.leader != self.id:
            self.epochs.truncate_from(self.end)  # of epochs in which it led and wrote nothing
        elif self.state.leader_epoch > self.epoch_at_start:
            self.lead(now_s)  # it was handed over

    def lead(self, now_s: float) -> None:
        """Begin the epoch of the state that was read, which names this broker."""
        self.reply = self.proposal = None
        self.epochs.assign(self.state.leader_epoch, self.end)
        self.leading = RemoteReplicas(
            self.id, self.state.leader_epoch, REPLICAS, self.state.isr, self.end, self.high_watermark, now_s
        )

    def tell(self) -> None:
        """Tell what is left here, if anybody waits for that."""
        told = report_log_end(self.id, self.state, last_epoch(self.epochs, self.end), self.end)
        if told is not None and self.tree.write(told, self.version, by_a_leader=False):
            self.state, self.version = told, self.tree.written_at

    def wanted_claim(self, is_unclean_allowed: bool) -> Candidacy | None:
        """Return what this broker may claim by what it read last."""
        return candidacy(
            self.id,
            REPLICAS,
            self.state,
            self.seen.keys(),
            is_new_incarnation=self.state.leader == self.id and self.state.leader_epoch <= self.epoch_at_start,
            is_unclean_allowed=is_unclean_allowed,
        )

    def claim(self, wanted: Candidacy, now_s: float) -> bool:
        """Take over the partition, unless another broker was faster."""
        if not self.tree.write(wanted.state, self.version):
            return False
        self.state, self.version = wanted.state, self.tree.written_at
        self.has_lost_memory = False
        self.lead(now_s)
        return True

    def hand_over(self, leaves: bool) -> bool:
        """Pass leadership on, if it can be."""
        assert self.leading is not None
        state = PartitionState(self.id, self.leading.leader_epoch, self.leading.isr)
        new_state = transfer_leadership(state, REPLICAS, self.seen.keys(), {self.id} if leaves else set())
        return new_state is not None and self.tree.write(new_state, self.version)

    def wanted_isr(self, now_s: float) -> tuple[int, ...] | None:
        """Return the ISR that this broker, as the leader, should propose."""
        assert self.leading is not None
        return self.leading.wanted_isr(now_s, LAG_TIME_MAX_S, self.end, self.is_eligible)

    def propose(self, isr: tuple[int, ...]) -> None:
        """Begin a change of the ISR."""
        assert self.leading is not None
        self.proposal = isr
        self.leading.begin_change(isr)

    def is_eligible(self, broker_id: int) -> bool:
        assert self.leading is not None
        return self.seen.get(broker_id) == self.leading.broker_epoch_of(broker_id)

    def settle(self, is_answered: bool) -> None:
        """Let a proposal reach the tree; without an answer, or with a bad version, only reading tells what became."""
        assert self.leading is not None
        assert self.proposal is not None
        state = PartitionState(self.id, self.leading.leader_epoch, self.proposal)
        if self.tree.write(state, self.version) and is_answered:
            self.state, self.version = state, self.tree.written_at
            self.leading.adopt(self.proposal)
        self.proposal = None

    # -- fetching ------------------------------------------------------------------------------------------------

    def can_fetch_from(self, leader: Broker) -> bool:
        """Tell whether both are of the same epoch."""
        return leader.leading is not None and leader.leading.leader_epoch == self.state.leader_epoch

    def fetch_from(self, leader: Broker, now_s: float) -> None:
        """Send a fetch, and let the leader answer it; the answer is on its way."""
        assert leader.leading is not None
        epoch = self.state.leader_epoch
        parting = diverging_epoch(leader.epochs, leader.end, self.end, last_epoch(self.epochs, self.end))
        if parting is not None:
            self.reply = Reply(epoch, parting, 0)
            return
        leader.leading.on_fetch(self.id, self.end, leader.end, now_s, self.broker_epoch)
        records = leader.log[self.end : self.end + RECORDS_PER_FETCH]
        self.reply = Reply(epoch, records, leader.leading.high_watermark(leader.end))

    def receive(self) -> None:
        """Take the answer that is on its way, unless it is of another epoch by now."""
        reply, self.reply = self.reply, None
        if reply is None or reply.leader_epoch != self.state.leader_epoch:
            return
        if isinstance(reply.content, EpochStart):
            self.truncate(truncation_point(self.epochs, self.end, reply.content).offset)
        else:
            self.append(reply.content)
        self.high_watermark = max(self.high_watermark, min(reply.high_watermark, self.end))
