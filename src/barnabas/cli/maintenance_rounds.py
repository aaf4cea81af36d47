"""`barnabas load --every ... --maintain-every 1h`: maintenance between the rounds of a load that goes on.

It runs in the same process and between two rounds, so it never competes with the loads that it is part of. What fails
is told, and tried again when it is due next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from barnabas.clock import Clock

if TYPE_CHECKING:
    from barnabas.spark.table_place import TablePlace
    from barnabas.spark.table_store import Maintained

Outcome = tuple[str, "Maintained | Exception"]
"""A table, and what was done to it, or why it was not."""


class MaintenanceRounds:
    """Says when maintenance is due, and does it. Not thread-safe.

    :param maintain: maintains all tables, and yields what became of each.
    """

    def __init__(self, maintain: Callable[[], Iterable[Outcome]], interval_s: float, clock: Clock) -> None:
        self._maintain = maintain
        self._interval_s = interval_s
        self._clock = clock
        self._last = clock.monotonic()

    def run_if_due(self) -> Iterator[Outcome]:
        """Maintain where it is an interval since the last time, or since this was made."""
        if self._clock.monotonic() - self._last >= self._interval_s:
            self._last = self._clock.monotonic()
            yield from self._maintain()


def maintained(place: TablePlace, names: Iterable[str]) -> Iterator[Outcome]:
    """Maintain the tables that there are, whatever the others end with."""
    from barnabas.clock import SYSTEM_CLOCK
    from barnabas.spark.table_formats import format_of, open_place
    from barnabas.spark.table_store import SMALL_FILE_BYTES, maintain

    for name in names:
        try:
            store = open_place(place)
            base = store.begin(name)
            if base.exists:
                target = base.target_file_bytes
                maintainer = format_of(place).maintainer(store, name, SYSTEM_CLOCK)
                small = min(SMALL_FILE_BYTES, target)
                yield base.name, maintain(maintainer, target_bytes=target, small_bytes=small)
        except Exception as error:  # noqa: BLE001  # whatever it is, it is told, and the other tables are maintained
            yield name, error
