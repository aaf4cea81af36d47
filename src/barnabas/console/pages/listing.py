"""Lists that the user filters and sorts, in pages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import urlencode

from barnabas.console.context import Context

T = TypeVar("T")
ROWS_PER_PAGE = 200


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """One page of a list.

    :ivar total: the number of rows that match the filter.
    """

    rows: Sequence[T]
    total: int
    filter: str
    sort: str
    descends: bool
    page: int

    @property
    def page_count(self) -> int:
        return max(1, -(-self.total // ROWS_PER_PAGE))

    def link(self, **changes: Any) -> str:
        """Return the query of this list with changes."""
        values = {"filter": self.filter, "sort": self.sort, "order": "desc" if self.descends else "asc", "page": 1}
        return "?" + urlencode({**values, **changes})

    def sorted_by(self, name: str) -> str:
        """Return the query of this list, sorted by a column; in the other direction if it is sorted by it already."""
        descends = not self.descends if name == self.sort else name != "name"
        return self.link(sort=name, order="desc" if descends else "asc")

    def order_of(self, name: str) -> str:
        """Return the value of `aria-sort` of a column."""
        if name != self.sort:
            return "none"
        return "descending" if self.descends else "ascending"


def listing(
    context: Context,
    rows: Sequence[T],
    name_of: Callable[[T], str],
    keys: Mapping[str, Callable[[T], Any]],
    sort: str = "name",
) -> Listing[T]:
    """Return the page of a list that the query of a request asks for.

    :param name_of: returns the text that the filter must occur in.
    :param keys: the columns by which the list can be sorted; unknown values come last.
    :param sort: the column by which the list is sorted first: `name` ascending, another one descending.
    """
    wanted = context.query("filter")[:200]
    default = sort
    sort = context.query("sort", default)
    if sort not in keys:
        sort = default
    descends = context.query("order", "asc" if sort == "name" else "desc") == "desc"
    found = [row for row in rows if wanted.lower() in name_of(row).lower()]
    key = keys[sort]
    known = [row for row in found if key(row) is not None]
    known.sort(key=key, reverse=descends)
    found = known + [row for row in found if key(row) is None]
    number = context.query("page", "1")
    page = max(1, int(number)) if number.isdecimal() and len(number) < 7 else 1
    start = (page - 1) * ROWS_PER_PAGE
    return Listing(found[start : start + ROWS_PER_PAGE], len(found), wanted, sort, descends, page)
