"""Runs of whole brokers from seeds; `make simulate` has many more of them."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.replication.in_sync import RemoteReplicas
from tests.simulation import loop, pool
from tests.simulation.invariants import Invariants
from tests.simulation.plan import FOLLOWER, LEADER, SAME, Fault, Plan
from tests.simulation.story import WORKLOADS, run
from tests.simulation.test_planted_bugs import OLD_COPY_STARTS_FIRST

ROOT = Path(__file__).parents[2]

SEEDS = [1, 2, 3, 4, 5, 6, 7, 8]


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_whatever_befalls_the_brokers(seed: int) -> None:
    result = run(seed, workloads=())
    assert result.ok, result.told()
    assert result.report is not None
    assert result.report.records > 0


@pytest.mark.parametrize("workload", WORKLOADS)
def test_what_was_promised_of_groups_compaction_topics_retention_and_owners_holds(workload: str) -> None:
    result = run(2, workloads=[workload])
    assert result.ok, result.told()


def test_who_ends_a_start_in_order_for_want_of_a_tree_loses_nothing_with_its_power() -> None:
    faults = (
        Fault(0.8, "kill", (LEADER,), (0.35,)),
        Fault(1.18, "tree_down", (), (0.4,)),  # its logs are open again by then
        Fault(1.45, "lose_power", (SAME,), (0.02,)),
    )
    plan = Plan(2.5, faults, scale=0.25, machines=3, settings=(("log_flush_interval_messages", 1_000_000),))
    result = run(1, plan=plan, workloads=())
    assert result.ok, result.told()
    assert sum("does not start" in what for _, what in result.story) > 1


def test_leader_that_missed_its_successor_truncates_its_log_and_follows() -> None:
    """The successor loses its power and withdraws, so that the old leader finds a state without a leader."""
    faults = tuple(
        fault
        for at_s in (0.4, 3.0)
        for fault in (
            Fault(at_s, "stop", (LEADER,), (2.4,)),
            Fault(at_s + 0.001, "stop", (FOLLOWER,), (1.3,), upon=("claim",)),
            Fault(at_s + 0.002, "lose_power", (LEADER,), (0.05,)),
        )
    )
    plan = Plan(9.0, faults, scale=0.25, machines=3, settings=(("log_flush_interval_messages", 1_000_000),))
    result = run(1, plan=plan, workloads=())
    assert result.ok, result.told()
    assert any("loses its power" in what for _, what in result.story)


def test_older_copy_of_a_disk_that_starts_first_loses_nothing() -> None:
    result = run(1, plan=OLD_COPY_STARTS_FIRST, workloads=())
    assert result.ok, result.told()
    assert any("is restored from copy" in what for _, what in result.story)


def test_what_a_broker_caught_and_nobody_foresaw_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    def wanted_isr(*_: object) -> None:
        raise TypeError("five arguments")

    monkeypatch.setattr(RemoteReplicas, "wanted_isr", wanted_isr)
    result = run(1, workloads=())
    assert [line for line in result.broken if line.startswith("nobody foresaw")] == [
        "nobody foresaw: cannot write in-sync replicas to the metadata store; retrying: TypeError('five arguments')"
    ]


def test_a_seed_tells_the_same_story_each_time() -> None:
    first, second = (run(5, workloads=WORKLOADS) for _ in range(2))
    assert first.story == second.story
    assert first.report == second.report
    assert first.simulated_s == second.simulated_s


# In the last three a set's order once was that of what was proposed to the tree, read of it, or ended by a consumer.
@pytest.mark.parametrize("seed", [6, 120092, 130111, 130136])
def test_a_seed_tells_the_same_story_in_another_process_whatever_its_hashes(seed: int) -> None:
    tellers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.simulation", f"--seed={seed}"],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        for hash_seed in ("1", "2")
    ]
    told = [teller.communicate()[0] for teller in tellers]
    assert told[0] == told[1]
    assert b"all faults have ended" in told[0]
    assert [teller.returncode for teller in tellers] == [0, 0]


def test_a_seed_tells_the_same_story_whatever_process_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # Of what is not on a disk yet a loss of power leaves a part that is drawn: there must be as much of it each time.
    plan = Plan(6.0, tuple(Fault(at_s, "lose_power", (1, 2, 3), (0.1,) * 3) for at_s in (0.5, 1.5, 2.5, 3.5, 4.5)))
    stories = []
    for process_id in (1, 1_234_567):
        monkeypatch.setattr(os, "getpid", lambda process_id=process_id: process_id)
        stories.append(run(1, plan=replace(plan, settings=(("log_flush_interval_messages", 1),)), workloads=()).story)
    assert stories[0] == stories[1]


def test_a_run_without_an_end_is_a_failure_with_its_story(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop, "MOST_STEPS", 2_000)
    result = run(1)
    assert not result.ok
    assert any("2000 steps" in each for each in result.broken)
    assert result.story


def test_a_step_without_an_end_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(_: Invariants) -> None:
        while True:
            signal.raise_signal(signal.SIGALRM)  # the time is over now, and not earlier, however slow the machine is

    monkeypatch.setattr(Invariants, "look", hang)
    result = pool.run_in_time(1, None)
    assert not result.ok
    assert any("no end" in each for each in result.broken)


def test_a_run_through_which_the_machine_stood_still_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    real_s = time.monotonic
    slept = itertools.count(0, 2 * pool.MOST_REAL_S)
    monkeypatch.setattr(time, "monotonic", lambda: real_s() + next(slept))
    (result,) = pool.run_many([1], 1.0)
    assert result.ok, result.told()


def test_a_run_whose_process_has_died_is_a_failure() -> None:
    worker = pool._Worker(multiprocessing.get_context("forkserver"))
    worker.seed = 7
    worker.process.kill()
    worker.process.join()
    result = worker.result()
    worker.end()
    assert (result.seed, result.ok, result.broken) == (7, False, ["its process has died"])
