"""Run the loads into catalogs of all kinds, with S3, Glue, Apache Iceberg's REST server and Spark.

    make suites SUITE=catalogs

The program exits with the exit code of pytest. `docs/how-to/catalogs.md` lists the servers and their versions.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ("tests/interop/test_catalogs.py", "tests/interop/test_catalog_matrix.py")


def main() -> int:
    """Run the tests. Return the exit code."""
    command = [sys.executable, "-m", "pytest", "-q", "-n0", *TESTS, *sys.argv[1:]]
    return subprocess.run(command, cwd=ROOT, env=os.environ | {"CATALOG_SUITE": "all"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
