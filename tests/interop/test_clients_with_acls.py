"""Our clients at a broker with ACLs: a missing permission is an error at once, and the clients recover when they get
the permission.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

import barnabas
from barnabas.errors import ApiError, BarnabasError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.spark.offset_ranges import OffsetRange
from barnabas.spark.options import SourceOptions, Subscribe
from barnabas.spark.range_reading import read_range
from barnabas.spark.range_resolution import describe_visible
from barnabas.sql.errors import UnknownTopicError
from barnabas.sql.sampling import ValueOptions
from barnabas.sql.topics import Topics
from tests.support.acl_grants import AUTHORIZER
from tests.support.reading import TIMEOUT_S, wait_until
from tests.support.secured_broker import PASSWORD, SecuredBroker, secured_broker

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
names = (f"clicks-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    settings = {"authorizer.class.name": AUTHORIZER, "group.initial.rebalance.delay.ms": "0"}
    with secured_broker(tmp_path_factory.mktemp("acls"), **settings) as running:
        with barnabas.Admin(**running.client()) as admin:
            admin.set_user_password("bob", PASSWORD)
        yield running


@pytest.fixture
def admin(broker: SecuredBroker) -> Iterator[barnabas.Admin]:
    with barnabas.Admin(**broker.client()) as running:
        yield running
        running.delete_acls([AclFilter()])


@pytest.fixture
def topic(broker: SecuredBroker, admin: barnabas.Admin) -> str:
    name = next(names)
    admin.create_topic(name)
    with barnabas.Producer(**broker.client()) as producer:
        producer.send(name, b"first")
    return name


def bob(broker: SecuredBroker, **settings: Any) -> dict[str, Any]:
    return broker.client(sasl_username="bob", **settings)


def allow(admin: barnabas.Admin, kind: ResourceType, name: str, *operations: Operation) -> None:
    admin.create_acls(
        AclBinding(ResourcePattern(kind, name), AclEntry("User:bob", "*", each, Permission.ALLOW))
        for each in operations
    )


def revoke(admin: barnabas.Admin, *operations: Operation) -> None:
    admin.delete_acls(AclFilter(principal="User:bob", operation=each) for each in operations)


def refused(call: Callable[[], object], code: ErrorCode, *parts: str) -> None:
    """Check that a call raises the error, which names the permission and the command that allows it."""
    with pytest.raises(ApiError) as found:
        call()
    assert found.value.code is code
    for part in parts:
        assert part in str(found.value)


def next_value(consumer: barnabas.Consumer) -> bytes | None:
    """Return the next value. Requests that were under way when the permission was granted may still fail."""
    found: list[Any] = []

    def poll() -> list[Any]:
        with suppress(ApiError):
            found.extend(consumer.poll(timeout_s=0.1))
        return found

    wait_until(poll, "a record arrives")
    value: bytes | None = found[0].value
    return value


def polled(consumer: barnabas.Consumer) -> Callable[[], object]:
    """Return a function that polls until there are records or an error."""

    def poll() -> None:
        for _ in range(int(TIMEOUT_S * 10)):
            if consumer.poll(timeout_s=0.1):
                return

    return poll


def test_producer_without_write_fails_at_once_and_recovers(
    broker: SecuredBroker, admin: barnabas.Admin, topic: str
) -> None:
    with barnabas.Producer(**bob(broker)) as producer:
        refused(
            lambda: producer.send(topic, b"x").result(),
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"barnabas acl allow User:bob write,create topic:{topic}",
        )
        allow(admin, TOPIC, topic, Operation.DESCRIBE)
        refused(
            lambda: producer.send(topic, b"x").result(),
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"barnabas acl allow User:bob write topic:{topic}",
        )
        allow(admin, TOPIC, topic, Operation.WRITE)
        assert producer.send(topic, b"x").result().offset == 1
        revoke(admin, Operation.WRITE)
        refused(
            lambda: producer.send(topic, b"x").result(),
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"barnabas acl allow User:bob write topic:{topic}",
        )
        allow(admin, TOPIC, topic, Operation.WRITE)
        assert producer.send(topic, b"x").result().offset == 2


def test_topic_is_created_only_with_the_permission(broker: SecuredBroker, admin: barnabas.Admin) -> None:
    name = next(names)
    allow(admin, TOPIC, name, Operation.WRITE)
    with barnabas.Producer(**bob(broker)) as producer:
        refused(
            lambda: producer.send(name, b"x").result(),
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"barnabas acl allow User:bob write,create topic:{name}",
        )
        allow(admin, TOPIC, name, Operation.CREATE)
        assert producer.send(name, b"x").result().offset == 0


def test_consumer_without_a_group_fails_at_once_and_recovers(
    broker: SecuredBroker, admin: barnabas.Admin, topic: str
) -> None:
    with barnabas.Consumer(**bob(broker), auto_offset_reset="earliest") as consumer:
        consumer.subscribe([topic])
        refused(
            polled(consumer),
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"barnabas acl allow User:bob read topic:{topic}",
        )
        allow(admin, TOPIC, topic, Operation.DESCRIBE)
        refused(
            polled(consumer),
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"barnabas acl allow User:bob read topic:{topic}",
        )
        allow(admin, TOPIC, topic, Operation.READ)
        assert next_value(consumer) == b"first"
        revoke(admin, Operation.READ)
        refused(
            polled(consumer),
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"barnabas acl allow User:bob read topic:{topic}",
        )
        revoke(admin, Operation.DESCRIBE)
        refused(
            polled(consumer),
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"barnabas acl allow User:bob read topic:{topic}",
        )
        allow(admin, TOPIC, topic, Operation.READ)
        with barnabas.Producer(**broker.client()) as producer:
            producer.send(topic, b"second")
        assert next_value(consumer) == b"second"


def test_assigned_consumer_fails_at_once_and_recovers(broker: SecuredBroker, admin: barnabas.Admin, topic: str) -> None:
    with barnabas.Consumer(**bob(broker), auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        refused(
            polled(consumer),
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"barnabas acl allow User:bob read topic:{topic}",
        )
        allow(admin, TOPIC, topic, Operation.READ)
        assert next_value(consumer) == b"first"


def test_member_of_a_group_fails_at_once_and_recovers(broker: SecuredBroker, admin: barnabas.Admin, topic: str) -> None:
    allow(admin, TOPIC, topic, Operation.READ)
    settings = bob(broker, auto_offset_reset="earliest", enable_auto_commit=False)
    with barnabas.Consumer(**settings, group="ctr") as consumer:
        consumer.subscribe([topic])
        refused(
            polled(consumer),
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            "barnabas acl allow User:bob read group:ctr",
        )
        allow(admin, GROUP, "ctr", Operation.DESCRIBE)
        refused(
            polled(consumer),
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            "barnabas acl allow User:bob read group:ctr",
        )
        allow(admin, GROUP, "ctr", Operation.READ)
        assert next_value(consumer) == b"first"
        consumer.commit()
        admin.delete_acls([AclFilter(GROUP)])
        refused(
            consumer.commit,
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            "barnabas acl allow User:bob read group:ctr",
        )


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (lambda admin, name: admin.create_topic(f"{name}-new"), "TOPIC", "create topic:{}-new"),
        (lambda admin, name: admin.delete_topic(name), "TOPIC", "delete topic:{}"),
        (lambda admin, name: admin.add_partitions(name, 5), "TOPIC", "alter topic:{}"),
        (lambda admin, name: admin.describe_config(name), "TOPIC", "describe-configs topic:{}"),
        (
            lambda admin, name: admin.alter_config(name, to_set={"retention.ms": "1"}),
            "TOPIC",
            "alter-configs topic:{}",
        ),
        (lambda admin, name: admin.end_offsets([(name, 0)]), "TOPIC", "describe topic:{}"),
        (lambda admin, name: admin.delete_records({(name, 0): 1}), "TOPIC", "delete topic:{}"),
        (lambda admin, _name: admin.describe_config(broker=0), "CLUSTER", "describe-configs cluster"),
        (lambda admin, _name: admin.describe_group("g"), "GROUP", "describe group:g"),
        (lambda admin, _name: admin.group_offsets("g"), "GROUP", "describe group:g"),
        (lambda admin, name: admin.set_group_offsets("g", {(name, 0): 1}), "GROUP", "read group:g"),
        (lambda admin, _name: admin.delete_group("g"), "GROUP", "delete group:g"),
        (lambda admin, _name: admin.log_dirs(), "CLUSTER", "describe cluster"),
        (lambda admin, _name: admin.list_partition_reassignments(), "CLUSTER", "describe cluster"),
        (lambda admin, name: admin.alter_partition_reassignments({(name, 0): [0]}), "CLUSTER", "alter cluster"),
        (lambda admin, _name: admin.describe_users(), "CLUSTER", "describe cluster"),
        (lambda admin, _name: admin.delete_user("x", mechanisms=["SCRAM-SHA-256"]), "CLUSTER", "alter cluster"),
        (lambda admin, _name: admin.describe_client_quotas(), "CLUSTER", "describe-configs cluster"),
        (
            lambda admin, _name: admin.alter_client_quotas({"user": "x"}, {"producer_byte_rate": 1.0}),
            "CLUSTER",
            "alter-configs cluster",
        ),
        (lambda admin, _name: admin.describe_acls(), "CLUSTER", "describe cluster"),
        (lambda admin, _name: admin.delete_acls([AclFilter()]), "CLUSTER", "alter cluster"),
        (
            lambda admin, _name: admin.create_acls(
                [
                    AclBinding(
                        ResourcePattern(CLUSTER, CLUSTER_NAME),
                        AclEntry("User:bob", "*", Operation.ALL, Permission.ALLOW),
                    )
                ]
            ),
            "CLUSTER",
            "alter cluster",
        ),
    ],
)
def test_admin_names_the_missing_permission(
    broker: SecuredBroker,
    topic: str,
    call: Callable[[barnabas.Admin, str], object],
    code: str,
    words: str,
) -> None:
    with barnabas.Admin(**bob(broker)) as mine:
        refused(
            lambda: call(mine, topic),
            ErrorCode[f"{code}_AUTHORIZATION_FAILED"],
            f"barnabas acl allow User:bob {words.format(topic)}",
        )


def settings_of(broker: SecuredBroker) -> dict[str, str]:
    """Return bob's settings under Kafka's names, as Spark's options have them."""
    return {
        "bootstrap.servers": broker.address("SASL_SSL"),
        "security.protocol": "SASL_SSL",
        "ssl.cafile": str(broker.certificates.ca),
        "sasl.mechanism": "SCRAM-SHA-256",
        "sasl.username": "bob",
        "sasl.password": PASSWORD,
    }


def test_queries_of_spark_and_sql_name_the_missing_permission(
    broker: SecuredBroker, admin: barnabas.Admin, topic: str
) -> None:
    topics = Topics(settings_of(broker), ValueOptions())
    client_options = settings_of(broker)
    options = SourceOptions(client_options.pop("bootstrap.servers"), Subscribe((topic,)), client_options=client_options)
    missing = ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"barnabas acl allow User:bob describe topic:{topic}"
    refused(lambda: describe_visible(options.selection, topics._admin), *missing)
    refused(lambda: topics.get(topic), *missing)
    allow(admin, TOPIC, "*", Operation.DESCRIBE)
    with pytest.raises(UnknownTopicError):
        topics.get("no-such-topic")

    reading = ErrorCode.TOPIC_AUTHORIZATION_FAILED, f"barnabas acl allow User:bob read topic:{topic}"
    wanted = OffsetRange(topic, 0, 0, 1)
    refused(lambda: list(read_range(wanted, options.bootstrap, client_options)), *reading)
    refused(lambda: topics.get(topic), *reading)
    allow(admin, TOPIC, topic, Operation.READ)
    [records] = read_range(wanted, options.bootstrap, client_options)
    assert records.column("value").to_pylist() == [b"first"]
    topics.close()


def test_admin_does_not_see_what_it_may_not_describe(broker: SecuredBroker, admin: barnabas.Admin, topic: str) -> None:
    with barnabas.Admin(**bob(broker)) as mine:
        assert topic not in mine.list_topics()
        with pytest.raises(BarnabasError, match="barnabas acl allow User:bob describe topic"):
            mine.describe_topics([topic])
        allow(admin, TOPIC, topic, Operation.DESCRIBE)
        assert mine.list_topics() == [topic]
