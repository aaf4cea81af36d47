"""The list of consumer groups."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.responses import Response

from barnabas.console.context import Context
from barnabas.console.pages.listing import listing


@dataclass(frozen=True, slots=True)
class GroupRow:
    """A group in the list."""

    name: str
    state: str
    kind: str
    lag: float | None
    lag_rate: float | None


KEYS = {
    "name": lambda row: row.name,
    "state": lambda row: row.state,
    "lag": lambda row: row.lag,
    "change": lambda row: row.lag_rate,
}


async def groups(context: Context) -> Response:
    """Show the groups; a script gets only the table."""
    lags = context.view.lags
    rows = [
        GroupRow(
            each.group, each.state, each.type or each.protocol_type, lags.newest(each.group), lags.rate(each.group)
        )
        for each in await context.view.groups()
    ]
    found = listing(context, rows, lambda row: row.name, KEYS)
    return context.page(
        "_groups.html" if context.is_partial else "groups.html",
        title="Groups",
        list=found,
        groups_problem=context.view.groups_problem,
    )
