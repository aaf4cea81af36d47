"""Random numbers and ids, as an argument."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.coordination.values import BROKER_EPOCH_MAX


@dataclass(frozen=True, slots=True)
class Chance:
    """The operating system's, unless another one is given.

    :param random_below: returns a random number from 0 to its argument, exclusive.
    """

    random_below: Callable[[int], int] = secrets.randbelow
    new_id: Callable[[], uuid.UUID] = uuid.uuid4

    def new_broker_epoch(self) -> int:
        """Return a broker epoch that no client can guess: a positive number of 63 bits."""
        return 1 + self.random_below(BROKER_EPOCH_MAX)
