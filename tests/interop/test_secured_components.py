"""A mirror and a registry between a secured cluster and one without security: each side gets its own settings."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, cast

import pytest

import barnabas as client
from barnabas.errors import BarnabasError, ConfigurationError
from barnabas.laboratory.perf.pipelined_workload import Leader, PipelineJob, _run
from barnabas.mirror.mirror import Mirror, MirrorConfig
from barnabas.registry.main import Registry, RegistryConfig
from tests.support.reading import wait_until
from tests.support.secured_broker import PASSWORD, USER, SecuredBroker, secured_broker

RECORDS = 20
TIMEOUT_S = 60.0


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with secured_broker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


def side(broker: SecuredBroker, **changes: str) -> dict[str, str]:
    """Return the settings of a client of the secured listener, under Kafka's names."""
    return {
        "bootstrap.servers": broker.address("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.truststore.location": str(broker.certificates.ca),
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        **changes,
    }


def values(settings: dict[str, str], topic: str) -> list[bytes | None]:
    with client.Consumer(settings, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        found: list[bytes | None] = []
        while len(found) < RECORDS:
            found += [each.value for each in consumer.poll(timeout_s=TIMEOUT_S)]
    return found


@pytest.mark.parametrize("is_source", [True, False])
def test_each_side_of_a_mirror_has_its_own_credentials(
    secured: SecuredBroker, bootstrap: str, topic: str, is_source: bool
) -> None:
    sides = [side(secured), {"bootstrap.servers": bootstrap}]
    source, target = sides if is_source else sides[::-1]
    with client.Admin(source) as admin, client.Producer(source) as producer:
        admin.create_topic(topic)
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number)
    config = MirrorConfig(source, target, topics=(topic,), refresh_s=0.2, ledger_s=0.2, audit=True)
    assert PASSWORD not in repr(config)
    events: list[Any] = []

    async def mirrored() -> list[bytes | None]:
        mirror, stop = Mirror(config, events.append), asyncio.Event()
        await mirror.start()
        running = asyncio.create_task(mirror.run_until(stop))
        try:
            return await asyncio.to_thread(values, target, topic)
        finally:
            stop.set()
            await running
            await mirror.stop()

    assert asyncio.run(mirrored()) == [b"%d" % number for number in range(RECORDS)]
    assert PASSWORD not in repr(events)


def test_mirror_with_a_wrong_password_does_not_start(secured: SecuredBroker, bootstrap: str) -> None:
    wrong = side(secured, **{"sasl.password": "wrong-but-secret"})

    async def start() -> None:
        mirror = Mirror(MirrorConfig(wrong, {"bootstrap.servers": bootstrap}, topics=("x",)), lambda _event: None)
        try:
            await mirror.start()
        finally:
            await mirror.stop()

    with pytest.raises(BarnabasError) as refused:
        asyncio.run(start())
    assert "wrong-but-secret" not in str(refused.value)


def test_registry_keeps_schemas_in_a_secured_cluster(secured: SecuredBroker) -> None:
    settings = side(secured)
    config = RegistryConfig(settings.pop("bootstrap.servers"), port=0, settings=settings)
    assert PASSWORD not in repr(config)

    async def started() -> list[str]:
        registry = Registry(config)
        try:
            await registry.start()
            return registry.not_ready()
        finally:
            await registry.stop()

    assert asyncio.run(started()) == []
    with client.Admin(side(secured)) as admin:
        wait_until(lambda: "_schemas" in admin.list_topics(), "the topic of the registry exists")


def test_pipelined_workload_refuses_to_connect_without_security(secured: SecuredBroker) -> None:
    leader = Leader("127.0.0.1", secured.port("SASL_SSL"), (0,))
    with pytest.raises(ConfigurationError, match="pipelined requests have no TLS"):
        asyncio.run(_run(PipelineJob(side(secured), "clicks", (leader,), 1), [], cast(Any, None), cast(Any, None)))
