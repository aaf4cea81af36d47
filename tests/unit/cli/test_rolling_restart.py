"""Brokers are restarted one after the other, and none while something is not in sync."""

from __future__ import annotations

import pytest

from barnabas.cli.cluster_health import BrokerHealth, ClusterHealth, PartitionHealth
from barnabas.cli.rolling_restart import LOOK_S, ManualRestart, RollingRestart
from barnabas.clock import ManualClock
from barnabas.errors import BarnabasError, DisconnectedError

BROKERS = (1, 2, 3)


def health(isr: tuple[int, ...] = BROKERS, live: tuple[int, ...] = BROKERS) -> ClusterHealth:
    """Three brokers with one partition."""
    partition = PartitionHealth("clicks", 0, isr[0] if isr else None, BROKERS, isr, 1)
    brokers = tuple(
        BrokerHealth(each, f"here:{each}" if each in live else None, None, 0, 1, 1, (), 0 if each in live else None)
        for each in BROKERS
    )
    return ClusterHealth("id", 1, brokers, (partition,))


class Cluster:
    """A cluster that needs three looks to be in sync again after a restart."""

    def __init__(self, *, force: bool = False, patience_s: float = 60.0) -> None:
        self.clock = ManualClock()
        self.restarted: list[int] = []
        self.said: list[str] = []
        self.after: list[ClusterHealth | BarnabasError] = [
            DisconnectedError("nobody answers"), health((2, 3), (2, 3)), health((2, 3)), health(),
        ]  # fmt: skip
        self.coming: list[ClusterHealth | BarnabasError] = [health()]
        self._force = force
        self._patience_s = patience_s

    def run(self) -> None:
        RollingRestart(
            BROKERS,
            self._restart,
            self._ask,
            now_s=self.clock.monotonic,
            sleep=self.clock.advance,
            say=self.said.append,
            patience_s=self._patience_s,
        ).run(force=self._force)

    def _restart(self, broker: int) -> None:
        assert len(self.coming) == 1, "all that there was to be waited for came"
        assert self._force or self.coming == [health()]
        self.restarted.append(broker)
        self.coming = list(self.after)

    def _ask(self) -> ClusterHealth:
        now = self.coming.pop(0) if len(self.coming) > 1 else self.coming[0]
        if isinstance(now, BarnabasError):
            raise now
        return now


def test_each_broker_follows_when_all_is_in_sync_again() -> None:
    cluster = Cluster()
    cluster.run()
    assert cluster.restarted == [1, 2, 3]
    assert cluster.said[0] == "broker 1, 1 of 3: restarting"
    assert "waiting: the brokers do not respond (nobody answers)" in cluster.said
    assert cluster.said[-1] == f"broker 3: all in sync again after {3 * LOOK_S:.1f} s"


@pytest.mark.parametrize(
    ("before", "told"),
    [
        (health((1, 2)), "1 of 3 replicas not in sync"),
        (health((1, 2), (1, 2)), "broker 3 is unavailable"),
        (DisconnectedError("nobody answers"), "nobody answers"),
    ],
)
def test_nothing_is_restarted_where_not_all_is_well(before: ClusterHealth | BarnabasError, told: str) -> None:
    cluster = Cluster()
    cluster.coming = [before]
    with pytest.raises(BarnabasError, match="no broker was restarted") as caught:
        cluster.run()
    assert told in str(caught.value)
    assert cluster.restarted == []


def test_by_force_what_was_not_in_sync_before_is_not_waited_for() -> None:
    cluster = Cluster(force=True)
    cluster.coming = [health((1,))]
    cluster.after = [health((1, 2, 3), (1,)), health((1, 2, 3))]
    cluster.run()
    assert cluster.restarted == [1, 2, 3]


def test_a_broker_that_does_not_catch_up_is_the_last() -> None:
    cluster = Cluster(patience_s=10.0)
    cluster.after = [health((2, 3))]
    with pytest.raises(BarnabasError) as caught:
        cluster.run()
    assert str(caught.value) == (
        "not all replicas are in sync after 10 s: 1 of 3 replicas not in sync; not restarted: 2, 3"
    )
    assert cluster.restarted == [1]


def test_by_hand_is_waited_for_until_the_broker_has_gone() -> None:
    clock, said = ManualClock(), []
    looks = [[1, 2], DisconnectedError("who was asked goes"), [1, 2], [2]]

    def live() -> list[int]:
        now = looks.pop(0)
        if isinstance(now, BarnabasError):
            raise now
        return now

    ManualRestart(live, sleep=clock.advance, say=said.append)(1)
    assert looks == []
    assert said == ["restart broker 1 now, with SIGTERM (for example: systemctl restart barnabas@1)"]
