"""The source of random numbers and random ids of a broker."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.coordination.values import BROKER_EPOCH_MAX

EPOCH_BLOCK = 2**12
"""The number of leader epochs in a block. Each election chooses a random epoch from the next block."""

LEAPING_EPOCH_MAX = 2**30
"""The leader epoch from which on elections no longer skip to the next block, so that the 31 bits of an epoch suffice.
"""


@dataclass(frozen=True, slots=True)
class RandomSource:
    """The source of random numbers and ids. By default, they come from the operating system.

    :param random_below: returns a random number from 0 to its argument, exclusive.
    :param new_id: returns a new UUID.
    :param random_bytes: returns this many random bytes, for nonces and secrets.
    """

    random_below: Callable[[int], int] = secrets.randbelow
    new_id: Callable[[], uuid.UUID] = uuid.uuid4
    random_bytes: Callable[[int], bytes] = secrets.token_bytes

    def new_broker_epoch(self) -> int:
        """Return a broker epoch that no client can guess: a random positive number of 63 bits."""
        return 1 + self.random_below(BROKER_EPOCH_MAX)

    def later_epoch(self, epoch: int) -> int:
        """Return a random leader epoch from the block after the given epoch.

        After a restore from a backup, the metadata store may be older than the logs, and replicas may have records with
        later leader epochs. Random epochs make it unlikely that two histories use the same leader epoch. The history
        with more elections has the later epoch, so `barnabas.replication.unclean_recovery.doubt` can identify it.

        >>> RandomSource(lambda _: 7).later_epoch(5), RandomSource(lambda _: 0).later_epoch(4103)
        (4103, 8192)
        """
        if epoch >= LEAPING_EPOCH_MAX:
            return epoch
        return (epoch // EPOCH_BLOCK + 1) * EPOCH_BLOCK + self.random_below(EPOCH_BLOCK)
