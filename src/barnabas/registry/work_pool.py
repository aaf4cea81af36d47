"""A pool of processes for work on schemas, with a deadline per job.

Small jobs run in two fast processes for at most FAST_CPU_S, so that no client waits long for another client's schema.
Large jobs, and small jobs that exceed this time limit, wait for one slow process with low priority.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import os
import pickle
import signal
import sys
from collections import OrderedDict
from typing import Any

from barnabas.registry.errors import RegistryError
from barnabas.registry.schema_worker import CLOCK_FACTOR, ENDED, INVALID, LENGTH, framed
from barnabas.shielded import completed

FAST_WORKERS = 2
FAST_CPU_S = 0.1
FAST_BYTES_MAX = 64 * 1024
SLOW_CPU_S = 10.0
START_S = 60.0
"""The maximum time in seconds in which a process imports its libraries."""
SLOW_PRIORITY = 10
SLOW_WAITING_MAX = 16
SLOW_REMEMBERED_MAX = 1_000
STOP_S = 5.0

log = logging.getLogger(__name__)


class WorkEndedError(Exception):
    """A job exceeded its time limit."""


class InvalidSchemaError(ValueError):
    """A job failed because a text is not a valid schema."""


class WorkPool:
    """Runs the jobs of `schema_worker.py` in processes. Each process starts with its first job."""

    def __init__(self) -> None:
        self._fast = _Lane(FAST_WORKERS, FAST_CPU_S, 0)
        self._slow = _Lane(1, SLOW_CPU_S, SLOW_PRIORITY)
        self._known_slow: OrderedDict[bytes, None] = OrderedDict()

    async def start(self) -> None:
        """Start the fast processes, so that the first client need not wait for them.

        :raises OSError: a process cannot be started.
        """
        await self._fast.start()

    async def run(self, job: str, *arguments: Any) -> Any:
        """Run a job and return its result.

        :raises InvalidSchemaError: a text is not a valid schema.
        :raises WorkEndedError: the job exceeded SLOW_CPU_S.
        :raises RegistryError: SLOW_WAITING_MAX jobs are already waiting (429).
        """
        frame = framed((job, arguments))
        if len(frame) <= FAST_BYTES_MAX:
            name = hashlib.sha256(frame).digest()
            if name not in self._known_slow:
                with contextlib.suppress(WorkEndedError):
                    return await self._fast.run(frame)
                self._known_slow[name] = None
                if len(self._known_slow) > SLOW_REMEMBERED_MAX:
                    self._known_slow.popitem(last=False)
        if self._slow.waiting >= SLOW_WAITING_MAX:
            raise RegistryError(429, f"{SLOW_WAITING_MAX} large schemas wait to be checked; try again later")
        return await self._slow.run(frame)

    async def stop(self) -> None:
        """Stop the processes."""
        await self._fast.stop()
        await self._slow.stop()


class _Lane:
    """Processes with the same time limit, and the jobs that wait for them."""

    def __init__(self, workers: int, cpu_s: float, priority: int) -> None:
        self._workers = [_Worker(cpu_s, priority) for _ in range(workers)]
        self._idle: asyncio.LifoQueue[_Worker] = asyncio.LifoQueue()
        for worker in self._workers:
            self._idle.put_nowait(worker)
        self.waiting = 0

    async def start(self) -> None:
        for worker in self._workers:
            await worker.start()

    async def run(self, frame: bytes) -> Any:
        self.waiting += 1
        try:
            worker = await self._idle.get()
        finally:
            self.waiting -= 1
        # A job continues even if its client disconnects, because its result must be read before the next job.
        return await completed(self._run(worker, frame))

    async def _run(self, worker: _Worker, frame: bytes) -> Any:
        try:
            return await worker.run(frame)
        finally:
            self._idle.put_nowait(worker)

    async def stop(self) -> None:
        for worker in self._workers:
            await worker.stop()


class _Worker:
    """One process, restarted by the next job if it has ended."""

    def __init__(self, cpu_s: float, priority: int) -> None:
        self._arguments = (str(cpu_s), str(priority))
        # The kernel ends a job earlier, where it has timers for this.
        self._limit_s = START_S + 2 * CLOCK_FACTOR * cpu_s
        self._process: asyncio.subprocess.Process | None = None

    async def start(self) -> asyncio.subprocess.Process:
        if self._process is None or self._process.returncode is not None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "barnabas.registry.schema_worker",
                *self._arguments,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                start_new_session=True,  # one signal ends it and its child; Ctrl-C reaches neither
            )
        return self._process

    async def run(self, frame: bytes) -> Any:
        process = await self.start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            async with asyncio.timeout(self._limit_s):
                process.stdin.write(frame)
                await process.stdin.drain()
                (length,) = LENGTH.unpack(await process.stdout.readexactly(LENGTH.size))
                kind, value = pickle.loads(await process.stdout.readexactly(length))
        except (OSError, asyncio.IncompleteReadError) as error:  # a TimeoutError is an OSError
            log.warning("the process that checks schemas ended; the next schema restarts it")
            await self.stop()
            raise WorkEndedError from error
        if kind == ENDED:
            raise WorkEndedError
        if kind == INVALID:
            raise InvalidSchemaError(value)
        return value

    async def stop(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            with contextlib.suppress(ProcessLookupError):
                _kill_group(process)
            await process.wait()


def _kill_group(process: asyncio.subprocess.Process) -> None:
    if hasattr(os, "killpg"):
        os.killpg(process.pid, signal.SIGKILL)
    else:  # Windows, where the process has no child
        process.kill()
