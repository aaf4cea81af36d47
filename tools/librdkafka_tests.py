"""Run some of librdkafka's published tests against one or more Barnabas brokers.

    .venv/bin/python tools/librdkafka_tests.py [--brokers 3] CHECKOUT [test ...]
    .venv/bin/python tools/librdkafka_tests.py --secured CHECKOUT [test ...]

The program builds the library and its tests in CHECKOUT, a clone of librdkafka's repository, unless they are already
built. This needs a C and a C++ compiler and make. It runs the tests in `TESTS`, or the tests with the given numbers.
The tests are unchanged, and each one runs in its own process. It fails if a test fails. docs/reference/compatibility.md
lists the results and the reasons of failures.

With `--secured`, the tests run against three brokers with TLS, SCRAM and ACLs, and need a library that was built with
TLS. Three of the tests only run without authentication; they use a listener of the same brokers without it.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from published_tests import broker

ROOT = Path(__file__).parents[1]
TESTS = ["0011", "0102", "0113"]
SECURED_TESTS = ["0081", "0109", "0115", "0119"]
WITHOUT_AUTHENTICATION = ["0109", "0115", "0119"]
"""The tests that skip their checks of ACLs if the client authenticates."""
SECURED_SETTINGS = {"allow.everyone.if.no.acl.found": "true", "min.insync.replicas": "1"}
"""The tests without authentication deny everyone a topic, and use all other topics without ACLs. Most topics of the
tests have one replica.
"""
TOOLS_VERSION = "4.3.0"
ACL_COMMAND = "org.apache.kafka.tools.AclCommand"
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
    parser.add_argument("--secured", action="store_true", help="use three brokers with TLS, SCRAM and ACLs")
    parser.add_argument("checkout", type=Path)
    parser.add_argument("test", nargs="*")
    given = parser.parse_args()
    sources = given.checkout.resolve()
    if not (sources / "tests" / "test-runner").exists():
        build(sources)
    failed = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        if given.secured:
            clients = secured(folder, stack)
        else:
            address = stack.enter_context(broker(folder / "data", BROKER_SETTINGS, given.brokers))
            clients = {test: {"bootstrap.servers": address} for test in given.test or TESTS}
        settings = folder / "test.conf"
        for test in given.test or clients:
            client = clients.get(test) or clients[SECURED_TESTS[0]]
            settings.write_text("".join(f"{name}={value}\n" for name, value in client.items()), encoding="utf-8")
            if run(sources, test, settings, folder):
                failed.append(test)
    sys.stdout.write(f"failed: {', '.join(failed)}\n" if failed else "all passed\n")
    return 1 if failed else 0


def secured(folder: Path, stack: ExitStack) -> dict[str, dict[str, str]]:
    """Start secured brokers, and write Kafka's `kafka-acls.sh` for the tests. Return the client settings by test."""
    sys.path.insert(0, str(ROOT))
    # these are test helpers, which mypy does not check
    clusters = importlib.import_module("tests.support.secured_clusters")
    tools = importlib.import_module("tests.interop.java.tools")
    maven = importlib.import_module("tests.interop.java.maven")
    users = importlib.import_module("tests.support.secured_clients")
    script = folder / "bin" / "kafka-acls.sh"
    script.parent.mkdir()
    jars = shlex.quote(f"{tools.tools_jars(TOOLS_VERSION)}/*")
    script.write_text(f'#!/bin/sh\nexec {shlex.quote(maven.java())} -cp {jars} {ACL_COMMAND} "$@"\n', encoding="utf-8")
    script.chmod(0o755)
    settings = {name.replace("_", "."): value for name, value in BROKER_SETTINGS.items()} | SECURED_SETTINGS
    brokers = clusters.secured_barnabas(folder / "cluster", settings, with_plain=True)
    access = stack.enter_context(brokers)
    # The tests expect that ACLs change the permissions of their user, so it is no super user.
    tester = users.create_user(access, "tester")
    users.delete_all_acls(access)
    # Each call of kafka-acls.sh starts Java, which may take seconds; the time limits of the tests are short.
    patient = {"test.timeout.multiplier": "2"}
    plain = {"bootstrap.servers": access.plain} | patient
    return {test: plain if test in WITHOUT_AUTHENTICATION else tester.librdkafka() | patient for test in SECURED_TESTS}


def build(sources: Path) -> None:
    """Build the test program and the library, without features that the tests do not need."""
    subprocess.run(["./configure", *(f"--disable-{name}" for name in LEFT_OUT)], cwd=sources, check=True)
    subprocess.run(["make", f"-j{os.cpu_count() or 1}", "libs"], cwd=sources, check=True)
    subprocess.run(["make", f"-j{os.cpu_count() or 1}", "build"], cwd=sources / "tests", check=True)


def run(sources: Path, test: str, settings: Path, kafka: Path) -> int:
    """Run one test. Return its exit code.

    :param kafka: the folder with Kafka's scripts in `bin`.
    """
    environment = {
        **os.environ,
        "LD_LIBRARY_PATH": f"{sources / 'src'}:{sources / 'src-cpp'}",
        "RDKAFKA_TEST_CONF": str(settings),
        "KAFKA_PATH": str(kafka),
        "TEST_KAFKA_VERSION": KAFKA_VERSION,
        "TESTS": test,
    }
    command = ["./test-runner", "-p1"]
    return subprocess.run(command, cwd=sources / "tests", env=environment, timeout=TIMEOUT_S, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
