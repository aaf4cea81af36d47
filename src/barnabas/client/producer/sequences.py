"""Sequence numbers of one partition (KIP-98), and when it is safe to start them again (KIP-360).

Each batch is sent under (producer id, epoch, base sequence). The broker takes a batch only if it follows on
the last one, and answers one that it has already with its old offset; so a batch may be sent again and again
and is stored once, in order.

A gap arises when a batch is given up: the ones behind it then are OUT_OF_ORDER for ever. The way out is to
raise the epoch and number what is left from 0. That is safe only for batches that surely are not in the log,
so it is done on one occasion alone: the *first* unresolved batch is refused as out of order. Then it is not
in the log, thus none behind it is, and a straggler of the old epoch on another connection is fenced off.

It also takes that a broker which has the batch still knows it, and brokers recognise a producer's last five only. So a
batch is numbered only while fewer than five have been from the first unresolved one on, that one included. To count
the unresolved ones would not do: the first may be on its way to a broker that leads no more, while the next leader has
stored it already and goes on to store those behind it.

A broker that knows nothing of a producer takes any number for the first. So the first batch under a new epoch
goes alone: one sent behind it could be taken when the first was not, and the order would be lost.

The epoch is raised here, without asking a broker, as it is for Kafka's idempotent producers: brokers keep
epochs per partition, and nobody else uses this producer id.
"""

from __future__ import annotations

from collections import deque

from barnabas.client.producer.accumulator import ProducerBatch
from barnabas.model import NO_PRODUCER_ID

EPOCH_MAX = 2**15 - 1
SEQUENCE_MASK = 2**31 - 1
RECOGNISED_MAX = 5
"""Brokers recognise the last five batches of a producer; one behind which there are five others might be stored
twice."""


class PartitionSequences:
    """The numbering of one partition's batches. Used by the sender's thread only.

    Invariants: `unresolved` holds, in order, the batches that have a number and no outcome, in flight or not.
    `_recognised` begins with the first of them, and holds all that were numbered from there on: brokers have to
    recognise each.
    """

    __slots__ = ("_known", "_recognised", "_restart", "epoch", "next_sequence", "producer_id", "unresolved")

    def __init__(self) -> None:
        self.producer_id = NO_PRODUCER_ID
        self.epoch = 0
        self.next_sequence = 0
        self.unresolved: list[ProducerBatch] = []
        self._recognised: deque[ProducerBatch] = deque()
        self._known = False
        self._restart = False

    def start(self, producer_id: int, epoch: int) -> None:
        """Begin at sequence 0 under an identity that a broker has given out."""
        assert not self.unresolved
        self.producer_id, self.epoch, self.next_sequence = producer_id, epoch, 0

    def assign(self, batch: ProducerBatch) -> None:
        """Give the next sequence numbers to a batch that has none."""
        assert not batch.in_sequence
        assert not self._restart
        batch.identify(self.producer_id, self.epoch, self.next_sequence)
        self.next_sequence = (self.next_sequence + batch.count) & SEQUENCE_MASK
        self.unresolved.append(batch)
        self._recognised.append(batch)

    def may_send(self, batch: ProducerBatch) -> bool:
        """Return whether `batch` may go out now: no restart is due, and brokers will still recognise those before it
        that are unresolved."""
        if self._restart:
            return False
        if not self._known:
            return not self.unresolved or self.unresolved[0] is batch
        return batch.in_sequence or len(self._recognised) < RECOGNISED_MAX

    def acknowledged(self, batch: ProducerBatch) -> None:
        """Note that the broker has the batch, and so knows this producer."""
        self._known = self._known or (batch.producer_id, batch.producer_epoch) == (self.producer_id, self.epoch)
        self.resolve(batch)

    def resolve(self, batch: ProducerBatch) -> None:
        """Forget a batch whose outcome is settled: stored, refused or given up."""
        if batch in self.unresolved:
            self.unresolved.remove(batch)
            while self._recognised and self._recognised[0] not in self.unresolved:
                self._recognised.popleft()

    def refused_untouched(self, batch: ProducerBatch) -> None:
        """Take back the numbers of a batch that was refused on its first try, if no later ones are in use."""
        if self._recognised and self._recognised[-1] is batch and batch.attempts == 1:
            self.next_sequence = batch.base_sequence
            self._recognised.pop()
        self.resolve(batch)

    def out_of_order(self, batch: ProducerBatch) -> None:
        """Note that the broker found a gap before `batch`; if no earlier one can fill it, a restart is due."""
        if self.unresolved and self.unresolved[0] is batch:
            self._restart = True

    @property
    def restart_due(self) -> bool:
        """Whether numbering must begin again as soon as nothing of the partition is in flight."""
        return self._restart

    def restart(self) -> bool:
        """Raise the epoch and take the numbers of all unresolved batches back. Nothing may be in flight.

        Returns False when the epochs are used up, so that a new producer id is needed.
        """
        for batch in self.unresolved:
            batch.forget_sequence()
        self.unresolved.clear()
        self._recognised.clear()
        self._known = self._restart = False
        self.next_sequence = 0
        if self.epoch >= EPOCH_MAX:
            self.producer_id = NO_PRODUCER_ID
            return False
        self.epoch += 1
        return True
