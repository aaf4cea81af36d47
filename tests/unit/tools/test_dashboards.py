"""The dashboards and the alert rules in docs/grafana: written by their tool, and of metrics that there are."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DASHBOARDS = runpy.run_path(str(ROOT / "tools" / "dashboards.py"))
REFERENCE = ROOT / "docs" / "reference" / "metrics.md"
ALERTS = (ROOT / "docs" / "grafana" / "alerts.yaml").read_text(encoding="utf-8")
METRIC = re.compile(r"\b(?:kafka|barnabas|process)_\w+")
SERIES_OF_HISTOGRAMS = ("_bucket", "_count", "_sum")


def known_series() -> set[str]:
    found = set()
    for name, kind in re.findall(r"^\| `(\S+)` \| (\w+) \|", REFERENCE.read_text(encoding="utf-8"), re.MULTILINE):
        found |= {name + suffix for suffix in SERIES_OF_HISTOGRAMS} if kind == "histogram" else {name}
    return found


@pytest.mark.parametrize("name", DASHBOARDS["DASHBOARDS"])
def test_dashboard_is_up_to_date_and_of_metrics_that_there_are(name: str) -> None:
    text = (DASHBOARDS["FOLDER"] / f"{name}.json").read_text(encoding="utf-8")
    assert text == DASHBOARDS["dashboard"](name), "run: python tools/dashboards.py"
    expressions = [target["expr"] for panel in json.loads(text)["panels"] for target in panel["targets"]]
    assert {found for each in expressions for found in METRIC.findall(each)} <= known_series()
    assert all(METRIC.search(each) for each in expressions)


def test_alerts_are_of_metrics_that_there_are() -> None:
    expressions = re.findall(r"^ +expr: (.*)$", ALERTS, re.MULTILINE)
    assert len(expressions) == ALERTS.count("- alert: ")
    assert {found for each in expressions for found in METRIC.findall(each)} <= known_series()


def test_every_dashboard_is_a_file_of_its_own() -> None:
    files = {path.stem for path in DASHBOARDS["FOLDER"].glob("*.json")}
    assert files == set(DASHBOARDS["DASHBOARDS"])
