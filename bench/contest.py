"""A contest between clients and servers: a warm-up of each contender, then rounds in which each contender runs once (A
B A B ...).

A failed contender is reported and skipped in the remaining rounds; its earlier runs are kept. Written data is flushed
before the next run starts, so that no run slows down the next one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from bench.arena import Arena
from bench.downloads import UnavailableError
from bench.drivers import DRIVERS, Driver
from bench.drivers.job import Job, Outcome
from bench.memory import LEAST_BYTES, Reserve, bytes_for
from bench.peers import SERVERS
from bench.peers.server import Server
from bench.processes import ClientError
from bench.progress import Progress
from bench.results import Case, Row, Run
from bench.scale import Scale

WARM_UP_SHARE = 0.25
RECORDS_MIN = 1000
FILLERS = {"kafka": "confluent", "amqp": "perftest", "jms": "activemq-java"}
"""The client that fills topics and queues for consumers, by protocol. All brokers of a protocol have the same client,
so their batches are equal.
"""


@dataclass(frozen=True, slots=True)
class Contender:
    """A client with a server.

    :param share: the share of the job's records that this contender gets; less than 1 for slow contenders.
    :param minor: True if the scale `quick` omits this contender.
    :param plain: True to always run one producer with acks=1, as the reference for replicated runs.
    """

    server: str
    client: str
    share: float = 1.0
    minor: bool = False
    plain: bool = False

    @property
    def driver(self) -> Driver:
        return DRIVERS[self.client]

    @property
    def title(self) -> str:
        """The name for messages."""
        return f"{self.driver.name} with {SERVERS[self.server].title}"

    def records(self, job: Job) -> int:
        """Return the number of records that this contender processes, given the number in the job."""
        return max(RECORDS_MIN, round(job.records * self.share))


class Contest:
    """All contests of a workload.

    :param name: the name of the workload, for messages.
    """

    def __init__(self, name: str, arena: Arena, scale: Scale, progress: Progress) -> None:
        self.name = name
        self.arena = arena
        self.scale = scale
        self.progress = progress
        self._reserve = Reserve()
        self._topics = 0
        self._filled: dict[tuple[str, int], tuple[str, int]] = {}
        self._fill_records = 0

    def run(self, case: str, job: Job, contenders: Sequence[Contender], rounds: int | None = None) -> Case:
        """Run a job with all contenders. Return their measurements."""
        self._fill_records = job.records
        taking_part = [each for each in contenders if not (each.minor and self.scale.is_brief)]
        rows = {contender: self._row(contender) for contender in taking_part}
        rounds = self.scale.rounds if rounds is None else rounds
        for number in range(rounds + 1):
            for contender, row in rows.items():
                if not row.problem:
                    self._turn(case, job, contender, row, number, rounds)
        return Case(case, job.size, list(rows.values()))

    def _row(self, contender: Contender) -> Row:
        row = Row(SERVERS[contender.server].title, contender.driver.name)
        try:
            contender.driver.check()
            self.arena.server(contender.server)
        except UnavailableError as error:
            row.problem = str(error)
            self.progress.say(f"{self.name}: {contender.title} is left out: {error}")
        return row

    def _turn(self, case: str, job: Job, contender: Contender, row: Row, number: int, rounds: int) -> None:
        """Run a contender once. The turn with number 0 is the warm-up, whose result is not kept."""
        records = contender.records(job)
        if number == 0:
            records = max(RECORDS_MIN, round(records * WARM_UP_SHARE))
        what = f"{self.name} {case}: {contender.title}, " + (f"run {number}/{rounds}" if number else "warming up")
        try:
            job = replace(job, producers=1, acks="1") if contender.plain else job
            run = self.one(contender, replace(job, records=records))
        except Exception as error:  # noqa: BLE001  # a failed contender must not stop the other contenders
            row.problem = problem_of(error)
            self.progress.say(f"{what}: failed: {row.problem}")
            return
        if number:
            row.runs.append(run)
        figure = f"{run.latency['p50_ms']:.2f} ms" if job.action == "latency" else f"{run.records_per_s:,.0f} records/s"
        self.progress.say(f"{what}: {figure}")

    def one(self, contender: Contender, job: Job, look: Callable[[Server, Job, Outcome], Run] | None = None) -> Run:
        """Run a contender once with its own topic. For a consumer, the topic is filled before the run.

        :param look: computes the run's figures before the topic is deleted.
        :raises ClientError: if the client fails.
        """
        server = self.arena.server(contender.server)
        if job.action == "consume":
            return self.measure(contender, replace(job, topic=self._filled_topic(server, job)))
        self._topics += 1
        job = replace(job, topic=f"{self.name.lower()}-{self._topics}")
        server.create_topic(job.topic, job.partitions, dict(job.topic_settings))
        os.sync()
        try:
            return self.measure(contender, job, look)
        finally:
            self._delete(server, job.topic)
            # The host still maps the memory that this run used, so this memory needs no preparation.
            self._reserve.hold(bytes_for(job.records, job.size))

    def _delete(self, server: Server, topic: str) -> None:
        """Delete a topic. An error is only reported, because it must not discard the measurement."""
        try:
            if server.process.is_running:
                server.delete_topic(topic)
        except Exception as error:  # noqa: BLE001  # clients of all kinds raise various errors
            self.progress.say(f"{self.name}: {server.title} cannot delete {topic}: {problem_of(error)}")

    def measure(
        self,
        contender: Contender,
        job: Job,
        look: Callable[[Server, Job, Outcome], Run] | None = None,
        *,
        into_fresh_memory: bool = False,
    ) -> Run:
        """Measure one run of a contender with the topic of the job.

        :param into_fresh_memory: True to prepare no memory for this run and later runs (`bench.memory`).
        """
        server = self.arena.server(contender.server)
        if into_fresh_memory:
            self._reserve.hold(LEAST_BYTES)
        elif job.action != "consume":
            self._reserve.hold(bytes_for(job.records, job.size))
            self._reserve.release()
        server.reset_memory_peak()
        cpu_before_s = server.cpu_s()
        outcome = contender.driver.run(server, job, self.scale.limit_s)
        cpu_server_s = (server.cpu_s() - cpu_before_s) * outcome.counted_share
        run = look(server, job, outcome) if look else run_of(outcome, job)
        return replace(run, cpu_server_s=cpu_server_s, memory_server_mib=server.memory_mib_max())

    def _filled_topic(self, server: Server, job: Job) -> str:
        """Return a topic with enough records. A log is filled only once, but a queue is filled for each run."""
        key = (server.name, job.size)
        topic, filled = self._filled.get(key, ("", 0))
        if server.protocol == "kafka" and filled >= job.records:
            return topic
        self._topics += 1
        topic = f"{self.name.lower()}-{self._topics}"
        server.create_topic(topic, job.partitions)
        # The warm-up is first and needs fewer records. So fill the log immediately with enough records for all runs.
        records = max(job.records, self._fill_records) if server.protocol == "kafka" else job.records
        self.progress.say(f"{self.name}: filling a topic of {server.title} with {records:,} records")
        filling = Job("produce", records, job.size, job.partitions, batch_records=job.batch_records, topic=topic)
        DRIVERS[FILLERS[server.protocol]].run(server, filling, self.scale.limit_s)
        self._filled[key] = (topic, records)
        os.sync()
        return topic


def problem_of(error: Exception) -> str:
    """Return the reason for a failure as one line of text."""
    text = " ".join(str(error).split())[:300]
    return text if isinstance(error, ClientError | UnavailableError) else f"{type(error).__name__}: {text}"


def run_of(outcome: Outcome, job: Job) -> Run:
    return Run(
        records=outcome.records,
        seconds=outcome.seconds,
        cpu_client_s=outcome.cpu_client_s,
        latency=dict(outcome.latency),
        histogram=[list(bucket) for bucket in outcome.histogram],
        series=series_of(outcome.samples, job.size),
    )


def series_of(samples: Sequence[tuple[float, int]], size: int) -> list[list[float]]:
    """Return pairs (MB done, records/s since the previous sample) of samples (seconds, records done).

    >>> series_of([(1.0, 1000), (2.0, 3000)], 100)
    [[0.1, 1000.0], [0.3, 2000.0]]
    """
    series, before_s, before = [], 0.0, 0
    for at_s, done in samples:
        if at_s > before_s:
            series.append([done * size / 1e6, (done - before) / (at_s - before_s)])
            before_s, before = at_s, done
    return series
