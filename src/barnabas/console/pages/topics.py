"""The list of topics."""

from __future__ import annotations

from starlette.responses import Response

from barnabas.console.context import Context
from barnabas.console.pages.listing import listing

KEYS = {
    "name": lambda row: row.name,
    "partitions": lambda row: row.partitions,
    "replicas": lambda row: row.replicas,
    "records": lambda row: row.records,
    "size": lambda row: row.size,
    "rate": lambda row: row.rate,
    "problems": lambda row: row.offline + row.under_replicated,
}


async def topics(context: Context) -> Response:
    """Show the topics; a script gets only the table."""
    rows = listing(context, await context.view.rows(), lambda row: row.name, KEYS)
    return context.page("_topics.html" if context.is_partial else "topics.html", title="Topics", list=rows)
