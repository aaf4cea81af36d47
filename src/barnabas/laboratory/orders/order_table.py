"""The table of orders: a seeded series of inserts, updates and deletes.

An order is new, paid, packed, shipped and delivered, or cancelled. Newer orders change more often than older ones. Some
orders are deleted, and some deleted orders are inserted again under the same id. From `schema_change` on, each written
row has two more columns.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from barnabas.errors import ConfigurationError

Operation = Literal["read", "insert", "update", "delete"]
Row = dict[str, int | float | str | None]

COLUMNS = ("id", "customer", "status", "amount", "note", "created_at", "updated_at")
LATER_COLUMNS = ("channel", "priority")
"""The columns that the schema change adds."""
STATUSES = ("new", "paid", "packed", "shipped", "delivered", "cancelled")
ORDERS_MAX = 2_000_000
_CHANNELS = ("web", "shop", "phone")
_NOTES = (None, None, "", "gift", "leave at the door", 'call "Zoë" first', "naïve; 東京 ✓", "back\\slash\tand tab")
_ORDERS_PER_CUSTOMER = 5
_UNTIL_FULL = 0.5
"""The share of inserts while the table grows."""
_DELETES, _RESTORES, _AMOUNTS, _NEW_NOTES = 0.08, 0.3, 0.2, 0.1
_RESTORABLE_MAX = 1_000


@dataclass(frozen=True, slots=True)
class OrderSettings:
    """The settings of a table of orders.

    :param start_ms: the time of the first change, in milliseconds since the epoch.
    :param changes_per_s: the average number of changes per second of their times.
    :param orders: the number of rows that the table grows to.
    :param existing: the number of rows before the first change. A connector sends them as `read` first.
    :param schema_change: the number of changes after which rows get the columns `LATER_COLUMNS`; None for never.
    """

    seed: int = 0
    start_ms: int = 1_767_225_600_000
    changes_per_s: float = 12.0
    orders: int = 10_000
    existing: int = 100
    schema_change: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.orders <= ORDERS_MAX:
            raise ConfigurationError(f"orders: {self.orders:,} is not from 1 to {ORDERS_MAX:,}")
        if not 0 <= self.existing <= self.orders:
            raise ConfigurationError(f"existing orders: {self.existing:,} is not from 0 to {self.orders:,}")
        if not 0.001 <= self.changes_per_s <= 10_000_000:
            raise ConfigurationError(f"changes per second: {self.changes_per_s} is not from 0.001 to 10,000,000")
        if self.seed < 0:
            raise ConfigurationError(f"seed: {self.seed} is negative")
        if not 0 <= self.start_ms <= 253_000_000_000_000:
            raise ConfigurationError(f"start: {self.start_ms} ms is not in the years 1970 to 9987")
        if self.schema_change is not None and self.schema_change < 0:
            raise ConfigurationError(f"schema change: {self.schema_change} is negative")


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one row.

    :param number: the position in the database's log: each change has a larger number than the changes before it.
    :param time_ms: the time of the change. Changes of one order have different times in the order of their numbers.
    :param before: the row before the change; None for an insert and a read.
    :param after: the row after the change; None for a delete.
    """

    number: int
    time_ms: int
    operation: Operation
    order_id: int
    before: Row | None
    after: Row | None


def changes(settings: OrderSettings) -> Iterator[Change]:
    """Yield the changes of the table without an end, in the order in which the database makes them."""
    # `Random.random` returns the same numbers in all versions of Python; other methods do not promise this.
    draw = random.Random(settings.seed).random
    live: list[int] = []
    rows: dict[int, Row] = {}
    deleted: list[tuple[int, int]] = []
    next_id, number = 1, 0
    while True:
        time_ms = settings.start_ms + int(number * 1000 / settings.changes_per_s)
        has_later_columns = settings.schema_change is not None and number >= settings.schema_change
        number += 1
        chance = draw()
        is_read = number <= settings.existing
        is_short = len(live) < settings.orders
        if is_read or not live or (is_short and chance < _UNTIL_FULL):
            if deleted and not is_read and draw() < _RESTORES:
                order_id, deleted_ms = deleted.pop(int(draw() * len(deleted)))
                time_ms = max(time_ms, deleted_ms + 1)
            else:
                order_id, next_id = next_id, next_id + 1
            row = _new_row(draw, order_id, time_ms, settings.orders)
            if has_later_columns:
                row |= _later_values(draw)
            live.append(order_id)
            rows[order_id] = row
            yield Change(number, time_ms, "read" if is_read else "insert", order_id, None, row)
            continue
        place = int(len(live) * (1 - draw() ** 2))  # newer orders change more often
        place = min(place, len(live) - 1)
        order_id = live[place]
        before = rows[order_id]
        if has_later_columns and LATER_COLUMNS[0] not in before:
            before = before | dict.fromkeys(LATER_COLUMNS)
        changed_ms = before["updated_at"]
        assert isinstance(changed_ms, int), "each row has the time of its last change"
        time_ms = max(time_ms, changed_ms + 1)
        if draw() < _DELETES:
            live[place] = live[-1]
            live.pop()
            del rows[order_id]
            if len(deleted) < _RESTORABLE_MAX:
                deleted.append((order_id, time_ms))
            yield Change(number, time_ms, "delete", order_id, before, None)
            continue
        after = before | _changed_values(draw, time_ms)
        if has_later_columns:
            after |= _later_values(draw)
        rows[order_id] = after
        yield Change(number, time_ms, "update", order_id, before, after)


def _new_row(draw: Callable[[], float], order_id: int, time_ms: int, orders: int) -> Row:
    return {
        "id": order_id,
        "customer": 1 + int(draw() * max(1, orders // _ORDERS_PER_CUSTOMER)),
        "status": STATUSES[0],
        "amount": round(draw() * 500, 2),
        "note": _NOTES[int(draw() * len(_NOTES))],
        "created_at": time_ms,
        "updated_at": time_ms,
    }


def _changed_values(draw: Callable[[], float], time_ms: int) -> Row:
    changed: Row = {"status": STATUSES[1 + int(draw() * (len(STATUSES) - 1))], "updated_at": time_ms}
    if draw() < _AMOUNTS:
        changed["amount"] = round(draw() * 500, 2)
    if draw() < _NEW_NOTES:
        changed["note"] = _NOTES[int(draw() * len(_NOTES))]
    return changed


def _later_values(draw: Callable[[], float]) -> Row:
    return {"channel": _CHANNELS[int(draw() * len(_CHANNELS))], "priority": int(draw() * 4) or None}
