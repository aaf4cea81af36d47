"""Rounds of contenders, with servers and clients that only pretend: order, failures, what is left out."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from bench import contest as contest_module
from bench.arena import Arena, remove_leftovers
from bench.contest import Contender, Contest, series_of
from bench.downloads import NotStartedError, UnavailableError
from bench.drivers.driver import Driver
from bench.drivers.job import Job, Outcome
from bench.peers.server import NO_SETTINGS, Server
from bench.processes import ClientError
from bench.progress import Progress
from bench.scale import Scale

SCALE = Scale("quick", rounds=2, stored_gb=1, limit_s=1)


class PretendedServer(Server):
    """A broker without a process."""

    name = "barnabas"
    title = "Barnabas"
    protocol = "kafka"
    settings = ""
    stopped = 0
    starts = 0
    fails = 0
    topics: ClassVar[list[tuple[str, int, dict[str, str]]]] = []

    def start(self) -> None:
        type(self).starts += 1
        if type(self).starts <= type(self).fails:
            raise NotStartedError("ended at its start")
        self._process = cast(Any, SimpleNamespace(is_running=True))

    def stop(self) -> None:
        type(self).stopped += 1

    def launch(self) -> Any:
        raise NotImplementedError

    def version(self) -> str:
        return "1"

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] = NO_SETTINGS) -> None:
        self.topics.append((topic, partitions, dict(settings)))

    def delete_topic(self, topic: str) -> None:
        del topic

    def data_folders(self, topic: str) -> list[Path]:
        del topic
        return []

    def cpu_s(self) -> float:
        return 1.0

    def memory_mib_max(self) -> float:
        return 42.0

    def reset_memory_peak(self) -> None:
        pass


class PretendedDriver(Driver):
    """A client that notes its turns, and fails in those that it is told to."""

    def __init__(self, name: str, turns: list[str], failing: tuple[int, ...] = (), missing: str = "") -> None:
        super().__init__(name, "kafka")
        self._turns = turns
        self._failing = failing
        self._missing = missing
        self.jobs: list[Job] = []

    def check(self) -> None:
        if self._missing:
            raise UnavailableError(self._missing)

    def run(self, server: Server, job: Job, limit_s: float) -> Outcome:
        del server, limit_s
        self._turns.append(self.name)
        self.jobs.append(job)
        if len(self.jobs) in self._failing:
            raise ClientError("it broke")
        return Outcome(job.records, 2.0, 0.5)


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> dict[str, Driver]:
    """The clients there are; tests add theirs."""
    drivers: dict[str, Driver] = {}
    monkeypatch.setattr(PretendedServer, "starts", 0)
    monkeypatch.setattr(PretendedServer, "topics", [])
    monkeypatch.setattr(PretendedServer, "stopped", 0)
    monkeypatch.setattr(PretendedServer, "fails", 0)
    monkeypatch.setattr(contest_module, "DRIVERS", drivers)
    monkeypatch.setattr("bench.arena.SERVERS", {"barnabas": PretendedServer})
    monkeypatch.setattr(contest_module.os, "sync", lambda: None)
    return drivers


def run(tmp_path: Path, *clients: str, job: Job | None = None, shares: tuple[float, ...] = ()) -> Any:
    contenders = [Contender("barnabas", client, *shares[number : number + 1]) for number, client in enumerate(clients)]
    with Arena(tmp_path, Progress(), {}) as arena:
        return Contest("W0", arena, SCALE, Progress()).run("case", job or Job("produce", 100_000), contenders)


def test_contenders_take_turns_after_a_warm_up(tmp_path: Path, pretended: dict[str, Driver]) -> None:
    turns: list[str] = []
    pretended |= {"a": PretendedDriver("A", turns), "b": PretendedDriver("B", turns)}
    case = run(tmp_path, "a", "b")
    assert turns == ["A", "B"] * 3
    assert [len(row.runs) for row in case.rows] == [2, 2], "the warm-up is not kept"
    assert case.rows[0].records_per_s == 50_000


def test_the_warm_up_is_shorter_and_slow_clients_get_their_share(tmp_path: Path, pretended: dict[str, Driver]) -> None:
    driver = PretendedDriver("A", [])
    pretended["a"] = driver
    run(tmp_path, "a", shares=(0.1,))
    assert [job.records for job in driver.jobs] == [2_500, 10_000, 10_000]


def test_what_others_are_compared_with_is_one_producer(tmp_path: Path, pretended: dict[str, Driver]) -> None:
    driver = PretendedDriver("A", [])
    pretended["a"] = driver
    contenders = [Contender("barnabas", "a", plain=True), Contender("barnabas", "a")]
    with Arena(tmp_path, Progress(), {}) as arena:
        Contest("W0", arena, SCALE, Progress()).run(
            "case", Job("produce", 5_000, acks="all", producers=3), contenders, 1
        )
    assert [(job.acks, job.producers) for job in driver.jobs] == [("1", 1), ("all", 3)] * 2


def test_each_run_gets_a_topic_with_the_settings_of_the_job(tmp_path: Path, pretended: dict[str, Driver]) -> None:
    pretended["a"] = PretendedDriver("A", [])
    run(tmp_path, "a", job=Job("produce", 5_000, partitions=2, topic_settings=(("flush.messages", "1"),)))
    assert [each[1:] for each in PretendedServer.topics] == [(2, {"flush.messages": "1"})] * 3
    assert len({name for name, *_ in PretendedServer.topics}) == 3


def test_one_that_fails_is_left_out_of_what_follows(tmp_path: Path, pretended: dict[str, Driver]) -> None:
    turns: list[str] = []
    pretended |= {"a": PretendedDriver("A", turns, failing=(2,)), "b": PretendedDriver("B", turns)}
    case = run(tmp_path, "a", "b")
    assert turns == ["A", "B", "A", "B", "B"]
    assert case.rows[0].problem == "it broke"
    assert len(case.rows[1].runs) == 2


def test_one_that_cannot_be_had_is_told(
    tmp_path: Path, pretended: dict[str, Driver], capsys: pytest.CaptureFixture[str]
) -> None:
    pretended["a"] = PretendedDriver("A", [], missing="the package a is not installed")
    case = run(tmp_path, "a")
    assert case.rows[0].problem == "the package a is not installed"
    assert "A with Barnabas is left out: the package a is not installed" in capsys.readouterr().err


def test_a_log_is_filled_once_for_all_who_read_it(tmp_path: Path, pretended: dict[str, Driver]) -> None:
    filler, reader = PretendedDriver("confluent", []), PretendedDriver("A", [])
    pretended |= {"confluent": filler, "a": reader}
    run(tmp_path, "a", "a", job=Job("consume", 8_000))
    assert [(job.action, job.records) for job in filler.jobs] == [("produce", 8_000)]
    assert {job.topic for job in reader.jobs} == {filler.jobs[0].topic}


def test_servers_are_stopped_and_their_folders_removed(tmp_path: Path, pretended: dict[str, Driver]) -> None:
    pretended["a"] = PretendedDriver("A", [])
    run(tmp_path, "a")
    assert PretendedServer.stopped == 1
    assert not list(tmp_path.iterdir())


def test_servers_are_stopped_after_ctrl_c(tmp_path: Path, pretended: dict[str, Driver]) -> None:
    del pretended

    def interrupted() -> None:
        with Arena(tmp_path, Progress(), {}) as arena:
            arena.server("barnabas")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert PretendedServer.stopped == 1


def test_a_server_that_does_not_start_gets_a_second_try(
    tmp_path: Path, pretended: dict[str, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    del pretended
    monkeypatch.setattr(PretendedServer, "fails", 1)
    with Arena(tmp_path, Progress(), {}) as arena:
        assert arena.server("barnabas").title == "Barnabas"
    assert PretendedServer.starts == 2


def test_a_server_that_never_starts_is_left_out_from_then_on(
    tmp_path: Path, pretended: dict[str, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    del pretended
    monkeypatch.setattr(PretendedServer, "fails", 9)
    known: dict[str, str] = {}
    with Arena(tmp_path, Progress(), known) as arena:
        for _ in range(2):
            with pytest.raises(UnavailableError):
                arena.server("barnabas")
    assert PretendedServer.starts == 2
    assert known == {"barnabas": "ended at its start"}


def test_a_series_is_the_rate_between_samples() -> None:
    assert series_of([(0.5, 100), (1.0, 300), (1.0, 300)], 1_000) == [[0.1, 200.0], [0.3, 400.0]]


def test_the_brokers_cpu_time_for_a_warm_up_does_not_count(
    tmp_path: Path, pretended: dict[str, Driver], monkeypatch: pytest.MonkeyPatch
) -> None:
    class WarmingUp(PretendedDriver):
        def run(self, server: Server, job: Job, limit_s: float) -> Outcome:
            return replace(super().run(server, job, limit_s), uncounted=job.records)

    times = iter(range(0, 100, 10))
    monkeypatch.setattr(PretendedServer, "cpu_s", lambda _: float(next(times)))
    pretended["a"] = WarmingUp("A", [])
    assert run(tmp_path, "a").rows[0].runs[0].cpu_server_s == 5.0


def test_folders_of_a_killed_bench_are_removed_and_those_of_a_running_one_stay(tmp_path: Path) -> None:
    for owner in ("999999999", str(os.getpid())):
        (tmp_path / f"barnabas-bench-{owner}-kafka-x").mkdir()
    (tmp_path / "kafka").mkdir()
    remove_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {f"barnabas-bench-{os.getpid()}-kafka-x", "kafka"}
