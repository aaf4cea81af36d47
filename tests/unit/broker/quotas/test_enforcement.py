"""Clients that exceed their quotas: what the responses say, and for how long the broker does not read from them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.handlers.create_topics import create_topics
from barnabas.broker.handlers.produce import produce as handler
from barnabas.broker.pipeline.call import CLIENTS, ConnectionState, Measured, RequestTimer
from barnabas.broker.quotas import enforcement
from barnabas.broker.quotas.enforcement import MutationQuotas, QuotaStage, ThrottleCounts
from barnabas.broker.quotas.entities import Entity, Quotas, entity
from barnabas.broker.quotas.limits import QuotaLimits
from barnabas.errors import ApiError, ErrorCode
from barnabas.protocol.codec import decode_response, request_frame
from barnabas.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.rates import Windows
from barnabas.records import BatchBuilder
from barnabas.security.principal import ANONYMOUS, Principal
from tests.support.fake_link import FakeLink, call_of
from tests.support.in_process_broker import Caller, run_with_broker

CLIENT = "me"
RECORD_BYTES = 10_000


def batch() -> bytes:
    builder = BatchBuilder()
    builder.append(1_000, None, bytes(RECORD_BYTES), [])
    return bytes(builder.build())


def produce(caller: Caller, *topics: str, acks: int = -1) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=None,
        acks=acks,
        timeout_ms=1_000,
        topic_data=[
            TopicProduceData(
                name=name,
                topic_id=caller.id_of(name),
                partition_data=[PartitionProduceData(index=0, records=batch())],
            )
            for name in topics or ("clicks",)
        ],
    )


def fetch(caller: Caller, max_bytes: int = 10_000_000) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000_000)
    topic = FetchTopic(topic="clicks", topic_id=caller.id_of("clicks"), partitions=[partition])
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=max_bytes, topics=[topic])


def limit(caller: Caller, quotas: dict[Entity, Quotas]) -> None:
    caller.broker.quotas.put_into_force(QuotaLimits(quotas))


def with_broker(scenario: Callable[[Caller], Coroutine[Any, Any, None]]) -> Callable[[Path], None]:
    def test(tmp_path: Path) -> None:
        run_with_broker(tmp_path, scenario, **SETTINGS)

    return test


SETTINGS = {"quota_window_num": 2, "quota_window_size_seconds": 10, "controller_quota_window_num": 1}


@with_broker
async def test_producer_above_its_quota_has_to_wait(caller: Caller) -> None:
    caller_link: FakeLink = caller.link
    assert (await caller.call(produce(caller))).throttle_time_ms == 0
    limit(caller, {entity(client_id=CLIENT): {"producer_byte_rate": 100.0}})
    response = await caller.call(produce(caller))
    assert response.throttle_time_ms > 10_000
    assert caller_link.muted_s == [response.throttle_time_ms / 1000]
    assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE
    limit(caller, {entity(client_id="another"): {"producer_byte_rate": 100.0}})
    assert (await caller.call(produce(caller))).throttle_time_ms == 0
    limit(caller, {})
    assert (await caller.call(produce(caller))).throttle_time_ms == 0


@with_broker
async def test_templates_runs_and_pieces_contain_the_time_to_wait(caller: Caller) -> None:
    limit(caller, {entity(None): {"producer_byte_rate": 100.0}})
    for version in range(3, 14):
        frame = b"".join(request_frame(produce(caller), version, 1, CLIENT))  # type: ignore[arg-type]
        reply = caller.requests.carry_out([bytearray(frame)[4:] for _ in range(3)])  # a run, from templates
        answer = b"".join(reply.answer + (await reply.later if reply.later is not None else []))  # type: ignore[arg-type]
        assert reply.frame_count == 3
        responses = []
        while answer:
            size = int.from_bytes(answer[:4], "big")
            responses.append(decode_response(ProduceResponse, version, answer[4 : 4 + size]))
            answer = answer[4 + size :]
        assert len(responses) == 3
        assert all(each.throttle_time_ms > 0 for each in responses)
    large = produce(caller)
    large.topic_data[0].partition_data *= 70
    response = await caller.call(large)
    assert response.throttle_time_ms > 0


@with_broker
async def test_producer_without_acknowledgements_is_muted(caller: Caller) -> None:
    limit(caller, {entity(None): {"producer_byte_rate": 100.0}})
    frame = b"".join(request_frame(produce(caller, acks=0), 9, 1, CLIENT))  # type: ignore[arg-type]
    reply = caller.requests.carry_out([bytearray(frame)[4:]])
    assert reply.answer == []
    assert caller.link.muted_s


@with_broker
async def test_consumer_above_its_quota_has_to_wait_and_gets_records(caller: Caller) -> None:
    caller.append(bytes(RECORD_BYTES))
    caller.append(bytes(RECORD_BYTES))
    limit(caller, {entity("ANONYMOUS", None): {"consumer_byte_rate": 100.0}})
    response = await caller.call(fetch(caller))
    assert response.throttle_time_ms > 0
    assert caller.link.muted_s == [response.throttle_time_ms / 1000]
    size = len(response.responses[0].partitions[0].records)
    assert RECORD_BYTES < size < 2 * RECORD_BYTES, "one fetch is limited to the bytes of all windows"


@with_broker
async def test_consumer_below_its_quota_does_not_wait(caller: Caller) -> None:
    caller.append(bytes(RECORD_BYTES))
    limit(caller, {entity("ANONYMOUS", None): {"consumer_byte_rate": 1e6, "producer_byte_rate": 1.0}})
    assert (await caller.call(fetch(caller))).throttle_time_ms == 0
    assert caller.link.muted_s == []


@with_broker
async def test_client_above_its_share_of_time_has_to_wait_at_most_one_window(caller: Caller) -> None:
    limit(caller, {entity(None): {"request_percentage": 0.000_001}})
    await caller.call(MetadataRequest(topics=None))
    response = await caller.call(MetadataRequest(topics=None))
    assert response.throttle_time_ms == 10_000
    assert caller.link.muted_s[-1] == 10.0
    for version in (2, 8):  # the second one could repeat a template
        commit = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[
                OffsetCommitRequestTopic(
                    name="clicks",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=0, committed_offset=1, committed_metadata="", committed_leader_epoch=-1
                        )
                    ],
                )
            ],
        )
        for _ in range(3):
            response = await caller.call(commit, version)
            assert response.throttle_time_ms == (10_000 if version >= 3 else 0)


@with_broker
async def test_stage_is_absent_without_quotas(caller: Caller) -> None:
    chain = caller.broker.requests.chain
    assert (chain._entering, chain._settling, chain._passing) == ([], [], [])
    limit(caller, {entity(ip=None): {"connection_creation_rate": 5.0}, entity(None): {"controller_mutation_rate": 1.0}})
    assert chain._entering == []
    limit(caller, {entity(None): {"consumer_byte_rate": 1.0}})
    assert len(chain._entering) == 1


def create(name: str, partitions: int, *, validate_only: bool = False) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=1_000, validate_only=validate_only)


@with_broker
async def test_changes_of_topics_above_the_quota_are_refused(caller: Caller) -> None:
    limit(caller, {entity(client_id=CLIENT): {"controller_mutation_rate": 2.0}})
    assert (await caller.call(create("a", 100, validate_only=True))).throttle_time_ms == 0
    created = await caller.call(create("a", 10))
    assert created.topics[0].error_code == ErrorCode.NONE
    assert 0 < created.throttle_time_ms <= 4_000
    assert caller.link.muted_s == [created.throttle_time_ms / 1000]
    refused = await caller.call(create("b", 1))
    assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert 0 < refused.throttle_time_ms <= 4_000
    grown = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="a", count=11, assignments=None)], timeout_ms=1_000, validate_only=False
    )
    assert (await caller.call(grown)).results[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    deleted = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")], timeout_ms=1_000)
    assert (await caller.call(deleted)).responses[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
    assert caller.broker.topics.get("a") is not None
    assert caller.broker.topics.get("b") is None
    older = await caller.call(create("b", 1), 5)
    assert (older.topics[0].error_code, older.throttle_time_ms > 0) == (ErrorCode.NONE, True)


@with_broker
async def test_topics_that_requests_for_metadata_create_count(caller: Caller) -> None:
    limit(caller, {entity(client_id=CLIENT): {"controller_mutation_rate": 0.1}})
    names = [f"new-{number}" for number in range(5)]
    response = await caller.call(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]))
    assert [each.error_code for each in response.topics][1:] == [ErrorCode.LEADER_NOT_AVAILABLE] * 4
    assert response.throttle_time_ms > 0
    assert [name for name in names if caller.broker.topics.get(name)] == names[:1]


@with_broker
async def test_failed_changes_do_not_count(caller: Caller) -> None:
    limit(caller, {entity(client_id=CLIENT): {"controller_mutation_rate": 5.0}})
    for _ in range(20):
        refused = await caller.call(create("clicks", 1))
        assert refused.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    assert caller.link.muted_s == []


def mutation_quotas(default: float = 10.0) -> tuple[MutationQuotas, list[float]]:
    now_s = [0.0]
    return MutationQuotas(Windows(1, 1.0), lambda: default, lambda: now_s[0], ThrottleCounts()), now_s


def state(host: str = "10.0.0.1", principal: Principal = ANONYMOUS) -> ConnectionState:
    return ConnectionState(CLIENTS, FakeLink(host), principal)


def may_change(quotas: MutationQuotas, connection: ConnectionState, count: int, client_id: str = CLIENT) -> bool:
    changes = quotas.of_call(call_of(create_topics, 7, client_id, connection), strict_since=6)
    try:
        changes.take(count)
    except ApiError as error:
        return error.code is not ErrorCode.THROTTLING_QUOTA_EXCEEDED
    return True


def test_default_quota_of_changes_is_that_of_a_user_or_of_an_address() -> None:
    quotas, now_s = mutation_quotas()
    alice = Principal("User", "alice")
    assert may_change(quotas, state("10.0.0.1"), 11)
    assert not may_change(quotas, state("10.0.0.1"), 1, "another client id")
    assert may_change(quotas, state("10.0.0.2"), 11)
    assert may_change(quotas, state("10.0.0.1", alice), 11)
    assert not may_change(quotas, state("10.0.0.2", alice), 1)
    now_s[0] = 0.2
    assert may_change(quotas, state("10.0.0.1"), 1)


def test_configured_quota_replaces_the_default() -> None:
    quotas, _ = mutation_quotas()
    quotas.put_into_force(QuotaLimits({entity("ANONYMOUS"): {"controller_mutation_rate": 1_000.0}}))
    assert all(may_change(quotas, state(), 100) for _ in range(10))


def test_without_default_changes_are_not_limited() -> None:
    quotas, _ = mutation_quotas(0.0)
    assert all(may_change(quotas, state(), 1_000_000) for _ in range(10))


def test_memory_of_rates_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(enforcement, "SENSORS_MAX", 20)
    now_s = [0.0]
    stage = QuotaStage(Windows(), lambda: now_s[0], ThrottleCounts())
    stage.put_into_force(QuotaLimits({entity(client_id=None): {"producer_byte_rate": 1.0}}))
    quotas, _ = mutation_quotas()
    for number in range(1_000):
        stage.enter(call_of(handler, 9, f"{number} {'x' * 1_000}"), None)
        may_change(quotas, state(str(number)), 11)
        assert len(stage._sensors) <= 20
        assert len(stage._clients) <= 20
        assert len(quotas._buckets) <= 20
    assert max(len(key[2]) for key in stage._sensors) <= 255
    now_s[0] = 60.0
    stage.enter(call_of(handler, 9, "last"), None)
    assert len(stage._sensors) == 1


def test_rate_survives_a_change_of_the_limit() -> None:
    stage = QuotaStage(Windows(11, 1.0), lambda: 0.0, ThrottleCounts())
    call = call_of(handler, 9, CLIENT)
    call.size = 1_000
    for rate, expected in ((100.0, 0), (50.0, 30_000), (1_000.0, 0)):
        stage.put_into_force(QuotaLimits({entity("ANONYMOUS"): {"producer_byte_rate": rate}}))
        stage.enter(call, None)
        assert call.connection.throttle_ms == expected


def test_waits_of_a_request_do_not_count_as_time() -> None:
    now_s = [0.0]

    async def request(wait: asyncio.Future[None]) -> str:
        now_s[0] += 1
        await wait
        now_s[0] += 2
        try:
            await asyncio.sleep(3_600)
        except asyncio.CancelledError:
            now_s[0] += 4
            return "done"
        return "not cancelled"

    async def scenario() -> tuple[str, float]:
        timer = RequestTimer(lambda: now_s[0])
        wait = asyncio.get_running_loop().create_future()

        async def measured() -> str:
            return str(await Measured(request(wait), timer))

        task = asyncio.create_task(measured())
        await asyncio.sleep(0)
        now_s[0] += 1_000
        wait.set_result(None)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        now_s[0] += 1_000
        task.cancel()
        return await task, timer.take_s()

    assert asyncio.run(scenario()) == ("done", 7.0)
