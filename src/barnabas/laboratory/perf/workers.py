"""Processes that work on one run together: each with an interpreter, and an interpreter's lock, of its own.

A worker is told things and tells things over a pipe; a thread of it listens. It does not listen to Ctrl-C: the
command's own process does, and tells all workers to stop, so that each can say how far it came. If that process
dies, the pipe ends, and so does the worker.
"""

from __future__ import annotations

import logging
import multiprocessing
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Any, Self

from barnabas.clock import SYSTEM_CLOCK
from barnabas.errors import BarnabasError
from barnabas.laboratory.perf.control import Control
from barnabas.laboratory.perf.errors import RunFailedError
from barnabas.laboratory.perf.meter import Meter, Sample
from barnabas.laboratory.perf.producing import losses_left_to_the_run

GO, ENDS, STOP = "go", "ends", "stop"
"""What a worker is told: to begin (with a moment that all agree on), where reading ends, to stop."""

READY, PROGRESS, DONE, FAILED = "ready", "progress", "done", "failed"
"""What it tells: that it waits for `GO`, a sample, its result, or why there is none."""

LEAVE_PATIENCE_S = 10.0

WORKER_SAMPLE_INTERVAL_S = 0.1
"""Figures of several workers are laid over each other, between samples."""


class Link:
    """A worker's end of the pipe."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self.control = Control()
        self._connection = connection
        self._gone = threading.Event()
        self._told_to_go = 0.0
        self.control.await_go = self._await_go
        threading.Thread(target=self._listen, name="barnabas-perf-link", daemon=True).start()

    def tell(self, kind: str, value: object = None) -> None:
        """Tell the command something; nobody listens any more if it has died."""
        try:
            self._connection.send((kind, value))
        except OSError:
            self.control.stop()

    def progress(self, sample: Sample) -> None:
        """Tell how far the work is."""
        self.tell(PROGRESS, sample)

    def _await_go(self) -> float:
        """Say that all is prepared; wait until the command says go, or stop."""
        self.tell(READY)
        self._gone.wait()
        return self._told_to_go

    def _listen(self) -> None:
        while True:
            try:
                kind, value = self._connection.recv()
            except (EOFError, OSError):
                kind, value = STOP, None
            if kind == GO:
                self._told_to_go = value
                self._gone.set()
            elif kind == ENDS:
                self.control.set_ends(value)
            else:
                self.control.stop()
                self._gone.set()
                return


Workload = Callable[[Any, Meter, Control], Any]
"""What a worker does: takes its job, returns its result. A function of a module, so that it can be sent."""


def work(workload: Workload, job: Any, connection: Connection[Any, Any], log_level: int) -> None:
    """Do a workload in a worker's process and tell its result."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    logging.basicConfig(format="barnabas: %(message)s", level=log_level)
    link = Link(connection)
    meter = Meter(SYSTEM_CLOCK, listener=link.progress, interval_s=WORKER_SAMPLE_INTERVAL_S, seconds_max=job.seconds)
    try:
        with losses_left_to_the_run():
            result = workload(job, meter, link.control)
    except (BarnabasError, OSError) as error:
        link.tell(FAILED, error)
    else:
        link.tell(DONE, result)


class Workers:
    """The workers of one run, by name.

    :param on_progress: told of each worker's samples.

    Leaving the `with` block ends them all.
    """

    def __init__(self, on_progress: Callable[[str, Sample], None]) -> None:
        self._on_progress = on_progress
        self._context = multiprocessing.get_context("spawn")
        self._processes: dict[str, multiprocessing.process.BaseProcess] = {}
        self._pipes: dict[str, Connection[Any, Any]] = {}
        self._told: dict[tuple[str, str], Any] = {}

    @property
    def names(self) -> list[str]:
        """The workers that were started."""
        return list(self._processes)

    def start(self, name: str, workload: Workload, job: object) -> None:
        """Start a worker; the job says in `seconds` how long it may take."""
        ours, theirs = self._context.Pipe()
        level = logging.getLogger().getEffectiveLevel()
        process = self._context.Process(target=work, args=(workload, job, theirs, level), name=name, daemon=True)
        with _ctrl_c_ignored():
            process.start()
        theirs.close()
        self._processes[name] = process
        self._pipes[name] = ours

    def tell(self, names: Iterable[str], kind: str, value: object = None) -> None:
        """Tell some workers something; one that is gone does not hear it."""
        for name in names:
            try:
                self._pipes[name].send((kind, value))
            except OSError:
                continue

    def tell_all(self, kind: str, value: object = None) -> None:
        """Tell all workers something."""
        self.tell(self._pipes, kind, value)

    def await_all(self, names: Iterable[str], kind: str, patience_s: float | None = None) -> dict[str, Any]:
        """Wait until each of some workers has told something of this kind; return what.

        :param patience_s: how long nobody may tell anything; None: for ever.
        :raises BarnabasError: why a worker failed.
        :raises RunFailedError: a worker has died, or the patience is at its end.
        """
        wanted = list(names)
        while any((name, kind) not in self._told for name in wanted):
            open_pipes = {pipe: name for name, pipe in self._pipes.items() if (name, DONE) not in self._told}
            told = wait(list(open_pipes), patience_s)
            if not told:
                raise RunFailedError(f"the processes did not come to an end within {patience_s:g} s")
            for pipe in told:
                self._take(open_pipes[pipe], pipe)  # type: ignore[index, arg-type]
        return {name: self._told[name, kind] for name in wanted}

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
            self._told[name, kind] = value

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.tell_all(STOP)
        for pipe in self._pipes.values():
            pipe.close()
        for process in self._processes.values():
            process.join(LEAVE_PATIENCE_S)
            if process.is_alive():
                process.kill()
                process.join()


@contextmanager
def _ctrl_c_ignored() -> Iterator[None]:
    """Let what is started inside be deaf to Ctrl-C from its first moment on."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
