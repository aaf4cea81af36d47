"""With ACLs, no stranger forges schemas, elections of registries, or ledgers and records of mirrors."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import Iterator
from contextlib import closing
from http.client import HTTPSConnection
from typing import Any

import pytest

pytest.importorskip("uvicorn")

import barnabas
from barnabas.errors import ApiError, ErrorCode
from barnabas.mirror.ledger import LEDGER_TOPIC, PartitionMark
from barnabas.mirror.mirror import Mirror, MirrorConfig
from barnabas.model import TopicPartition
from barnabas.registry.main import RegistryConfig
from barnabas.security.acls import Operation, ResourceType
from barnabas.security.http_settings import HttpSecurity
from tests.interop.test_secured_registry import RunningRegistry
from tests.support.acl_grants import AUTHORIZER, allow, grant, revoke
from tests.support.reading import wait_until
from tests.support.secured_broker import PASSWORD, USER, SecuredBroker, secured_broker

TIMEOUT_S = 60.0
REGISTRY, MIRROR, BOB, MALLORY = "registry", "mirror", "bob", "mallory"
SCHEMAS = "_schemas"
TOPIC, CLUSTER, SUBJECT, GROUP = (
    ResourceType.TOPIC,
    ResourceType.CLUSTER,
    ResourceType.SUBJECT,
    ResourceType.GROUP,
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("forgeries"), **{"authorizer.class.name": AUTHORIZER}) as running:
        with barnabas.Admin(client_of(running)) as admin:
            for user in (REGISTRY, MIRROR, BOB, MALLORY):
                admin.set_user_password(user, f"{user}-secret")
        # Mallory may do much, but may only describe the topics of registries and mirrors.
        grant(
            client_of(running),
            *allow(REGISTRY, TOPIC, SCHEMAS, Operation.READ, Operation.WRITE, Operation.CREATE),
            *allow(REGISTRY, CLUSTER, "", Operation.DESCRIBE),
            *allow(MALLORY, TOPIC, "own", Operation.ALL),
            *allow(MALLORY, TOPIC, "_", Operation.DESCRIBE, prefixed=True),
            *allow(MALLORY, TOPIC, "mirrored-", Operation.READ, prefixed=True),
            *allow(MALLORY, GROUP, "*", Operation.ALL),
            *allow(MALLORY, SUBJECT, "own-value", Operation.ALL),
        )
        yield running


def client_of(broker: SecuredBroker, user: str = USER) -> dict[str, Any]:
    """Return the settings of a client."""
    settings = broker.client(sasl_username=user, sasl_password=PASSWORD if user == USER else f"{user}-secret")
    return {"bootstrap_servers": settings.pop("bootstrap"), **settings}


@pytest.fixture(scope="module")
def registry(broker: SecuredBroker) -> Iterator[RunningRegistry]:
    running = RunningRegistry(config_of(broker))
    yield running
    running.close()


def config_of(broker: SecuredBroker) -> RegistryConfig:
    settings = client_of(broker, REGISTRY)
    return RegistryConfig(
        settings.pop("bootstrap_servers"),
        port=0,
        settings=settings,
        security=HttpSecurity(certfile=str(broker.key_store)),
    )


def ask(
    broker: SecuredBroker, registry: RunningRegistry, user: str, method: str, path: str, body: object = None
) -> tuple[int, Any]:
    password = PASSWORD if user == USER else f"{user}-secret"
    context = ssl.create_default_context(cafile=str(broker.certificates.ca))
    with closing(HTTPSConnection("127.0.0.1", registry.port, timeout=TIMEOUT_S, context=context)) as connection:
        authorization = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
        connection.request(method, path, None if body is None else json.dumps(body), {"Authorization": authorization})
        response = connection.getresponse()
        return response.status, json.loads(response.read())


def refused(broker: SecuredBroker, topic: str, key: bytes, value: bytes | None) -> ErrorCode:
    """Return the error of a record that Mallory sends."""
    producer = barnabas.Producer(client_of(broker, MALLORY), allow_auto_create_topics=False)
    with producer, pytest.raises(ApiError) as error:
        producer.send(topic, value, key=key).result()
    return error.value.code


def test_stranger_cannot_write_to_the_topic_of_registries(broker: SecuredBroker, registry: RunningRegistry) -> None:
    grant(client_of(broker), *allow(BOB, SUBJECT, "bob-", Operation.WRITE, prefixed=True))
    schema = {"schema": '"string"'}
    wait_until(
        lambda: ask(broker, registry, BOB, "POST", "/subjects/bob-value/versions", schema)[0] == 200,
        "the registry knows the ACL",
    )
    forgeries = [
        ({"keytype": "MODE", "subject": None, "magic": 0}, {"mode": "READONLY"}),
        ({"keytype": "CONFIG", "subject": None, "magic": 0}, {"compatibilityLevel": "NONE"}),
        ({"keytype": "SCHEMA", "subject": "bob-value", "version": 1, "magic": 1}, None),
    ]
    for key, value in forgeries:
        encoded = None if value is None else json.dumps(value).encode()
        assert refused(broker, SCHEMAS, json.dumps(key).encode(), encoded) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    with barnabas.Admin(client_of(broker, MALLORY)) as admin:
        for forge in (
            lambda: admin.delete_topic(SCHEMAS),
            lambda: admin.alter_config(SCHEMAS, to_set={"cleanup.policy": "delete"}),
            lambda: admin.delete_records({TopicPartition(SCHEMAS, 0): 1}),
        ):
            with pytest.raises(ApiError) as error:
                forge()
            assert error.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    grant(client_of(broker), *allow(BOB, SUBJECT, "bob-", Operation.READ, prefixed=True))
    wait_until(
        lambda: ask(broker, registry, BOB, "GET", "/subjects/bob-value/versions")[1] == [1], "the schema is unchanged"
    )
    assert ask(broker, registry, USER, "GET", "/mode")[0] == 403  # super users of brokers are none of the registry


def test_registries_elect_no_leader_that_a_stranger_could_become(
    broker: SecuredBroker, registry: RunningRegistry
) -> None:
    with barnabas.Admin(client_of(broker)) as admin:
        assert admin.list_groups() == []
    with barnabas.Consumer(client_of(broker, MALLORY), group="schema-registry", client_id="http://mallory") as consumer:
        consumer.subscribe(["own"])
        consumer.poll(timeout_s=0.1)
        status, answer = ask(broker, registry, MALLORY, "POST", "/subjects/own-value/versions", {"schema": '"int"'})
        assert status == 200, answer


def test_stranger_changes_and_sees_only_what_acls_allow(broker: SecuredBroker, registry: RunningRegistry) -> None:
    for method, path, body in (
        ("GET", "/subjects/bob-value/versions/1", None),
        ("DELETE", "/subjects/bob-value", None),
        ("PUT", "/mode", {"mode": "READONLY"}),
        ("PUT", "/config/bob-value", {"compatibility": "NONE"}),
    ):
        status, answer = ask(broker, registry, MALLORY, method, path, body)
        assert (status, answer["error_code"]) == (403, 40301), path
    assert "bob-value" not in ask(broker, registry, MALLORY, "GET", "/subjects")[1]


def test_revoked_permission_ends_at_the_registry(broker: SecuredBroker, registry: RunningRegistry) -> None:
    grant(client_of(broker), *allow(BOB, SUBJECT, "revoked", Operation.READ, Operation.WRITE))
    path = "/subjects/revoked/versions"
    wait_until(lambda: ask(broker, registry, BOB, "POST", path, {"schema": '"int"'})[0] == 200, "the ACL is in force")
    revoke(client_of(broker), BOB, SUBJECT)
    wait_until(lambda: ask(broker, registry, BOB, "GET", path)[0] == 403, "the ACL is revoked")


def test_registry_starts_again_without_permission_to_create_its_topic(
    broker: SecuredBroker, registry: RunningRegistry
) -> None:
    revoke(client_of(broker), REGISTRY, TOPIC)
    grant(client_of(broker), *allow(REGISTRY, TOPIC, SCHEMAS, Operation.READ, Operation.WRITE))
    second = RunningRegistry(config_of(broker))
    assert second.registry.not_ready() == []
    second.close()


def test_registry_that_may_not_read_acls_refuses_all_requests(broker: SecuredBroker, registry: RunningRegistry) -> None:
    revoke(client_of(broker), REGISTRY, CLUSTER)
    second = RunningRegistry(config_of(broker))
    assert ask(broker, second, MALLORY, "GET", "/subjects")[0] == 503
    (reason,) = second.registry.not_ready()
    assert reason.startswith("cannot read ACLs: CLUSTER_AUTHORIZATION_FAILED")
    grant(client_of(broker), *allow(REGISTRY, CLUSTER, "", Operation.DESCRIBE))
    wait_until(lambda: ask(broker, second, MALLORY, "GET", "/subjects")[0] == 200, "the registry may read ACLs")
    second.close()


# --- mirrors ---

MIRROR_ACLS = [
    *allow(MIRROR, TOPIC, LEDGER_TOPIC, Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE_CONFIGS),
    *allow(
        MIRROR,
        TOPIC,
        "mirrored-",
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.ALTER,
        Operation.ALTER_CONFIGS,
        prefixed=True,
    ),
]
RECORDS = 30


def forged_mark() -> tuple[bytes, bytes]:
    """Return an entry of the ledger that claims that the target has many records."""
    mark = PartitionMark("0" * 32, 0, ())
    return PartitionMark.key("mirrored-clicks", 0).encode(), json.dumps(mark.value()).encode()


def test_only_the_mirror_writes_ledgers_and_mirrored_topics(broker: SecuredBroker, bootstrap: str, topic: str) -> None:
    grant(client_of(broker), *MIRROR_ACLS)
    source = {"bootstrap.servers": bootstrap}
    settings = client_of(broker, MIRROR)
    target = {"bootstrap.servers": settings.pop("bootstrap_servers"), **settings}
    mirrored = f"mirrored-{topic}"
    with barnabas.Admin(source) as admin, barnabas.Producer(source) as producer:
        admin.create_topic(topic)
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number)
    config = MirrorConfig(source, target, topics=(topic,), prefix="mirrored-", refresh_s=0.2, ledger_s=0.2)
    events: list[Any] = []

    def values() -> list[bytes | None]:
        with barnabas.Consumer(client_of(broker), auto_offset_reset="earliest") as consumer:
            consumer.subscribe([mirrored])
            found: list[bytes | None] = []
            while len(found) < RECORDS + 1:
                found += [each.value for each in consumer.poll(timeout_s=TIMEOUT_S)]
        return found

    def attack() -> None:
        key, value = forged_mark()
        for place in (LEDGER_TOPIC, mirrored):
            assert refused(broker, place, key, value) is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with barnabas.Producer(source) as producer:
            producer.send(topic, b"last").result()

    async def run() -> list[bytes | None]:
        mirror, stop = Mirror(config, events.append), asyncio.Event()
        await mirror.start()
        running = asyncio.create_task(mirror.run_until(stop))
        try:
            await asyncio.to_thread(wait_until, lambda: mirror.has_caught_up, "the mirror has caught up")
            await asyncio.to_thread(attack)
            return await asyncio.to_thread(values)
        finally:
            stop.set()
            await running
            await mirror.stop()
            assert mirror.final.stopped == 0, events

    assert asyncio.run(run()) == [*(b"%d" % number for number in range(RECORDS)), b"last"]


def test_mirror_reads_a_source_with_few_permissions(broker: SecuredBroker, bootstrap: str, topic: str) -> None:
    mirrored = f"source-{topic}"
    grant(
        client_of(broker),
        *allow(MIRROR, TOPIC, "source-", Operation.READ, Operation.DESCRIBE_CONFIGS, prefixed=True),
        *allow(MIRROR, GROUP, "readers", Operation.READ),
    )
    with barnabas.Admin(client_of(broker)) as admin, barnabas.Producer(client_of(broker)) as producer:
        admin.create_topic(mirrored)
        for number in range(RECORDS):
            producer.send(mirrored, b"%d" % number)
        producer.flush()
        admin.set_group_offsets("readers", {TopicPartition(mirrored, 0): 7})
    settings = client_of(broker, MIRROR)
    source = {"bootstrap.servers": settings.pop("bootstrap_servers"), **settings}
    target = {"bootstrap.servers": bootstrap}
    config = MirrorConfig(
        source, target, topics=(mirrored,), groups=("readers",), refresh_s=0.2, groups_s=0.2, ledger_s=0.2
    )
    events: list[Any] = []

    async def run() -> None:
        mirror, stop = Mirror(config, events.append), asyncio.Event()
        await mirror.start()
        running = asyncio.create_task(mirror.run_until(stop))
        try:
            await asyncio.to_thread(wait_until, lambda: mirror.has_caught_up, "the mirror has caught up")
            with barnabas.Admin(target) as admin:
                offsets = {TopicPartition(mirrored, 0): 7}
                await asyncio.to_thread(
                    wait_until, lambda: group_offsets(admin, "readers") == offsets, "the offsets are mirrored"
                )
        finally:
            stop.set()
            await running
            await mirror.stop()
            assert mirror.final.stopped == 0, events

    asyncio.run(run())


def group_offsets(admin: barnabas.Admin, group: str) -> dict[TopicPartition, int]:
    return {tp: found.offset for tp, found in admin.group_offsets(group).items()}
