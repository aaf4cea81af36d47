"""Apache Kafka's own perf tools: the classes behind kafka-producer-perf-test.sh and kafka-consumer-perf-test.sh.

The producer has the settings that Kafka's documentation recommends for throughput: larger batches (`batch.size` of 128
KB instead of 16 KB), a `linger.ms` of 10, and twice the buffer memory. The CPU time includes the start of the JVM
(about a second). The consumer's rate excludes the three seconds in which its group forms. The producer's rate is its
"steady state" rate, after additional warm-up records (a quarter of the records).
"""

from __future__ import annotations

import re
from dataclasses import replace

from bench.downloads import java
from bench.drivers.driver import Driver, run_at_once, share_of
from bench.drivers.job import Job, Outcome, thinned
from bench.peers.kafka import class_path
from bench.peers.server import Server
from bench.processes import ClientError, children_cpu_s, run_client

HEAP = "-Xmx512M"  # the default heap size in Kafka's scripts for these tools
IDLE_LIMIT_MS = 30_000
RECORD_OVERHEAD_BYTES = 8
BATCH_OVERHEAD_BYTES = 61
WARM_UP_SHARE = 0.25
PRODUCED = re.compile(
    r"^(\d+) (?:steady state )?records sent, ([\d.]+) records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, "
    r"[\d.]+ ms max latency, "
    r"([\d.]+) ms 50th, ([\d.]+) ms 95th, ([\d.]+) ms 99th, ([\d.]+) ms 99.9th",
    re.MULTILINE,
)
PROGRESS = re.compile(r"^(\d+) records sent, ([\d.]+) records/sec \([\d.]+ MB/sec\), [\d.]+ ms avg latency, \S+ ms max")
INTERVAL_MS = 500
SAMPLE_RECORDS_MIN = 100
"""The minimum number of records in a sampling interval. Shorter intervals are ignored, because the tool's first
interval ends with the first record."""


class KafkaTools(Driver):
    def __init__(self) -> None:
        super().__init__(
            "Kafka's perf tools",
            "kafka",
            "Java, `batch.size=131072 linger.ms=10 buffer.memory=67108864`; CPU with the start of the JVM",
        )

    def check(self) -> None:
        class_path()

    def run(self, server: Server, job: Job, limit_s: float) -> Outcome:
        if job.action == "produce":
            return self._produce(server, job, limit_s)
        if job.action == "consume":
            finished = run_client(consume_command(server, job), limit_s)
            return replace(parse_consumed(finished.output), cpu_client_s=finished.cpu_s)
        raise ClientError(f"Kafka's perf tools cannot do {job.action}")

    def _produce(self, server: Server, job: Job, limit_s: float) -> Outcome:
        each = share_of(job)
        cpu_before_s = children_cpu_s()
        commands = [produce_command(server, each)] * job.producers
        outcome = run_at_once(commands, limit_s, lambda finished: parse_produced(finished.output))
        cpu_s = (children_cpu_s() - cpu_before_s) / (1 + WARM_UP_SHARE)
        return replace(outcome, cpu_client_s=cpu_s, uncounted=warm_up_records(each) * job.producers)


def warm_up_records(job: Job) -> int:
    """Return the number of warm-up records of the producer."""
    return round(job.records * WARM_UP_SHARE)


def produce_command(server: Server, job: Job) -> list[str]:
    batch_bytes, linger_ms = 131_072, 10
    if job.batch_records == 1:
        batch_bytes, linger_ms = 0, 0  # 0 disables batching
    elif job.batch_records:
        batch_bytes = job.batch_records * (job.size + RECORD_OVERHEAD_BYTES) + BATCH_OVERHEAD_BYTES
    properties = [f"acks={job.acks}", f"batch.size={batch_bytes}", f"linger.ms={linger_ms}", "buffer.memory=67108864"]
    warm_up = warm_up_records(job)
    options = ["--topic", job.topic, "--num-records", str(job.records + warm_up), "--warmup-records", str(warm_up)]
    options += ["--record-size", str(job.size)]
    options += ["--throughput", "-1", "--reporting-interval", str(INTERVAL_MS)]
    options += ["--bootstrap-server", server.address, "--command-property", *properties]
    return [java(), HEAP, "-cp", class_path(), "org.apache.kafka.tools.ProducerPerformance", *options]


def consume_command(server: Server, job: Job) -> list[str]:
    options = ["--topic", job.topic, "--num-records", str(job.records), "--timeout", str(IDLE_LIMIT_MS)]
    options += ["--bootstrap-server", server.address]
    if job.fetch_bytes:
        options += ["--fetch-size", str(job.fetch_bytes)]
    return [java(), HEAP, "-cp", class_path(), "org.apache.kafka.tools.ConsumerPerformance", *options]


def parse_produced(output: str) -> Outcome:
    """Parse the summary and the intervals that ProducerPerformance prints.

    :raises ClientError: if the summary is missing.
    """
    summaries = list(PRODUCED.finditer(output))
    if not summaries:
        raise ClientError("ProducerPerformance printed no summary")
    summary = summaries[-1]  # the summary of the steady state follows the summary of all records
    records, rate = int(summary[1]), float(summary[2])
    percentiles = dict(zip(("p50_ms", "p95_ms", "p99_ms", "p999_ms"), map(float, summary.groups()[2:]), strict=True))
    return Outcome(records, records / rate, 0.0, percentiles, samples=_progress(output))


def _progress(output: str) -> tuple[tuple[float, int], ...]:
    samples, at_s, done = [], 0.0, 0
    for line in output.splitlines():
        found = PROGRESS.match(line)
        if found and "50th" not in line and int(found[1]) > SAMPLE_RECORDS_MIN:
            done += int(found[1])
            at_s += int(found[1]) / float(found[2])
            samples.append((at_s, done))
    return thinned(tuple(samples))


def parse_consumed(output: str) -> Outcome:
    """Parse the line that ConsumerPerformance prints below its header.

    :raises ClientError: if the line is missing.
    """
    lines = output.strip().splitlines()
    header = next((number for number, line in enumerate(lines) if line.startswith("start.time")), None)
    if header is None or header + 1 >= len(lines):
        raise ClientError("ConsumerPerformance printed no summary")
    names = [name.strip() for name in lines[header].split(",")]
    values = [value.strip() for value in lines[header + 1].split(",")]
    summary = dict(zip(names, values, strict=False))
    try:
        records, rate = int(summary["data.consumed.in.nMsg"]), float(summary["fetch.nMsg.sec"])
    except (KeyError, ValueError) as error:
        raise ClientError(f"ConsumerPerformance's summary is invalid: {error!r}") from error
    return Outcome(records, records / rate if rate else 0.0, 0.0)
