"""Random numbers and ids."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.coordination.values import BROKER_EPOCH_MAX

EPOCH_BLOCK = 2**12
"""Each election takes a leader epoch from the next block of so many."""

LEAPING_EPOCH_MAX = 2**30
"""Elections skip no epochs beyond this one, so that the epochs last: an epoch has 31 bits."""


@dataclass(frozen=True, slots=True)
class RandomSource:
    """The operating system's, unless another one is given.

    :param random_below: returns a random number from 0 to its argument, exclusive.
    """

    random_below: Callable[[int], int] = secrets.randbelow
    new_id: Callable[[], uuid.UUID] = uuid.uuid4

    def new_broker_epoch(self) -> int:
        """Return a broker epoch that no client can guess: a positive number of 63 bits."""
        return 1 + self.random_below(BROKER_EPOCH_MAX)

    def later_epoch(self, epoch: int) -> int:
        """Return a leader epoch in a later block, for an election that may not go below an epoch.

        The metadata tree may be older than the logs, from a backup or a snapshot. Then other replicas may have records
        of the epochs that follow the tree's, and two histories with one leader epoch could not be told apart. A history
        with more elections has the later epoch, so that `barnabas.replication.unclean_recovery.doubt` recognises it.

        >>> RandomSource(lambda _: 7).later_epoch(5), RandomSource(lambda _: 0).later_epoch(4103)
        (4103, 8192)
        """
        if epoch >= LEAPING_EPOCH_MAX:
            return epoch
        return (epoch // EPOCH_BLOCK + 1) * EPOCH_BLOCK + self.random_below(EPOCH_BLOCK)
