"""`barnabas load --every`: table maintenance between the rounds of a repeated load.

Maintenance runs in the same process between two rounds, so it never conflicts with these loads. A failure is reported
and retried at the next interval.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from barnabas.clock import Clock

if TYPE_CHECKING:
    from barnabas.spark.table_place import TablePlace
    from barnabas.spark.table_store import Maintained

MERGED_BYTES_MAX = 128 * 1024 * 1024
"""The largest merged file in bytes. A merge keeps all rows of a new file in memory, which are several times as large,
in the process that also loads."""
FIRST_SHARE = 6
"""The first maintenance comes after this part of the interval, so that a process that restarts often maintains, too."""
Outcome = tuple[str, "Maintained | Exception"]
"""A table name, and the result or the error of its maintenance."""


class MaintenanceRounds:
    """Runs maintenance at an interval. Not thread-safe.

    :param maintain: maintains all tables; yields the outcome of each.
    """

    def __init__(self, maintain: Callable[[], Iterable[Outcome]], interval_s: float, clock: Clock) -> None:
        self._maintain = maintain
        self._interval_s = interval_s
        self._clock = clock
        self._due = clock.monotonic() + interval_s / FIRST_SHARE

    def run_if_due(self) -> Iterator[Outcome]:
        """Run the maintenance if it is due: a sixth of the interval after the creation of this object, and an interval
        after the start of the last run.
        """
        now = self._clock.monotonic()
        if now >= self._due:
            self._due = now + self._interval_s
            yield from self._maintain()


def maintained(place: TablePlace, names: Iterable[str]) -> Iterator[Outcome]:
    """Maintain the existing tables; the failure of one does not stop the others."""
    from barnabas.clock import SYSTEM_CLOCK
    from barnabas.spark.table_formats import format_of, open_place
    from barnabas.spark.table_store import SMALL_FILE_BYTES, maintain

    for name in names:
        try:
            store = open_place(place)
            base = store.begin(name)
            if base.exists:
                target = min(base.target_file_bytes, MERGED_BYTES_MAX)
                maintainer = format_of(place).maintainer(store, name, SYSTEM_CLOCK)
                small = min(SMALL_FILE_BYTES, target)
                yield base.name, maintain(maintainer, target_bytes=target, small_bytes=small)
        except Exception as error:  # noqa: BLE001  # the caller reports it; the next table follows
            yield name, error
