"""RabbitMQ's own PerfTest (Java, from Maven), its fastest available client.

Persistent messages, a durable queue, no publisher confirms (the paper: no acknowledgement), automatic consumer
acknowledgements. PerfTest measures latency from the time of sending instead of the due time, so the measured latency
does not include delays of the sender itself.
"""

from __future__ import annotations

import re
from dataclasses import replace

from bench.downloads import NEWEST, java, maven_jars
from bench.drivers.driver import Driver
from bench.drivers.job import Job, Outcome, thinned
from bench.peers.server import Server
from bench.processes import ClientError, run_client

COORDINATES = (f"com.rabbitmq:perf-test:{NEWEST}",)
INTERVAL = re.compile(r"time ([\d.]+) s, (?:sent: (\d+) msg/s)?(?:, )?(?:received: (\d+) msg/s)?")
AVERAGE = re.compile(r"(sending|receiving) rate avg: (\d+) msg/s")
LATENCY = re.compile(r"consumer latency min/median/75th/95th/99th ([\d/]+) (µs|ms)\s*$", re.MULTILINE)


class RabbitPerfTest(Driver):
    def __init__(self) -> None:
        super().__init__("PerfTest", "amqp", "Java, persistent, no confirms, automatic acks")

    def check(self) -> None:
        maven_jars("rabbitmq-perf-test", COORDINATES)

    def run(self, server: Server, job: Job, limit_s: float) -> Outcome:
        finished = run_client(command(server, job), limit_s)
        return replace(parse_report(finished.output, job), cpu_client_s=finished.cpu_s)


def command(server: Server, job: Job) -> list[str]:
    jars = maven_jars("rabbitmq-perf-test", COORDINATES)
    producers, consumers = {"produce": (1, 0), "consume": (0, 1)}.get(job.action, (1, 1))
    options = ["-h", f"amqp://guest:guest@{server.address}", "-u", job.topic, "-ad", "false", "-f", "persistent"]
    options += ["-x", str(producers), "-y", str(consumers), "-s", str(job.size), "-a"]
    if producers:
        options += ["-C", str(job.records)]
    if consumers:
        options += ["-D", str(job.records)]
    if job.rate:
        options += ["-r", f"{job.rate:.0f}"]
    return [java(), "-cp", f"{jars}/*", "com.rabbitmq.perf.PerfTest", *options]


def parse_report(output: str, job: Job) -> Outcome:
    """Parse the averages at the end of PerfTest's output, and the intervals before them.

    :raises ClientError: if the averages are missing.
    """
    averages = {kind: float(rate) for kind, rate in AVERAGE.findall(output)}
    rate = averages.get("sending" if job.action == "produce" else "receiving")
    if not rate:
        raise ClientError("PerfTest printed no average")
    seconds = job.records / rate
    return Outcome(job.records, seconds, 0.0, _latency(output), samples=_samples(output, job))


def _samples(output: str, job: Job) -> tuple[tuple[float, int], ...]:
    samples, done, before_s = [], 0.0, 0.0
    for line in output.splitlines():
        found = INTERVAL.search(line)
        rate = found and found[2 if job.action == "produce" else 3]
        if found and rate:
            at_s = float(found[1])
            done += float(rate) * (at_s - before_s)
            before_s = at_s
            samples.append((at_s, round(done)))
    return thinned(tuple(samples))


def _latency(output: str) -> dict[str, float]:
    found = LATENCY.search(output)
    if not found:
        return {}
    divisor = 1000 if found[2] == "µs" else 1
    _, median, _, p95, p99 = (float(value) / divisor for value in found[1].split("/"))
    return {"p50_ms": median, "p95_ms": p95, "p99_ms": p99}
