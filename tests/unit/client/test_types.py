"""Type checkers refuse calls that cannot work, and nothing else: in marked examples, and in the documentation."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
EXAMPLES = [Path(__file__).with_name("typed_settings.py"), Path(__file__).with_name("typed_clients.py")]

MYPY_OPTIONS = [
    "--disable-error-code=func-returns-value",  # the page shows calls side by side
    "--no-error-summary",
    "--hide-error-context",
    "--config-file=",
    f"--cache-dir={os.devnull}",
    # What other packages declare is none of this, and takes most of the time to read.
    "--no-site-packages",
    "--ignore-missing-imports",
    "--follow-imports=silent",
]

SNIPPETS_BEGIN = """from __future__ import annotations

from typing import Any

import barnabas

values: list[bytes] = []
consumer: barnabas.Consumer
registry: barnabas.SchemaRegistry
table: Any
current_trace: Any
note_read: Any
"""


def wrong_lines(paths: Iterable[Path]) -> set[tuple[str, int]]:
    """Return file and number of each line that is marked as wrong."""
    return {
        (path.name, number)
        for path in paths
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if "# WRONG" in line
    }


@pytest.fixture
def snippets(tmp_path: Path) -> Path:
    """The Python snippets of the page on the clients, each as a function."""
    text = (ROOT / "docs/how-to/clients.md").read_text(encoding="utf-8")
    parts = [SNIPPETS_BEGIN]
    for number, code in enumerate(re.findall(r"```python\n(.*?)```", text, re.DOTALL)):
        body = "".join(f"    {line}\n" if line else "\n" for line in code.splitlines())
        parts.append(f"\n\nasync def snippet_{number}() -> None:\n{body}")
    path = tmp_path / "snippets_of_clients.py"
    path.write_text("".join(parts), encoding="utf-8")
    return path


def test_mypy_refuses_what_cannot_work_and_nothing_else(snippets: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "mypy", *MYPY_OPTIONS, *map(str, EXAMPLES), str(snippets)],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": "src"},
        capture_output=True,
        text=True,
        check=False,
    )
    found = [line.split(":", 2) for line in run.stdout.splitlines() if ": error: " in line]
    assert {(Path(path).name, int(number)) for path, number, _ in found} == wrong_lines(EXAMPLES), (
        run.stdout + run.stderr
    )


def test_pyright_refuses_what_cannot_work_and_nothing_else(snippets: Path) -> None:
    """Run basedpyright, which brings pyright's checker and Node.js as wheels, in the mode that is pyright's default."""
    config = {
        "include": [*map(str, EXAMPLES), str(snippets)],
        "extraPaths": [str(ROOT / "src")],
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
        "reportMissingImports": False,  # what other packages declare is none of this
        "reportMissingModuleSource": False,
        "reportAttributeAccessIssue": "error",
    }
    project = snippets.with_name("pyrightconfig.json")
    project.write_text(json.dumps(config), encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "basedpyright", "--outputjson", "--project", str(project)],
        capture_output=True,
        text=True,
        check=False,
    )
    report = json.loads(run.stdout)
    found = {
        (Path(each["file"]).name, each["range"]["start"]["line"] + 1)
        for each in report["generalDiagnostics"]
        if each["severity"] == "error"
    }
    assert report["summary"]["filesAnalyzed"] == len(EXAMPLES) + 1
    assert found == wrong_lines(EXAMPLES), run.stdout
