"""docs/reference/errors.md lists all log events, error codes of brokers and public exceptions."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import barnabas
import barnabas.spark
from barnabas.errors import BarnabasError
from barnabas.log_lines import LogEvent

ROOT = Path(__file__).parents[3]
TOOL = runpy.run_path(str(ROOT / "tools" / "errors_reference.py"))
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
    assert TOOL["PAGE"].read_text(encoding="utf-8") == TOOL["page"](), "run: python tools/errors_reference.py"


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


def sources_of_a_broker() -> str:
    packages = (*OF_A_BROKER, "protocol")
    return "".join(path.read_text(encoding="utf-8") for each in packages for path in (SOURCES / each).rglob("*.py"))


def test_page_lists_each_error_code_that_a_broker_returns() -> None:
    returned = set(re.findall(r"ErrorCode\.([A-Z_]+)", sources_of_a_broker())) - {"NONE"}
    assert returned == set(TOOL["CODES"])


def test_page_lists_each_public_exception() -> None:
    names = [(name, getattr(barnabas, name)) for name in dir(barnabas)]
    names += [
        (f"spark.{name}", getattr(barnabas.spark, name)) for name in barnabas.spark.__all__ if name.endswith("Error")
    ]
    public = {
        name
        for name, found in names
        if isinstance(found, type) and issubclass(found, BarnabasError) and found is not BarnabasError
    }
    assert public == set(TOOL["EXCEPTIONS"])
