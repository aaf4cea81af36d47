"""The random numbers and ids of a broker."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.coordination.values import BROKER_EPOCH_MAX

EPOCH_BLOCK = 2**12
"""The number of leader epochs in a block. Each election takes an epoch from the next block."""

LEAPING_EPOCH_MAX = 2**30
"""The highest epoch from which elections skip to the next block. An epoch has 31 bits, and they must last."""


@dataclass(frozen=True, slots=True)
class RandomSource:
    """The source of random numbers and ids: the operating system's by default.

    :param random_below: returns a random number from 0 to its argument, exclusive.
    :param new_id: returns a new UUID.
    """

    random_below: Callable[[int], int] = secrets.randbelow
    new_id: Callable[[], uuid.UUID] = uuid.uuid4

    def new_broker_epoch(self) -> int:
        """Return a broker epoch that no client can guess: a positive number of 63 bits."""
        return 1 + self.random_below(BROKER_EPOCH_MAX)

    def later_epoch(self, epoch: int) -> int:
        """Return a leader epoch from a later block, for an election that needs at least the given epoch.

        The metadata store may be older than the logs, after a restore of a backup or a snapshot. Other replicas may
        then have records of the epochs after the store's. Random epochs keep two histories from sharing a leader epoch.
        A history with more elections has the later epoch, so `barnabas.replication.unclean_recovery.doubt` identifies
        it.

        >>> RandomSource(lambda _: 7).later_epoch(5), RandomSource(lambda _: 0).later_epoch(4103)
        (4103, 8192)
        """
        if epoch >= LEAPING_EPOCH_MAX:
            return epoch
        return (epoch // EPOCH_BLOCK + 1) * EPOCH_BLOCK + self.random_below(EPOCH_BLOCK)
