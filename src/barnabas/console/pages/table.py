"""The table of a topic: its snapshots, and the files of one snapshot."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.responses import Response

from barnabas.console.context import Context
from barnabas.console.pages.completeness import topic_of
from barnabas.console.pages.fields import whole_number
from barnabas.console.tables import TableSnapshot

SNAPSHOTS_PER_PAGE = 50
FILES_PER_PAGE = 200
PAGES_MAX = 1_000_000
RANGES_SHOWN_MAX = 100


@dataclass(frozen=True, slots=True)
class LoadedRange:
    """Offsets that a load has added to a table.

    :ivar link: the page of these records.
    """

    text: str
    link: str


@dataclass(frozen=True, slots=True)
class Paging:
    """The links to the pages before and after one page."""

    page: int
    page_count: int
    path: str
    query: Mapping[str, object]

    def link(self, page: int) -> str:
        return f"{self.path}?{urlencode({**self.query, 'page': page})}"


async def snapshots(context: Context) -> Response:
    """Show the snapshots of a topic's table, the newest first."""
    name = await topic_of(context)
    page = _page(context)
    found = await context.tables.snapshots(name, (page - 1) * SNAPSHOTS_PER_PAGE, SNAPSHOTS_PER_PAGE)
    if found is None:
        raise HTTPException(404, f"the warehouse has no table of topic {name}")
    return context.page(
        "snapshots.html",
        title=f"Snapshots of the table of {name}",
        topic=name,
        total=found.total,
        rows=[(each, *loaded_ranges(name, each)) for each in found.snapshots],
        paging=_paging(page, found.total, SNAPSHOTS_PER_PAGE, "/table", {"topic": name}),
    )


async def files(context: Context) -> Response:
    """Show the files of a snapshot."""
    name = await topic_of(context)
    page = _page(context)
    snapshot = whole_number(context.query("snapshot"), "snapshot", digits_max=19)
    found = await context.tables.files(name, snapshot, (page - 1) * FILES_PER_PAGE, FILES_PER_PAGE)
    if found is None:
        raise HTTPException(404, f"the warehouse has no table of topic {name}")
    return context.page(
        "files.html",
        title=f"Files of snapshot {snapshot}",
        topic=name,
        total=found.total,
        rows=found.files,
        paging=_paging(page, found.total, FILES_PER_PAGE, "/table/files", {"topic": name, "snapshot": snapshot}),
    )


def _page(context: Context) -> int:
    return min(max(whole_number(context.query("page", "1"), "page"), 1), PAGES_MAX)


def _paging(page: int, total: int, per_page: int, path: str, query: Mapping[str, object]) -> Paging:
    return Paging(page, max(1, -(-total // per_page)), path, query)


def loaded_ranges(topic: str, snapshot: TableSnapshot) -> tuple[Sequence[LoadedRange], int]:
    """Return the offsets that a snapshot has added, and the number of further ranges.

    A table may hold several topics: ranges of other topics are named after them.
    """
    found = [
        _range(topic, name, partition, *offsets)
        for name, ranges in sorted(snapshot.loaded.items())
        for partition, offsets in sorted(ranges.items())
    ]
    return found[:RANGES_SHOWN_MAX], len(found) - len(found[:RANGES_SHOWN_MAX])


def _range(topic: str, name: str, partition: int, first: int, end: int) -> LoadedRange:
    query = {"topic": name, "partition": partition, "from": "offset", "offset": first}
    prefix = f"{partition}: " if name == topic else f"{name}-{partition}: "
    return LoadedRange(f"{prefix}{first} to {end - 1}", "/records?" + urlencode(query))
