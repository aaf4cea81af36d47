"""How long our producer waits before it sends, against a real broker: not at all for one, until it pays for many.

The figures are measured elsewhere. Here a producer that waits would wait for longer than the test does.
"""

from __future__ import annotations

import threading
import time

import barnabas
from barnabas.client.range_reader import RangeReader
from barnabas.records import iter_headers

LINGER_MS = 90_000
"""So long that only a producer that does not wait is done in time."""
IN_TIME_S = 60


def batch_counts(bootstrap, topic, partition, end):
    """Return how many records each batch of a partition holds, as it was sent."""
    with RangeReader(bootstrap, topic, partition, 0, end) as reader:
        return [header.record_count for data in reader for _, header in iter_headers(data)]


def test_a_lone_message_is_not_kept_waiting_for_others(broker):
    with barnabas.Producer(broker.bootstrap, acks=1, linger_ms=LINGER_MS, batch_size=1_048_576) as producer:
        producer.send("clicks", b"first").result(60)
        for _ in range(20):
            answered = threading.Event()
            producer.send("clicks", b"lone").add_done_callback(lambda _, answered=answered: answered.set())
            assert answered.wait(IN_TIME_S)


def test_without_acks_a_lone_message_is_not_kept_waiting_either(broker):
    with barnabas.Producer(broker.bootstrap, acks=0, linger_ms=LINGER_MS) as producer:
        producer.partitions_for("clicks")
        for number in range(5):
            producer.send("clicks", b"lone")
            wait_for_end(broker.bootstrap, "clicks", number + 1)


def wait_for_end(bootstrap, topic, offset, timeout_s=IN_TIME_S):
    deadline_s = time.monotonic() + timeout_s
    with barnabas.Admin(bootstrap) as admin:
        while admin.end_offsets([(topic, 0)])[topic, 0] < offset:
            assert time.monotonic() < deadline_s
            time.sleep(0.01)


def test_a_flood_makes_full_batches(broker):
    with barnabas.Producer(broker.bootstrap, acks=1, batch_size=16_384, linger_ms=LINGER_MS) as producer:
        producer.send("clicks", b"").result(60)
        for _ in range(100_000):
            producer.send("clicks", bytes(100))
        producer.flush(60)
    counts = batch_counts(broker.bootstrap, "clicks", 0, 100_001)
    assert sum(counts) == 100_001
    # All but those from before the flood was noticed, and the last one.
    assert len(counts) < 1.1 * 100_000 / (16_384 // 110)


def test_what_gathers_during_a_request_travels_together(broker):
    with barnabas.Admin(broker.bootstrap) as admin:
        admin.create_topic("clicks", partitions=1)
    with barnabas.Producer(broker.bootstrap, acks=1) as producer:
        producer.partitions_for("clicks")
        for _ in range(20):
            for _ in range(50):
                producer.send("clicks", b"v", partition=0)
            producer.flush(60)
    counts = batch_counts(broker.bootstrap, "clicks", 0, 1000)
    assert sum(counts) == 1000
    assert len(counts) < 200
