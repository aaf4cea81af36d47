"""Topic ids that a broker does not know yet when it checks a request: nobody gets their permissions by being early."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.authorization.access import ERROR_OF
from barnabas.broker.random_source import RandomSource
from barnabas.errors import ApiError, ErrorCode
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import OffsetCommitRequest
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.security.acls import (
    AclBinding,
    AclEntry,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import Principal
from tests.support.in_process_broker import Caller, run_with_broker
from tests.support.sample_requests import Names, batch, committed

SETTINGS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:root",
    "auto_create_topics_enable": True,
}
ALICE = Principal("User", "alice")
SECRET = bytes(range(16))
"""The id of a topic that another broker knows first."""
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


async def create_secret(caller: Caller) -> None:
    """Create a topic with an id that the client already knows, because it may describe the topic."""
    admin = caller.broker.topic_admin
    before, admin._random_source = admin._random_source, RandomSource(new_id=lambda: uuid.UUID(bytes=SECRET))
    await admin.create("secret", 1, {})
    admin._random_source = before
    assert caller.id_of("secret") == SECRET


async def grant(caller: Caller, *granted: tuple[ResourceType, str, Operation]) -> None:
    entries = [
        AclBinding(ResourcePattern(kind, name), AclEntry(str(ALICE), "*", operation, Permission.ALLOW))
        for kind, name, operation in granted
    ]
    assert not any(await caller.broker.acls.create(entries))


async def as_alice(caller: Caller, *granted: tuple[ResourceType, str, Operation]) -> None:
    await grant(caller, (TOPIC, "secret", Operation.DESCRIBE), *granted)
    caller.requests.state.principal = ALICE


def end_of(caller: Caller) -> int:
    return caller.broker.topics.replicas.leader("secret", 0).storage.log.log_end_offset


def fetch_request(session_id: int, epoch: int, *topic_ids: bytes) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(
                topic_id=each, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=9999)]
            )
            for each in topic_ids
        ],
    )


def test_fetch_session_contains_no_unknown_topics(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await as_alice(caller, (TOPIC, "clicks", Operation.READ))
        for topic_ids in ([SECRET], [caller.id_of("clicks"), SECRET]):
            opened = await caller.call(fetch_request(0, 0, *topic_ids), 17)
            codes = {each.topic_id: each.partitions[0].error_code for each in opened.responses}
            assert codes[SECRET] == ErrorCode.UNKNOWN_TOPIC_ID
            assert opened.session_id == 0
        assert set(codes.values()) == {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NONE}
        opened = await caller.call(fetch_request(0, 0, caller.id_of("clicks")), 17)
        added = await caller.call(fetch_request(opened.session_id, 1, SECRET), 17)
        assert (added.error_code, added.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        await create_secret(caller)
        response = await caller.call(fetch_request(opened.session_id, 1), 17)
        assert SECRET not in [each.topic_id for each in response.responses]

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_topic_that_appears_during_a_request_is_not_deleted(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await as_alice(caller, (TOPIC, "clicks", Operation.DELETE))
        delete, deleted = caller.broker.topic_admin.delete, []

        async def create_first(name: str, topic_id: bytes | None = None) -> None:
            if not deleted:
                await create_secret(caller)
            deleted.append(name)
            await delete(name, topic_id)

        caller.broker.topic_admin.delete = create_first  # type: ignore[method-assign]
        wanted = [DeleteTopicState(name=None, topic_id=each) for each in (caller.id_of("clicks"), SECRET)]
        response = await caller.call(DeleteTopicsRequest(topics=wanted, timeout_ms=1000))
        codes = {each.topic_id: each.error_code for each in response.responses}
        assert deleted == ["clicks"]
        assert codes[SECRET] == ErrorCode.UNKNOWN_TOPIC_ID

    run_with_broker(tmp_path, scenario, **SETTINGS)


def produced(acks: int, *topic_ids: bytes, count: int = 1) -> ProduceRequest:
    partitions = [PartitionProduceData(index=0, records=batch()) for _ in range(count)]
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(topic_id=each, partition_data=partitions) for each in topic_ids],
    )


async def call_before_topic_appears(caller: Caller, request: Any, version: int) -> Any:
    """Send a request; the broker learns of the topic after the check of the request."""
    by_id = caller.broker.topics.by_id
    await create_secret(caller)

    def find(topic_id: bytes) -> Any:
        if topic_id != SECRET:
            return by_id(topic_id)
        caller.broker.topics.by_id = by_id  # type: ignore[method-assign]
        return None

    caller.broker.topics.by_id = find  # type: ignore[method-assign]
    return await caller.call(request, version)


def test_pieces_of_a_produce_request_write_to_no_topic_that_was_unknown(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        clicks = caller.id_of("clicks")
        await as_alice(caller, (TOPIC, "clicks", Operation.WRITE))
        response = await call_before_topic_appears(caller, produced(1, SECRET, clicks, count=2_000), 13)
        codes = {each.topic_id: {one.error_code for one in each.partition_responses} for each in response.responses}
        assert codes == {SECRET: {ErrorCode.UNKNOWN_TOPIC_ID}, clicks: {ErrorCode.NONE}}
        assert end_of(caller) == 0

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_small_produce_request_finds_what_its_check_has_found(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await as_alice(caller, (TOPIC, "clicks", Operation.WRITE))
        response = await caller.call(produced(1, SECRET), 13)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        with pytest.raises(ApiError) as caught:
            await caller.call(produced(0, SECRET, *[bytes([each] * 16) for each in range(1, 40)]), 13)
        assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_ID
        await create_secret(caller)
        response = await caller.call(produced(1, SECRET), 13)
        assert response.responses[0].partition_responses[0].error_code == ERROR_OF[TOPIC]

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_unknown_topic_gets_no_offset(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await as_alice(caller, (GROUP, "g", Operation.READ))
        request: OffsetCommitRequest = committed(Names("secret", SECRET, "g"), 10)
        (topic,) = (await call_before_topic_appears(caller, request, 10)).topics
        assert (topic.topic_id, topic.partitions[0].error_code) == (SECRET, ErrorCode.UNKNOWN_TOPIC_ID)
        assert not caller.broker.groups.has_topic

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_offsets_of_an_unknown_topic_are_unknown(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await as_alice(caller, (GROUP, "g", Operation.READ))
        asked = OffsetFetchRequestTopics(topic_id=SECRET, partition_indexes=[0])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[asked])])
        response = await call_before_topic_appears(caller, request, 10)
        (found,) = response.groups[0].topics
        assert (found.topic_id, found.partitions[0].error_code) == (SECRET, ErrorCode.UNKNOWN_TOPIC_ID)

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_metadata_of_an_unknown_id_is_as_before(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        await as_alice(caller, (TOPIC, "clicks", Operation.DESCRIBE))
        asked = [MetadataRequestTopic(name=None, topic_id=each) for each in (SECRET, caller.id_of("clicks"))]
        for version, name in ((10, ""), (11, ""), (12, None), (13, None)):
            found = {each.topic_id: each for each in (await caller.call(MetadataRequest(topics=asked), version)).topics}
            assert (found[SECRET].error_code, found[SECRET].name) == (ErrorCode.UNKNOWN_TOPIC_ID, name)
            assert found[caller.id_of("clicks")].error_code == ErrorCode.NONE

    run_with_broker(tmp_path, scenario, **SETTINGS)
