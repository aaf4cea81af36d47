"""Synthetic changes of a database table, as a change-data-capture connector sends them, with the final rows.

    stream = OrderStream(OrderSettings(seed=7, orders=1_000))
    for batch in stream.batches(100_000):
        producer.send_arrow("orders", batch, value="value", key="key", timestamp="timestamp")
    stream.truth.rows()         # the rows that the table has after these changes

The package does no I/O and needs the extra `activity` (numpy, pyarrow). `order_table.py` contains the table and its
changes; `envelopes.py` the records of a change; `delivery.py` repeated and late changes; `final_rows.py` the expected
rows; `order_stream.py` joins these parts.
"""

from __future__ import annotations
