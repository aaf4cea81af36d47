"""Clients of librdkafka that report the error of a broker that refuses them."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace

import confluent_kafka
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support.reading import wait_until
from tests.support.secured_clusters import Access

TIMEOUT_S = 60.0
CONNECT_S = 5.0
POLL_S = 0.1


def produce(access: Access, topic: str) -> str:
    """Send a record; return the name of the error, or an empty text."""
    errors: list[str] = []
    producer = confluent_kafka.Producer({**access.librdkafka(), "message.timeout.ms": 30_000, "log_level": 2})
    producer.produce(topic, b"x", on_delivery=lambda error, _: errors.append(error.name() if error else ""))
    assert producer.flush(TIMEOUT_S) == 0
    return errors[0]


def consume(access: Access, topic: str, group: str) -> str:
    """Read the first record of a topic; return the name of the error, or an empty text."""
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False, "log_level": 2}
    with contextlib.closing(confluent_kafka.Consumer({**access.librdkafka(), **settings})) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + TIMEOUT_S
        while time.monotonic() < deadline:
            message = consumer.poll(POLL_S)
            if message is not None:
                return message.error().name() if message.error() else ""
    raise AssertionError("the consumer gets neither a record nor an error")


def create_user(admin: Access, name: str) -> Access:
    """Create a user; return the user's access when all brokers accept it."""
    access = admin.of(name, f"{name}-secret")
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4_096)
    change = UserScramCredentialUpsertion(name, info, access.password.encode())
    client = AdminClient(admin.librdkafka())
    for done in client.alter_user_scram_credentials([change]).values():
        done.result(TIMEOUT_S)
    wait_until_accepted(access)
    return access


def delete_all_acls(admin: Access) -> None:
    """Delete the ACLs, also those of `barnabas security init`."""
    client = AdminClient(admin.librdkafka())
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    for done in client.delete_acls([everything]).values():
        done.result(TIMEOUT_S)


def wait_until_accepted(access: Access) -> None:
    """Wait until all brokers accept the credentials of a user."""
    for each in access.bootstrap.split(","):
        at_one = replace(access, bootstrap=each)
        wait_until(lambda at_one=at_one: not is_refused(at_one), f"{each} accepts {access.user}")


def is_refused(access: Access) -> bool:
    """Return whether the broker refuses the credentials of a user."""
    errors: list[confluent_kafka.KafkaError] = []
    client = confluent_kafka.Producer({**access.librdkafka(), "error_cb": errors.append, "log_level": 2})
    try:
        client.list_topics(timeout=CONNECT_S)
    except confluent_kafka.KafkaException:
        client.poll(0)
        return any(each.code() == confluent_kafka.KafkaError._AUTHENTICATION for each in errors)
    return False
