"""A broker stops: it is killed while it leads one or thousands of partitions, or shuts down cleanly."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from barnabas import Admin
from barnabas.client.admin.topics import PartitionDescription
from bench.cluster.pulse import Pulse
from bench.cluster.report import Figure
from bench.cluster.stage import LIMIT_S, SESSION_S, MeasuredCluster, Sizes, led_by_first, spread, wait_until
from bench.drivers.job import parse_report
from bench.processes import ClientError, RunningClient

TOPIC, LOAD_TOPIC = "going", "load"
BEFORE_S, AFTER_S = 2.0, 2.0
SHUTDOWN_PARTITIONS = 12
RATE = 2_000
LOAD_S = 15
SURVIVORS = (2, 3)
AFTER_KILLS = "beyond the session timeout"


def measure_leader(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Kill the leader of the partition that a client writes to."""
    del sizes
    with MeasuredCluster(folder) as cluster:
        cluster.create_topic(TOPIC, [*led_by_first(1)])
        with Pulse(cluster.bootstrap, TOPIC, [0]) as pulse:
            time.sleep(BEFORE_S)
            killed_s = time.monotonic()
            cluster.brokers[1].kill()
            wait_until(lambda: pulse.has_beaten_since(killed_s + 1))
            time.sleep(AFTER_S)
            # Ignore acknowledgements that were in flight when the leader was killed: they do not end the pause.
            pause_s = pulse.longest_pause_s(killed_s - BEFORE_S / 2, time.monotonic())
        yield Figure(f"leader killed: no acknowledged write, {AFTER_KILLS}", pause_s - SESSION_S, "s", "1 s")
        yield Figure("leader killed: errors that the producer saw", len(pulse.errors), "", "0")


def measure_leaderships(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Kill a broker that leads thousands of partitions."""
    count = sizes.leaderships
    with MeasuredCluster(folder) as cluster:
        begun_s = time.monotonic()
        cluster.create_topic(TOPIC, [*led_by_first(count)])
        yield Figure(f"{count:,} partitions: created, all replicas in sync", time.monotonic() - begun_s, "s")
        killed_s = time.monotonic()
        cluster.brokers[1].kill()
        time.sleep(SESSION_S - 1)  # send no requests earlier, because they would cost the brokers CPU time
        reported_s = cluster.wait_for(TOPIC, led_by_survivors, SURVIVORS)
        with Admin(cluster.brokers[2].bootstrap) as admin:  # each new leader must respond
            admin.end_offsets([(TOPIC, number) for number in range(count)])
        served_s = time.monotonic()
        what = f"broker with {count:,} leaderships killed"
        yield Figure(
            f"{what}: all led again, as both others report, {AFTER_KILLS}", reported_s - killed_s - SESSION_S, "s"
        )
        yield Figure(f"{what}: all leaders answer, {AFTER_KILLS}", served_s - killed_s - SESSION_S, "s", "2 s")


def led_by_survivors(partitions: Sequence[PartitionDescription]) -> bool:
    """Return whether the leader of each partition is a running broker."""
    return bool(partitions) and all(each.leader in SURVIVORS for each in partitions)


def measure_shutdown(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """Stop a broker while records arrive at a fixed rate and clients write to the partitions that it leads."""
    del sizes
    with MeasuredCluster(folder) as cluster:
        for topic in (TOPIC, LOAD_TOPIC):
            cluster.create_topic(topic, [*spread(SHUTDOWN_PARTITIONS)])
        load = cluster.perf("latency", LOAD_TOPIC, rate=RATE, seconds=LOAD_S, acks="all")
        try:
            led = range(0, SHUTDOWN_PARTITIONS, 3)
            with Pulse(cluster.bootstrap, TOPIC, led) as pulse:
                time.sleep(BEFORE_S)  # do not stop the broker before the load has started
                begun_s = time.monotonic()
                time.sleep(2 * BEFORE_S)
                asked_s = time.monotonic()
                took_s = cluster.brokers[1].stop()
                time.sleep(AFTER_S)
                ended_s = time.monotonic()
            worst_s = _worst_latency_s(load)
        finally:
            load.kill()
        what = "controlled shutdown under load"
        yield Figure(f"{what}: longest pause of a producer", pulse.longest_pause_s(asked_s, ended_s), "s", "0.3 s")
        yield Figure(f"{what}: longest pause in the seconds before", pulse.longest_pause_s(begun_s, asked_s), "s")
        if worst_s is not None:
            yield Figure(f"{what}: worst latency of a record from end to end", worst_s, "s")
        failures = len(pulse.errors) + (worst_s is None)
        yield Figure(f"{what}: errors that clients saw", failures, "", "0")
        yield Figure(f"{what}: time until the process had ended", took_s, "s")


def _worst_latency_s(load: RunningClient) -> float | None:
    """Return the longest end-to-end latency of a record; None if the measuring client failed."""
    try:
        return parse_report(load.finish(LIMIT_S).output).latency["max_ms"] / 1000
    except ClientError:
        return None
