"""Quotas on running brokers: greedy clients, clients of others, users, clusters, and connections that wait."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer as ConfluentProducer

import barnabas as client
from barnabas.errors import ErrorCode
from barnabas.net.listener import Listener
from barnabas.net.server_connection import ConnectionContext, FrameReply, Limits
from barnabas.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlteredQuotaEntityPart,
    QuotaAlteration,
    QuotaOperation,
)
from barnabas.protocol.messages.describe_client_quotas import (
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    QuotaFilterComponent,
)
from barnabas.protocol.messages.produce import ProduceResponse
from tests.interop.test_raw_frames import RawConnection, batch_of, connection_to, create_topic, produce_request
from tests.support.broker_process import BrokerProcess
from tests.support.process_cluster import Cluster
from tests.support.reading import wait_until
from tests.support.secured_broker import PASSWORD, USER, secured_broker
from tests.support.xdist_groups import CLUSTERS

MakeBroker = Callable[..., BrokerProcess]

GREEDY = 200
HONEST_BYTES_PER_S = 200_000
HONEST_RECORD_BYTES = 2_000
HONEST_S = 4.0
SHARE_MIN = 0.9
ATTEMPTS = 3
SETTINGS: dict[str, str] = {}
"""The settings of the cluster."""
SHORT_WINDOWS = {"quota_window_num": "2"}
PROGRAM = Path(__file__).parent.parent / "programs" / "greedy_clients.py"


@contextlib.contextmanager
def greedy_clients(broker: BrokerProcess, topic: str) -> Iterator[None]:
    command = [sys.executable, str(PROGRAM), str(broker.port), str(GREEDY), topic]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"connected\n"
        yield
        assert process.poll() is None, "the broker has closed connections of greedy clients"
        process.communicate()


def wait_for_next_record() -> None:
    """Sleep between the records of a steady rate."""
    time.sleep(HONEST_RECORD_BYTES / HONEST_BYTES_PER_S / 2)


def share_of_quota(bootstrap: str) -> float:
    """Produce at the rate of the quota for a while; return the acknowledged share."""
    with client.Producer(bootstrap, client_id="honest", linger_ms=5, acks=1) as producer:
        producer.send("honest", b"first").result(60)
        begun_s, sent = time.monotonic(), 0
        while (passed_s := time.monotonic() - begun_s) < HONEST_S:
            while sent < passed_s * HONEST_BYTES_PER_S:
                producer.send("honest", bytes(HONEST_RECORD_BYTES))
                sent += HONEST_RECORD_BYTES
            wait_for_next_record()
        acknowledged = producer.metrics()["records_total"] * HONEST_RECORD_BYTES
    return acknowledged / (HONEST_BYTES_PER_S * HONEST_S)


def test_honest_client_keeps_its_quota_among_greedy_clients(make_broker: MakeBroker) -> None:
    broker = make_broker(**SHORT_WINDOWS)
    with client.Admin(broker.bootstrap) as admin:
        for topic in ("greedy", "honest"):
            admin.create_topic(topic)
        each = {"producer_byte_rate": 10_000, "consumer_byte_rate": 10_000, "request_percentage": 0.1}
        admin.alter_client_quotas({"client-id": None}, each)
        admin.alter_client_quotas(
            {"client-id": "honest"}, {"producer_byte_rate": 1.5 * HONEST_BYTES_PER_S, "request_percentage": 100}
        )
        with greedy_clients(broker, "greedy"):
            # Several attempts, because other programs may use the machine.
            assert any(share_of_quota(broker.bootstrap) >= SHARE_MIN for _ in range(ATTEMPTS))
            # The administrator has the default client id of our clients, and so the default quotas.
            assert len(admin.describe_client_quotas()) == 2


def test_librdkafka_sees_the_throttle_time(make_broker: MakeBroker) -> None:
    broker, throttled = make_broker(**SHORT_WINDOWS), []
    with client.Admin(broker.bootstrap) as admin:
        admin.create_topic("clicks")
        admin.alter_client_quotas({"client-id": "confluent"}, {"producer_byte_rate": 2_000})
    producer = ConfluentProducer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "confluent", "throttle_cb": throttled.append}
    )
    for _ in range(3):
        producer.produce("clicks", bytes(1_500))
        producer.flush(60)
    wait_until(lambda: producer.poll(0.1) or throttled, "a throttle event")
    assert throttled[0].throttle_time > 0


def test_our_clients_wait_as_the_broker_demands(make_broker: MakeBroker) -> None:
    broker = make_broker(**SHORT_WINDOWS)
    with client.Admin(broker.bootstrap) as admin:
        admin.create_topic("clicks")
        quotas = {"producer_byte_rate": 10_000, "consumer_byte_rate": 10_000}
        admin.alter_client_quotas({"client-id": "mine"}, quotas)
    with client.Producer(broker.bootstrap, client_id="mine", linger_ms=0) as producer:
        for _ in range(10):
            producer.send("clicks", bytes(2_000)).result(60)
        assert producer.metrics()["throttle_time_total_ms"] > 0
    with client.Consumer(broker.bootstrap, client_id="mine", auto_offset_reset="earliest") as consumer:
        consumer.assign([("clicks", 0)])
        count = 0
        while count < 10:
            count += len(consumer.poll(timeout_s=60))
        wait_until(lambda: consumer.metrics()["throttle_time_total_ms"] > 0, "a throttle time")


def test_changes_of_topics_above_the_quota_are_retried(make_broker: MakeBroker) -> None:
    broker = make_broker(controller_quota_window_num="1")
    with client.Admin(broker.bootstrap, client_id="mine") as admin:
        admin.alter_client_quotas({"client-id": "mine"}, {"controller_mutation_rate": 10})
        for number in range(3):
            admin.create_topic(f"topic-{number}", partitions=12)
        assert len(admin.list_topics()) == 3
        admin.alter_client_quotas({"client-id": "limited"}, {"controller_mutation_rate": 0.001})
    with client.Admin(broker.bootstrap, client_id="limited", default_api_timeout_ms=1_000) as admin:
        admin.create_topic("large", partitions=20)
        with pytest.raises(client.TimedOutError):
            admin.create_topic("another")
    with client.Admin(broker.bootstrap, client_id="another") as admin:
        admin.create_topic("another", partitions=1)


def test_quotas_are_altered_and_described_in_each_version(broker: BrokerProcess) -> None:
    def alteration(value: float, *, remove: bool = False) -> AlterClientQuotasRequest:
        entity = [
            AlteredQuotaEntityPart(entity_type="user", entity_name="Zoë B."),
            AlteredQuotaEntityPart(entity_type="client-id", entity_name=None),
        ]
        operation = QuotaOperation(key="producer_byte_rate", value=value, remove=remove)
        return AlterClientQuotasRequest(entries=[QuotaAlteration(entity=entity, ops=[operation])], validate_only=False)

    wanted = DescribeClientQuotasRequest(
        components=[QuotaFilterComponent(entity_type="client-id", match_type=1, match=None)], strict=False
    )
    with connection_to(broker) as raw:
        for version in (0, 1):
            raw.call(alteration(1024.0), version, AlterClientQuotasResponse)
            [entry] = raw.call(wanted, version, DescribeClientQuotasResponse).entries
            assert {part.entity_type: part.entity_name for part in entry.entity} == {
                "user": "Zoë B.",
                "client-id": None,
            }
            assert [(each.key, each.value) for each in entry.values] == [("producer_byte_rate", 1024.0)]
            [refused] = raw.call(alteration(-1.0), version, AlterClientQuotasResponse).entries
            assert refused.error_code == ErrorCode.INVALID_REQUEST
            raw.call(alteration(0.0, remove=True), version, AlterClientQuotasResponse)
            assert raw.call(wanted, version, DescribeClientQuotasResponse).entries == []


def test_quotas_survive_a_restart(broker: BrokerProcess) -> None:
    with client.Admin(broker.bootstrap) as admin:
        admin.alter_client_quotas({"user": None}, {"producer_byte_rate": 100})
        admin.create_topic("clicks")
    broker.stop()
    broker.restart()
    with connection_to(broker) as raw:
        response = raw.call(produce_request(batch_of(bytes(2_000))), 9, ProduceResponse)
        assert response.throttle_time_ms > 0


def test_connection_of_a_muted_client_ends_with_the_client(make_broker: MakeBroker) -> None:
    broker = make_broker()
    with connection_to(broker) as raw:
        create_topic(raw)
        with client.Admin(broker.bootstrap) as admin:
            admin.alter_client_quotas({"client-id": "raw"}, {"producer_byte_rate": 1})
        response = raw.call(produce_request(batch_of(bytes(2_000))), 9, ProduceResponse)
        assert response.throttle_time_ms > 1_000_000
        before = open_files(broker)
    wait_until(lambda: open_files(broker) < before, "the end of the connection")


def open_files(broker: BrokerProcess) -> int:
    """Return the number of sockets that a broker has open."""
    links = Path(f"/proc/{broker.pid}/fd").iterdir()
    count = 0
    for link in links:
        with contextlib.suppress(OSError):
            count += str(link.readlink()).startswith("socket:")
    return count


def test_muted_client_with_tls_ends_with_the_client_and_leaves_credentials_alone(tmp_path: Path) -> None:
    with secured_broker(tmp_path) as broker:

        def count() -> int:
            found: int = broker.listener("SASL_SSL").connection_count
            return found

        alone = broker.call(count)
        with client.Admin(**broker.client()) as admin:
            admin.create_topic("clicks")
            admin.alter_client_quotas({"user": USER}, {"producer_byte_rate": 1})
            assert [each.name for each in admin.describe_users()] == [USER]
        with client.Producer(**broker.client(), linger_ms=0) as producer:
            producer.send("clicks", bytes(2_000)).result(60)
            assert producer.metrics()["throttle_time_total_ms"] > 1_000_000
        wait_until(lambda: broker.call(count) == alone, "the end of the connections")
        with client.Admin(**broker.client()) as admin:
            admin.set_user_password(USER, "another", mechanisms=["SCRAM-SHA-512"])
            [found] = admin.describe_client_quotas({"user": USER})
            assert found.quotas == {"producer_byte_rate": 1.0}
            admin.alter_client_quotas({"user": USER}, {"producer_byte_rate": None})
            [described] = admin.describe_users()
            assert {each.mechanism for each in described.credentials} >= {"SCRAM-SHA-256", "SCRAM-SHA-512"}
        with client.Producer(**broker.client(sasl_password=PASSWORD), linger_ms=0) as producer:
            producer.send("clicks", bytes(2_000)).result(60)
            assert producer.metrics()["throttle_time_total_ms"] == 0


async def wait_for(condition: Callable[[], bool]) -> None:
    for _ in itertools.takewhile(lambda _: not condition(), itertools.repeat(None)):
        await asyncio.sleep(0.01)


class Echo:
    """Responds to each request with the request."""

    def __init__(self, _link: ConnectionContext) -> None:
        pass

    def carry_out(self, frames: object) -> FrameReply:
        return FrameReply(1, [bytes([0, 0, 0, 1]) + bytes(frames[0])])  # type: ignore[index]

    def note_request_behind(self) -> None:
        pass

    def note_gone(self) -> None:
        pass


def test_connections_above_the_rate_of_their_address_wait() -> None:
    async def scenario() -> None:
        rate: dict[str, float] = {"127.0.0.1": 4.0}
        listener = Listener(Limits(connections_per_s_of=rate.get))
        port = listener.listen("127.0.0.1", 0)
        listener.accept(Echo)
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(24)]
        await wait_for(lambda: listener.accepted_count == len(clients))
        assert listener.throttled_count == 4
        assert listener.refused_count == 0
        _, leaves = clients.pop()
        leaves.close()
        for reader, writer in clients:
            writer.write(b"\0\0\0\1x")
            assert await reader.readexactly(5) == b"\0\0\0\1x"
        rate["127.0.0.1"] = 0.0
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        assert await reader.read() == b""
        assert listener.refused_count == 1
        await wait_for(lambda: not listener._waiting)
        for _, each in [*clients, (reader, writer)]:
            each.close()
        await wait_for(lambda: not listener.connection_count)
        assert listener._count.admit("127.0.0.1") is None
        assert listener._count._by_host["127.0.0.1"] == 1
        listener.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_connections_above_the_rate_of_all_addresses_wait_in_the_backlog() -> None:
    async def scenario() -> None:
        listener = Listener(Limits(connections_per_s_max=lambda: 4.0, own_connections_per_s_max=100.0))
        port = listener.listen("127.0.0.1", 0)
        listener.accept(Echo)
        clients = [await asyncio.open_connection("127.0.0.1", port) for _ in range(22)]
        for _, writer in clients:
            writer.write(b"\0\0\0\1x")
        for reader, _ in clients[:20]:
            await reader.readexactly(5)
        assert listener.accepted_count == 20
        for reader, _ in clients[20:]:
            await reader.readexactly(5)
        listener.close()

    asyncio.run(asyncio.wait_for(scenario(), 60))


@pytest.mark.system
@pytest.mark.xdist_group(CLUSTERS)
def test_quotas_are_in_force_at_all_brokers(cluster: Cluster) -> None:
    addresses = [each.bootstrap for each in cluster.brokers.values()]
    with client.Admin(addresses[0]) as admin:
        admin.create_topic("clicks", partitions=3, replication_factor=3)
        admin.alter_client_quotas({"client-id": "raw"}, {"producer_byte_rate": 100})
    for address in addresses:
        raw = RawConnection(int(address.rpartition(":")[2]))
        wait_until(lambda raw=raw: _is_throttled(raw), "the quota")  # type: ignore[misc]
        raw.sock.close()


def _is_throttled(raw: RawConnection) -> bool:
    request = produce_request(batch_of(bytes(2_000)))
    response: ProduceResponse = raw.call(request, 9, ProduceResponse)
    return response.throttle_time_ms > 0
