"""Permissions that are granted and revoked while connections, runs, templates, sessions and waits are open."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.authorization.access import Access
from barnabas.broker.commit_templates import CommitTemplate
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.codec import decode_response, request_frame
from barnabas.protocol.messages.create_topics import CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.records import BatchBuilder
from barnabas.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from barnabas.security.principal import Principal
from tests.support.in_process_broker import Caller, run_with_broker
from tests.support.sample_requests import SAMPLES, Names, batch, committed, fetched

SETTINGS = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:root",
    "auto_create_topics_enable": False,
}
ALICE = Principal("User", "alice")
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
REFUSED = ErrorCode.TOPIC_AUTHORIZATION_FAILED


def acl(kind: ResourceType, name: str, operation: Operation) -> AclBinding:
    return AclBinding(ResourcePattern(kind, name), AclEntry(str(ALICE), "*", operation, Permission.ALLOW))


async def grant(caller: Caller, *bindings: AclBinding) -> None:
    assert not any(await caller.broker.acls.create(bindings))


async def revoke(caller: Caller, binding: AclBinding) -> None:
    assert await caller.broker.acls.delete(AclFilter(*binding.pattern, *binding.entry)) == [binding]


def as_alice(caller: Caller) -> None:
    caller.requests.state.principal = ALICE


def produced(acks: int, *topics: str) -> ProduceRequest:
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[
            TopicProduceData(name=name, partition_data=[PartitionProduceData(index=0, records=batch())])
            for name in topics
        ],
    )


def frame_of(request: Any, version: int, correlation_id: int = 1) -> bytearray:
    return bytearray(b"".join(request_frame(request, version, correlation_id, "me")))[4:]  # type: ignore[arg-type]


async def carry_out(caller: Caller, request: Any) -> None:
    reply = caller.requests.carry_out([frame_of(request, 9)])
    if reply.later is not None:
        await reply.later


def end_of(caller: Caller, topic: str) -> int:
    return caller.broker.topics.replicas.leader(topic, 0).storage.log.log_end_offset


def codes_of(response: ProduceResponse) -> dict[str, int]:
    return {each.name: each.partition_responses[0].error_code for each in response.responses}


def test_part_of_a_produce_request_is_refused(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        await grant(caller, acl(TOPIC, "clicks", Operation.WRITE))
        response = await caller.call(produced(1, "views", "clicks"), 9)
        assert codes_of(response) == {"clicks": ErrorCode.NONE, "views": REFUSED}
        assert (end_of(caller, "clicks"), end_of(caller, "views")) == (1, 0)

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_refusal_without_a_response_ends_the_connection(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        await grant(caller, acl(TOPIC, "clicks", Operation.WRITE))
        for topics in (["views"], ["views", "clicks"]):
            with pytest.raises(ApiError, match="WRITE"):
                await carry_out(caller, produced(0, *topics))
        assert end_of(caller, "views") == 0

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_revoked_writer_is_refused_within_runs_and_templates(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        writing = acl(TOPIC, "clicks", Operation.WRITE)
        await grant(caller, writing)
        frames = [frame_of(produced(1, "clicks"), 9, number) for number in range(5)]
        reply = caller.requests.carry_out([bytearray(each) for each in frames])
        assert reply.frame_count == 5
        assert end_of(caller, "clicks") == 5
        await revoke(caller, writing)
        for number in range(5):  # each frame repeats the template
            reply = caller.requests.carry_out([bytearray(each) for each in frames[number:]])
            assert reply.frame_count == 1
            answer = reply.answer or (await reply.later if reply.later is not None else [])
            response = decode_response(ProduceResponse, 9, b"".join(answer)[4:])  # type: ignore[arg-type]
            assert codes_of(response) == {"clicks": REFUSED}
        assert end_of(caller, "clicks") == 5

    run_with_broker(tmp_path, scenario, **SETTINGS)


async def send(caller: Caller, request: ProduceRequest, count: int) -> set[int]:
    """Send a request several times without waiting; return the error codes of all responses."""
    frames, codes = [frame_of(request, 9, number) for number in range(count)], set()
    while frames:
        reply = caller.requests.carry_out([bytearray(each) for each in frames])
        answer = reply.answer + (await reply.later if reply.later is not None else [])
        whole = b"".join(answer)  # type: ignore[arg-type]
        while whole:
            size = 4 + int.from_bytes(whole[:4])
            response = decode_response(ProduceResponse, 9, whole[4:size])
            codes |= {one.error_code for each in response.responses for one in each.partition_responses}
            whole = whole[size:]
        frames = frames[reply.frame_count :]
    return codes


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_writer_without_permission_is_refused_whatever_the_size(tmp_path: Path, acks: int) -> None:
    """Small requests repeat a template, larger ones are decoded in slices, and the largest is divided into pieces."""

    async def scenario(caller: Caller) -> None:
        writing = acl(TOPIC, "clicks", Operation.WRITE)
        for value_bytes, partitions in ((10, 1), (30_000, 1), (10, 3), (600_000, 3)):
            builder = BatchBuilder()
            builder.append_many(1_000, [b"v" * value_bytes])
            records = bytes(builder.build())
            data = [PartitionProduceData(index=number, records=records) for number in range(partitions)]
            request = ProduceRequest(
                acks=acks, timeout_ms=1000, topic_data=[TopicProduceData(name="clicks", partition_data=data)]
            )
            caller.reconnect()
            as_alice(caller)
            await grant(caller, writing)
            before = end_of(caller, "clicks")
            assert await send(caller, request, 3) == (set() if acks == 0 else {0})
            assert end_of(caller, "clicks") == before + 3
            caller.requests.state.principal = Principal("User", "mallory")
            await expect_refusal(caller, request)
            as_alice(caller)
            await revoke(caller, writing)
            await expect_refusal(caller, request)
            assert end_of(caller, "clicks") == before + 3

    run_with_broker(tmp_path, scenario, **SETTINGS)


async def expect_refusal(caller: Caller, request: ProduceRequest) -> None:
    if request.acks:
        assert await send(caller, request, 2) == {REFUSED}
    else:
        with pytest.raises(ApiError, match="WRITE"):
            await send(caller, request, 2)


def test_exception_in_a_rule_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(caller: Caller) -> None:
        caller.requests.state.principal = Principal("User", "root")

        def fail(*_arguments: Any) -> Any:
            raise RuntimeError

        monkeypatch.setattr(Access, "may", fail)
        for request in (produced(1, "clicks"), fetch_request(["clicks"], 0, 0), MetadataRequest(topics=None)):
            with pytest.raises(RuntimeError):  # the network layer ends the connection
                await caller.call(request, 9)
        assert end_of(caller, "clicks") == 0

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_run_ends_before_a_refused_request(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        await grant(caller, acl(TOPIC, "clicks", Operation.WRITE))
        frames = [frame_of(produced(1, name), 9) for name in ("clicks", "clicks", "views", "clicks")]
        counts = []
        while frames:
            reply = caller.requests.carry_out([bytearray(each) for each in frames])
            if reply.later is not None:
                await reply.later
            counts.append(reply.frame_count)
            frames = frames[reply.frame_count :]
        assert counts == [2, 1, 1]
        assert (end_of(caller, "clicks"), end_of(caller, "views")) == (3, 0)

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_revoked_member_cannot_repeat_its_commit(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        reading = acl(TOPIC, "clicks", Operation.READ)
        await grant(caller, reading, acl(GROUP, "g", Operation.READ))
        names = Names("clicks", caller.id_of("clicks"), "g")
        request = committed(names, 9)

        async def commit(offset: int) -> int:
            request.topics[0].partitions[0].committed_offset = offset
            response = await caller.call(request, 9)
            return int(response.topics[0].partitions[0].error_code)

        assert [await commit(offset) for offset in (1, 2, 3)] == [0, 0, 0]
        assert isinstance(caller.requests.state.templates.frame, CommitTemplate)
        await revoke(caller, reading)
        assert await commit(4) == REFUSED
        await grant(caller, reading)
        assert await commit(5) == 0
        found = caller.broker.offsets.committed("g").get(TopicPartition("clicks", 0))
        assert found is not None
        assert found.offset == 5

    run_with_broker(tmp_path, scenario, **SETTINGS)


def fetch_request(topics: list[str], session_id: int, epoch: int, max_wait_ms: int = 0) -> FetchRequest:
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        session_id=session_id,
        session_epoch=epoch,
        topics=[
            FetchTopic(topic=name, partitions=[FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=9999)])
            for name in topics
        ],
    )


def fetch_codes(response: FetchResponse) -> dict[str, int]:
    return {each.topic: each.partitions[0].error_code for each in response.responses}


def test_fetch_session_ends_when_the_acls_change(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        reading = acl(TOPIC, "clicks", Operation.READ)
        await grant(caller, reading)
        opened = await caller.call(fetch_request(["clicks"], 0, 0), 12)
        assert opened.session_id
        await revoke(caller, reading)
        caller.append(b"secret")
        response = await caller.call(fetch_request([], opened.session_id, 1), 12)
        assert (response.error_code, response.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        assert len(caller.broker.fetch_sessions) == 0
        response = await caller.call(fetch_request(["clicks"], 0, 0), 12)
        assert (response.session_id, fetch_codes(response)) == (0, {"clicks": REFUSED})

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_fetch_session_belongs_to_its_principal(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        await grant(caller, acl(TOPIC, "clicks", Operation.READ))
        opened = await caller.call(fetch_request(["clicks"], 0, 0), 12)
        caller.append(b"secret")
        caller.reconnect()
        caller.requests.state.principal = Principal("User", "mallory")
        response = await caller.call(fetch_request([], opened.session_id, 1), 12)
        assert (response.error_code, response.responses) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, [])
        await caller.call(fetch_request([], opened.session_id, -1), 12)  # closes nothing
        caller.reconnect()
        as_alice(caller)
        response = await caller.call(fetch_request([], opened.session_id, 1), 12)
        assert fetch_codes(response) == {"clicks": ErrorCode.NONE}

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_partly_refused_fetch_repeats_the_error_and_does_not_wait(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        await grant(caller, acl(TOPIC, "clicks", Operation.READ))
        for _ in range(2):
            response = await caller.call(fetch_request(["views", "clicks"], 0, 0, max_wait_ms=600_000), 12)
            assert response.session_id == 0
            assert fetch_codes(response) == {"clicks": ErrorCode.NONE, "views": REFUSED}
        opened = await caller.call(fetch_request(["clicks"], 0, 0), 12)
        response = await caller.call(fetch_request(["views"], opened.session_id, 1), 12)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    run_with_broker(tmp_path, scenario, **SETTINGS)


async def wait_until_waiting(caller: Caller) -> None:
    while not caller.broker.requests.counts.waiting.total():  # noqa: ASYNC110 - the broker sets no event
        await asyncio.sleep(0)


def test_waiting_fetch_returns_no_records_after_a_revocation(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        reading = acl(TOPIC, "clicks", Operation.READ)
        await grant(caller, reading)
        waiting = asyncio.create_task(caller.call(fetch_request(["clicks"], 0, 0, max_wait_ms=600_000), 12))
        await wait_until_waiting(caller)
        await revoke(caller, reading)
        caller.append(b"secret")
        response = await waiting
        assert fetch_codes(response) == {"clicks": REFUSED}
        assert not len(response.responses[0].partitions[0].records)

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_fetch_by_id_is_refused_by_the_name_of_the_topic(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        names = Names("clicks", caller.id_of("clicks"), "g")
        response = await caller.call(fetched(names, 17), 17)
        assert response.responses[0].partitions[0].error_code == REFUSED
        await grant(caller, acl(TOPIC, "clicks", Operation.READ))
        response = await caller.call(fetched(names, 17), 17)
        assert response.responses[0].partitions[0].error_code == ErrorCode.NONE

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_lists_contain_only_what_may_be_described(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        for version in (0, 1, 12):
            everything = [] if version == 0 else None
            assert (await caller.call(MetadataRequest(topics=everything), version)).topics == []
        pages = DescribeTopicPartitionsRequest(topics=[], response_partition_limit=1)
        assert (await caller.call(pages)).topics == []
        await grant(caller, acl(TOPIC, "clicks", Operation.DESCRIBE))
        found = await caller.call(MetadataRequest(topics=None, include_topic_authorized_operations=True), 12)
        assert [(each.name, each.topic_authorized_operations) for each in found.topics] == [
            ("clicks", 1 << Operation.DESCRIBE)
        ]
        page = await caller.call(pages)
        assert [each.name for each in page.topics] == ["clicks"]
        assert page.next_cursor is None or page.next_cursor.topic_name == "clicks"

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_hidden_topic_looks_like_an_unknown_id(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        hidden, unknown = caller.id_of("clicks"), bytes(range(16))
        for version in (10, 12, 13):
            asked = [MetadataRequestTopic(name=None, topic_id=each) for each in (hidden, unknown)]
            found = (await caller.call(MetadataRequest(topics=asked), version)).topics
            by_id = {each.topic_id: each for each in found}
            by_id[hidden].topic_id = unknown
            assert by_id[hidden] == by_id[unknown]
        wanted = [DeleteTopicState(name=None, topic_id=each) for each in (hidden, unknown)]
        deleted = (await caller.call(DeleteTopicsRequest(topics=wanted, timeout_ms=1000))).responses
        found_by_id = {each.topic_id: each for each in deleted}
        found_by_id[hidden].topic_id = unknown
        assert found_by_id[hidden] == found_by_id[unknown]

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_metadata_of_refused_topics_only_lists_no_other_topic(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        await grant(caller, acl(TOPIC, "views", Operation.DESCRIBE))
        for version in (0, 5, 12):
            found = await caller.call(MetadataRequest(topics=[MetadataRequestTopic(name="clicks")]), version)
            assert [(each.name, each.error_code) for each in found.topics] == [("clicks", REFUSED)]
            assert found.brokers

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_offsets_of_hidden_topics_are_left_out(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        caller.requests.state.principal = Principal("User", "root")
        for topic in ("clicks", "views"):
            await caller.call(committed(Names(topic, caller.id_of(topic), "g"), 9), 9)
        caller.reconnect()
        as_alice(caller)
        await grant(caller, acl(GROUP, "g", Operation.DESCRIBE), acl(TOPIC, "clicks", Operation.DESCRIBE))
        for version in (8, 9, 10):
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
            (group,) = (await caller.call(request, version)).groups
            assert len(group.topics) == 1
            assert group.topics[0].partitions[0].committed_offset == 1

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_created_topic_hides_its_settings(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        await grant(caller, acl(TOPIC, "new", Operation.CREATE))
        response = await caller.call(SAMPLES[CreateTopicsRequest](Names("new", bytes(16), "g"), 7), 7)
        (topic,) = response.topics
        assert (topic.error_code, topic.topic_config_error_code) == (ErrorCode.NONE, REFUSED)
        assert (topic.num_partitions, topic.configs) == (-1, [])

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_full_fetch_closes_the_session_of_earlier_acls(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        await grant(caller, acl(TOPIC, "clicks", Operation.READ))
        session_id = 0
        for number in range(3):
            session_id = (await caller.call(fetch_request(["clicks"], session_id, 0), 12)).session_id
            await grant(caller, acl(TOPIC, f"other-{number}", Operation.READ))
        assert len(caller.broker.fetch_sessions) == 1

    run_with_broker(tmp_path, scenario, **SETTINGS)


def test_topic_that_is_deleted_during_the_check_is_not_created_again(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        as_alice(caller)
        await grant(caller, acl(TOPIC, "clicks", Operation.DESCRIBE))
        get, seen, created = caller.broker.topics.get, [], []

        def get_once(name: str) -> Any:
            seen.append(name)
            return get(name) if len(seen) == 1 else None

        async def create(name: str, *_arguments: Any) -> Any:
            created.append(name)
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, name)

        caller.broker.topics.get = get_once  # type: ignore[method-assign]
        caller.broker.topic_admin.create_with_defaults = create  # type: ignore[method-assign]
        found = await caller.call(MetadataRequest(topics=[MetadataRequestTopic(name="clicks")]), 12)
        assert (found.topics[0].error_code, created) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, [])

    run_with_broker(tmp_path, scenario, **{**SETTINGS, "auto_create_topics_enable": True})


def test_acls_survive_a_restart(tmp_path: Path) -> None:
    async def first(caller: Caller) -> None:
        await grant(caller, acl(TOPIC, "clicks", Operation.WRITE))

    async def second(caller: Caller) -> None:
        as_alice(caller)
        assert codes_of(await caller.call(produced(1, "clicks"), 9)) == {"clicks": ErrorCode.NONE}
        assert codes_of(await caller.call(produced(1, "views"), 9)) == {"views": REFUSED}

    run_with_broker(tmp_path, first, **SETTINGS)
    run_with_broker(tmp_path, second, **SETTINGS)
