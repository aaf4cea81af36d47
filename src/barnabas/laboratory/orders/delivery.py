"""The order in which changes arrive: repeated after a restart of the connector, or later than newer changes."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

from barnabas.errors import ConfigurationError
from barnabas.laboratory.orders.order_table import Change

LATE_CHANGES_MAX = 5_000
"""The maximum number of later changes that a late change waits for."""
_HELD_MAX = 1_000
_REPLAYED_MAX = 20


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """The share of changes that arrive again, and the share of changes that arrive after the next one of their order.

    Repeated changes arrive as a connector sends them after a restart: the last changes again, up to the newest one. So
    the last record of each order is still the newest. With late changes it is not.
    """

    repeats: float = 0.0
    late: float = 0.0

    def __post_init__(self) -> None:
        for name, share in (("repeats", self.repeats), ("late", self.late)):
            if not 0 <= share <= 0.5:
                raise ConfigurationError(f"{name}: {share} is not a share from 0 to 0.5")


def delivered(changes: Iterator[Change], settings: DeliverySettings, seed: int) -> Iterator[list[Change]]:
    """Yield the changes in order of arrival, in groups. A group with repeated changes has all of them.

    :param changes: the changes in the order of the database. At their end, the late changes follow.
    """
    draw = random.Random(f"delivery {seed}").random
    held: dict[int, Change] = {}
    recent: deque[Change] = deque(maxlen=_REPLAYED_MAX)
    restarts = settings.repeats * 2 / (_REPLAYED_MAX + 1)
    for change in changes:
        due = _due(change, held)
        if change.order_id not in held and len(held) < _HELD_MAX and settings.late and draw() < settings.late:
            held[change.order_id] = change
            arrived = due
        else:
            late = held.pop(change.order_id, None)
            arrived = [*due, change] if late is None else [*due, change, late]
        recent.extend(arrived)
        if recent and restarts and draw() < restarts:
            count = 1 + int(draw() * _REPLAYED_MAX)
            arrived = [*arrived, *list(recent)[-count:]]
        if arrived:
            yield arrived
    if held:
        yield list(held.values())


def _due(newest: Change, held: dict[int, Change]) -> list[Change]:
    """Remove the changes that waited long enough, and return them."""
    due = []
    for order_id, change in held.items():
        if change.number + LATE_CHANGES_MAX > newest.number:
            break
        due.append(change)
        assert change.order_id == order_id, "a change is held under its order"
    for change in due:
        del held[change.order_id]
    return due
