"""ZooKeeper servers that end are told, and started again where that is wanted."""

from __future__ import annotations

from barnabas.cli.zookeeper_watch import ZooKeeperWatch
from barnabas.clock import ManualClock
from barnabas.errors import CoordinationError


class FakeServers:
    """Three servers."""

    def __init__(self) -> None:
        self.exit_codes: list[int | None] = [None, None, None]
        self.can_start = True

    def restart(self, number: int) -> None:
        if not self.can_start:
            raise CoordinationError(f"ZooKeeper server {number} ended: no room")
        self.exit_codes[number] = None


def watch(*, restart: bool) -> tuple[FakeServers, ManualClock, list[str], ZooKeeperWatch]:
    servers, clock, said = FakeServers(), ManualClock(), []
    return servers, clock, said, ZooKeeperWatch(servers, restart=restart, now_s=clock.monotonic, say=said.append)


def test_dead_server_is_told_once() -> None:
    servers, clock, said, watching = watch(restart=False)
    servers.exit_codes[1] = -9
    watching.check()
    clock.advance(100)
    watching.check()
    assert said == ["ZooKeeper server 1 was ended by SIGKILL"]


def test_dead_server_is_started_again_after_its_pause() -> None:
    servers, clock, said, watching = watch(restart=True)
    servers.exit_codes[1] = 1
    watching.check()
    assert servers.exit_codes[1] == 1
    clock.advance(1)
    watching.check()
    assert servers.exit_codes == [None, None, None]
    assert said == [
        "ZooKeeper server 1 ended with exit code 1; restarting it in 1 s",
        "ZooKeeper server 1 serves again",
    ]


def test_server_that_does_not_come_up_is_tried_again_later() -> None:
    servers, clock, said, watching = watch(restart=True)
    servers.exit_codes[0], servers.can_start = -9, False
    watching.check()
    clock.advance(1)
    watching.check()
    assert said[1:] == ["ZooKeeper server 0 ended: no room"]
    watching.check()
    assert said[2:] == ["ZooKeeper server 0 was ended by SIGKILL; restarting it in 2 s"]
    servers.can_start = True
    clock.advance(2)
    watching.check()
    assert said[3:] == ["ZooKeeper server 0 serves again"]
