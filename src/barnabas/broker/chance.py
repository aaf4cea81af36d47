"""Random numbers and ids, as an argument."""

from __future__ import annotations

import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Chance:
    """The operating system's, unless another one is given.

    :param random_below: returns a random number from 0 to its argument, exclusive.
    """

    random_below: Callable[[int], int] = secrets.randbelow
    new_id: Callable[[], uuid.UUID] = uuid.uuid4
