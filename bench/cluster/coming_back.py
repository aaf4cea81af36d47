"""A follower catches up after an outage while a producer continues."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from barnabas import Producer
from bench.cluster.report import Figure
from bench.cluster.stage import MeasuredCluster, Sizes, in_sync_as, spread
from bench.peers.server import folder_bytes

TOPIC = "coming-back"
PARTITIONS = 6
VALUE_BYTES = 1_000
CALL_RECORDS = 100
STEADY_BYTES_PER_S = 30_000_000
BEFORE_S = 4.0


class SteadyProducer:
    """A producer that sends a fixed number of bytes per second, unless the brokers are too slow (acks=1)."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._producer = Producer(bootstrap, acks=1, buffer_memory=8 * 1024 * 1024)
        self._topic = topic
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)
        self.sent_bytes = 0

    def __enter__(self) -> Self:
        self._producer.partitions_for(self._topic)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.set()
        self._thread.join()
        self._producer.close()

    def _send(self) -> None:
        values = [bytes(VALUE_BYTES)] * CALL_RECORDS
        pause_s = VALUE_BYTES * CALL_RECORDS / STEADY_BYTES_PER_S
        due_s = time.monotonic()
        while not self._ending.wait(max(0.0, due_s - time.monotonic())):
            self._producer.send_many(self._topic, values)
            self.sent_bytes += VALUE_BYTES * CALL_RECORDS
            due_s = max(due_s, time.monotonic() - 1.0) + pause_s  # make up for delays of up to 1 s

    def rate_since(self, moment_s: float, sent_bytes: int) -> float:
        """Return the rate in bytes per second since a given time. `sent_bytes` is the number of bytes sent before that
        time."""
        return (self.sent_bytes - sent_bytes) / (time.monotonic() - moment_s)


def measure_catch_up(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Measure how fast a broker fetches gigabytes of missing records."""
    replicas = [*spread(PARTITIONS)]
    with MeasuredCluster(folder) as cluster:
        cluster.create_topic(TOPIC, replicas)
        follower = cluster.brokers[3]
        follower.stop()
        cluster.produce(TOPIC, round(sizes.gigabytes * 1e9 / VALUE_BYTES), VALUE_BYTES, mode="many")
        with SteadyProducer(cluster.bootstrap, TOPIC) as producer:
            begun_s, sent_bytes = time.monotonic(), producer.sent_bytes
            time.sleep(BEFORE_S)
            rate_before = producer.rate_since(begun_s, sent_bytes)
            had_bytes = folder_bytes(follower.data, "*.log")
            follower.__enter__()
            cpu_s = follower.cpu_s
            begun_s, sent_bytes = time.monotonic(), producer.sent_bytes
            seconds = cluster.wait_for(TOPIC, in_sync_as(replicas), [1]) - begun_s
            rate_meanwhile = producer.rate_since(begun_s, sent_bytes)
            cpu_s = follower.cpu_s - cpu_s
            got_bytes = folder_bytes(follower.data, "*.log") - had_bytes
    what = f"follower catches up {sizes.gigabytes:g} GB"
    yield Figure(f"{what}: all of it in sync again after", seconds, "s")
    yield Figure(f"{what}: MB a second", got_bytes / seconds / 1e6, "MB/s", "300 MB/s")
    yield Figure(
        f"{what}: a producer of {STEADY_BYTES_PER_S / 1e6:g} MB/s keeps",
        rate_meanwhile / rate_before * 100,
        "%",
        "90 %",
    )
    yield Figure(f"{what}: CPU of the follower a GB", cpu_s / got_bytes * 1e9, "s")
