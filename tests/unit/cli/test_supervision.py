"""Brokers that are kept running, with programs of a few lines in their place."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from barnabas.cli.child_process import ChildProcess, Ended, Event, Ready
from barnabas.cli.supervision import Restarts, Supervised, Supervisor
from barnabas.clock import SYSTEM_CLOCK, ManualClock
from barnabas.errors import BarnabasError

SERVE = """
import signal, sys
print("serving", file=sys.stderr, flush=True)
print("ready 127.0.0.1:" + sys.argv[1], flush=True)
signal.pause()
"""
STUBBORN = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready 127.0.0.1:1", flush=True)
signal.pause()
"""
FAIL = "import sys; sys.exit('barnabas: cannot listen on 127.0.0.1:1')"


class Interrupted(BaseException):
    """Raised in the place of Ctrl-C."""


class Watched:
    """A supervisor, and what it has said."""

    def __init__(self, *programs: str, restart: bool = False) -> None:
        self.said: list[str] = []
        self.lines: list[str] = []
        self.looks: list[Callable[[], None]] = []
        self.brokers = [
            Supervised(number, 7000 + number, self._command(program), Restarts(SYSTEM_CLOCK.monotonic, 0.01, 0.04))
            for number, program in enumerate(programs, 1)
        ]
        self.supervisor = Supervisor(
            self.brokers,
            environment=os.environ,
            clock=SYSTEM_CLOCK,
            restart=restart,
            say=self.said.append,
            on_line=lambda broker, line: self.lines.append(f"broker {broker}: {line}"),
            on_change=lambda: None,
            look=self._look,
        )

    @staticmethod
    def _command(program: str) -> Callable[[int], list[str]]:
        return lambda port: [sys.executable, "-c", program, str(port)]

    def _look(self) -> None:
        if self.looks and all(each.address for each in self.brokers):
            self.looks.pop(0)()

    def keep(self, *steps: Callable[[], None]) -> None:
        """Keep them; do each step when all serve, and stop to keep at the last."""

        def interrupt() -> None:
            raise Interrupted

        self.looks = [*steps, interrupt]
        with pytest.raises(Interrupted):
            self.supervisor.keep()

    def kill(self, number: int, sign: int = signal.SIGKILL) -> Callable[[], None]:
        def kill() -> None:
            child = self.brokers[number - 1].child
            assert child is not None
            os.kill(child.pid, sign)
            self.brokers[number - 1].address = None  # the next step waits until it serves again

        return kill


@pytest.fixture
def watch() -> Iterator[Callable[..., Watched]]:
    made: list[Watched] = []

    def make(*programs: str, restart: bool = False) -> Watched:
        made.append(Watched(*programs, restart=restart))
        return made[-1]

    yield make
    for each in made:
        each.supervisor.stop()


def test_all_serve_when_start_returns(watch) -> None:
    watched = watch(SERVE, SERVE)
    watched.supervisor.start()
    assert [each.address for each in watched.brokers] == ["127.0.0.1:7001", "127.0.0.1:7002"]


def test_stop_ends_all_of_them(watch) -> None:
    watched = watch(SERVE, SERVE)
    watched.supervisor.start()
    watched.supervisor.stop()
    assert [each.child.is_running for each in watched.brokers] == [False, False]


def test_broker_that_does_not_start_is_named_with_what_it_said(watch) -> None:
    watched = watch(SERVE, FAIL)
    with pytest.raises(BarnabasError, match=r"broker 2 did not start: cannot listen on 127\.0\.0\.1:1"):
        watched.supervisor.start()
    watched.supervisor.stop()
    assert not watched.brokers[0].child.is_running


def test_dead_broker_is_told_and_started_again_on_its_port(watch) -> None:
    watched = watch(SERVE, SERVE, restart=True)
    watched.supervisor.start()
    watched.keep(watched.kill(2))
    assert watched.said == [
        "broker 2 was ended by SIGKILL; restarting it in 0 s",
        "broker 2 serves again at 127.0.0.1:7002",
    ]


def test_dead_broker_is_only_told_where_it_is_not_to_be_started_again(watch) -> None:
    watched = watch(SERVE)
    watched.supervisor.start()
    watched.looks = [watched.kill(1)]
    watched.supervisor.keep()  # and returns, as none is left
    assert watched.said == ["broker 1 was ended by SIGKILL"]


def test_each_death_is_told_with_its_own_exit_code(watch) -> None:
    watched = watch(SERVE, restart=True)
    watched.supervisor.start()
    watched.keep(watched.kill(1), watched.kill(1, signal.SIGTERM))
    assert [line for line in watched.said if "ended" in line] == [
        "broker 1 was ended by SIGKILL; restarting it in 0 s",
        "broker 1 was ended by SIGTERM; restarting it in 0 s",
    ]


def test_lines_are_passed_on_with_the_brokers_name(watch) -> None:
    watched = watch(SERVE)
    watched.supervisor.start()
    watched.looks = [watched.kill(1)]
    watched.supervisor.keep()
    assert watched.lines == ["broker 1: serving"]


def test_stop_that_is_interrupted_kills_what_is_left(watch, monkeypatch) -> None:
    watched = watch(STUBBORN, STUBBORN)
    watched.supervisor.start()

    def interrupt(_child: ChildProcess, _timeout_s: float) -> bool:
        raise Interrupted

    monkeypatch.setattr(ChildProcess, "stop", interrupt)
    with pytest.raises(Interrupted):
        watched.supervisor.stop()
    assert [each.child.is_running for each in watched.brokers] == [False, False]


def test_process_that_does_not_end_is_killed() -> None:
    events: SimpleQueue[Event] = SimpleQueue()
    child = ChildProcess("it", [sys.executable, "-c", STUBBORN], os.environ, events, lambda _line: None)
    assert isinstance(events.get(timeout=60), Ready)
    assert not child.stop(timeout_s=0.01)
    ended = events.get(timeout=60)
    assert isinstance(ended, Ended)
    assert ended.code == -signal.SIGKILL


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process that its parent is gone")
def test_process_ends_when_the_one_that_started_it_is_killed(tmp_path: Path) -> None:
    fifo = tmp_path / "held-open-while-it-lives"
    os.mkfifo(fifo)
    program = f"""
import os, subprocess, sys
from barnabas.cli.ends_with_parent import ending_with_this_process
child = "import signal; held = open({str(fifo)!r}, 'w'); print('here', flush=True); signal.pause()"
subprocess.Popen(ending_with_this_process([sys.executable, "-c", child]))
sys.stdin.read()
"""
    parent = subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with parent, fifo.open() as held:
        assert parent.stdout is not None
        assert parent.stdout.readline() == b"here\n"
        parent.kill()
        assert held.read() == ""  # its end: nobody has it open any more


def test_restarts_come_later_and_later_and_soon_again_after_a_long_life() -> None:
    clock = ManualClock()
    restarts = Restarts(clock.monotonic)
    pauses = []
    for _ in range(7):
        restarts.started()
        assert not restarts.is_due
        pauses.append(restarts.died())
    assert pauses == [1, 2, 4, 8, 16, 30, 30]
    clock.advance(29.9)
    assert not restarts.is_due
    clock.advance(0.1)
    assert restarts.is_due
    restarts.started()
    clock.advance(30)
    assert restarts.died() == 1


def test_broker_that_is_to_restart_ends_in_order_and_starts_at_once(watch) -> None:
    watched = watch(SERVE, SERVE)
    watched.supervisor.start()
    before = [each.child.pid for each in watched.brokers]

    def restart() -> None:
        watched.supervisor.restart(2)
        watched.supervisor.restart(2)  # it is under way
        watched.supervisor.restart(9)
        watched.brokers[1].address = None

    watched.keep(restart)
    after = [each.child.pid for each in watched.brokers]
    assert after[0] == before[0]
    assert after[1] != before[1]
    assert watched.said == ["broker 2 serves again at 127.0.0.1:7002"]


def test_broker_that_does_not_end_is_killed_and_started_again(monkeypatch, watch) -> None:
    monkeypatch.setattr("barnabas.cli.supervision.STOP_TIMEOUT_S", 0.0)
    watched = watch(STUBBORN)
    watched.supervisor.start()

    def restart() -> None:
        watched.supervisor.restart(1)
        watched.brokers[0].address = None

    watched.keep(restart)
    assert watched.said[0] == "broker 1 did not end within 0 s and was killed"
    assert watched.said[-1] == "broker 1 serves again at 127.0.0.1:1"


def test_broker_that_is_not_there_is_started_when_it_is_to_restart(watch) -> None:
    watched = watch(SERVE, SERVE)
    watched.supervisor.start()

    def look() -> None:
        if watched.brokers[1].child is None:
            watched.supervisor.restart(2)
        watched._look()

    watched.supervisor._look = look
    watched.keep(watched.kill(2))
    assert watched.said[-1] == "broker 2 serves again at 127.0.0.1:7002"
