"""Run the published integration tests of other projects' Kafka clients against Barnabas brokers.

    .venv/bin/python tools/suites.py kafka-go
    .venv/bin/python tools/suites.py kafkajs --checkout ~/kafkajs -- src/admin

The tests run unchanged, except for the fixtures of aiokafka and Quix Streams that start Docker. They expect brokers at
fixed ports of this machine, so one suite runs at a time. Without `--checkout`, git clones the tag or commit of `SUITES`
into the cache folder; with `--checkout`, the program uses the given clone unchanged. The program exits with the exit
code of the suite. `docs/reference/compatibility.md` lists the results and the reasons of failures.
"""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from published_tests import CACHE_FOLDER
from secured_listeners import Users, create_identities, listener_settings

ROOT = Path(__file__).parents[1]
TIMEOUT_S = 3600
AIOKAFKA_NEEDS = "pytest==9.0.2 pytest-asyncio==1.3.0 pytest-mock==3.15.1 docker async-timeout cramjam==2.11.0"
AIOKAFKA_FIXTURES = """

@pytest.fixture(scope="session")
def docker():
    from unittest.mock import MagicMock

    yield MagicMock()


@pytest.fixture(scope="class")
def kerberos_utils():
    yield None


class Container:
    # The tests give and remove ACLs with programs of this container.

    def exec_run(self, *_):
        return 0, b""


@pytest.fixture(scope="session")
def kafka_server():
    yield KafkaServer("127.0.0.1", 9092, 9093, 9094, 9095, Container())
"""
"""Replacements for fixtures of aiokafka's tests that start Kafka in Docker."""


FASTSTREAM_NEEDS = (
    "dirty-equals==0.11 httpx==0.28.1 pytest==9.0.3 pytest-asyncio==1.3.0 pytest-cov pytest-rerunfailures"
    " pytest-timeout freezegun fastapi==0.140.0 pydantic-settings PyYAML==6.0.3 email-validator==2.3.0 msgspec uvicorn"
    " psutil==7.2.2"
)
FASTSTREAM_TESTS = " ".join(
    f"tests/{kind}/{client}" for kind in ("brokers", "opentelemetry", "prometheus") for client in ("kafka", "confluent")
)
QUIX_STREAMS_FIXTURES = """

@pytest.fixture(scope="session")
def kafka_container_factory():
    from barnabas.testing import BrokerProcess

    def factory():
        with BrokerProcess() as broker:
            yield KafkaContainer(broker.bootstrap, broker.bootstrap)

    return factory


@pytest.fixture(scope="session")
def schema_registry_container(kafka_container):
    import subprocess
    import sys

    command = [sys.executable, "-m", "barnabas.cli.main", "registry", "--port", "0"]
    command += ["-b", kafka_container.broker_address]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        yield SchemaRegistryContainer(process.stdout.readline().split()[1])
        process.terminate()
"""
"""Replacements for fixtures of Quix Streams' tests that start Kafka and a registry in Docker."""
QUIX_STREAMS_TESTS = " ".join(
    f"tests/test_quixstreams/{name}"
    for name in (
        "test_app.py",
        "test_dataframe/test_dataframe.py",
        "test_internal_consumer",
        "test_internal_producer.py",
        "test_kafka",
        "test_models/test_serializers/test_schema_registry.py",
        "test_models/test_topics",
        "test_sources/test_core/test_kafka.py",
        "test_state/test_recovery",
    )
)


AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
OPEN_WITHOUT_ACL = {"authorizer.class.name": AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
"""Everyone may use the resources without ACLs, so most tests need no permissions."""
BROKERS_PORT = 1000
"""The distance of the listener for other brokers from a broker's first port."""


@dataclass(frozen=True)
class Suite:
    """The tests of one project.

    :param source: the address of the repository.
    :param revision: a tag or a commit.
    :param prepare: shell commands that build the tests in the checkout; a stamp file prevents a second build.
    :param run: the shell command that runs the tests; arguments of the user replace `{only}`.
    :param only: the default for the user's arguments.
    :param brokers: the ids of the brokers, and the ports that the tests expect.
    :param single: the port of a further broker that is a separate cluster, or 0.
    :param further: the settings of another broker that is a separate cluster; empty without one.
    :param registry: the port of a schema registry on `single`, or 0.
    :param settings: the settings of all brokers, with underscores instead of dots.
    :param environment: the environment of the build and of the tests.
    :param protocols: the security protocols of each broker's listeners, at consecutive ports.
    :param users: the users of the listeners with SASL.
    :param identities: the folder in the checkout for the certificates; empty for a temporary folder.
    :param acls: the settings of ACLs of the brokers in `brokers`; empty without ACLs.
    """

    source: str
    revision: str
    prepare: str
    run: str
    only: str = ""
    brokers: Mapping[int, int] = field(default_factory=lambda: {1: 9092})
    single: int = 0
    further: Mapping[str, str] = field(default_factory=dict)
    registry: int = 0
    settings: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    protocols: Sequence[str] = ("PLAINTEXT",)
    users: Users = field(default_factory=dict)
    identities: str = ""
    acls: Mapping[str, str] = field(default_factory=dict)


SUITES = {
    "kafka-go": Suite(
        source="https://github.com/segmentio/kafka-go",
        revision="v0.4.51",
        prepare="go test -c -o suite.test .",
        run="./suite.test -test.v -test.timeout 30m {only}",
        # These subtests are omitted, because the test code itself dereferences a null pointer, which ends the program.
        only="-test.skip 'TestReaderConsumerGroup/(consumer_group_commits_on_close|verify_offset_committed.*)'",
        settings={"message_max_bytes": "200000000"},
        environment={"KAFKA_SKIP_NETTEST": "1", "KAFKA_VERSION": "4.0.0"},
        protocols=("PLAINTEXT", "SASL_PLAINTEXT"),
        users={
            "adminplain": {"SCRAM-SHA-256": "admin-secret"},
            "adminscram256": {"SCRAM-SHA-256": "admin-secret-256"},
            "adminscram512": {"SCRAM-SHA-512": "admin-secret-512"},
        },
        acls=OPEN_WITHOUT_ACL,
    ),
    "kafkajs": Suite(
        source="https://github.com/tulios/kafkajs",
        revision="v2.2.4",
        prepare="npm install --no-audit --no-fund --ignore-scripts",
        run="npx jest --ci --maxWorkers=2 --forceExit {only}",
        brokers={0: 9092, 1: 9095, 2: 9098},
        settings={"default_replication_factor": "2", "num_partitions": "2", "delete_topic_enable": "true"},
        environment={"KAFKA_VERSION": "2.4", "NODE_ENV": "test", "KAFKAJS_DEBUG_PROTOCOL_BUFFERS": "1"},
        protocols=("PLAINTEXT", "SSL", "SASL_SSL"),
        users={
            "test": {"SCRAM-SHA-256": "testtest"},
            "alice": {"SCRAM-SHA-256": "alicealice"},
            "bob": {"SCRAM-SHA-256": "bobbob"},
            "testscram": {"SCRAM-SHA-256": "testtestscram=256", "SCRAM-SHA-512": "testtestscram=512"},
        },
        acls=OPEN_WITHOUT_ACL,
    ),
    "platformatic": Suite(
        source="https://github.com/platformatic/kafka",
        revision="v2.9.0",
        prepare="npm install --no-audit --no-fund --ignore-scripts",
        run="./scripts/node --test --test-reporter=spec {only}",
        # base.test.ts is omitted, because it connects to another machine.
        only="$(ls test/*.test.ts test/*/*.test.ts test/*/*/*.test.ts | grep -v clients/base/base.test.ts)",
        brokers={1: 9011, 2: 9012, 3: 9013},
        single=9001,
        further={
            "listeners": "SASL://127.0.0.1:9002,DOCKER://127.0.0.1:19002",
            "advertised.listeners": "SASL://localhost:9002,DOCKER://localhost:19002",
            "listener.security.protocol.map": "SASL:SASL_PLAINTEXT,DOCKER:PLAINTEXT",
            "connections.max.reauth.ms": "5000",
            # The tests create the user admin on the listener without authentication.
            "super.users": "User:admin;User:ANONYMOUS",
        },
        users={"admin": {"SCRAM-SHA-256": "admin", "SCRAM-SHA-512": "admin"}},
        registry=8004,
        acls={"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"},
    ),
    "rskafka": Suite(
        source="https://github.com/influxdata/rskafka",
        revision="v0.6.0",
        prepare="cargo test --no-run",
        run="cargo test {only}",
        brokers={1: 9011, 2: 9021, 3: 9031},
        settings={"auto_create_topics_enable": "false"},
        environment={
            "RUSTUP_TOOLCHAIN": "stable",
            "TEST_INTEGRATION": "1",
            "TEST_BROKER_IMPL": "kafka",
            "KAFKA_CONNECT": "127.0.0.1:9011,127.0.0.1:9021,127.0.0.1:9031",
        },
    ),
    "aiokafka": Suite(
        source="https://github.com/aio-libs/aiokafka",
        revision="v0.14.0",
        prepare=f"python3 -m venv .venv && .venv/bin/pip install -q -e . {AIOKAFKA_NEEDS}"
        f" && cat >> tests/conftest.py <<'END'\n{AIOKAFKA_FIXTURES}END\n",
        run=".venv/bin/python -m pytest -q --no-pull --docker-image any/kafka:2.13_2.8.1 {only}",
        only="tests",
        brokers={0: 9092},  # a test sends requests to this broker id
        settings={"num_partitions": "2", "listener.name.ssl.ssl.client.auth": "required"},
        protocols=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        users={user: {"SCRAM-SHA-256": user, "SCRAM-SHA-512": user} for user in ("admin", "test")},
        identities="tests/ssl_cert",
    ),
    "goka": Suite(
        source="https://github.com/lovoo/goka",
        revision="b885615",
        prepare="go test -c -o suite.test ./systemtest",
        run="cd systemtest && ../suite.test -test.v -test.timeout 30m {only}",
        brokers={1: 9092, 2: 9093, 3: 9094},
        environment={"GOKA_SYSTEMTEST": "y", "GOKA_SYSTEMTEST_BROKERS": "127.0.0.1:9092"},
    ),
}

SUITES |= {
    "faststream": Suite(
        source="https://github.com/ag2ai/faststream",
        revision="0.7.4",
        prepare="python3 -m venv .venv"
        f" && .venv/bin/pip install -q -e '.[kafka,confluent,otel,prometheus,cli]' {FASTSTREAM_NEEDS}",
        # test_misconfigure.py is omitted, because it needs the clients of other brokers.
        run=".venv/bin/python -m pytest -q -m 'connected and not slow' --ignore-glob '*test_misconfigure.py' {only}",
        only=FASTSTREAM_TESTS,
    ),
    "opentelemetry": Suite(
        source="https://github.com/open-telemetry/opentelemetry-python-contrib",
        revision="466ae4c00de77d1f54f77a9600f1d08eba2306b5",
        prepare="python3 -m venv .venv && .venv/bin/pip install -q pytest kafka-python opentelemetry-test-utils"
        " opentelemetry-instrumentation-kafka-python"
        " && .venv/bin/pip install -q --no-deps ./instrumentation/opentelemetry-instrumentation-kafka-python",
        run=".venv/bin/python -m pytest -q {only}",
        only="tests/opentelemetry-docker-tests/tests/kafka",
    ),
    "quix-streams": Suite(
        source="https://github.com/quixio/quix-streams",
        revision="v3.25.0",
        prepare="python3 -m venv .venv && .venv/bin/pip install -q -e . -r tests/requirements.txt"
        f" '{ROOT}[registry,testing]' && cat >> tests/conftest.py <<'END'\n{QUIX_STREAMS_FIXTURES}END\n",
        run=".venv/bin/python -m pytest -q {only}",
        only=QUIX_STREAMS_TESTS,
        brokers={},  # the replaced fixtures start the broker
    ),
}
"""Projects with applications and instrumentation. Their tests need a broker, not a particular client."""

SUITES["kafka-go-acls"] = replace(
    SUITES["kafka-go"],
    run="./suite.test -test.v {only}; failed=$?; go test -v -count=1 ./sasl && exit $failed",
    only="-test.run 'ACL|Quota|Scram|SASL'",
    brokers={1: 9092, 2: 9094, 3: 9096},
)
"""The tests of kafka-go that concern security, on three brokers. Other tests of kafka-go expect a single broker."""


SCRIPTS = {
    "metrics": "metrics_suite.py",
    "exporters": "exporters_suite.py",
    "schedulers": "schedulers_suite.py",
    "security": "security_suite.py",
    "authorization": "authorization_suite.py",
    "catalogs": "catalogs_suite.py",
    "console": "console_suite.py",
    "versions": "versions_suite.py",
    "changes": "changes_suite.py",
    "week": "week_suite.py",
}
"""The suites that have a separate program: Prometheus with dashboards and alerts, exporters for Kafka, clients that
authenticate, tools with brokers that enforce ACLs, the console in a browser, other versions of dependencies, changes of
a PostgreSQL server, a week of repeated loads, and schedulers of loads."""


def main() -> int:
    """Run one suite. Return its exit code."""
    parser = argparse.ArgumentParser(description="Run the integration tests of another project's Kafka client.")
    parser.add_argument("suite", choices=sorted({*SUITES, *SCRIPTS}))
    parser.add_argument("--checkout", type=Path, help="a clone that exists; default: one in the cache folder")
    parser.epilog = "Arguments after -- go to the test program; default: all tests."
    separator = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    given, only = parser.parse_args(sys.argv[1:separator]), sys.argv[separator + 1 :]
    if given.suite in SCRIPTS:
        places = ["--checkouts", str(given.checkout)] if given.checkout else []
        script = [sys.executable, str(Path(__file__).with_name(SCRIPTS[given.suite])), *places]
        return subprocess.run(script, check=False).returncode
    suite = SUITES[given.suite]
    checkout = given.checkout or clone(given.suite, suite)
    prepare(suite, checkout)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        start(suite, Path(folder), checkout, stack)
        command = suite.run.format(only=shlex.join(only) or suite.only)
        environment = os.environ | suite.environment
        process = subprocess.run(command, shell=True, cwd=checkout, env=environment, timeout=TIMEOUT_S, check=False)
        return process.returncode


def clone(name: str, suite: Suite) -> Path:
    """Clone the repository into the cache directory unless it is already there. Return the checkout.

    The checkout gets its name last, so a clone that was interrupted, or lacks the revision, is not taken for it.
    """
    checkout = CACHE_FOLDER / f"{name}-{suite.revision}"
    if not checkout.exists():
        CACHE_FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE_FOLDER) as folder:
            unfinished = Path(folder) / name
            subprocess.run(["git", "clone", "--quiet", suite.source, str(unfinished)], check=True)
            subprocess.run(["git", "checkout", "--quiet", suite.revision], cwd=unfinished, check=True)
            unfinished.rename(checkout)
    return checkout


def prepare(suite: Suite, checkout: Path) -> None:
    """Build the tests in the checkout unless they are already built."""
    stamp = checkout / ".prepared"
    if not stamp.exists():
        subprocess.run(suite.prepare, shell=True, cwd=checkout, env=os.environ | suite.environment, check=True)
        stamp.touch()


def start(suite: Suite, folder: Path, checkout: Path, stack: ExitStack) -> None:
    """Start the brokers of a suite, its registry, and ZooKeeper if there are several brokers."""
    common = {name.replace("_", "."): value for name, value in suite.settings.items()}
    if suite.users:
        common |= create_identities(checkout / suite.identities if suite.identities else folder / "pki", suite.users)
    cluster = {}
    if len(suite.brokers) > 1:
        sys.path.insert(0, str(ROOT))
        # this module is checked by pytest, not by mypy
        zookeeper = importlib.import_module("tests.support.zookeeper_servers")
        servers = zookeeper.start_servers(folder / "zookeeper")
        stack.callback(servers.stop)
        cluster = {"zookeeper.connect": servers.address, "offsets.topic.replication.factor": str(len(suite.brokers))}
    for number, port in suite.brokers.items():
        settings = {**common, **cluster, **listener_settings(suite.protocols, port), **suite.acls}
        if suite.acls and cluster:
            settings = with_brokers_listener(settings, port + BROKERS_PORT)
        stack.enter_context(broker(number, folder / str(number), settings))
    if suite.single:
        settings = common | listener_settings(("PLAINTEXT",), suite.single)
        stack.enter_context(broker(1, folder / "single", settings))
    if suite.further:
        stack.enter_context(broker(1, folder / "further", {**common, **suite.further}))
    if suite.registry:
        stack.enter_context(process(["registry", "--port", str(suite.registry), "-b", f"localhost:{suite.single}"]))


def with_brokers_listener(settings: Mapping[str, str], port: int) -> dict[str, str]:
    """Return settings with a listener on which the brokers of a cluster authenticate each other by certificates."""
    listener = f"BROKERS://127.0.0.1:{port}"
    return {
        **settings,
        "listeners": f"{settings['listeners']},{listener}",
        "advertised.listeners": f"{settings['advertised.listeners']},{listener}",
        "listener.security.protocol.map": "BROKERS:SSL",
        "inter.broker.listener.name": "BROKERS",
        "listener.name.brokers.ssl.client.auth": "required",
        "super.users": ";".join(filter(None, [settings.get("super.users", ""), "User:CN=localhost"])),
    }


@contextmanager
def broker(number: int, data: Path, settings: Mapping[str, str]) -> Iterator[None]:
    """Run a broker until the block ends."""
    file = data.with_suffix(".properties")
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
    with process(["up", "--id", str(number), "--config", str(file), "--data", str(data)]):
        yield


@contextmanager
def process(arguments: Sequence[str]) -> Iterator[None]:
    """Run `barnabas` with arguments until the block ends. The block starts when `barnabas` is ready."""
    command = [sys.executable, "-m", "barnabas.cli.main", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            assert running.stdout
            if not running.stdout.readline().startswith("ready"):
                raise SystemExit(f"`barnabas {shlex.join(arguments)}` did not start; its error is printed above")
            yield
        finally:
            running.terminate()


if __name__ == "__main__":
    sys.exit(main())
