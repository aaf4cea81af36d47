"""Run some of librdkafka's published tests against one or more Barnabas brokers.

    .venv/bin/python tools/librdkafka_tests.py [--brokers 3] CHECKOUT [test ...]

The program builds the library and its tests in CHECKOUT, a clone of librdkafka's repository, unless they are already
built. This needs a C and a C++ compiler and make. It runs the tests in `TESTS`, or the tests with the given numbers.
The tests are unchanged, and each one runs in its own process. It fails if a test fails. docs/reference/compatibility.md
lists the results and the reasons of failures.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from published_tests import broker

TESTS = ["0011", "0102", "0113"]
KAFKA_VERSION = "4.0.0"
"""The version of Kafka that the tests assume. They skip features of later versions."""
BROKER_SETTINGS = {"group_initial_rebalance_delay_ms": "3000", "num_partitions": "4"}
"""The broker settings of the tests. The initial rebalance delay is Kafka's default, because two tests expect only one
rebalance when two consumers start in succession. Auto-created topics have four partitions, as in librdkafka's own test
environment.
"""
TIMEOUT_S = 1200
LEFT_OUT = ["ssl", "sasl", "gssapi", "curl"]


def main() -> int:
    """Run the tests. Return the exit code."""
    parser = argparse.ArgumentParser(description="Run some of librdkafka's own tests.")
    parser.add_argument("--brokers", type=int, default=1, help="number of brokers [1]")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("test", nargs="*", default=TESTS)
    given = parser.parse_args()
    sources = given.checkout.resolve()
    if not (sources / "tests" / "test-runner").exists():
        build(sources)
    failed = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        address = stack.enter_context(broker(folder / "data", BROKER_SETTINGS, given.brokers))
        settings = folder / "test.conf"
        settings.write_text(f"bootstrap.servers={address}\n", encoding="utf-8")
        for test in given.test:
            if run(sources, test, settings):
                failed.append(test)
    sys.stdout.write(f"failed: {', '.join(failed)}\n" if failed else "all passed\n")
    return 1 if failed else 0


def build(sources: Path) -> None:
    """Build the test program and the library, without features that the tests do not need."""
    subprocess.run(["./configure", *(f"--disable-{name}" for name in LEFT_OUT)], cwd=sources, check=True)
    subprocess.run(["make", f"-j{os.cpu_count() or 1}", "libs"], cwd=sources, check=True)
    subprocess.run(["make", f"-j{os.cpu_count() or 1}", "build"], cwd=sources / "tests", check=True)


def run(sources: Path, test: str, settings: Path) -> int:
    """Run one test. Return its exit code."""
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{sources / 'src'}:{sources / 'src-cpp'}",
        "RDKAFKA_TEST_CONF": str(settings),
        "TEST_KAFKA_VERSION": KAFKA_VERSION,
        "TESTS": test,
    }
    command = ["./test-runner", "-p1"]
    return subprocess.run(command, cwd=sources / "tests", env=environment, timeout=TIMEOUT_S, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
