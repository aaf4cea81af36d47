"""docs/reference/log-events.md lists the events of log lines, and each event is that of a line."""

from __future__ import annotations

import ast
import runpy
from collections.abc import Iterator
from pathlib import Path

from barnabas.log_lines import LogEvent

ROOT = Path(__file__).parents[3]
TOOL = runpy.run_path(str(ROOT / "tools" / "log_events_reference.py"))
SOURCES = ROOT / "src" / "barnabas"
OF_A_BROKER = ("broker", "coordination", "groups", "net", "replication", "storage")
ACTED_ON = {"error", "critical"}


def calls_of_logs() -> Iterator[tuple[Path, ast.Call]]:
    """Yield the calls that log a line of a broker, and their files."""
    for package in OF_A_BROKER:
        for path in sorted((SOURCES / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                if isinstance(node.func.value, ast.Name) and node.func.value.id in {"log", "logger"}:
                    yield path, node


def test_page_is_up_to_date() -> None:
    assert TOOL["PAGE"].read_text(encoding="utf-8") == TOOL["page"](), "run: python tools/log_events_reference.py"


def test_each_error_of_a_broker_has_an_event() -> None:
    without = [
        f"{path.relative_to(ROOT)}:{call.lineno}"
        for path, call in calls_of_logs()
        if isinstance(call.func, ast.Attribute)
        and call.func.attr in ACTED_ON
        and "extra" not in {each.arg for each in call.keywords}
    ]
    assert without == []


def test_each_event_is_that_of_a_line() -> None:
    text = "".join(
        path.read_text(encoding="utf-8") for package in OF_A_BROKER for path in (SOURCES / package).rglob("*.py")
    )
    assert [each.name for each in LogEvent if f"LogEvent.{each.name}" not in text] == []
