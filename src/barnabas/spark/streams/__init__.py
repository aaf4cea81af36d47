"""What is asked of events by their time: functions from DataFrame to DataFrame, the same for tables and for streams.

    from barnabas.spark.streams import count_windows

    count_windows(clicks, "10 minutes", by="page", time="event_time", late="1 hour")

`clicks` may be a table, a topic read once, or a topic read for ever (`readStream`). A stream has to be told when a
window is complete, as events come late: `late` says by how much at most. It becomes Spark's watermark. A window of a
stream comes out once, when it is complete; an event that comes later still is left out. For what is no stream `late`
says nothing, as all events are there.

docs/how-to/streams.md has a picture of each function.
"""

from __future__ import annotations

from barnabas.extras import naming_extra

with naming_extra("spark"):
    from barnabas.spark.streams.deduplication import drop_repeats
    from barnabas.spark.streams.durations import Duration
    from barnabas.spark.streams.joins import enrich, join_within
    from barnabas.spark.streams.windows import count_sessions, count_windows, top_k

__all__ = ["Duration", "count_sessions", "count_windows", "drop_repeats", "enrich", "join_within", "top_k"]
