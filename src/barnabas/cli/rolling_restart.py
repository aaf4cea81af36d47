"""Rolling restart: restarts the brokers of a cluster one at a time, so that partitions stay available.

Each broker shuts down in order, which moves its leaderships to other brokers, and starts again. The next broker follows
only when every replica is in sync again. If the cluster is unhealthy at the start, no broker is restarted unless
forced.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from barnabas.cli.cluster_health import ClusterHealth
from barnabas.cli.supervision import Say
from barnabas.errors import BarnabasError, RetriableError

LOOK_S = 0.25
REPORT_INTERVAL_S = 5.0
"""The minimum interval in seconds between two messages, even if the reason for waiting changes."""

Restart = Callable[[int], None]
"""Restarts a broker, and returns once it has started again."""


class RollingRestart:
    """One rolling restart.

    :param brokers: broker ids in the order of the restarts.
    :param ask: returns the health of the cluster; may raise errors of the client.
    :param now_s: returns the monotonic time in seconds.
    :param sleep: sleeps for a number of seconds.
    :param patience_s: time limit in seconds until all replicas are in sync again.
    :param say: called with a message for the user.
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
        """Restart all brokers.

        :param force: start even if the cluster is unhealthy, and wait only for the replicas on the restarted broker.
        :raises BarnabasError: the cluster is unhealthy, or a restarted broker does not come back or catch up. The
        remaining brokers are then not restarted.
        """
        trouble = self._trouble()
        if trouble and not force:
            raise BarnabasError(
                f"no broker was restarted, because the cluster is unhealthy: {trouble}; use --force to restart"
            )
        for number, broker in enumerate(self._brokers, start=1):
            self._say(f"broker {broker}, {number} of {len(self._brokers)}: restarting")
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
        reported, report_s = "", 0.0
        while trouble := self._trouble(only):
            now_s = self._now_s()
            if now_s >= deadline_s:
                raise BarnabasError(f"not all replicas are in sync after {self._patience_s:g} s: {trouble}")
            if trouble != reported and now_s >= report_s:
                self._say(f"waiting: {trouble}")
                reported, report_s = trouble, now_s + REPORT_INTERVAL_S
            self._sleep(LOOK_S)

    def _trouble(self, only: int | None = None) -> str:
        """Return the problems of the cluster, or of one broker; empty if there are none."""
        try:
            health = self._ask()
        except RetriableError as error:
            return f"the brokers do not respond ({error})"
        there = {each.id for each in health.brokers if each.address is not None and each.groups is not None}
        away = [each for each in (self._brokers if only is None else [only]) if each not in there]
        if away:
            return " and ".join(f"broker {each} is unavailable" for each in away)
        if only is None:
            return "" if health.is_healthy else health.summary
        lagging = sum(only in each.lagging for each in health.partitions)
        return f"{lagging} replicas of broker {only} are not in sync" if lagging else ""


class ManualRestart:
    """Asks the user to restart a broker, and waits until the broker has shut down.

    :param live: returns the ids of the registered brokers.
    """

    def __init__(self, live: Callable[[], Sequence[int]], *, sleep: Callable[[float], object], say: Say) -> None:
        self._live = live
        self._sleep = sleep
        self._say = say

    def __call__(self, broker: int) -> None:
        """Ask the user to restart a broker, and wait without a time limit until it has shut down."""
        self._say(f"restart broker {broker} now, with SIGTERM (for example: systemctl restart barnabas@{broker})")
        while self._is_there(broker):
            self._sleep(LOOK_S)

    def _is_there(self, broker: int) -> bool:
        try:
            return broker in self._live()
        except RetriableError:
            return True  # this request may have gone to the broker that is shutting down: ask again
