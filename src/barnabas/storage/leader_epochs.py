"""The history of leader epochs of a log (KIP-101): the first offset of each epoch.

With this history, replicas find the offset at which their logs diverge.

Invariants. Epochs and start offsets ascend. The history is in memory: `DerivedFiles` writes it to Kafka's
`leader-epoch-checkpoint`, and recovery reads this file. This module does no I/O.

Threads. Only the owner of the log reads the history and assigns epochs. An append assigns epochs under the state lock.

Errors. This module raises no errors.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET
from barnabas.storage.checkpoints import EpochStart


class LeaderEpochs:
    """Leader epochs with their start offsets; both ascend.

    >>> epochs = LeaderEpochs([EpochStart(0, 0), EpochStart(3, 100)])
    >>> epochs.end_offset_for(1, log_end_offset=250)
    EpochStart(epoch=0, start_offset=100)
    """

    __slots__ = ("entries", "latest")

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        self._set(tuple(entries))

    def _set(self, entries: tuple[EpochStart, ...]) -> None:
        # Tuples are never changed in place, because many logs share them: the logs of a topic usually have equal
        # entries.
        self.entries = entries
        self.latest = entries[-1].epoch if entries else NO_LEADER_EPOCH
        """The latest epoch, or -1. It is a plain attribute for speed, because each append reads it."""

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Add an epoch that begins at `start_offset`. Return False if this epoch or a later epoch is already known.

        The new epoch replaces earlier epochs that begin at `start_offset` or later, because they have no records.
        """
        if epoch <= self.latest:
            return False
        self._set((*self._before(start_offset), EpochStart(epoch, start_offset)))
        return True

    def epoch_for_offset(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`, or -1 if it is unknown."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset) - 1
        return self.entries[index].epoch if index >= 0 else NO_LEADER_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochStart:
        """Return the answer to OffsetForLeaderEpoch: the greatest known epoch up to `epoch`, and its end offset.

        :returns: (-1, -1) if `epoch` is negative or above the latest epoch, or no epoch is known.
        """
        if epoch < 0 or not self.entries or epoch > self.latest:
            return EpochStart(NO_LEADER_EPOCH, NO_OFFSET)
        if epoch == self.latest:
            return EpochStart(epoch, log_end_offset)
        index = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch) - 1
        if index < 0:
            # If `epoch` is before all known epochs, return the start of the first known epoch, as Kafka does.
            return EpochStart(epoch, self.entries[0].start_offset)
        return EpochStart(self.entries[index].epoch, self.entries[index + 1].start_offset)

    def truncate_before(self, offset: int) -> None:
        """Remove the epochs that ended at or before `offset`."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset) - 1
        if index > 0:
            self._set(self.entries[index:])

    def truncate_from(self, offset: int) -> bool:
        """Remove the epochs that begin at or after `offset`; return False if there are none."""
        kept = self._before(offset)
        changed = len(kept) != len(self.entries)
        if changed:
            self._set(kept)
        return changed

    def _before(self, offset: int) -> tuple[EpochStart, ...]:
        count = bisect_left(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[:count]
