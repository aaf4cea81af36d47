"""The interface of measured clients: drivers build the commands of clients and parse their output."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal

from bench.drivers.job import Job, Outcome, parse_report
from bench.peers.server import Server
from bench.processes import Finished, RunningClient, run_client

CONNECT_S = 1.5
"""The time in seconds that a consumer gets to start and connect before the producer starts."""


class Driver(ABC):
    """A measured client.

    :param name: the name in tables.
    :param protocol: the protocol of the servers that it supports.
    :param settings: a sentence for the page.
    """

    def __init__(self, name: str, protocol: Literal["kafka", "amqp", "jms"], settings: str = "") -> None:
        self.name = name
        self.protocol = protocol
        self.settings = settings

    @abstractmethod
    def run(self, server: Server, job: Job, limit_s: float) -> Outcome:
        """Run the job.

        :raises ClientError: if the program fails, or takes longer than `limit_s`.
        :raises UnavailableError: if the client is not available.
        """

    def check(self) -> None:  # noqa: B027  # optional
        """Check that the client is available, before anything is measured.

        :raises UnavailableError: if it is not.
        """


def flag_list(chosen: Mapping[str, object]) -> list[str]:
    """Return options with their values. Options with the value None are omitted.

    >>> flag_list({"--records": 5, "--rate": None})
    ['--records', '5']
    """
    return [text for flag, value in chosen.items() if value is not None for text in (flag, str(value))]


def read_report(finished: Finished) -> Outcome:
    """Parse the report of a program of `bench.clients`.

    :raises ClientError: if there is no report.
    """
    return parse_report(finished.output)


def run_at_once(
    commands: Sequence[Sequence[str]], limit_s: float, read: Callable[[Finished], Outcome] = read_report
) -> Outcome:
    """Run programs that share a job, each in its own process. The slowest program determines the duration.

    :param read: parses the output of a program.
    :raises ClientError: if a program fails, or exceeds the time limit.
    """
    running = [RunningClient(command) for command in commands]
    try:
        outcomes = [read(client.finish(limit_s)) for client in running]
    finally:
        for client in running:
            client.kill()
    if len(outcomes) == 1:
        return outcomes[0]
    return Outcome(
        records=sum(outcome.records for outcome in outcomes),
        seconds=max(outcome.seconds for outcome in outcomes),
        cpu_client_s=sum(outcome.cpu_client_s for outcome in outcomes),
        uncounted=sum(outcome.uncounted for outcome in outcomes),
    )


def share_of(job: Job) -> Job:
    """Return the part of a job for each producer."""
    return replace(job, records=job.records // job.producers, producers=1)


class ProgramDriver(Driver):
    """A program of `bench.clients`. The action `both` runs two processes of it.

    :param program: the command without options.
    :param mode: the value of `--mode`, if any.
    """

    def __init__(
        self,
        name: str,
        protocol: Literal["kafka", "amqp", "jms"],
        program: Sequence[str],
        mode: str = "",
        settings: str = "",
    ) -> None:
        super().__init__(name, protocol, settings)
        self._program = list(program)
        self._mode = mode

    def program(self) -> list[str]:
        """Return the command that starts the program, without options."""
        return self._program

    def run(self, server: Server, job: Job, limit_s: float) -> Outcome:
        if job.action == "both":
            return self._run_both(server, job, limit_s)
        if job.consumers > 1:
            shares = [range(number, job.partitions, job.consumers) for number in range(job.consumers)]
            return run_at_once([self.command(server, job, share) for share in shares], limit_s)
        if job.producers > 1:
            return run_at_once([self.command(server, share_of(job))] * job.producers, limit_s)
        return parse_report(run_client(self.command(server, job), limit_s).output)

    def command(self, server: Server, job: Job, only: Sequence[int] | None = None) -> list[str]:
        """Return the complete command.

        :param only: the partitions to read to their ends; None to read all until the job's records are read.
        """
        chosen = {
            "--bootstrap": server.address,
            "--topic": job.topic,
            "--records": job.records,
            "--size": job.size,
            "--partitions": job.partitions,
            "--acks": job.acks,
            "--mode": self._mode or None,
            "--batch-records": job.batch_records,
            "--fetch-bytes": job.fetch_bytes,
            "--rate": job.rate,
            "--only": ",".join(map(str, only)) if only else None,
        }
        return [*self.program(), job.action, *flag_list(chosen)]

    def _run_both(self, server: Server, job: Job, limit_s: float) -> Outcome:
        consumer = RunningClient(self.command(server, replace(job, action="consume")))
        try:
            time.sleep(CONNECT_S)
            produced = parse_report(run_client(self.command(server, replace(job, action="produce")), limit_s).output)
            consumed = parse_report(consumer.finish(limit_s).output)
        finally:
            consumer.kill()
        return replace(consumed, cpu_client_s=produced.cpu_client_s + consumed.cpu_client_s)
