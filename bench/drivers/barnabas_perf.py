"""Barnabas's clients: `barnabas perf` with default settings, against any broker with Kafka's protocol."""

from __future__ import annotations

from dataclasses import replace

from bench.drivers.driver import Driver, flag_list
from bench.drivers.job import Job, Outcome, parse_report
from bench.peers.barnabas import COMMAND
from bench.peers.server import Server
from bench.processes import run_client


class BarnabasPerf(Driver):
    """`barnabas perf` in one of its modes.

    :param mode: send, many or arrow to produce; records, poll or arrow to consume; "" for the default.
    """

    def __init__(self, name: str, mode: str = "") -> None:
        super().__init__(name, "kafka", "the defaults of `barnabas perf` and of the clients")
        self._mode = mode

    def command(self, server: Server, job: Job) -> list[str]:
        """Return the command. It uses an existing topic and keeps it."""
        return [*COMMAND, *self.arguments(server.address, job)]

    def arguments(self, address: str, job: Job) -> list[str]:
        """Return the arguments of the command `barnabas`."""
        flags = {"produce": self._produce, "consume": self._consume, "both": self._both, "latency": self._latency}
        chosen = {"--bootstrap": address, "--topic": job.topic, **flags[job.action](job)}
        if self._mode:
            chosen["--mode"] = self._mode
        return ["perf", job.action, *flag_list(chosen), "--json"]

    def _produce(self, job: Job) -> dict[str, object]:
        producers = job.producers if job.producers > 1 else None
        return {**self._both(job), "--batch-records": job.batch_records, "--producers": producers}

    def _consume(self, job: Job) -> dict[str, object]:
        if job.consumers > 1:
            return {"--consumers": job.consumers}
        # the same setting as for all other clients
        limit = f"max.partition.fetch.bytes={job.fetch_bytes}" if job.fetch_bytes else None
        return {"--records": job.records, "-X": limit}

    def _both(self, job: Job) -> dict[str, object]:
        return {"--records": job.records, "--size": job.size, "--acks": job.acks}

    def _latency(self, job: Job) -> dict[str, object]:
        assert job.rate
        seconds = f"{job.records / job.rate:g}"
        return {"--rate": job.rate, "--seconds": seconds, "--size": job.size, "--acks": job.acks}

    def run(self, server: Server, job: Job, limit_s: float) -> Outcome:
        outcome = parse_report(run_client(self.command(server, job), limit_s).output)
        # the default of `perf latency` is the number of records of one second
        warm_up = round(job.rate or 0) if job.action == "latency" else 0
        return replace(outcome, uncounted=warm_up)
