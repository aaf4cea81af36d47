"""docs/reference/metrics.md says what the declarations of metrics say."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

from prometheus_client.process_collector import ProcessCollector

ROOT = Path(__file__).parents[3]
TOOL = runpy.run_path(str(ROOT / "tools" / "metrics_reference.py"))
DECLARES = re.compile(r"^from barnabas\.metrics\.metric import .*\b(counter|gauge|histogram)\b", re.MULTILINE)


def test_page_is_up_to_date() -> None:
    assert TOOL["PAGE"].read_text(encoding="utf-8") == TOOL["page"](), "run: python tools/metrics_reference.py"


def test_page_has_every_module_that_declares_metrics() -> None:
    sources = ROOT / "src"
    found = {
        ".".join(path.relative_to(sources).with_suffix("").parts)
        for path in sources.rglob("*.py")
        if DECLARES.search(path.read_text(encoding="utf-8"))
    }
    assert found == set((TOOL["BROKER_SECTIONS"] | TOOL["OTHER_SECTIONS"]).values())


def test_page_has_the_metrics_of_the_process() -> None:
    families = ProcessCollector(registry=None).collect()
    found = {each.name + ("_total" if each.type == "counter" else "") for each in families}
    assert found == set(TOOL["PROCESS"])
