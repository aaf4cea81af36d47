"""The context of a run. A single workload runs in the current process. If there are several workloads, each one runs in
its own process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.client.admin import Admin
from barnabas.clock import SYSTEM_CLOCK, Clock
from barnabas.laboratory.perf.meter import Measured, Meter, Sample
from barnabas.laboratory.perf.run_control import Ends, RunControl
from barnabas.laboratory.perf.worker_processes import DONE, ENDS, GO, READY, STOP, Workers, Workload

STOP_PATIENCE_S = 30.0
"""The maximum time for the processes to end after Ctrl-C, in seconds. The processes still send their buffered records
during this time."""

Progress = Callable[[str, Sample], None]
"""A callback that gets the name of a worker and a sample of its progress."""


@dataclass(frozen=True, slots=True)
class RunContext:
    """The cluster, the settings and the clock of a run. It runs the workloads.

    :param bootstrap: the addresses of the brokers.
    :param properties: the client settings of the user, under Kafka's names.
    :param on_progress: called with the progress of each process.
    :param pause: a function that sleeps for a number of seconds.
    """

    admin: Admin
    bootstrap: str
    properties: Mapping[str, str]
    on_progress: Progress
    clock: Clock = SYSTEM_CLOCK
    pause: Callable[[float], object] = threading.Event().wait

    def settings(self, **own: object) -> dict[str, Any]:
        """Return the settings of a client. The user's settings override `own`, which has names in snake_case."""
        named = {name.replace("_", "."): value for name, value in own.items()}
        return {"bootstrap.servers": self.bootstrap, **named, **self.properties}

    def run_workload(
        self, workload: Workload, jobs: Mapping[str, Any], ends: Ends | None = None
    ) -> tuple[list[Measured], bool]:
        """Run all jobs of a workload at the same time.

        :param ends: the end offsets at which reading ends.
        :returns: the result of each job, and whether Ctrl-C ended the run early.
        """
        if len(jobs) == 1:
            ((name, job),) = jobs.items()
            return self._perform_here(workload, name, job, ends)
        with Workers(self.on_progress) as workers:
            try:
                for name, job in jobs.items():
                    workers.start(name, workload, job)
                if ends is not None:
                    workers.send_all(ENDS, ends)
                workers.await_all(jobs, READY)
                workers.send_all(GO, self.clock.monotonic())
                return list(workers.await_all(jobs, DONE).values()), False
            except KeyboardInterrupt:
                return list(stop_workers(workers).values()) or [self.empty_result()], True

    def empty_result(self) -> Measured:
        """Return the result of a workload that did not start."""
        now_s = self.clock.monotonic()
        return Measured(now_s, now_s, 0, 0, 0.0)

    def _perform_here(self, workload: Workload, name: str, job: Any, ends: Ends | None) -> tuple[list[Measured], bool]:
        def report(sample: Sample) -> None:
            self.on_progress(name, sample)

        meter = Meter(self.clock, listener=report, seconds_max=job.seconds)
        try:
            return [workload(job, meter, RunControl(ends))], False
        except KeyboardInterrupt:
            return [meter.end()], True


def stop_workers(workers: Workers) -> dict[str, Any]:
    """Stop the workers and return their results so far."""
    workers.send_all(STOP)
    return workers.await_all(workers.names, DONE, STOP_PATIENCE_S)
