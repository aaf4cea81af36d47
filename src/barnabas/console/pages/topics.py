"""The topics: as a list, and as a tree by the parts of dotted names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from starlette.responses import Response

from barnabas.console.cluster_view import TopicRow
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
BRANCH_KEYS = {name: key for name, key in KEYS.items() if name != "replicas"} | {"topics": lambda row: row.topics}
PREFIX_CHARACTERS_MAX = 249


async def topics(context: Context) -> Response:
    """Show the topics as a list; a script gets only the table."""
    rows = listing(context, await context.view.rows(), lambda row: row.name, KEYS)
    return context.page(
        "_topics.html" if context.is_partial else "topics.html",
        title="Topics",
        list=rows,
        sizes_problem=context.view.sizes_problem,
    )


@dataclass(frozen=True, slots=True)
class Branch:
    """A topic, or all topics whose names begin with the same parts.

    :ivar prefix: the beginning of the names, with a dot at its end; empty for a single topic.
    """

    name: str
    prefix: str
    topics: int
    partitions: int
    under_replicated: int
    offline: int
    records: int | None
    size: int | None
    rate: float | None


async def tree(context: Context) -> Response:
    """Show the next parts of the names that begin with a prefix."""
    under = context.query("under")[:PREFIX_CHARACTERS_MAX]
    rows = listing(context, branches(await context.view.rows(), under), lambda row: row.name, BRANCH_KEYS)
    parts = under.split(".")[:-1]
    trail = [(part, ".".join(parts[: number + 1]) + ".") for number, part in enumerate(parts)]
    return context.page(
        "tree.html", title="Topics", list=rows, under=under, trail=trail, sizes_problem=context.view.sizes_problem
    )


def branches(rows: Iterable[TopicRow], under: str) -> list[Branch]:
    """Return the topics and the groups of topics directly below a prefix.

    :param under: the empty text, or a prefix with a dot at its end.
    """
    found: dict[str, list[TopicRow]] = {}
    for row in rows:
        if row.name.startswith(under):
            part, dot, _ = row.name[len(under) :].partition(".")
            found.setdefault(part + dot, []).append(row)
    return [_branch(under, part, of_part) for part, of_part in found.items()]


def _branch(under: str, part: str, rows: list[TopicRow]) -> Branch:
    return Branch(
        part,
        under + part if part.endswith(".") else "",
        len(rows),
        sum(row.partitions for row in rows),
        sum(row.under_replicated for row in rows),
        sum(row.offline for row in rows),
        _sum(row.records for row in rows),
        _sum(row.size for row in rows),
        _sum(row.rate for row in rows),
    )


def _sum(values: Iterable[float | None]) -> int | None:
    """Return the sum of the known values; None if there are none."""
    known = [each for each in values if each is not None]
    return sum(known) if known else None  # type: ignore[return-value]
