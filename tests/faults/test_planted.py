"""Scenarios find a bug that the brokers have: ones that found none would prove nothing.

One of them is enough here; docs/explanation/reliability.md has what became of the others.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.runs import END_S, RUN_S_MAX, Runner
from tests.faults.table import line
from tests.interop.java.maven import java
from tests.support.xdist_groups import FAULTS

pytestmark = [pytest.mark.xdist_group(FAULTS), pytest.mark.timeout(RUN_S_MAX + 2 * END_S)]


def test_leader_that_acknowledges_before_replication_is_found(tmp_path: Path) -> None:
    java()
    runner = Runner(tmp_path, 1, is_short=True, planted="acknowledge_before_replication")
    (run,) = runner.runs([("2", 1)])
    assert not run.ok
    assert any("leader_is_stopped" in each or "lost write" in each for each in run.result.problems), line(run)
    assert run.result.records, "its history was read all the same"
