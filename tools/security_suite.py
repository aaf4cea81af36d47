"""Run all cells of the matrix of clients and authentication mechanisms, and print what each client reports.

    make suites SUITE=security

`tests/interop/test_security_matrix.py` defines the cells. The program exits with the exit code of pytest.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as Xml
from pathlib import Path

ROOT = Path(__file__).parents[1]
MATRIX = "tests/interop/test_security_matrix.py"


def main() -> int:
    """Run the matrix. Return the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n0",
            "-p",
            "no:logging",
            f"--junitxml={results}",
            "-o",
            "junit_family=xunit1",
            MATRIX,
        ]
        environment = os.environ | {"SECURITY_MATRIX": "all"}
        code = subprocess.run([*command, *sys.argv[1:]], cwd=ROOT, env=environment, check=False).returncode
        for case in Xml.parse(results).iter("testcase"):
            for found in case.iter("property"):
                sys.stdout.write(f"{case.get('name')}: {found.get('value')}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
