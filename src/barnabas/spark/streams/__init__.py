"""Functions on events by their time, from DataFrame to DataFrame, for tables and streams.

    from barnabas.spark.streams import count_windows

    count_windows(clicks, "10 minutes", by="page", time="event_time", late="1 hour")

`clicks` may be a table, a topic read once, or a stream (`readStream`). Events may arrive late, so a stream needs
`late`, the largest delay of an event. It becomes Spark's watermark. A stream emits a window once, when it is complete,
and drops events that arrive later. `late` has no effect without a stream, because all events are present.

`merge_into` merges a stream of changes into a table, in `foreachBatch`.

docs/how-to/streams.md has a picture of each function.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.extras import naming_extra
from barnabas.spark.extras import require

with naming_extra("spark"):
    from barnabas.spark.streams.deduplication import drop_repeats
    from barnabas.spark.streams.durations import Duration
    from barnabas.spark.streams.joins import enrich, join_within
    from barnabas.spark.streams.windows import count_sessions, count_windows, top_k

if TYPE_CHECKING:
    from barnabas.spark.batch_merge import merge_into

__all__ = [
    "Duration",
    "count_sessions",
    "count_windows",
    "drop_repeats",
    "enrich",
    "join_within",
    "merge_into",
    "top_k",
]


def __getattr__(name: str) -> Any:
    """Import `merge_into` when it is first used, because it imports pyiceberg."""
    if name != "merge_into":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return require("barnabas.spark.batch_merge").merge_into
