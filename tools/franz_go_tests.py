"""Run franz-go's published client tests against one or more Barnabas brokers.

    .venv/bin/python tools/franz_go_tests.py [--brokers 3] [pattern for the names of tests]

Go downloads the module with its tests into the cache folder and compiles them unchanged, once. The program fails if a
test fails. docs/reference/compatibility.md lists the omitted tests with reasons.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from published_tests import CACHE_FOLDER, broker

VERSION = "v1.21.5"
MODULE = "github.com/twmb/franz-go"
CACHE = CACHE_FOLDER / f"franz-go-{VERSION}"
PROGRAM = CACHE / "kgo.test"
NOT_RUN = "^(TestTxnEtl|TestSCRAM.*)$"
"""Tests of transactions and SASL, which Barnabas does not support yet. The first test would wait forever."""

SETTINGS = {
    "KGO_TEST_RECORDS": "20000",
    "KGO_TEST_MAX_TOPIC_PARTS": "6",
    "KGO_LOG_LEVEL": "none",
}
TIMEOUT_S = 600


def main() -> int:
    """Run the tests. Return the exit code."""
    if not PROGRAM.exists():
        compile_tests()
    parser = argparse.ArgumentParser(description="Run franz-go's own tests.")
    parser.add_argument("--brokers", type=int, default=1, help="number of brokers, and of replicas of each topic [1]")
    parser.add_argument("pattern", nargs="*", help="regular expression for test names")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder) / "data", {}, given.brokers) as address:
        command = [str(PROGRAM), "-test.v", f"-test.skip={NOT_RUN}", f"-test.timeout={TIMEOUT_S}s"]
        command += [f"-test.run={pattern}" for pattern in given.pattern]
        environment = os.environ | SETTINGS | {"KGO_SEEDS": address, "KGO_TEST_RF": str(given.brokers)}
        return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


def compile_tests() -> None:
    """Download the sources and compile their tests to one program."""
    if shutil.which("go") is None:
        raise SystemExit("Go is not installed")
    CACHE.mkdir(parents=True, exist_ok=True)
    (CACHE / "go.mod").write_text("module barnabas\n", encoding="utf-8")
    environment = os.environ | {"GOPATH": str(CACHE / "go"), "GOFLAGS": "-modcacherw -mod=mod"}
    for arguments in (
        ["get", f"{MODULE}/pkg/kgo@{VERSION}"],
        ["test", "-c", "-o", str(PROGRAM), f"{MODULE}/pkg/kgo"],
    ):
        subprocess.run(["go", *arguments], cwd=CACHE, env=environment, check=True)


if __name__ == "__main__":
    sys.exit(main())
