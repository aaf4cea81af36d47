"""Finds the least that has to befall a cluster for a run from a seed to fail: the rest of its story only distracts."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.plan import Fault, Plan
from tests.simulation.story import Result, run

MOST_S = 120.0
"""So long it may take, in real time."""
AFTER_S = 0.5
SHORTER = 0.5
LEAST_S = 0.05


def shrink(result: Result, most_s: float = MOST_S, run_plan: Callable[[int, Plan], Result] | None = None) -> Result:
    """Return a failed run with as few and as short faults as could be found in time that fails in the same way.

    :param most_s: how long to try, in seconds of real time.
    :param run_plan: runs a seed with a plan; with what was planted, if anything was.
    """
    again = run_plan or (lambda seed, plan: run(seed, plan.seconds, plan=plan))
    end_s = time.monotonic() + most_s
    kinds = kinds_of(result)
    best = result
    is_shorter = True
    while is_shorter:
        is_shorter = False
        for plan in _smaller(best.plan):
            if time.monotonic() > end_s:
                return best
            found = again(best.seed, plan)
            if kinds & kinds_of(found):
                best, is_shorter = found, True
                break
    return best


def kinds_of(result: Result) -> set[str]:
    """Return in which ways a run has failed, without the numbers in it."""
    kinds = {re.sub(r"\d+", "n", line) for line in result.broken}
    if result.report is not None:
        kinds |= {str(finding.anomaly) for finding in result.report.findings}
    return kinds


def _smaller(plan: Plan) -> Iterator[Plan]:
    """Make plans with a part of the faults, first large parts, then with shorter ones."""
    faults = plan.faults
    size = len(faults)
    while size:
        for start in range(0, len(faults), size):
            yield replace(plan, faults=faults[:start] + faults[start + size :])
        size //= 2
    end_s = max((fault.at_s for fault in faults), default=0.0) + AFTER_S
    if end_s < plan.seconds * 0.9:
        yield replace(plan, seconds=round(end_s, 3))
    for number, fault in enumerate(faults):
        for less in _less(fault):
            yield replace(plan, faults=(*faults[:number], less, *faults[number + 1 :]))


def _less(fault: Fault) -> Iterator[Fault]:
    """Make a fault that waits for nothing, of fewer brokers, and shorter ones."""
    if fault.upon:
        yield replace(fault, upon=())
    if len(fault.for_s) > 1:
        for number in range(len(fault.for_s)):
            yield replace(
                fault,
                brokers=fault.brokers[:number] + fault.brokers[number + 1 :],
                for_s=fault.for_s[:number] + fault.for_s[number + 1 :],
            )
    for number, for_s in enumerate(fault.for_s):
        if for_s * SHORTER > LEAST_S:
            shorter = round(for_s * SHORTER, 3)
            yield replace(fault, for_s=(*fault.for_s[:number], shorter, *fault.for_s[number + 1 :]))
