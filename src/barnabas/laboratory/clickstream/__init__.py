"""A web site's activity, made up: who saw, clicked, shared and followed what. Pure; the same seed gives the same bytes.

    stream = ClickStream(ClickSettings(seed=7, start_ms=1_767_225_600_000, events_per_s=100))
    for batch in stream.batches(1_000_000):
        producer.send_arrow("clicks", batch, key="key", timestamp="timestamp")
    stream.truth.to_json()      # what reports on these events have to find

Needs the extra `activity` (numpy, pyarrow). `world.py` says who there is, `sessions.py` what they do, `records.py` what
that looks like in the log, `clicks.py` in which order it arrives, and `truth.py` what was really the case.
"""

from __future__ import annotations
