"""The rows that the table has after the changes that a stream has yielded: the expected content of a loaded table."""

from __future__ import annotations

from collections import deque

import pyarrow as pa

from barnabas.laboratory.orders.delivery import LATE_CHANGES_MAX
from barnabas.laboratory.orders.order_table import COLUMNS, LATER_COLUMNS, Change, Row

_TYPES = {
    "status": pa.string(),
    "amount": pa.float64(),
    "note": pa.string(),
    "channel": pa.string(),
}


class FinalRows:
    """The newest row of each order, by the number of the change. Repeated and late changes have no effect."""

    def __init__(self) -> None:
        self.changes = 0
        self.has_later_columns = False
        self._newest: dict[int, tuple[int, Row | None]] = {}
        self._deleted: deque[tuple[int, int]] = deque()
        self._number = 0

    def add(self, change: Change) -> None:
        self.changes += 1
        known = self._newest.get(change.order_id)
        if known is not None and known[0] >= change.number:
            return
        self._newest[change.order_id] = change.number, change.after
        self._number = max(self._number, change.number)
        if change.after is None:
            self._deleted.append((change.number, change.order_id))
        elif LATER_COLUMNS[0] in change.after:
            self.has_later_columns = True
        self._forget_deleted()

    def _forget_deleted(self) -> None:
        """Forget deleted orders when no late or repeated change of them can arrive any more."""
        while self._deleted and self._deleted[0][0] + 2 * LATE_CHANGES_MAX < self._number:
            number, order_id = self._deleted.popleft()
            if self._newest.get(order_id) == (number, None):
                del self._newest[order_id]

    def rows(self) -> list[Row]:
        """Return the rows by id. Columns that a row was written without are None."""
        names = self.column_names
        ids = sorted(self._newest)
        return [{name: row.get(name) for name in names} for row in (self._newest[each][1] for each in ids) if row]

    def table(self) -> pa.Table:
        """Return the rows as an Arrow table."""
        schema = pa.schema([(name, _TYPES.get(name, pa.int64())) for name in self.column_names])
        return pa.Table.from_pylist(self.rows(), schema)

    @property
    def column_names(self) -> tuple[str, ...]:
        return (*COLUMNS, *LATER_COLUMNS) if self.has_later_columns else COLUMNS
