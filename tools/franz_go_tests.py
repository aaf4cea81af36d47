"""Run franz-go's published client tests against one or more Barnabas brokers.

    .venv/bin/python tools/franz_go_tests.py [--brokers 3 | --secured] [pattern for the names of tests]

With `--secured`, all tests use TLS with client certificates, and the tests of SCRAM use another listener.

Go downloads the module with its tests into the cache folder and compiles them unchanged, once. The program fails if a
test fails. docs/reference/compatibility.md lists the omitted tests with reasons.
"""

from __future__ import annotations

import argparse
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

from published_tests import CACHE_FOLDER, broker
from secured_listeners import create_identities

VERSION = "v1.21.5"
MODULE = "github.com/twmb/franz-go"
CACHE = CACHE_FOLDER / f"franz-go-{VERSION}"
PROGRAM = CACHE / "kgo.test"
NOT_RUN = "TestTxnEtl"
"""A test of transactions, which Barnabas does not support yet. It would wait forever."""
NOT_RUN_SECURED = "TestIssue769"
"""A test that ends the program if the tests use TLS, because it sets a dialer of its own."""
USER, PASSWORD = "admin", "secret"

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
    parser.add_argument("--secured", action="store_true", help="use TLS and client certificates; with one broker")
    parser.add_argument("pattern", nargs="*", help="regular expression for test names")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        settings, environment = secured(folder / "pki") if given.secured else ({}, {})
        with broker(folder / "data", settings, given.brokers) as address:
            not_run = f"^({NOT_RUN}|{NOT_RUN_SECURED})$" if given.secured else f"^{NOT_RUN}$"
            command = [str(PROGRAM), "-test.v", f"-test.skip={not_run}", f"-test.timeout={TIMEOUT_S}s"]
            command += [f"-test.run={pattern}" for pattern in given.pattern]
            environment |= SETTINGS | {"KGO_SEEDS": address, "KGO_TEST_RF": str(given.brokers)}
            return subprocess.run(command, cwd=folder, env=os.environ | environment, check=False).returncode


def secured(folder: Path) -> tuple[dict[str, str], dict[str, str]]:
    """Return the settings of a broker with TLS and SCRAM, and the variables that make the tests use both."""
    with socket.create_server(("127.0.0.1", 0)) as found:
        port = found.getsockname()[1]
    identities = create_identities(folder, {USER: {"SCRAM-SHA-256": PASSWORD, "SCRAM-SHA-512": PASSWORD}})
    settings = {name.replace(".", "_"): value for name, value in identities.items()}
    settings |= {"ssl_client_auth": "required", "listeners": f"SSL://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:{port}"}
    return settings, {
        "KGO_TEST_TLS": f"ca:{folder / 'ca.crt'},cert:{folder / 'client.crt'},key:{folder / 'client.key'}",
        "KGO_TEST_SCRAM": f"{USER}:{PASSWORD}:512",
        "KGO_TEST_SCRAM_SEEDS": f"127.0.0.1:{port}",
    }


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
