"""The prose of the project has none of the faults of language that a program can find (tools/language.py)."""

from __future__ import annotations

import runpy
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LANGUAGE = runpy.run_path(str(ROOT / "tools" / "language.py"))
PLACES = ("src", "bench", "demo", "tools", "docs", "deploy", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
RULE_BEGAN = "2026-11-28T07:45:00+00:00"
"""Earlier commits have longer subjects."""


def files() -> list[Path]:
    found = []
    for place in PLACES:
        root = ROOT / place
        found += [root] if root.is_file() else [each for each in root.rglob("*") if each.suffix in {".py", ".md"}]
    found.remove(ROOT / "docs/dev/language-review.md")  # It quotes the faults that a reader found.
    return sorted(found)


def test_prose_has_no_fault() -> None:
    faults = [str(fault) for path in files() for fault in LANGUAGE["faults_of"](path)]
    assert faults == [], "\n".join(faults)


def test_subjects_of_commits_are_short() -> None:
    command = ["git", "log", "--format=%s", f"--since={RULE_BEGAN}"]
    found = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip("no git repository here")
    assert LANGUAGE["faults_of_subjects"](found.stdout.splitlines()) == []


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ('def f():\n    """What was read."""\n', "docstring begins with a clause"),
        ('x = 1\n"""When the session ends."""\n', "docstring begins with a clause"),
        ("# Whether it lives.\n", "comment begins with a clause"),
        ('log.warning("it failed: %s", 1)\n', "log message does not name its subject"),
        ("def tell(): ...\n", "tell"),
    ],
)
def test_program_finds_fault(tmp_path: Path, source: str, kind: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(source, encoding="utf-8")
    assert [fault.kind for fault in LANGUAGE["faults_of"](path)] == [kind]


@pytest.mark.parametrize(
    "source",
    [
        'def f():\n    """Return the position of a file."""\n    return file.tell()\n',
        '"""When the leader changes, the follower truncates its log."""\n',
        'log.warning("%s is damaged: %s", 1, 2)\n',
    ],
)
def test_program_accepts_plain_prose(tmp_path: Path, source: str) -> None:
    path = tmp_path / "module.py"
    path.write_text(source, encoding="utf-8")
    assert list(LANGUAGE["faults_of"](path)) == []


@pytest.mark.parametrize(
    ("line", "kinds"),
    [
        ("What the broker stores is here.", ["paragraph begins with a clause"]),
        ("- Which brokers lead.", ["paragraph begins with a clause"]),
        ("How does it work?", []),
        ("The broker tells the client.", ["tell"]),
        ("`file.tell()` returns the position.", []),
    ],
)
def test_program_reads_markdown(tmp_path: Path, line: str, kinds: list[str]) -> None:
    path = tmp_path / "page.md"
    path.write_text(f"# Page\n\n{line}\n", encoding="utf-8")
    assert [fault.kind for fault in LANGUAGE["faults_of"](path)] == kinds
