"""Compare tables of changes with a dict and with a PostgreSQL server, in many random runs.

    make suites SUITE=changes
    CHANGES_RUNS=1000 .venv/bin/python tools/changes_suite.py

`CHANGES_RUNS` is the number of runs of each random test. The test with PostgreSQL needs an installed server (Debian:
`apt-get install postgresql`); without one, pytest prints why it is skipped.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = (
    "tests/properties/test_changes_against_model.py",
    "tests/pipeline/test_merge_into.py",
    "tests/pipeline/test_postgresql_changes.py",
)


def main() -> int:
    """Run the tests. Return pytest's exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "-rsP", "--timeout=7200", *TESTS]
    return subprocess.run(command, cwd=ROOT, env={"CHANGES_RUNS": "20", **os.environ}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
