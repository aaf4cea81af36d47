"""Supervises the brokers of a cluster on this machine: starts them, restarts them, and stops them in order.

All methods run on the calling thread; the threads of the processes only put events into a queue. So a KeyboardInterrupt
may interrupt the caller at any point; the caller then calls `stop`.
"""

from __future__ import annotations

import contextlib
import queue
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from barnabas.cli.child_process import ChildProcess, Ended, Event, Ready
from barnabas.clock import Clock
from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.exit_codes import EXIT_WRONG_SETTINGS, how_it_ended

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
"""The time limit in seconds of a broker's controlled shutdown. Afterwards, the supervisor kills the broker."""
LOOK_INTERVAL_S = 0.5
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0

Say = Callable[[str], None]
OnLine = Callable[[int, str], None]
"""A callback that gets a broker id and a log line of that broker."""


@dataclass(slots=True)
class Restarts:
    """The backoff before a process that has ended is restarted: 1 s, then 2 s, 4 s ... 30 s.

    If the process ran for at least the longest backoff, the next backoff is the shortest one.

    :param now_s: returns the monotonic time in seconds.
    """

    now_s: Callable[[], float]
    first_s: float = FIRST_PAUSE_S
    longest_s: float = LONGEST_PAUSE_S
    due_s: float | None = None
    """The monotonic time in seconds of the next start; None while the process is running."""
    _deaths: int = 0
    _started_s: float = float("inf")

    def died(self) -> float:
        """Record the end of the process. Return the backoff before its next start in seconds."""
        if self.now_s() - self._started_s >= self.longest_s:
            self._deaths = 0
        pause_s = min(self.first_s * 2.0 ** min(self._deaths, 16), self.longest_s)
        self._deaths += 1
        self.due_s = self.now_s() + pause_s
        return pause_s

    def started(self) -> None:
        """Record the start of the process."""
        self.due_s = None
        self._started_s = self.now_s()

    @property
    def is_due(self) -> bool:
        """True if it is time to start the process."""
        return self.due_s is not None and self.now_s() >= self.due_s


@dataclass(slots=True)
class Supervised:
    """A supervised broker. After its first start, the broker keeps its port.

    :param command: returns the command line for a port.
    """

    id: int
    port: int
    command: Callable[[int], Sequence[str]]
    restarts: Restarts
    child: ChildProcess | None = None
    address: str | None = None
    """The address of the broker; None until it is ready."""
    kill_due_s: float | None = None
    """The monotonic time in seconds at which a restarting broker is killed; None if no restart is in progress."""

    @property
    def name(self) -> str:
        """The name of the broker in messages."""
        return f"broker {self.id}"


class Supervisor:
    """Starts, supervises and stops brokers.

    :param say: called with a message for the user.
    :param on_line: called on threads with log lines of brokers.
    :param on_change: called when a broker is ready and when one has ended.
    :param look: called several times per second while brokers run.
    """

    def __init__(
        self,
        brokers: Sequence[Supervised],
        *,
        environment: Mapping[str, str],
        clock: Clock,
        restart: bool,
        say: Say,
        on_line: OnLine,
        on_change: Callable[[], None],
        look: Callable[[], None] = lambda: None,
    ) -> None:
        self.brokers = brokers
        self._environment = environment
        self._clock = clock
        self._restart = restart
        self._say = say
        self._on_line = on_line
        self._on_change = on_change
        self._look = look
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def start(self) -> None:
        """Start all brokers and wait until they are ready.

        :raises ConfigurationError: a broker rejects its settings.
        :raises BarnabasError: a broker ended or is not ready in time; the message has its last log line. The caller
            must call `stop`.
        """
        for broker in self.brokers:
            self._launch(broker)
        deadline_s = self._clock.monotonic() + START_TIMEOUT_S
        while waiting := [each for each in self.brokers if each.address is None]:
            event = self._next_event(deadline_s - self._clock.monotonic())
            if event is None:
                names = ", ".join(each.name for each in waiting)
                raise BarnabasError(f"{names} did not become ready within {START_TIMEOUT_S:.0f} s")
            begun = self._broker_of(event.child)
            if begun is not None and isinstance(event, Ended):
                failure = ConfigurationError if event.code == EXIT_WRONG_SETTINGS else BarnabasError
                raise failure(f"{begun.name} did not start: {event.child.last_line or how_it_ended(event.code)}")
            if begun is not None and isinstance(event, Ready):
                self._serves(begun, event)

    def keep(self) -> None:
        """Report brokers that have ended, and restart them if configured. Return when no broker is running."""
        while any(each.child or each.restarts.due_s is not None for each in self.brokers):
            event = self._next_event(LOOK_INTERVAL_S)
            broker = self._broker_of(event.child) if event is not None else None
            if broker is not None and isinstance(event, Ended):
                self._died(broker, event)
            if broker is not None and isinstance(event, Ready):
                self._serves(broker, event)
                self._say(f"{broker.name} serves again at {event.address}")
            self._look()
            self._kill_overdue()
            for each in self.brokers:
                if each.restarts.is_due:
                    self._launch(each)

    def restart(self, broker_id: int) -> None:
        """Stop a broker in order; `keep` then starts it again. `look` calls this.

        An unknown broker id is ignored.
        """
        broker = next((each for each in self.brokers if each.id == broker_id), None)
        if broker is None or broker.kill_due_s is not None:
            return
        if broker.child is None:
            self._launch(broker)
            return
        broker.kill_due_s = self._clock.monotonic() + STOP_TIMEOUT_S
        broker.child.terminate()

    def _kill_overdue(self) -> None:
        now_s = self._clock.monotonic()
        for broker in self.brokers:
            if broker.child is not None and broker.kill_due_s is not None and now_s >= broker.kill_due_s:
                self._say(f"{broker.name} did not end within {STOP_TIMEOUT_S:.0f} s and was killed")
                broker.child.kill()

    def stop(self) -> None:
        """Stop all brokers one after the other, so that each can move its leaderships; on an interrupt, kill the
        remaining brokers."""
        with self._killing_remaining():
            for broker in self.brokers:
                if broker.child is not None and broker.child.is_running and not broker.child.stop(STOP_TIMEOUT_S):
                    self._say(f"{broker.name} did not end within {STOP_TIMEOUT_S:.0f} s and was killed")

    def stop_together(self) -> None:
        """Stop all brokers at the same time; on an interrupt, kill the remaining brokers.

        This is for brokers whose replicas are on other machines, where they move their leaderships.
        """
        with self._killing_remaining():
            running = [each.child for each in self.brokers if each.child is not None and each.child.is_running]
            for child in running:
                child.terminate()
            deadline_s = self._clock.monotonic() + STOP_TIMEOUT_S
            for child in running:
                if not child.stop(max(0.0, deadline_s - self._clock.monotonic())):
                    self._say(f"{child.name} did not end within {STOP_TIMEOUT_S:.0f} s and was killed")

    @contextlib.contextmanager
    def _killing_remaining(self) -> Iterator[None]:
        try:
            yield
        finally:
            for broker in self.brokers:
                if broker.child is not None and broker.child.is_running:
                    broker.child.kill()

    def _next_event(self, timeout_s: float) -> Event | None:
        try:
            return self._events.get(timeout=max(timeout_s, 0))
        except queue.Empty:
            return None

    def _broker_of(self, child: ChildProcess) -> Supervised | None:
        return next((each for each in self.brokers if each.child is child), None)

    def _launch(self, broker: Supervised) -> None:
        broker.restarts.started()
        broker.child = ChildProcess(
            broker.name,
            broker.command(broker.port),
            self._environment,
            self._events,
            partial(self._on_line, broker.id),
        )

    def _serves(self, broker: Supervised, event: Ready) -> None:
        broker.address = event.address
        broker.port = int(event.address.rpartition(":")[2])
        self._on_change()

    def _died(self, broker: Supervised, event: Ended) -> None:
        broker.child = broker.address = None
        self._on_change()
        if broker.kill_due_s is not None:
            broker.kill_due_s = None
            self._launch(broker)
            return
        then = ""
        if self._restart:
            then = f"; restarting it in {broker.restarts.died():.0f} s"
        self._say(f"{broker.name} {how_it_ended(event.code)}{then}")
