"""A second process asks for the restart of a broker by files in the cluster's folder."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.cli.cluster_file import ClusterFile
from barnabas.cli.restart_request import (
    LOCK_NAME,
    NAME,
    LocalRestart,
    request_restart,
    runs_in,
    take_request,
    withdraw_request,
)
from barnabas.clock import ManualClock
from barnabas.errors import BarnabasError

PORTS = {1: 9092, 2: 9093}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Path]:
    """The folder of a cluster whose lock is held, as it is while it runs."""
    ClusterFile(PORTS, {1: 11, 2: 12}).write(tmp_path)
    with (tmp_path / LOCK_NAME).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield tmp_path


def test_a_request_is_taken_once(tmp_path: Path) -> None:
    request_restart(tmp_path, 1)
    request_restart(tmp_path, 2)
    assert [take_request(tmp_path), take_request(tmp_path)] == [2, None]
    request_restart(tmp_path, 2)
    withdraw_request(tmp_path)
    withdraw_request(tmp_path)
    assert take_request(tmp_path) is None


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"broker": null}', b"\xff"])
def test_what_is_no_request_is_removed(tmp_path: Path, text: bytes) -> None:
    (tmp_path / NAME).write_bytes(text)
    assert take_request(tmp_path) is None
    assert not (tmp_path / NAME).exists()


def test_a_cluster_runs_where_the_lock_is_held(running: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert runs_in(running)
    other = tmp_path_factory.mktemp("other")
    assert not runs_in(other)
    (other / LOCK_NAME).touch()
    assert not runs_in(other)


def test_it_is_done_when_another_process_serves(running: Path) -> None:
    clock, steps = ManualClock(), [None, 12, 13]

    def sleep(seconds: float) -> None:
        clock.advance(seconds)
        if steps[0] is None:
            assert take_request(running) == 2
        process = steps.pop(0)
        ClusterFile(PORTS, {1: 11} if process is None else {1: 11, 2: process}).write(running)

    LocalRestart(running, 60.0, now_s=clock.monotonic, sleep=sleep)(2)
    assert steps == []


def test_a_broker_that_does_not_come_back_is_told_and_nothing_is_asked_any_more(running: Path) -> None:
    clock = ManualClock()
    with pytest.raises(BarnabasError, match="broker 2 has not restarted within 5 s"):
        LocalRestart(running, 5.0, now_s=clock.monotonic, sleep=clock.advance)(2)
    assert take_request(running) is None


def test_a_cluster_that_has_ended_is_told(tmp_path: Path) -> None:
    ClusterFile(PORTS, {1: 11}).write(tmp_path)
    clock = ManualClock()
    with pytest.raises(BarnabasError, match=r"no cluster runs in .* any more"):
        LocalRestart(tmp_path, 5.0, now_s=clock.monotonic, sleep=clock.advance)(1)
