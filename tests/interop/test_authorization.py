"""ACLs on a secured cluster of three brokers with ZooKeeper: permissions of clients, and who may act as a broker."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

import barnabas as client
from barnabas.client.config import AdminConfig
from barnabas.client.security import connection_security
from barnabas.errors import BarnabasError, ErrorCode
from barnabas.net.client_connection import ClientConnection, dial
from barnabas.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.security.scram import ScramMechanism, credential_from_password
from barnabas.security.secrets import Secret
from tests.support.listener_process import ListenerProcess
from tests.support.ports import free_port
from tests.support.process_cluster import Cluster, running_cluster
from tests.support.reading import TIMEOUT_S, wait_until
from tests.support.xdist_groups import CLUSTERS

pytestmark = [pytest.mark.xdist_group(CLUSTERS), pytest.mark.timeout(600)]

TOPIC = "clicks"
MECHANISM = "SCRAM-SHA-256"
USERS = ("admin", "broker", "alice", "mallory")


class SecuredBroker(ListenerProcess):
    """A broker with a SASL listener for clients, and one for brokers."""

    def __init__(self, data: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(data, settings)
        self.brokers_port = free_port()

    def properties(self) -> Mapping[str, str]:
        return {"listeners": f"CLIENTS://127.0.0.1:{self.port},BROKERS://127.0.0.1:{self.brokers_port}"}


class SecuredCluster(Cluster):
    make_broker = SecuredBroker
    brokers: dict[int, SecuredBroker]  # type: ignore[assignment]

    def is_complete(self) -> bool:
        with client.Admin(**self.of_client("admin")) as admin:
            return {node.id for node in admin.brokers()} == set(self.brokers)

    def of_client(self, user: str) -> dict[str, Any]:
        """Return the settings of a client."""
        return {
            "bootstrap": self.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": MECHANISM,
            "sasl_username": user,
            "sasl_password": f"{user}-secret",
        }

    def of_librdkafka(self, user: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": MECHANISM,
            "sasl.username": user,
            "sasl.password": f"{user}-secret",
        }


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredCluster]:
    folder = tmp_path_factory.mktemp("authorization")
    users = folder / "users.json"
    credentials = {
        each: {MECHANISM: credential_from_password(ScramMechanism(MECHANISM), f"{each}-secret", os.urandom(16)).text()}
        for each in USERS
    }
    users.write_text(json.dumps({"users": credentials}))
    settings = {
        "listener_security_protocol_map": "CLIENTS:SASL_PLAINTEXT,BROKERS:SASL_PLAINTEXT",
        "inter_broker_listener_name": "BROKERS",
        "sasl_mechanism_inter_broker_protocol": MECHANISM,
        "sasl_inter_broker_username": "broker",
        "sasl_inter_broker_password": "broker-secret",
        "bootstrap_users_file": str(users),
        "super_users": "User:admin;User:broker",
        "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    }
    with running_cluster(folder, settings, SecuredCluster) as running:
        with client.Admin(**running.of_client("admin")) as admin:
            admin.create_topic(TOPIC, 3, 3)
        yield running


def acl(user: str, operation: AclOperation, kind: ResourceType = ResourceType.TOPIC, name: str = TOPIC) -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)


def grant(cluster: SecuredCluster, *bindings: AclBinding) -> None:
    """Create ACLs of one user; wait until they are in force on all brokers."""
    admin = AdminClient(cluster.of_librdkafka("admin"))
    for done in admin.create_acls(list(bindings)).values():
        done.result(TIMEOUT_S)
    user = bindings[0].principal
    for broker in cluster.brokers.values():
        wait_until(
            lambda broker=broker: asyncio.run(acls_on(cluster, broker, user)) >= len(bindings), "the ACLs are in force"
        )


async def acls_on(cluster: SecuredCluster, broker: SecuredBroker, principal: str) -> int:
    """Return the number of ACLs of a principal that a broker knows."""
    asked = DescribeAclsRequest(
        resource_type_filter=1,
        resource_name_filter=None,
        pattern_type_filter=1,
        principal_filter=principal,
        host_filter=None,
        operation=1,
        permission_type=1,
    )
    connection = await connect(cluster, "admin", broker.port)
    try:
        response = await connection.send(asked)
    finally:
        connection.close()
    return sum(len(each.acls) for each in response.resources)


def revoke(cluster: SecuredCluster, user: str) -> int:
    """Delete all ACLs of a user; wait until no broker knows them; return their number."""
    admin = AdminClient(cluster.of_librdkafka("admin"))
    mine = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        f"User:{user}",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    (done,) = admin.delete_acls([mine]).values()
    deleted = len(done.result(TIMEOUT_S))
    for broker in cluster.brokers.values():
        wait_until(lambda broker=broker: not asyncio.run(acls_on(cluster, broker, f"User:{user}")), "the ACLs are gone")
    return deleted


async def connect(cluster: SecuredCluster, user: str, port: int) -> ClientConnection:
    settings = cluster.of_client(user)
    config = AdminConfig(
        security_protocol=settings["security_protocol"],
        sasl_mechanism=settings["sasl_mechanism"],
        sasl_username=user,
        sasl_password=Secret(settings["sasl_password"]),
    )
    return await dial("127.0.0.1", port, connect_timeout_s=TIMEOUT_S, security=connection_security(config))


async def code_of(connection: ClientConnection) -> int:
    """Return the error of Metadata for the topic, on an open connection."""
    topics = [MetadataRequestTopic(name=TOPIC)]
    response = await connection.send(MetadataRequest(topics=topics, allow_auto_topic_creation=False))
    return int(response.topics[0].error_code)


def test_changes_are_in_force_on_all_brokers_and_open_connections(cluster: SecuredCluster) -> None:
    async def scenario() -> None:
        connections = [await connect(cluster, "alice", each.port) for each in cluster.brokers.values()]

        async def wait_for(code: ErrorCode) -> None:
            async with asyncio.timeout(TIMEOUT_S):
                for each in connections:
                    while await code_of(each) != code:  # noqa: ASYNC110 - the requests pace the loop
                        await asyncio.sleep(0)

        await wait_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for _ in range(3):
            await asyncio.to_thread(grant, cluster, acl("alice", AclOperation.DESCRIBE))
            await wait_for(ErrorCode.NONE)
            assert await asyncio.to_thread(revoke, cluster, "alice") == 1
            await wait_for(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        for each in connections:
            each.close()

    asyncio.run(scenario())


def test_librdkafka_learns_what_it_may_not_do(cluster: SecuredCluster) -> None:
    grant(cluster, acl("alice", AclOperation.WRITE))
    errors: list[Any] = []
    producer = Producer(cluster.of_librdkafka("alice"))
    for topic in (TOPIC, "secret"):
        producer.produce(topic, b"x", on_delivery=lambda error, _message: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert sorted("" if each is None else each.name() for each in errors) == ["", "TOPIC_AUTHORIZATION_FAILED"]
    assert revoke(cluster, "alice") == 1


def test_only_brokers_fetch_as_replicas_and_elect_leaders(cluster: SecuredCluster) -> None:
    """A client with all permissions on all topics can neither act as a follower nor stop the real ones."""
    everything = [
        acl("mallory", AclOperation.ALL, ResourceType.TOPIC, "*"),
        acl("mallory", AclOperation.ALL, ResourceType.GROUP, "*"),
    ]
    grant(cluster, *everything)
    fetching = FetchRequest(
        replica_state=ReplicaState(replica_id=2, replica_epoch=-1),
        max_wait_ms=100,
        min_bytes=0,
        topics=[
            FetchTopic(
                topic=TOPIC,
                partitions=[FetchPartition(partition=0, fetch_offset=10_000, partition_max_bytes=1_000)],
            )
        ],
    )
    electing = ElectLeadersRequest(topic_partitions=[TopicPartitions(topic=TOPIC, partitions=[0])])

    async def scenario() -> None:
        connection = await connect(cluster, "broker", cluster.brokers[1].brokers_port)
        assert (await connection.send(electing)).error_code == ErrorCode.NONE
        assert (await connection.send(fetching)).error_code != ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        connection.close()
        for broker in cluster.brokers.values():
            for request in (fetching, electing):
                connection = await connect(cluster, "mallory", broker.brokers_port)
                with pytest.raises(BarnabasError):
                    async with asyncio.timeout(TIMEOUT_S):
                        await connection.send(request)
                connection.close()

    asyncio.run(scenario())
    with client.Producer(**cluster.of_client("mallory"), acks="all") as producer:
        producer.send(TOPIC, b"acknowledged by three replicas")
    with client.Admin(**cluster.of_client("admin")) as admin:
        wait_until(
            lambda: all(len(each.isr) == 3 for topic in admin.describe_topics([TOPIC]) for each in topic.partitions),
            "all replicas are in sync",
        )
    assert revoke(cluster, "mallory") == 2


def test_cluster_action_is_enough_to_act_as_a_broker(cluster: SecuredCluster) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)

    async def known() -> int:
        connection = await connect(cluster, "alice", cluster.brokers[1].brokers_port)
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return len((await connection.send(asked)).topics)
        finally:
            connection.close()

    with pytest.raises(BarnabasError):
        asyncio.run(known())
    grant(cluster, acl("alice", AclOperation.CLUSTER_ACTION, ResourceType.BROKER, "kafka-cluster"))

    assert asyncio.run(known()) == 1
    assert revoke(cluster, "alice") == 1


def test_acls_survive_the_restart_of_a_broker(cluster: SecuredCluster) -> None:
    grant(cluster, acl("alice", AclOperation.DESCRIBE))
    broker = cluster.brokers[3]
    assert broker.stop() == 0
    broker.restart()

    async def code() -> int:
        connection = await connect(cluster, "alice", broker.port)
        try:
            return await code_of(connection)
        finally:
            connection.close()

    assert asyncio.run(code()) == ErrorCode.NONE
    assert revoke(cluster, "alice") == 1
