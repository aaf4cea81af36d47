"""Synthetic events of a web site: impressions, clicks, shares, follows. Pure; the same seed gives the same bytes.

    stream = ClickStream(ClickSettings(seed=7, start_ms=1_767_225_600_000, events_per_s=100))
    for batch in stream.batches(1_000_000):
        producer.send_arrow("clicks", batch, key="key", timestamp="timestamp")
    stream.truth.to_json()      # what reports on these events have to find

Needs the extra `activity` (numpy, pyarrow). `site_model.py` has the members, bots and items of the site, `sessions.py`
their events, `records.py` the records of the events, `click_stream.py` the order of arrival, and `ground_truth.py` the
true figures.
"""

from __future__ import annotations
