"""The worker processes of a run, each with its own interpreter.

The parent process and a worker exchange messages over a pipe. A thread of the worker receives the messages. Workers
ignore Ctrl-C. Instead, the parent sends `STOP` to all workers, so that each worker can still send its partial result.
If the parent dies, the pipe closes, and the worker also ends.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError
from barnabas.laboratory.perf.meter import Meter, Sample
from barnabas.laboratory.perf.produce_workload import loss_warnings_disabled
from barnabas.laboratory.perf.run_control import RunControl, RunFailedError
from barnabas.stop_signals import signals_held

GO, ENDS, STOP = "go", "ends", "stop"
"""Messages to a worker: start (with a start time that all workers share), the end offsets of the topic, and stop."""

READY, PROGRESS, DONE, FAILED = "ready", "progress", "done", "failed"
"""Messages from a worker: the worker waits for `GO`, a sample of its progress, its result, or its error."""

LEAVE_PATIENCE_S = 10.0

WORKER_SAMPLE_INTERVAL_S = 0.1
"""The interval between the samples of a worker. It is short, because the figures of several workers are interpolated
between samples.
"""


class WorkerLink:
    """A worker's end of the pipe."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.control = RunControl(await_go=self._await_go)
        self._connection = connection
        self._gone = threading.Event()
        self._go_at_s = 0.0
        threading.Thread(target=self._listen, name="barnabas-perf-link", daemon=True).start()

    def send(self, kind: str, value: object = None) -> None:
        """Send a message to the parent process. Stop the workload if the parent has died."""
        try:
            self._connection.send((kind, value))
        except OSError:
            self.control.stop()

    def progress(self, sample: Sample) -> None:
        self.send(PROGRESS, sample)

    def _await_go(self) -> float:
        """Send `READY`, then wait for `GO` or `STOP`."""
        self.send(READY)
        self._gone.wait()
        return self._go_at_s

    def _listen(self) -> None:
        while True:
            try:
                kind, value = self._connection.recv()
            except (EOFError, OSError):
                kind, value = STOP, None
            if kind == GO:
                self._go_at_s = value
                self._gone.set()
            elif kind == ENDS:
                self.control.set_ends(value)
            else:
                self.control.stop()
                self._gone.set()
                return


Workload = Callable[[Any, Meter, RunControl], Any]
"""A workload: takes a job, a meter and a control, and returns its result. It must be a module-level function, because
it is pickled.
"""


def run_worker(workload: Workload, job: Any, connection: Connection[Any, Any], log_level: int) -> None:
    """Run a workload in a worker process and send its result."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(format="barnabas: %(message)s", level=log_level)
    link = WorkerLink(connection)
    meter = Meter(SYSTEM_CLOCK, listener=link.progress, interval_s=WORKER_SAMPLE_INTERVAL_S, seconds_max=job.seconds)
    try:
        with loss_warnings_disabled():
            result = workload(job, meter, link.control)
    except (BarnabasError, OSError) as error:
        link.send(FAILED, error)
    else:
        link.send(DONE, result)


class Workers:
    """The workers of one run, by name.

    :param on_progress: called with the samples of each worker.

    The end of the `with` block ends all workers.
    """

    def __init__(self, on_progress: Callable[[str, Sample], None]) -> None:
        self._on_progress = on_progress
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[str, multiprocessing.process.BaseProcess] = {}
        self._pipes: dict[str, Connection[Any, Any]] = {}
        self._received: dict[tuple[str, str], Any] = {}

    @property
    def names(self) -> list[str]:
        """The names of the started workers."""
        return list(self._processes)

    def start(self, name: str, workload: Workload, job: object) -> None:
        """Start a worker. The job's `seconds` is its time limit."""
        ours, theirs = self._context.Pipe()
        level = logging.getLogger().getEffectiveLevel()
        process = self._context.Process(target=run_worker, args=(workload, job, theirs, level), name=name, daemon=True)
        with _ctrl_c_held():
            process.start()
            theirs.close()
            self._processes[name] = process
            self._pipes[name] = ours

    def send(self, names: Iterable[str], kind: str, value: object = None) -> None:
        """Send a message to some workers. Workers that have ended are skipped."""
        for name in names:
            try:
                self._pipes[name].send((kind, value))
            except OSError:
                continue

    def send_all(self, kind: str, value: object = None) -> None:
        self.send(self._pipes, kind, value)

    def await_all(self, names: Iterable[str], kind: str, patience_s: float | None = None) -> dict[str, Any]:
        """Wait until each of the named workers has sent a message of the given kind. Return the values of the messages.

        :param patience_s: the longest time without any message, in seconds; None for no limit.
        :raises BarnabasError: if a worker failed.
        :raises RunFailedError: if a worker died, or if no message arrived in time.
        """
        wanted = list(names)
        while any((name, kind) not in self._received for name in wanted):
            open_pipes = {pipe: name for name, pipe in self._pipes.items() if (name, DONE) not in self._received}
            readable = wait(list(open_pipes), patience_s)
            if not readable:
                raise RunFailedError(f"the worker processes sent no message for {patience_s:g} s")
            for pipe in readable:
                self._take(open_pipes[pipe], pipe)  # type: ignore[index, arg-type]
        return {name: self._received[name, kind] for name in wanted}

    def _take(self, name: str, pipe: Connection[Any, Any]) -> None:
        try:
            kind, value = pipe.recv()
        except (EOFError, OSError):
            self._processes[name].join(LEAVE_PATIENCE_S)
            code = self._processes[name].exitcode
            raise RunFailedError(f"the process of the {name} ended with exit code {code}") from None
        if kind == FAILED:
            raise value
        if kind == PROGRESS:
            self._on_progress(name, value)
        else:
            self._received[name, kind] = value

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.send_all(STOP)
        for pipe in self._pipes.values():
            pipe.close()
        for process in self._processes.values():
            process.join(LEAVE_PATIENCE_S)
            if process.is_alive():
                process.kill()
                process.join()


@contextmanager
def _ctrl_c_held() -> Iterator[None]:
    """Deliver Ctrl-C to this process after the block only, and not to child processes started inside the block."""
    with signals_held([signal.SIGINT]):
        if not hasattr(signal, "pthread_sigmask"):  # Windows
            yield
            return
        resource_tracker.ensure_running()  # its start unblocks SIGINT
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            yield
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
