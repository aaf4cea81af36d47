"""Published tools with a secured cluster of three: Kafka's own, MirrorMaker 2, kafkactl, kaf, kminion, kafka_exporter.

    make suites SUITE=authorization

`tools/authorization_suite.py` runs these tests with Barnabas and with Apache Kafka. The programs of other projects must
be on the path.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, AdminClient, NewTopic
from confluent_kafka.admin import ResourcePatternType as Pattern
from confluent_kafka.admin import ResourceType as Resource

from tests.interop.java import maven
from tests.interop.java.program import LOGGING, OPTIONS, Run
from tests.interop.java.tools import Tools
from tests.interop.test_kafka_acls import ACLS, CONFIGS, Command, admin_command, entries, scram, tools
from tests.support.ports import free_port
from tests.support.reading import TIMEOUT_S, wait_until
from tests.support.secured_clients import consume, create_user, is_refused, produce, wait_until_accepted
from tests.support.secured_clusters import Access, properties, secured, secured_barnabas

__all__ = ["secured", "tools"]  # fixtures

pytestmark = pytest.mark.timeout(maven.TEST_TIMEOUT_S)

MIRROR_VERSION = "4.3.0"
RECORDS = 5
CONFIG_LINE = re.compile(
    r"^\s*(?:Quota configs|SCRAM credential configs) for (?:the )?(.+?) are (.+?)\s*$", re.MULTILINE
)


@pytest.fixture
def command(tools: Tools, secured: Access, tmp_path: Path) -> Command:
    return admin_command(tools, secured, tmp_path)


@pytest.fixture
def admin(secured: Access) -> AdminClient:
    return AdminClient(secured.librdkafka())


def create_topic(admin: AdminClient, name: str, partitions: int = 1) -> None:
    for created in admin.create_topics([NewTopic(name, partitions)]).values():
        created.result(TIMEOUT_S)


def allow(
    admin: AdminClient, user: str, operation: AclOperation, resource: Resource, name: str, **more: Pattern
) -> None:
    pattern = more.get("pattern", Pattern.LITERAL)
    binding = AclBinding(resource, name, pattern, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
    for created in admin.create_acls([binding]).values():
        created.result(TIMEOUT_S)


# -- kafka-configs ------------------------------------------------------------------------------------------------


def configs(command: Command, *entity: str) -> dict[str, set[str]]:
    """Return what `kafka-configs --describe` prints: the settings of each entity."""
    said = command(CONFIGS, "--describe", *entity)
    return {name: set(values.split(", ")) for name, values in CONFIG_LINE.findall(said.text)}


def test_kafka_configs_creates_describes_and_deletes_users(command: Command, secured: Access) -> None:
    carol = ["--entity-type", "users", "--entity-name", "carol"]
    command(CONFIGS, "--alter", *carol, "--add-config", scram("first"))
    command(CONFIGS, "--alter", *carol, "--add-config", "SCRAM-SHA-256=[password=other]")
    assert configs(command, *carol) == {
        "user-principal 'carol'": {"SCRAM-SHA-512=iterations=4096", "SCRAM-SHA-256=iterations=4096"}
    }
    wait_until_accepted(secured.of("carol", "first"))
    command(CONFIGS, "--alter", *carol, "--add-config", scram("second"))
    wait_until(lambda: is_refused(secured.of("carol", "first")), "the old password is invalid")
    wait_until_accepted(secured.of("carol", "second"))
    command(CONFIGS, "--alter", *carol, "--delete-config", "SCRAM-SHA-512")
    assert configs(command, *carol) == {"user-principal 'carol'": {"SCRAM-SHA-256=iterations=4096"}}
    wait_until(lambda: is_refused(secured.of("carol", "second")), "the deleted credential is invalid")
    command(CONFIGS, "--alter", *carol, "--delete-config", "SCRAM-SHA-256")
    assert configs(command, *carol) == {}


def test_kafka_configs_sets_quotas_of_users_and_clients(command: Command, secured: Access) -> None:
    dave, reports = (
        ["--entity-type", "users", "--entity-name", "dave"],
        ["--entity-type", "clients", "--entity-name", "r"],
    )
    any_user, any_client = (
        ["--entity-type", "users", "--entity-default"],
        ["--entity-type", "clients", "--entity-default"],
    )
    rates = "producer_byte_rate=20000,consumer_byte_rate=30000,request_percentage=150"
    command(CONFIGS, "--alter", *dave, "--add-config", rates)
    command(CONFIGS, "--alter", *dave, *reports, "--add-config", "producer_byte_rate=10000")
    command(CONFIGS, "--alter", *reports, "--add-config", "controller_mutation_rate=5")
    command(CONFIGS, "--alter", *any_user, "--add-config", "consumer_byte_rate=500000")
    command(CONFIGS, "--alter", *any_client, "--add-config", "request_percentage=300")
    of_dave = {"producer_byte_rate=20000.0", "consumer_byte_rate=30000.0", "request_percentage=150.0"}
    assert configs(command, *dave) == {"user-principal 'dave'": of_dave}
    assert configs(command, *dave, *reports) == {"user-principal 'dave', client-id 'r'": {"producer_byte_rate=10000.0"}}
    assert configs(command, *reports) == {"client-id 'r'": {"controller_mutation_rate=5.0"}}
    assert configs(command, *any_user) == {"default user-principal": {"consumer_byte_rate=500000.0"}}
    assert configs(command, *any_client) == {"default client-id": {"request_percentage=300.0"}}

    command(CONFIGS, "--alter", *dave, "--add-config", scram("dave-secret"))
    of_user = {"user-principal 'dave'": {"SCRAM-SHA-512=iterations=4096"}}
    assert configs(command, *dave) in ({"user-principal 'dave'": of_dave}, of_user)  # a line each, in this order
    create_topic(AdminClient(secured.librdkafka()), "throttled")
    command(ACLS, "--add", "--allow-principal", "User:dave", "--producer", "--topic", "throttled")
    wait_until(lambda: produce(secured.of("dave", "dave-secret"), "throttled") == "", "dave may write")
    assert throttled(secured.of("dave", "dave-secret"), "throttled")

    for entity, names in (
        (dave, "producer_byte_rate,consumer_byte_rate,request_percentage"),
        ([*dave, *reports], "producer_byte_rate"),
        (reports, "controller_mutation_rate"),
        (any_user, "consumer_byte_rate"),
        (any_client, "request_percentage"),
    ):
        command(CONFIGS, "--alter", *entity, "--delete-config", names)
    assert configs(command, *any_user) == {}
    assert configs(command, "--entity-type", "clients") == {}
    wait_until(lambda: not throttled(secured.of("dave", "dave-secret"), "throttled"), "the producer is not throttled")


def throttled(access: Access, topic: str) -> bool:
    """Send 250,000 bytes, and one record more; return whether the broker throttles the producer."""
    events: list[confluent_kafka.ThrottleEvent] = []
    settings = {"throttle_cb": events.append, "linger.ms": 0, "batch.size": 20_000, "log_level": 2}
    producer = confluent_kafka.Producer({**access.librdkafka(), **settings})
    for _ in range(25):
        producer.produce(topic, b"x" * 10_000)
    assert producer.flush(TIMEOUT_S) == 0
    producer.produce(topic, b"x")  # its response tells the end of the throttling
    assert producer.flush(TIMEOUT_S) == 0
    return any(each.throttle_time > 0 for each in events)


def test_kafka_configs_limits_connections_of_addresses(command: Command, secured: Access) -> None:
    address, default = (
        ["--entity-type", "ips", "--entity-name", "127.0.0.9"],
        ["--entity-type", "ips", "--entity-default"],
    )
    command(CONFIGS, "--alter", *address, "--add-config", "connection_creation_rate=7")
    command(CONFIGS, "--alter", *default, "--add-config", "connection_creation_rate=500")
    assert configs(command, *address) == {"ip '127.0.0.9'": {"connection_creation_rate=7.0"}}
    assert configs(command, *default) == {"default ip": {"connection_creation_rate=500.0"}}
    command(CONFIGS, "--alter", *address, "--delete-config", "connection_creation_rate")
    command(CONFIGS, "--alter", *default, "--delete-config", "connection_creation_rate")
    assert configs(command, "--entity-type", "ips") == {}


def test_kafka_configs_needs_permissions(tools: Tools, secured: Access, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    mallory = admin_command(tools, create_user(secured, "mallory"), other)
    for arguments in (
        ("--alter", "--entity-type", "users", "--entity-name", "x", "--add-config", scram("y")),
        ("--alter", "--entity-type", "clients", "--entity-name", "x", "--add-config", "producer_byte_rate=1"),
        ("--describe", "--entity-type", "ips"),
    ):
        assert "ClusterAuthorizationException" in mallory(CONFIGS, *arguments, code=1).text
    assert "ClusterAuthorizationException" in mallory(ACLS, "--list", code=1).text
    denied = mallory(ACLS, "--add", "--allow-principal", "User:mallory", "--operation", "All", "--topic", "*", code=1)
    assert "ClusterAuthorizationException" in denied.text


# -- MirrorMaker 2 ------------------------------------------------------------------------------------------------


def test_mirror_maker_copies_records_and_acls(
    command: Command,
    tools: Tools,
    secured: Access,
    admin: AdminClient,
    run_java: Run,
    tmp_path: Path,
) -> None:
    create_topic(admin, "mirrored", 2)
    assert produce(secured, "mirrored") == ""
    command(ACLS, "--add", "--allow-principal", "User:erin", "--operation", "Read", "--topic", "mirrored")
    command(ACLS, "--add", "--allow-principal", "User:erin", "--operation", "Write", "--topic", "mirrored")
    command(ACLS, "--add", "--allow-principal", "User:frank", "--operation", "All", "--topic", "mirrored")
    command(ACLS, "--add", "--deny-principal", "User:grace", "--operation", "Read", "--topic", "mirrored")
    jars = maven.jars(
        f"kafka-mirror-{MIRROR_VERSION}-jars",
        f"org.apache.kafka:connect-mirror:{MIRROR_VERSION}",
        "org.slf4j:slf4j-simple:1.7.36",
    )
    with secured_barnabas(tmp_path / "target", count=1) as target:
        file = tmp_path / "mirror.properties"
        ones = ["replication.factor", "offset-syncs.topic.replication.factor", "heartbeats.topic.replication.factor"]
        ones += [f"{each}.storage.replication.factor" for each in ("config", "offset", "status")]
        file.write_text(
            properties(
                {
                    "clusters": "source,target",
                    **secured.java("source."),
                    **target.java("target."),
                    "source->target.enabled": "true",
                    "source->target.topics": "mirrored",
                    "sync.topic.acls.enabled": "true",
                    "sync.topic.acls.interval.seconds": "2",
                    "refresh.topics.interval.seconds": "2",
                    "checkpoints.topic.replication.factor": "1",
                    **dict.fromkeys(ones, "1"),
                }
            )
        )
        main = "org.apache.kafka.connect.mirror.MirrorMaker"
        mirror = run_java([*OPTIONS, *LOGGING, "-cp", f"{jars}/*", main, str(file)])
        there = tmp_path / "there"
        there.mkdir()
        at_target = admin_command(tools, target, there)
        wanted = {
            ("User:erin", "*", "READ", "ALLOW"),
            ("User:frank", "*", "READ", "ALLOW"),  # MirrorMaker copies ALL as READ, and no WRITE
            ("User:grace", "*", "READ", "DENY"),
        }

        def mirrored_acls() -> set[tuple[str, ...]]:
            found = entries(at_target(ACLS, "--list", "--topic", "source.mirrored"))
            return {each[3:] for each in found}

        mirror.wait_until(lambda: mirrored_acls() == wanted, lambda: f"the ACLs are copied, not {mirrored_acls()}")
        assert consume(target, "source.mirrored", "readers") == ""


# -- programs of other projects -----------------------------------------------------------------------------------

Program = Callable[..., subprocess.CompletedProcess[str]]


def program(name: str) -> str:
    return shutil.which(name) or pytest.skip(f"{name} is not on the path")


def kafkactl(folder: Path, access: Access) -> Program:
    """Return a function that runs kafkactl as the user of `access`."""
    config = {
        "brokers": access.bootstrap.split(","),
        "kafkaVersion": "2.8.0",  # the first release with all APIs for users
        "tls": {"enabled": True, "ca": str(access.ca)},
        "sasl": {"enabled": True, "username": access.user, "password": access.password, "mechanism": "scram-sha512"},
    }
    file = folder / f"kafkactl-{access.user}.yml"
    file.write_text(json.dumps({"contexts": {"default": config}}))
    return lambda *words, text="": run(folder, program("kafkactl"), "--config-file", str(file), *words, text=text)


def kaf(folder: Path, access: Access) -> Program:
    """Return a function that runs kaf as the user of `access`."""
    cluster = {
        "name": "secured",
        "brokers": access.bootstrap.split(","),
        "SASL": {"mechanism": "SCRAM-SHA-512", "username": access.user, "password": access.password},
        "TLS": {"cafile": str(access.ca)},
        "security-protocol": "SASL_SSL",
    }
    file = folder / f"kaf-{access.user}.yml"
    file.write_text(json.dumps({"current-cluster": "secured", "clusters": [cluster]}))
    return lambda *words, text="": run(folder, program("kaf"), "--config", str(file), *words, text=text)


def run(home: Path, *command: str, text: str) -> subprocess.CompletedProcess[str]:
    """Run a program whose own files belong to a test."""
    environment = {**os.environ, "HOME": str(home)}
    return subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=TIMEOUT_S, check=False, env=environment
    )


def done(process: subprocess.CompletedProcess[str]) -> str:
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


def error_of(process: subprocess.CompletedProcess[str]) -> str:
    assert process.returncode != 0, process.stdout
    return process.stdout + process.stderr


def test_kafkactl_manages_users_and_acls(secured: Access, admin: AdminClient, tmp_path: Path) -> None:
    as_admin = kafkactl(tmp_path, secured)
    done(as_admin("create", "user", "heidi", "-m", "SCRAM-SHA-512", "-p", "heidi-secret"))
    wait_until(lambda: "heidi" in done(as_admin("get", "users")), "all brokers know the user")
    done(as_admin("create", "topic", "ledger", "--partitions", "2"))
    as_heidi = kafkactl(tmp_path, secured.of("heidi", "heidi-secret"))
    assert "ledger" not in done(as_heidi("get", "topics"))
    assert "authorized" in error_of(as_heidi("create", "topic", "hers"))
    assert error_of(as_heidi("get", "acl"))

    topic = ["--topic", "ledger", "--principal", "User:heidi"]
    done(as_admin("create", "acl", *topic, "--operation", "read", "--operation", "write", "--allow"))
    done(as_admin("create", "acl", *topic, "--operation", "delete", "--host", "10.0.0.1", "--deny"))
    done(as_admin("create", "acl", "--group", "led", "--pattern", "prefixed", "--principal", "User:heidi",
                  "--operation", "read", "--allow"))  # fmt: skip
    done(as_admin("create", "acl", "--cluster", "--principal", "User:heidi", "--operation", "describe", "--allow"))
    listed = json.loads(done(as_admin("get", "acl", "--principal", "User:heidi", "-o", "json")))
    found = {
        (each["resourceType"], each["resourceName"], each["patternType"], entry["Host"], entry["Operation"],
         entry["permissionType"])
        for each in listed
        for entry in each["acls"]
    }  # fmt: skip
    assert found == {
        ("Topic", "ledger", "Literal", "*", "Read", "Allow"),
        ("Topic", "ledger", "Literal", "*", "Write", "Allow"),
        ("Topic", "ledger", "Literal", "10.0.0.1", "Delete", "Deny"),
        ("Group", "led", "Prefixed", "*", "Read", "Allow"),
        ("Cluster", "kafka-cluster", "Literal", "*", "Describe", "Allow"),
    }
    done(as_heidi("produce", "ledger", "--value", "entry"))
    assert "entry" in done(as_heidi("consume", "ledger", "--from-beginning", "--exit"))
    assert "ledger" in done(as_heidi("get", "topics"))
    assert "authorized" in error_of(as_heidi("delete", "topic", "ledger"))

    for kind in ("--topics", "--groups", "--cluster"):
        done(as_admin("delete", "acl", kind, "--operation", "any", "--pattern", "any", "--principal", "User:heidi"))
    assert "User:heidi" not in done(as_admin("get", "acl"))
    wait_until(lambda: "ledger" not in done(as_heidi("get", "topics")), "heidi no longer sees the topic")
    done(as_admin("delete", "user", "heidi", "-m", "SCRAM-SHA-512"))
    wait_until(lambda: as_heidi("get", "topics").returncode != 0, "the deleted user is refused")
    del admin


def test_kaf_works_within_the_permissions_of_its_user(
    secured: Access,
    admin: AdminClient,
    tmp_path: Path,
) -> None:
    ivan = create_user(secured, "ivan")
    as_ivan, as_admin = kaf(tmp_path, ivan), kaf(tmp_path, secured)
    done(as_admin("topic", "create", "notes", "-p", "1", "-r", "1"))
    create_topic(admin, "hidden")
    assert "notes" not in done(as_ivan("topics"))
    assert error_of(as_ivan("produce", "notes", text="first\n"))
    allow(admin, "ivan", AclOperation.WRITE, Resource.TOPIC, "notes")
    allow(admin, "ivan", AclOperation.READ, Resource.TOPIC, "notes")
    allow(admin, "ivan", AclOperation.READ, Resource.GROUP, "ivan-", pattern=Pattern.PREFIXED)
    wait_until(lambda: "notes" in done(as_ivan("topics")), "ivan sees the topic")
    assert "hidden" not in done(as_ivan("topics"))
    done(as_ivan("produce", "notes", text="first\n"))
    assert "first" in done(as_ivan("consume", "notes", "--output", "raw"))
    commit(ivan, "ivan-group", "notes", 1)  # kaf commits with a version that Kafka 4 does not serve, either
    commit(secured, "other-group", "notes", 1)
    groups = done(as_ivan("groups"))
    assert "ivan-group" in groups
    assert "other-group" not in groups
    assert "1" in done(as_ivan("group", "describe", "ivan-group"))
    assert error_of(as_ivan("topic", "create", "his", "-p", "1", "-r", "1"))
    assert error_of(as_ivan("topic", "delete", "notes"))
    assert {"notes", "hidden"} <= set(done(as_admin("topics")).split())


def commit(access: Access, group: str, topic: str, offset: int) -> None:
    consumer = confluent_kafka.Consumer({**access.librdkafka(), "group.id": group, "enable.auto.commit": False})
    with contextlib.closing(consumer):
        consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, offset)], asynchronous=False)


@contextmanager
def exporter(command: list[str], log: Path, environment: Mapping[str, str] | None = None) -> Iterator[None]:
    with log.open("wb") as file, subprocess.Popen(command, stdout=file, stderr=file, env=environment) as process:
        try:
            yield
        finally:
            process.kill()


def metrics(port: int) -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            return str(answer.read().decode())
    except (urllib.error.URLError, ConnectionError):
        return ""


def monitored(secured: Access, admin: AdminClient, user: str) -> Access:
    """Create a user with the permissions of a monitor for the topics and groups that begin with `seen-`, and data."""
    monitor = create_user(secured, user)
    for operation in (AclOperation.DESCRIBE, AclOperation.DESCRIBE_CONFIGS):
        allow(admin, user, operation, Resource.BROKER, "kafka-cluster")
        allow(admin, user, operation, Resource.TOPIC, f"seen-{user}", pattern=Pattern.PREFIXED)
    allow(admin, user, AclOperation.DESCRIBE, Resource.GROUP, "seen-", pattern=Pattern.PREFIXED)
    for topic in (f"seen-{user}", f"unseen-{user}"):
        create_topic(admin, topic)
        for _ in range(RECORDS):
            assert produce(secured, topic) == ""
    commit(secured, "seen-group", f"seen-{user}", 2)
    return monitor


def test_kminion_shows_what_its_user_may_describe(
    secured: Access,
    admin: AdminClient,
    tmp_path: Path,
) -> None:
    monitor, port = monitored(secured, admin, "kminion"), free_port()
    settings = {
        "KAFKA_BROKERS": monitor.bootstrap,
        "KAFKA_TLS_ENABLED": "true",
        "KAFKA_TLS_CAFILEPATH": str(monitor.ca),
        "KAFKA_SASL_ENABLED": "true",
        "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "KAFKA_SASL_USERNAME": monitor.user,
        "KAFKA_SASL_PASSWORD": monitor.password,
        "EXPORTER_HOST": "127.0.0.1",
        "EXPORTER_PORT": str(port),
    }
    with exporter([program("kminion")], tmp_path / "kminion.log", settings):
        high = re.compile(
            rf'kminion_kafka_topic_partition_high_water_mark{{.*"seen-kminion".*}} {RECORDS}$', re.MULTILINE
        )
        lag = re.compile(
            rf'kminion_kafka_consumer_group_topic_partition_lag{{.*"seen-kminion".*}} {RECORDS - 2}$', re.MULTILINE
        )
        wait_until(
            lambda: high.search(metrics(port)) and lag.search(metrics(port)),
            lambda: f"kminion shows the topic and the lag: {metrics(port)}\n{(tmp_path / 'kminion.log').read_text()}",
        )
        # The sizes of log directories need a permission for the cluster only, and include all topics.
        others = [line for line in metrics(port).splitlines() if "log_dir" not in line]
        assert "unseen" not in "\n".join(others)


def test_kafka_exporter_shows_what_its_user_may_describe(
    secured: Access,
    admin: AdminClient,
    tmp_path: Path,
) -> None:
    monitor, port = monitored(secured, admin, "exporter"), free_port()
    words = [program("kafka_exporter"), f"--web.listen-address=127.0.0.1:{port}", "--sasl.enabled", "--tls.enabled"]
    words += [f"--kafka.server={each}" for each in monitor.bootstrap.split(",")]
    words += [f"--tls.ca-file={monitor.ca}", "--sasl.mechanism=scram-sha512"]
    words += [f"--sasl.username={monitor.user}", f"--sasl.password={monitor.password}"]
    with exporter(words, tmp_path / "exporter.log"):
        high = re.compile(rf'kafka_topic_partition_current_offset{{.*"seen-exporter"}} {RECORDS}$', re.MULTILINE)
        lag = re.compile(rf'kafka_consumergroup_lag{{.*"seen-exporter"}} {RECORDS - 2}$', re.MULTILINE)
        wait_until(
            lambda: high.search(metrics(port)) and lag.search(metrics(port)),
            lambda: f"kafka_exporter shows topic and lag: {metrics(port)}\n{(tmp_path / 'exporter.log').read_text()}",
        )
        assert "unseen" not in metrics(port)
