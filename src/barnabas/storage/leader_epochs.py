"""The epoch history of a log (KIP-101): which leader epoch wrote which offsets. It shows where replicas diverge.

Invariants. Epochs and start offsets ascend. The history is in memory; Kafka's `leader-epoch-checkpoint` is its copy on
disk, which `DerivedFiles` writes and recovery reads. Pure.

Threads. The owner of the log reads and assigns. An append assigns under the state lock.

Errors: none.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable

from barnabas.model import NO_LEADER_EPOCH, NO_OFFSET
from barnabas.storage.checkpoints import EpochStart


class LeaderEpochs:
    """Epochs with their start offsets; both ascend.

    >>> epochs = LeaderEpochs([EpochStart(0, 0), EpochStart(3, 100)])
    >>> epochs.end_offset_for(1, log_end_offset=250)
    EpochStart(epoch=0, start_offset=100)
    """

    __slots__ = ("entries", "latest")

    def __init__(self, entries: Iterable[EpochStart] = ()) -> None:
        self._set(tuple(entries))

    def _set(self, entries: tuple[EpochStart, ...]) -> None:
        # Never changed in place: the logs of a topic usually have the same entries, and thousands share them.
        self.entries = entries
        self.latest = entries[-1].epoch if entries else NO_LEADER_EPOCH
        """The latest epoch, or -1. Each append reads it."""

    def assign(self, epoch: int, start_offset: int) -> bool:
        """Note that `epoch` begins at `start_offset`; return whether it was unknown.

        It replaces an epoch without records, which begins at the same offset.
        """
        if epoch <= self.latest:
            return False
        self._set((*self._before(start_offset), EpochStart(epoch, start_offset)))
        return True

    def epoch_for_offset(self, offset: int) -> int:
        """Return the epoch that wrote `offset`, or -1 if it is unknown."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset) - 1
        return self.entries[index].epoch if index >= 0 else NO_LEADER_EPOCH

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochStart:
        """Return the answer to OffsetForLeaderEpoch: the greatest known epoch up to `epoch`, and its end offset.

        :returns: (-1, -1) if neither the epoch nor one before it is known.
        """
        if epoch < 0 or not self.entries or epoch > self.latest:
            return EpochStart(NO_LEADER_EPOCH, NO_OFFSET)
        if epoch == self.latest:
            return EpochStart(epoch, log_end_offset)
        index = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch) - 1
        if index < 0:
            # Kafka answers an epoch before all known ones with the start of the first known one.
            return EpochStart(epoch, self.entries[0].start_offset)
        return EpochStart(self.entries[index].epoch, self.entries[index + 1].start_offset)

    def truncate_before(self, offset: int) -> None:
        """Forget epochs that ended at or before `offset`."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset) - 1
        if index > 0:
            self._set(self.entries[index:])

    def truncate_from(self, offset: int) -> bool:
        """Forget epochs that begin at or after `offset`; return whether there were any."""
        kept = self._before(offset)
        changed = len(kept) != len(self.entries)
        if changed:
            self._set(kept)
        return changed

    def _before(self, offset: int) -> tuple[EpochStart, ...]:
        count = bisect_left(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[:count]
