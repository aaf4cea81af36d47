"""Run some of librdkafka's own tests against a Barnabas broker, or against several.

    .venv/bin/python tools/librdkafka_tests.py [--brokers 3] CHECKOUT [test ...]

Builds the library and its tests in CHECKOUT, a clone of librdkafka's repository, where they are not built yet; it takes
a C and a C++ compiler and make. The tests are run unchanged, one process each: those in `TESTS`, or those given, by
number. Fails if one fails. What passes and what does not, and why, stands in docs/reference/compatibility.md.
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
"""The tests leave out what a Kafka of this version does not have."""
BROKER_SETTINGS = {"group_initial_rebalance_delay_ms": "3000", "num_partitions": "4"}
"""Kafka's default: two of the tests expect one rebalance where two consumers start one after the other. And four
partitions of topics that are made by using them, as where librdkafka's authors run their tests."""
TIMEOUT_S = 1200
LEFT_OUT = ["ssl", "sasl", "gssapi", "curl"]


def main() -> int:
    """Run the tests; return the exit code."""
    parser = argparse.ArgumentParser(description="Run some of librdkafka's own tests.")
    parser.add_argument("--brokers", type=int, default=1, help="so many")
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
    """Build the library without what the tests here do not need, and the program that runs the tests."""
    subprocess.run(["./configure", *(f"--disable-{name}" for name in LEFT_OUT)], cwd=sources, check=True)
    subprocess.run(["make", f"-j{os.cpu_count() or 1}", "libs"], cwd=sources, check=True)
    subprocess.run(["make", f"-j{os.cpu_count() or 1}", "build"], cwd=sources / "tests", check=True)


def run(sources: Path, test: str, settings: Path) -> int:
    """Run one test; return its exit code."""
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
