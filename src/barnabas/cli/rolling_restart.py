"""Restarts the brokers of a cluster one after the other, so that no partition lacks a replica that it could need.

Each broker stops in order, which hands on what it leads, and starts again; before the next one does, every replica is
in sync again. Where that is not so at the beginning, nothing is restarted, unless that is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.cli.cluster_health import ClusterHealth
from barnabas.cli.supervision import Say
from barnabas.errors import BarnabasError, RetriableError

LOOK_S = 0.25
TOLD_AGAIN_S = 5.0
"""What is waited for is told at once, and when it is something else so much later."""

Restart = Callable[[int], None]
"""Restarts a broker; returns when it has started again."""


class RollingRestart:
    """One rolling restart.

    :param brokers: their ids, in the order in which they are restarted.
    :param ask: returns how the cluster is; may raise what clients raise.
    :param now_s: monotonic seconds.
    :param sleep: waits for so many seconds.
    :param patience_s: so long it may take until all is in sync again.
    :param say: tells people what happens, in one line.
    """

    def __init__(
        self,
        brokers: Sequence[int],
        restart: Restart,
        ask: Callable[[], ClusterHealth],
        *,
        now_s: Callable[[], float],
        sleep: Callable[[float], object],
        say: Say,
        patience_s: float,
    ) -> None:
        self._brokers = brokers
        self._restart = restart
        self._ask = ask
        self._now_s = now_s
        self._sleep = sleep
        self._say = say
        self._patience_s = patience_s

    def run(self, *, force: bool) -> None:
        """Restart all.

        :param force: begin also where something is wrong, and go on when a broker has caught up with what it keeps
            itself.
        :raises BarnabasError: something is wrong before, a broker does not come back, or does not catch up; those after
            it were not restarted.
        """
        trouble = self._trouble()
        if trouble and not force:
            raise BarnabasError(f"nothing was restarted, for not all is well: {trouble}; --force restarts all the same")
        for number, broker in enumerate(self._brokers, start=1):
            self._say(f"broker {broker}, {number} of {len(self._brokers)}: stops and starts again")
            started_s = self._now_s()
            try:
                self._restart(broker)
                self._wait(broker if force else None)
            except BarnabasError as error:
                raise BarnabasError(f"{error}; {self._rest(number)}") from error
            self._say(f"broker {broker}: all in sync again after {self._now_s() - started_s:.1f} s")

    def _rest(self, done: int) -> str:
        left = ", ".join(map(str, self._brokers[done:]))
        return f"not restarted: {left}" if left else "all brokers were restarted"

    def _wait(self, only: int | None) -> None:
        deadline_s = self._now_s() + self._patience_s
        told, tell_s = "", 0.0
        while trouble := self._trouble(only):
            now_s = self._now_s()
            if now_s >= deadline_s:
                raise BarnabasError(f"after {self._patience_s:g} s not all is in sync again: {trouble}")
            if trouble != told and now_s >= tell_s:
                self._say(f"waiting: {trouble}")
                told, tell_s = trouble, now_s + TOLD_AGAIN_S
            self._sleep(LOOK_S)

    def _trouble(self, only: int | None = None) -> str:
        """Return what is wrong, with one broker or with any; empty: nothing."""
        try:
            health = self._ask()
        except RetriableError as error:
            return f"the brokers do not say how they are ({error})"
        there = {each.id for each in health.brokers if each.address is not None and each.groups is not None}
        away = [each for each in (self._brokers if only is None else [only]) if each not in there]
        if away:
            return " and ".join(f"broker {each} is away" for each in away)
        if only is None:
            return "" if health.is_healthy else health.summary
        lagging = sum(only in each.lagging for each in health.partitions)
        return f"{lagging} replicas of broker {only} are not in sync" if lagging else ""


class ManualRestart:
    """Says which broker somebody is to restart, and returns when that has gone.

    :param live: returns the brokers that live.
    """

    def __init__(self, live: Callable[[], Sequence[int]], *, sleep: Callable[[float], object], say: Say) -> None:
        self._live = live
        self._sleep = sleep
        self._say = say

    def __call__(self, broker: int) -> None:
        """Wait for as long as it takes."""
        self._say(f"restart broker {broker} now, with SIGTERM (for example: systemctl restart barnabas@{broker})")
        while self._is_there(broker):
            self._sleep(LOOK_S)

    def _is_there(self, broker: int) -> bool:
        try:
            return broker in self._live()
        except RetriableError:
            return True  # who was asked may have been the one that goes; others will tell
