"""Run kafka-python's published integration tests against a Barnabas broker.

    .venv/bin/python tools/kafka_python_tests.py [arguments for pytest]

The program downloads the source distribution of the installed kafka-python into the cache folder, and runs its tests
with a broker process as an external Kafka. It fails if a test outside `NOT_PASSING` fails, or if a test in
`NOT_PASSING` passes. It repeats a test that fails unexpectedly once, and reports the repetition.
docs/reference/compatibility.md lists the results and the reasons of failures.
"""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from xml.etree import ElementTree

from published_tests import CACHE_FOLDER, broker

VERSION = importlib.metadata.version("kafka-python")
CACHE = CACHE_FOLDER / f"kafka-python-{VERSION}"
SOURCES = CACHE / f"kafka_python-{VERSION}"

KAFKA_VERSION = "4.2"
"""The version of Kafka that the tests configure, so that the client does not ask the broker for its API versions."""

BROKER_SETTINGS = {
    "group_min_session_timeout_ms": "1000",
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow_everyone_if_no_acl_found": "true",
}
"""The broker settings with which kafka-python's tests start Kafka."""

SERVICE = '''
"""A replacement for a module that the source distribution lacks. kafka-python's tests start Kafka with it."""


class ExternalService:
    def __init__(self, host, port):
        pass

    def open(self):
        pass

    def close(self):
        pass


class SpawnedService:
    pass
'''

NOT_PASSING = {
    "test_describe_configs_broker_resource_returns_configs": "wants `advertised.listeners`; here it is two settings",
    "test_describe_metadata_quorum": "there is no quorum of controllers",
    "test_transactional_producer_messages": "transactions are not served yet",
    "test_transactional_producer_offsets": "transactions are not served yet",
}
LEFT_OUT = ["test_ssl_integration.py", "test_sasl_integration.py"]
"""Tests that start a Kafka broker with TLS or SASL."""


def main() -> int:
    """Run the tests. Return the exit code."""
    if not SOURCES.is_dir():
        fetch_sources()
    with tempfile.TemporaryDirectory() as folder, broker(Path(folder) / "data", BROKER_SETTINGS) as address:
        report = Path(folder) / "report.xml"
        run_tests(address, report, sys.argv[1:])
        found = outcomes(report)
        if again := failures(found) - NOT_PASSING.keys():
            sys.stdout.write(f"once more: {', '.join(sorted(again))}\n")
            run_tests(address, report, ["-k", " or ".join({name.partition("[")[0] for name in again})])
            found |= outcomes(report)
        return judge(found)


def fetch_sources() -> None:
    """Download and unpack the source distribution. Add the modules that the tests need and that the distribution does
    not contain."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-binary", ":all:", "--no-deps", "--dest", str(CACHE), f"kafka-python=={VERSION}"]
    subprocess.run(command, check=True)
    shutil.unpack_archive(next(CACHE.glob("*.tar.gz")), CACHE)
    (SOURCES / "test" / "__init__.py").touch()
    (SOURCES / "test" / "service.py").write_text(SERVICE, encoding="utf-8")


def run_tests(address: str, report: Path, arguments: list[str]) -> None:
    """Run pytest in the unpacked sources, with the client from these sources."""
    environment = {
        **os.environ,
        "KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_URI": f"kafka://{address}",
        "KAFKA_ROOT": str(SOURCES),  # any folder that exists
    }
    command = [sys.executable, "-m", "pytest", "test/integration", "-q", "-p", "no:cacheprovider", "--tb=short"]
    command += ["-o", "log_level=WARNING", "--timeout=60", f"--junit-xml={report}"]
    command += [f"--ignore=test/integration/{name}" for name in LEFT_OUT]
    subprocess.run([*command, *arguments], cwd=SOURCES, env=environment, check=False)


def outcomes(report: Path) -> dict[str, str]:
    """Return the outcome (`passed`, `skipped`, `failure` or `error`) of each test by its name with parameters."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = [child.tag for child in case if child.tag in {"failure", "error", "skipped"}]
        found[case.attrib["name"]] = bad[0] if bad else "passed"
    return found


def failures(found: dict[str, str]) -> set[str]:
    return {name for name, outcome in found.items() if outcome in {"failure", "error"}}


def judge(found: dict[str, str]) -> int:
    """Print the unexpected results. Return the exit code."""
    failed = failures(found)
    counts = {kind: list(found.values()).count(kind) for kind in sorted(set(found.values()))}
    sys.stdout.write(f"\nkafka-python {VERSION}, as for Kafka {KAFKA_VERSION}: {counts}\n")
    for name in sorted(failed & NOT_PASSING.keys()):
        sys.stdout.write(f"  known failure: {name}: {NOT_PASSING[name]}\n")
    new = sorted(failed - NOT_PASSING.keys())
    mended = sorted(name for name in NOT_PASSING if found.get(name) == "passed")
    for name in new:
        sys.stdout.write(f"  NEW FAILURE: {name}\n")
    for name in mended:
        sys.stdout.write(f"  FIXED: {name} passes; remove it from NOT_PASSING\n")
    return 1 if new or mended or not found else 0


if __name__ == "__main__":
    sys.exit(main())
