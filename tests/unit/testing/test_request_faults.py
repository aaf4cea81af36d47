"""Requests that a test of an application lets fail: each API in each version has the error, and no effect."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.handlers import SERVED
from barnabas.errors import ApiError, ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.produce import ProduceRequest
from barnabas.testing.request_faults import RequestFaults
from tests.support.in_process_broker import Caller, run_with_broker
from tests.support.sample_requests import SAMPLES, Names, produced

CODE = ErrorCode.INVALID_REQUEST
PRODUCE, FETCH, METADATA = 0, 1, 3


WITHOUT_CODES = {("DescribeLogDirs", 1), ("DescribeLogDirs", 2)}
"""The versions whose responses to a client without permissions contain no error code."""


def error_codes(found: Any) -> Iterator[int]:
    """Yield all error codes of a response."""
    if dataclasses.is_dataclass(found):
        for field in dataclasses.fields(found):
            value = getattr(found, field.name)
            if field.name == "error_code":
                yield value
            else:
                yield from error_codes(value)
    elif isinstance(found, list | tuple):
        for each in found:
            yield from error_codes(each)


def end_offset(caller: Caller) -> int:
    return caller.broker.topics.replicas.leader("clicks", 0).storage.log.log_end_offset


def test_each_api_fails_as_often_as_ordered(tmp_path: Path) -> None:
    faults = RequestFaults()
    checked = 0

    async def scenario(caller: Caller) -> None:
        nonlocal checked
        names = Names("clicks", caller.id_of("clicks"), "group")
        for served in sorted(SERVED.values(), key=lambda each: each.key):
            for version in served.versions:
                if (served.api.name, version) in WITHOUT_CODES:
                    continue
                request = SAMPLES[served.api.request](names, version)
                faults.fail_next(served.key, CODE, 2)
                before = sorted(each.name for each in caller.broker.topics.all()), end_offset(caller)
                for left in (1, 0):
                    codes = {*error_codes(await caller.call(request, version))}
                    assert CODE in codes, (served.api.name, version)
                    assert codes <= {0, CODE}, (served.api.name, version)
                    assert faults.left().get(served.key, 0) == left
                assert before == (sorted(each.name for each in caller.broker.topics.all()), end_offset(caller))
                checked += 1

    run_with_broker(tmp_path, scenario, stages=(faults,))
    assert checked > 100


def test_requests_before_and_after_the_failures_pass(tmp_path: Path) -> None:
    faults = RequestFaults()

    async def scenario(caller: Caller) -> None:
        names = Names("clicks", caller.id_of("clicks"), "group")
        found = []
        for number in range(8):
            if number == 3:
                faults.fail_next(PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)
                faults.fail_next(PRODUCE, ErrorCode.REQUEST_TIMED_OUT, 2)
            response = await caller.call(produced(names, 9), 9)
            found.append(response.responses[0].partition_responses[0].error_code)
        assert found == [0, 0, 0, 6, 7, 7, 0, 0]
        assert end_offset(caller) == 5

    run_with_broker(tmp_path, scenario, stages=(faults,))


def test_clear_ends_failures(tmp_path: Path) -> None:
    faults = RequestFaults()

    async def scenario(caller: Caller) -> None:
        faults.fail_next(PRODUCE, CODE, 5)
        faults.clear()
        response = await caller.call(produced(Names("clicks", caller.id_of("clicks"), "group"), 9), 9)
        assert response.responses[0].partition_responses[0].error_code == 0
        assert faults.left() == {}

    run_with_broker(tmp_path, scenario, stages=(faults,))


def fetched(version_epoch: int, session: int, topics: list[Any]) -> FetchRequest:
    return FetchRequest(max_wait_ms=0, min_bytes=0, session_id=session, session_epoch=version_epoch, topics=topics)


def test_fetch_of_a_session_begins_a_new_one_and_then_fails(tmp_path: Path) -> None:
    faults = RequestFaults()
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=10_000)

    async def scenario(caller: Caller) -> None:
        topics = [FetchTopic(topic="clicks", partitions=[partition])]
        session = (await caller.call(fetched(0, 0, topics), 12)).session_id
        assert session
        faults.fail_next(FETCH, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)
        response = await caller.call(fetched(1, session, []), 12)
        assert response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        response = await caller.call(fetched(0, 0, topics), 12)
        assert response.responses[0].partitions[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        response = await caller.call(fetched(0, 0, topics), 12)
        assert response.responses[0].partitions[0].error_code == 0
        faults.fail_next(FETCH, ErrorCode.INVALID_FETCH_SESSION_EPOCH, 1)
        response = await caller.call(fetched(1, response.session_id, []), 12)
        assert response.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH

    run_with_broker(tmp_path, scenario, stages=(faults,))


def test_failed_metadata_has_the_brokers(tmp_path: Path) -> None:
    faults = RequestFaults()

    async def scenario(caller: Caller) -> None:
        faults.fail_next(METADATA, ErrorCode.LEADER_NOT_AVAILABLE, 1)
        response = await caller.call(MetadataRequest(topics=[MetadataRequestTopic(name="clicks")]))
        assert response.topics[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert [each.node_id for each in response.brokers] == [0]

    run_with_broker(tmp_path, scenario, stages=(faults,))


def test_request_without_response_ends_the_connection(tmp_path: Path) -> None:
    faults = RequestFaults()

    async def scenario(caller: Caller) -> None:
        faults.fail_next(PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER, 1)
        request: ProduceRequest = dataclasses.replace(
            produced(Names("clicks", caller.id_of("clicks"), "group"), 9), acks=0
        )
        with pytest.raises(ApiError) as caught:
            await caller.call(request, 9)
        assert caught.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert end_offset(caller) == 0

    run_with_broker(tmp_path, scenario, stages=(faults,))


def test_production_brokers_have_no_further_stage(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        assert [pipeline._stages for pipeline in caller.broker.pipelines] == [()]
        assert (await caller.call(ApiVersionsRequest(), 0)).error_code == 0

    run_with_broker(tmp_path, scenario)
