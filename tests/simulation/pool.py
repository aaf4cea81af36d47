"""Many seeds side by side, each in a process that ends no other's run: one that hangs is a failure, and is ended."""

from __future__ import annotations

import contextlib
import gc
import logging
import multiprocessing
import os
import signal
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from types import FrameType

from tests.simulation.plan import Plan
from tests.simulation.story import Result, run

MOST_REAL_S = 300
"""A thousand times what a seed takes: one that takes longer hangs in the middle of a step. It is counted second by
second, and a machine that stands still meanwhile adds but one to it, however long it does."""
NO_PLAN = Plan(0.0, ())
"""Of a run whose process cannot tell any more what it was."""
GRACE_S = 30
"""So much later a process is ended that has not ended its run itself."""


class HungError(KeyboardInterrupt):
    """A run has taken too long. It is an interrupt so that nothing that runs catches it."""


def run_in_time(seed: int, seconds: float | None) -> Result:
    """Run a seed as `story.run` does, but no longer than `MOST_REAL_S`; the story so far then ends with the reason."""

    left_s = MOST_REAL_S

    def count(_number: int, _frame: FrameType | None) -> None:
        nonlocal left_s
        left_s -= 1
        if left_s == 0:
            raise HungError(f"{MOST_REAL_S} real seconds, and no end")

    before = signal.signal(signal.SIGALRM, count)
    alarm = signal.setitimer(signal.ITIMER_REAL, 1, 1)
    try:
        return run(seed, seconds, ends_with=HungError)
    finally:
        signal.setitimer(signal.ITIMER_REAL, *alarm)
        signal.signal(signal.SIGALRM, before)


class _Worker:
    """A process that runs one seed after the other."""

    def __init__(self, context: multiprocessing.context.BaseContext) -> None:
        self.pipe, theirs = context.Pipe()
        self.process: BaseProcess = context.Process(target=_work, args=(theirs,), daemon=True)  # type: ignore[attr-defined]
        self.process.start()
        theirs.close()
        self.seed = 0
        self.left_s = 0.0

    def begin(self, seed: int, seconds: float | None) -> None:
        self.seed, self.left_s = seed, MOST_REAL_S + GRACE_S
        self.pipe.send((seed, seconds))

    def result(self) -> Result:
        """Return what came of its seed, if it is there to tell."""
        with contextlib.suppress(EOFError, ConnectionError):
            result: Result = self.pipe.recv()
            return result
        return Result(self.seed, [], None, ["its process has died"], 0.0, NO_PLAN)

    def end(self) -> None:
        self.process.kill()
        self.process.join()
        self.pipe.close()


def run_many(seeds: Iterable[int], seconds: float | None) -> Iterator[Result]:
    """Run seeds on all cores; yield what came of them, in the order in which they end."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.simulation.story"])
    left = iter(seeds)
    idle = [_Worker(context) for _ in range(os.cpu_count() or 1)]
    busy: dict[Connection, _Worker] = {}
    try:
        while True:
            while idle and (seed := next(left, None)) is not None:
                worker = idle.pop()
                worker.begin(seed, seconds)
                busy[worker.pipe] = worker  # type: ignore[index]
            if not busy:
                return
            began_s = time.monotonic()
            ready = wait(list(busy), timeout=1.0)
            waited_s = min(time.monotonic() - began_s, 1.0)
            for pipe in ready:
                worker = busy.pop(pipe)  # type: ignore[arg-type]
                yield worker.result()
                idle.append(_renewed(worker, context))
            for worker in busy.values():
                worker.left_s -= waited_s
            for worker in [each for each in busy.values() if each.left_s <= 0]:
                del busy[worker.pipe]  # type: ignore[arg-type]
                worker.end()
                yield Result(
                    worker.seed, [], None, [f"{MOST_REAL_S} real seconds, and it cannot be interrupted"], 0.0, NO_PLAN
                )
                idle.append(_Worker(context))
    finally:
        for worker in [*idle, *busy.values()]:
            worker.end()


def _renewed(worker: _Worker, context: multiprocessing.context.BaseContext) -> _Worker:
    if worker.process.is_alive():
        return worker
    worker.end()
    return _Worker(context)


def _work(pipe: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever is interrupted ends this process
    logging.getLogger().addHandler(logging.NullHandler())  # what brokers log is looked at, and not shown
    gc.collect()
    gc.freeze()  # modules are no garbage: the collection before each run need not look at them
    gc.disable()  # and one is enough: between two runs it would look at all that the last one has left, once more
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            seed, seconds = pipe.recv()
            pipe.send(run_in_time(seed, seconds))
