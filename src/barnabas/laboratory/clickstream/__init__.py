"""Synthetic events of a web site: impressions, clicks, shares, follows. The same seed always yields the same bytes.

    stream = ClickStream(ClickSettings(seed=7, start_ms=1_767_225_600_000, events_per_s=100))
    for batch in stream.batches(1_000_000):
        producer.send_arrow("clicks", batch, key="key", timestamp="timestamp")
    stream.truth.to_json()      # the expected figures of reports on these events

The package does no I/O and needs the extra `activity` (numpy, pyarrow). `site_model.py` contains the members, bots and
items of the site; `sessions.py` their events; `records.py` the records of the events; `click_stream.py` the order of
arrival; `ground_truth.py` the expected figures.
"""

from __future__ import annotations
