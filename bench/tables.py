"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int) -> Iterator[str]:
    """Yield the lines of a Markdown table. The first `left` columns are left-aligned; the other columns are
    right-aligned figures.

    >>> list(table(["a", "b"], [["x", "1"]], left=1))
    ['| a | b |', '|---|---:|', '| x | 1 |']
    """
    yield f"| {' | '.join(header)} |"
    yield "|" + "|".join("---" if number < left else "---:" for number in range(len(header))) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
