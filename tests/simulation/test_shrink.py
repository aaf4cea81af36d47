"""What is left of a run that fails is what it fails by."""

from __future__ import annotations

import dataclasses

import pytest

from tests.simulation.drawing import draw_plan
from tests.simulation.plan import FAULTS, LEADER, MOMENTS, Fault, Plan
from tests.simulation.shrink import shrink
from tests.simulation.story import Result


def _result(seed: int, plan: Plan, *, fails: bool) -> Result:
    return Result(seed, [], None, ["broker 3 lost offset 7"] if fails else [], plan.seconds, plan)


def test_faults_that_do_not_matter_are_left_out_and_those_that_do_are_shortened() -> None:
    guilty = [Fault(2.0, "kill", (3,), (4.0,)), Fault(2.5, "kill_some", (1, 2), (1.0, 2.0))]
    others = [Fault(at_s, "slow_down", (), (1.0,)) for at_s in (0.5, 2.2, 6.0, 8.0)]
    plan = Plan(20.0, tuple(sorted([*guilty, *others], key=lambda fault: fault.at_s)))

    def run_plan(seed: int, plan: Plan) -> Result:
        kills = [fault for fault in plan.faults if fault.name == "kill" and fault.for_s[0] > 0.9]
        return _result(seed, plan, fails=bool(kills) and any(2 in fault.brokers for fault in plan.faults))

    least = shrink(_result(1, plan, fails=True), run_plan=run_plan)
    assert [(fault.name, fault.brokers) for fault in least.plan.faults] == [("kill", (3,)), ("kill_some", (2,))]
    assert least.plan.faults[0].for_s == (1.0,)
    assert least.plan.seconds < 5.0


def test_fault_waits_for_no_moment_where_it_does_not_matter() -> None:
    plan = Plan(2.0, (Fault(1.0, "kill", (LEADER,), (0.05,), upon=("claim",)),))
    least = shrink(
        _result(1, plan, fails=True), run_plan=lambda seed, plan: _result(seed, plan, fails=bool(plan.faults))
    )
    assert [fault.upon for fault in least.plan.faults] == [()]


def test_drawn_plans_have_faults_that_wait_for_each_moment() -> None:
    drawn = {each for seed in range(100) for fault in draw_plan(seed, 10.0, 3, 1.0).faults for each in fault.upon}
    assert drawn == set(MOMENTS)


def test_other_failure_does_not_count() -> None:
    plan = Plan(20.0, (Fault(1.0, "kill", (1,), (1.0,)),))

    def run_plan(seed: int, plan: Plan) -> Result:
        return dataclasses.replace(_result(seed, plan, fails=True), broken=["something else"])

    assert shrink(_result(1, plan, fails=True), run_plan=run_plan).plan == plan


@pytest.mark.parametrize("seed", range(20))
def test_plan_comes_from_the_seed_alone_and_is_written_as_it_is_read(seed: int) -> None:
    plan = draw_plan(seed, 30.0, 4, 6.0)
    assert plan == draw_plan(seed, 30.0, 4, 6.0)
    assert eval(plan.told(), {"Plan": Plan, "Fault": Fault}) == plan
    assert {fault.name for fault in plan.faults} <= set(FAULTS)


def test_plan_is_written_with_the_world_that_it_is_made_for() -> None:
    faults = (Fault(1.0, "kill", (1,), (1.0,), upon=("claim", "commit")),)
    plan = Plan(3.0, faults, 0.25, 3, (("log_flush_interval_messages", 1),))
    assert eval(plan.told(), {"Plan": Plan, "Fault": Fault}) == plan
