"""Scenarios with scrapes of metrics. They measure the effect on other clients, the duration of scrapes, and the memory
use afterwards."""

from __future__ import annotations

import statistics
import time
from functools import partial

from barnabas.metrics.exposition import SNAPSHOT_AGE_S_MAX
from barnabas.net.free_port import lasting_ports
from bench.scraper import scrape
from bench.stalls.stage import Act, Scenario, Stage

PARTITIONS_PER_TOPIC = 100
WARM_SCRAPES = 3
"""The number of warm-up scrapes. After these scrapes, the broker has allocated the memory that a scrape needs."""
RENDERED_SCRAPES = 1_000


def _scrape(stage: Stage, topics: int, scrapes: int, pause_s: float, warm: int = WARM_SCRAPES) -> Act:
    if topics:
        stage.create_topics([f"topic-{number}" for number in range(topics)], PARTITIONS_PER_TOPIC)
    (port,) = lasting_ports("127.0.0.1", 1)
    with stage.stopped():
        stage.broker.more_arguments = ("--http", str(port))
    return lambda: _measure(stage, port, scrapes, pause_s, warm)


def _measure(stage: Stage, port: int, scrapes: int, pause_s: float, warm: int) -> str:
    times_s: list[float] = []
    warm_mib = size = 0.0
    for number in range(scrapes):
        begun_s = time.perf_counter()
        size = len(scrape(port))
        times_s.append(time.perf_counter() - begun_s)
        if number == warm:
            warm_mib = stage.broker.memory_mib
        time.sleep(pause_s)
    grown_mib = stage.broker.memory_mib - warm_mib
    took_ms = statistics.median(times_s) * 1000
    return f"{scrapes} scrapes of {size / 1e6:.2f} MB in {took_ms:.0f} ms; memory {grown_mib:+.1f} MiB"


SCENARIOS = (
    Scenario(
        "scrape-10000",
        "10 scrapes of a broker with 10,000 partitions",
        partial(_scrape, topics=10_000 // PARTITIONS_PER_TOPIC, scrapes=10, pause_s=SNAPSHOT_AGE_S_MAX),
    ),
    Scenario(
        "scrape-often",
        "1,000 scrapes, one after the other",
        partial(_scrape, topics=0, scrapes=1_000, pause_s=0.0),
    ),
    Scenario(
        "scrape-rendered",
        "1,100 scrapes of 200 partitions, each rendered; memory since the 100th",
        partial(_scrape, topics=2, scrapes=RENDERED_SCRAPES + 100, pause_s=0.0, warm=100),
        program=("-m", "bench.stalls.no_snapshot_age"),
    ),
)
