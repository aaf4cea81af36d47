"""Run published tools with secured brokers that enforce ACLs: three of Barnabas, and three of Apache Kafka.

    make suites SUITE=authorization
    make suites SUITE=authorization CHECKOUT=~/programs
    .venv/bin/python tools/authorization_suite.py barnabas

`tests/interop/test_kafka_acls.py` and `tests/interop/authorization_tools.py` define the tests. Maven downloads Kafka's
tools and Apache Kafka. The programs kafkactl, kaf, kminion and kafka_exporter must be on the path, or in the folder
`CHECKOUT`; the tests of a missing program are skipped.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
TESTS = ("tests/interop/test_kafka_acls.py", "tests/interop/authorization_tools.py")
BROKERS = ("barnabas", "kafka")


def main() -> int:
    """Run the tests. Return 1 if a test fails."""
    parser = argparse.ArgumentParser(description="Run published tools with brokers that enforce ACLs.")
    parser.add_argument("--checkouts", type=Path, default=Path.cwd(), help="a folder with the programs [.]")
    parser.add_argument("brokers", nargs="*", help=f"{' or '.join(BROKERS)}; default: both")
    given = parser.parse_args()
    path = f"{given.checkouts.resolve()}{os.pathsep}{os.environ['PATH']}"
    failed = False
    for brokers in given.brokers or BROKERS:
        sys.stdout.write(f"{brokers}:\n")
        sys.stdout.flush()
        command = [sys.executable, "-m", "pytest", "-v", "-n0", "-p", "no:logging", "--no-header", *TESTS]
        environment = os.environ | {"AUTHORIZATION": brokers, "PATH": path}
        failed |= subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode != 0
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
