"""Reports on text logs, from the table: statuses and pages of an access log, the kinds of lines of any other.

Values are bytes and need not be UTF-8. Spark looks at them as Latin-1, where every byte is a letter; what is
shown is turned back and read as UTF-8 as far as it goes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.columns import Columns
from rich.markup import escape
from rich.table import Table

from demo.loaded_run import LoadedRun, Report
from demo.log_picture import draw_access_log, draw_kinds_of_lines

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOP = 10
SHOWN_LENGTH_MAX = 100

# As in access_log.py. The loop over the quoted part is unrolled: Java's regular expressions recurse otherwise.
_REQUEST = r'\] "([^"\\\\]*(?:\\\\.[^"\\\\]*)*)" (\\d{3}) '
_ACCESS_COLUMNS = (
    "timestamp",
    f"regexp_extract(line, '{_REQUEST}', 2) AS status",
    f"regexp_extract(regexp_extract(line, '{_REQUEST}', 1), '^(?:\\\\S+ )?([^ ?]*)', 1) AS page",
)


def report_access_log(spark: SparkSession, loaded: LoadedRun) -> Report:
    """Count the statuses and the most wanted pages."""
    requests = _lines(spark, loaded).selectExpr(*_ACCESS_COLUMNS).cache()
    statuses = _counts(requests.groupBy("status").count(), "status")
    pages = _counts(requests.where("page != ''").groupBy("page").count(), "page", TOP)
    hourly = (
        requests.selectExpr("date_trunc('HOUR', timestamp) AS hour", "substr(status, 1, 1) AS class")
        .groupBy("hour", "class")
        .count()
        .collect()
    )
    requests.unpersist()
    statuses = [(status or "no request", count) for status, count in statuses]
    picture = loaded.picture(loaded.table.partition(".")[2])
    draw_access_log(picture, [(row["hour"], row["class"], row["count"]) for row in hourly], pages)
    content = Columns([_table("Statuses", "status", statuses), _table("Top pages", "page", pages)], padding=(0, 4))
    return Report(content, picture)


def report_lines(spark: SparkSession, loaded: LoadedRun) -> Report:
    """Count the kinds of lines: what a line is when its numbers do not matter."""
    lines = _lines(spark, loaded)
    kinds = _counts(
        lines.selectExpr("regexp_replace(line, '[0-9]+', '#') AS kind").groupBy("kind").count(), "kind", TOP
    )
    picture = loaded.picture(loaded.table.partition(".")[2])
    draw_kinds_of_lines(picture, lines.count(), kinds)
    return Report(_table("Most frequent kinds of lines (# is any number)", "line", kinds), picture)


def _lines(spark: SparkSession, loaded: LoadedRun) -> DataFrame:
    return loaded.frame(spark).selectExpr("timestamp", "decode(value, 'ISO-8859-1') AS line")


def _counts(counted: DataFrame, name: str, top: int | None = None) -> list[tuple[str, int]]:
    ordered = counted.orderBy("count", name, ascending=[False, True])
    rows = (ordered.limit(top) if top else ordered).collect()
    return [(readable(row[name]), row["count"]) for row in rows]


def readable(latin: str) -> str:
    r"""Return the text that bytes read as Latin-1 stand for.

    >>> readable("caf\u00c3\u00a9"), readable("\u00ff!")
    ('café', '\ufffd!')
    """
    return latin.encode("latin-1").decode("utf-8", "replace")


def _table(title: str, name: str, counts: Sequence[tuple[str, int]]) -> Table:
    table = Table(title=title, title_style="bold", title_justify="left")
    table.add_column(name, overflow="ellipsis", no_wrap=True)
    table.add_column("count", justify="right")
    for text, count in counts:
        table.add_row(escape(text[:SHOWN_LENGTH_MAX]), f"{count:,}")
    return table
