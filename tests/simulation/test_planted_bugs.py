"""The simulation finds bugs that are put into it: one that found none would prove nothing."""

from __future__ import annotations

import pytest

from barnabas.testing.history import Anomaly
from tests.simulation import planted
from tests.simulation.story import run

SECONDS = 20.0


def test_acknowledging_before_replication_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.acknowledge_before_replication(monkeypatch)
    result = run(1, SECONDS)
    assert result.report is not None
    found = {finding.anomaly for finding in result.report.findings}
    assert {Anomaly.UNSEEN, Anomaly.INCONSISTENT_OFFSET} <= found


def test_appending_before_truncating_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    planted.append_before_truncating(monkeypatch)
    assert not run(7, SECONDS).ok
