"""Run kafka-python's own integration tests against a Barnabas broker.

    .venv/bin/python tools/kafka_python_tests.py [arguments for pytest]

Fetches the source distribution of the kafka-python that is installed (with pip, into the cache folder, never into
the tree), starts a broker in a process of its own and lets the tests take it for an external one. Fails if a test
fails that is not in `NOT_PASSING`, or if one of those passes now; a test that fails unexpectedly is tried once
more, and that is told. What passes and what does not, and why, stands in docs/reference/compatibility.md.
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
"""The tests tell the client to send what a Kafka of this version understands, without asking the broker."""

BROKER_SETTINGS = {"group_min_session_timeout_ms": "1000"}
"""As in the settings that kafka-python's tests give to Kafka."""

SERVICE = '''
"""Stands in for a module that the source distribution lacks: how kafka-python's tests start Kafka."""


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
    "test_create_describe_delete_acls": "ACLs are not served yet",
    "test_describe_configs_broker_resource_returns_configs": "wants `advertised.listeners`; here it is two settings",
    "test_describe_metadata_quorum": "there is no quorum of controllers",
    "test_transactional_producer_messages": "transactions are not served yet",
    "test_transactional_producer_offsets": "transactions are not served yet",
}
LEFT_OUT = ["test_ssl_integration.py", "test_sasl_integration.py"]
"""They start a Kafka with TLS or SASL, which are not served yet."""


def main() -> int:
    """Run the tests; return the exit code."""
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
    """Download and unpack the source distribution, and add what its tests need and it does not hold."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-binary", ":all:", "--no-deps", "--dest", str(CACHE), f"kafka-python=={VERSION}"]
    subprocess.run(command, check=True)
    shutil.unpack_archive(next(CACHE.glob("*.tar.gz")), CACHE)
    (SOURCES / "test" / "__init__.py").touch()
    (SOURCES / "test" / "service.py").write_text(SERVICE, encoding="utf-8")


def run_tests(address: str, report: Path, arguments: list[str]) -> None:
    """Run pytest in the unpacked sources, with the client that lies there."""
    environment = {
        **os.environ,
        "KAFKA_VERSION": KAFKA_VERSION,
        "KAFKA_URI": f"kafka://{address}",
        "KAFKA_ROOT": str(SOURCES),  # it has to exist
    }
    command = [sys.executable, "-m", "pytest", "test/integration", "-q", "-p", "no:cacheprovider", "--tb=short"]
    command += ["-o", "log_level=WARNING", "--timeout=60", f"--junit-xml={report}"]
    command += [f"--ignore=test/integration/{name}" for name in LEFT_OUT]
    subprocess.run([*command, *arguments], cwd=SOURCES, env=environment, check=False)


def outcomes(report: Path) -> dict[str, str]:
    """Return for every test `passed`, `skipped`, `failure` or `error`, by its name with parameters."""
    found = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = [child.tag for child in case if child.tag in {"failure", "error", "skipped"}]
        found[case.attrib["name"]] = bad[0] if bad else "passed"
    return found


def failures(found: dict[str, str]) -> set[str]:
    """Return the names of the tests that failed."""
    return {name for name, outcome in found.items() if outcome in {"failure", "error"}}


def judge(found: dict[str, str]) -> int:
    """Say what is not as expected; return the exit code."""
    failed = failures(found)
    counts = {kind: list(found.values()).count(kind) for kind in sorted(set(found.values()))}
    sys.stdout.write(f"\nkafka-python {VERSION}, as for Kafka {KAFKA_VERSION}: {counts}\n")
    for name in sorted(failed & NOT_PASSING.keys()):
        sys.stdout.write(f"  as known: {name}: {NOT_PASSING[name]}\n")
    new = sorted(failed - NOT_PASSING.keys())
    mended = sorted(name for name in NOT_PASSING if found.get(name) == "passed")
    for name in new:
        sys.stdout.write(f"  NEW: {name} fails\n")
    for name in mended:
        sys.stdout.write(f"  MENDED: {name} passes now; take it out of NOT_PASSING\n")
    return 1 if new or mended or not found else 0


if __name__ == "__main__":
    sys.exit(main())
