"""What operators do with the admin clients: groups looked at and deleted, settings changed, partitions added."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Protocol

import confluent_kafka
import kafka.admin
import pytest
from aiokafka.admin import NewPartitions as AiokafkaNewPartitions
from aiokafka.admin.config_resource import ConfigResource as AiokafkaConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AiokafkaConfigResourceType
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewPartitions

from barnabas.errors import ApiError, ErrorCode
from tests.interop.clients.asyncio_kafka import Aiokafka, AiokafkaAdmin
from tests.interop.clients.neutral import Event, Membership
from tests.interop.conftest import CLIENTS
from tests.support.reading import Member, read, wait_until

TIMEOUT_S = 60


class Operator(Protocol):
    """An admin client, as far as operators use it."""

    def groups(self) -> set[str]: ...
    def members_of(self, group: str) -> int: ...
    def setting(self, topic: str, name: str) -> str: ...
    def change_setting(self, topic: str, name: str, value: str) -> None: ...
    def grow(self, topic: str, partitions: int) -> None: ...
    def close(self) -> None: ...


class ConfluentOperator:
    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def groups(self) -> set[str]:
        return {group.group_id for group in self._admin.list_consumer_groups().result(TIMEOUT_S).valid}

    def members_of(self, group: str) -> int:
        return len(self._admin.describe_consumer_groups([group])[group].result(TIMEOUT_S).members)

    def setting(self, topic: str, name: str) -> str:
        (found,) = self._admin.describe_configs([ConfigResource("topic", topic)]).values()
        return str(found.result(TIMEOUT_S)[name].value)

    def change_setting(self, topic: str, name: str, value: str) -> None:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        (changed,) = self._admin.incremental_alter_configs(
            [ConfigResource("topic", topic, incremental_configs=[entry])]
        ).values()
        changed.result(TIMEOUT_S)

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(TIMEOUT_S)

    def delete_group(self, group: str) -> None:
        try:
            self._admin.delete_consumer_groups([group])[group].result(TIMEOUT_S)
        except confluent_kafka.KafkaException as error:
            raise ApiError(error.args[0].code()) from error

    def close(self) -> None:
        """It has nothing to close."""


class KafkaPythonOperator:
    def __init__(self, bootstrap: str) -> None:
        self._admin = kafka.admin.KafkaAdminClient(bootstrap_servers=bootstrap)

    def groups(self) -> set[str]:
        return {group["group_id"] for group in self._admin.list_groups()}

    def members_of(self, group: str) -> int:
        return len(self._admin.describe_groups([group])[group]["members"])

    def setting(self, topic: str, name: str) -> str:
        found = self._admin.describe_configs([self._resource(topic)], config_filter="all")
        return str(found["topic"][topic][name]["value"])

    def change_setting(self, topic: str, name: str, value: str) -> None:
        changed = self._admin.alter_configs([self._resource(topic, {name: value})])
        assert changed["topic"][topic] == "OK"

    def grow(self, topic: str, partitions: int) -> None:
        self._admin.create_partitions({topic: partitions})

    def delete_group(self, group: str) -> None:
        outcome = self._admin.delete_groups([group])[group]
        if outcome == "NonEmptyGroupError":
            raise ApiError(ErrorCode.NON_EMPTY_GROUP)
        assert outcome == "OK"

    def close(self) -> None:
        self._admin.close()

    def _resource(self, topic: str, settings: dict[str, str] | None = None) -> Any:
        return kafka.admin.ConfigResource(kafka.admin.ConfigResourceType.TOPIC, topic, settings)


class AiokafkaOperator:
    def __init__(self, bootstrap: str) -> None:
        library = Aiokafka()
        self._run = library.run
        self._ours = AiokafkaAdmin(library, bootstrap)
        self._admin = self._ours._admin

    def groups(self) -> set[str]:
        return {group[0] for group in self._run(self._admin.list_consumer_groups())}

    def members_of(self, group: str) -> int:
        ((described,),) = [answer.groups for answer in self._run(self._admin.describe_consumer_groups([group]))]
        return len(described[5])

    def setting(self, topic: str, name: str) -> str:
        (answer,) = self._run(self._admin.describe_configs([self._resource(topic)]))
        ((_, _, _, _, settings),) = answer.resources
        return str({setting[0]: setting[1] for setting in settings}[name])

    def change_setting(self, topic: str, name: str, value: str) -> None:
        (answer,) = self._run(self._admin.alter_configs([self._resource(topic, {name: value})]))
        assert [resource[0] for resource in answer.resources] == [0]

    def grow(self, topic: str, partitions: int) -> None:
        self._run(self._admin.create_partitions({topic: AiokafkaNewPartitions(partitions)}))

    def close(self) -> None:
        self._ours.close()

    def _resource(self, topic: str, settings: dict[str, str] | None = None) -> AiokafkaConfigResource:
        return AiokafkaConfigResource(AiokafkaConfigResourceType.TOPIC, topic, settings)


OPERATORS = {
    "confluent-kafka": ConfluentOperator,
    "kafka-python": KafkaPythonOperator,
    "aiokafka": AiokafkaOperator,
}


@pytest.fixture(params=OPERATORS.values(), ids=OPERATORS)
def operator(request, bootstrap) -> Iterator[Operator]:
    with contextlib.closing(request.param(bootstrap)) as operator:
        yield operator


def test_groups_are_listed_with_their_members(bootstrap, operator, topic, group, our_admin) -> None:
    our_admin.create_topic(topic, partitions=2)
    assert group not in operator.groups()
    membership = Membership(group=group)
    with (
        Member(CLIENTS[0], bootstrap, topic, membership) as first,
        Member(CLIENTS[1], bootstrap, topic, membership) as second,
    ):
        wait_until(lambda: first.assigned and second.assigned, "a partition for each member")
        assert group in operator.groups()
        assert operator.members_of(group) == 2
    assert operator.members_of(group) == 0


def test_settings_of_a_topic_are_told_changed_and_obeyed(bootstrap, operator, topic, our_admin) -> None:
    our_admin.create_topic(topic, config={"segment.bytes": "1000000"})
    assert operator.setting(topic, "segment.bytes") == "1000000"
    assert operator.setting(topic, "max.message.bytes") == "1048588"
    with contextlib.closing(CLIENTS[0].producer(bootstrap)) as producer:
        producer.produce(topic, [Event(bytes(10_000))])
        operator.change_setting(topic, "max.message.bytes", "5000")
        assert operator.setting(topic, "max.message.bytes") == "5000"
        with pytest.raises(ApiError, match="MESSAGE_TOO_LARGE"):
            producer.produce(topic, [Event(bytes(10_000))])


def test_partitions_are_added_and_used(bootstrap, operator, topic, our_admin) -> None:
    our_admin.create_topic(topic)
    operator.grow(topic, 3)
    assert our_admin.partition_counts()[topic] == 3
    with contextlib.closing(CLIENTS[0].producer(bootstrap)) as producer:
        assert producer.produce(topic, [Event(b"")], partition=2)[0].offset == 0


@pytest.mark.parametrize("operator", [ConfluentOperator, KafkaPythonOperator], indirect=True)
def test_a_group_is_deleted_when_it_has_no_members(bootstrap, operator, topic, group, our_admin) -> None:
    our_admin.create_topic(topic)
    with contextlib.closing(CLIENTS[0].producer(bootstrap)) as producer:
        producer.produce(topic, [Event(b"")] * 10)
    with contextlib.closing(CLIENTS[0].consumer(bootstrap, topic, Membership(group=group))) as consumer:
        read(consumer, 10)
        with pytest.raises(ApiError, match="NON_EMPTY_GROUP"):
            operator.delete_group(group)
    assert group in operator.groups()
    operator.delete_group(group)
    assert group not in operator.groups()
    with contextlib.closing(CLIENTS[0].consumer(bootstrap, topic, Membership(group=group))) as consumer:
        assert read(consumer, 10)[0].place.offset == 0
