"""Of partitions of which a reader has everything, it is told what reading them again would tell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker.handlers.fetch import CAUGHT_UP_MAX, CaughtUp, FetchKey, fetch
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.errors import ApiError, ErrorCode
from barnabas.model import IsolationLevel
from barnabas.protocol.declare import ZERO_UUID
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic
from tests.support.fake_link import begun, call_of
from tests.support.in_process_broker import Caller, run_with_broker
from tests.support.steps import at_once

CALL = call_of(fetch, 12)


class Reader:
    """Reads the three partitions of `clicks`, in a session."""

    def __init__(self, caller: Caller) -> None:
        self.caller = caller
        self.session_id = 0
        self.epoch = 0

    async def fetch(
        self, offsets: dict[int, int], wait_ms: int = 0, forgotten: tuple[int, ...] = (), **fields: Any
    ) -> FetchResponse:
        partitions = [
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1_000_000)
            for number, offset in offsets.items()
        ]
        request = FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=1_000_000,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=[FetchTopic(topic="clicks", partitions=partitions)] if partitions else [],
            forgotten_topics_data=[ForgottenTopic(topic="clicks", partitions=list(forgotten))] if forgotten else [],
            **fields,
        )
        found = begun(fetch.bind(self.caller.broker.parts).handle(request, CALL))
        response: FetchResponse = found if isinstance(found, FetchResponse) else at_once(await found)
        self.session_id, self.epoch = response.session_id, self.epoch + 1
        return response


def told(response: FetchResponse) -> dict[int, tuple[int, int]]:
    """Return the error code and the bytes of each partition."""
    return {
        each.partition_index: (each.error_code, len(each.records))
        for topic in response.responses
        for each in topic.partitions
    }


@pytest.fixture
def run(tmp_path: Path) -> Callable[[Callable[[Caller, Reader], Coroutine[Any, Any, None]]], None]:
    """Run a scenario with a reader that has all there is."""

    def run_it(scenario: Callable[[Caller, Reader], Coroutine[Any, Any, None]]) -> None:
        async def prepared(caller: Caller) -> None:
            reader = Reader(caller)
            assert told(await reader.fetch({0: 0, 1: 0, 2: 0})) == {0: (0, 0), 1: (0, 0), 2: (0, 0)}
            assert told(await reader.fetch({})) == {}
            await scenario(caller, reader)

        run_with_broker(tmp_path, prepared)

    return run_it


def size_of(caller: Caller) -> int:
    return caller.broker.topics.replicas.leader("clicks", 0).log.size_bytes


def test_only_what_has_more_is_read(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[int] = []
    read = LeaderReplica.read

    def noted(partition: LeaderReplica, *arguments: Any, **named: Any) -> Any:
        looked.append(partition.topic_partition.partition)
        return read(partition, *arguments, **named)

    async def scenario(caller: Caller, reader: Reader) -> None:
        monkeypatch.setattr(LeaderReplica, "read", noted)
        waiting = asyncio.ensure_future(reader.fetch({}, 60_000))
        await asyncio.sleep(0)
        assert looked == []
        caller.append(b"value")
        assert told(await waiting) == {0: (0, size_of(caller))}
        assert looked == [0]
        assert told(await reader.fetch({0: 1})) == {}
        assert looked == [0, 0]
        assert told(await reader.fetch({})) == {}
        assert looked == [0, 0]

    run(scenario)


def test_a_topic_that_is_deleted_is_told_again_and_again(run: Any) -> None:
    async def scenario(caller: Caller, reader: Reader) -> None:
        await caller.broker.topic_admin.delete("clicks")
        unknown = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)
        for _ in range(2):
            assert told(await reader.fetch({})) == {0: unknown, 1: unknown, 2: unknown}
        await caller.broker.topic_admin.create("clicks", 3, {})
        caller.append(b"value")
        assert told(await reader.fetch({}))[0] == (0, size_of(caller))

    run(scenario)


def test_a_log_that_goes_offline_is_told(run: Any) -> None:
    async def scenario(caller: Caller, reader: Reader) -> None:
        log = caller.broker.topics.replicas.leader("clicks", 1).log
        log._health.go_offline("read", OSError("broken"))
        assert told(await reader.fetch({})) == {1: (ErrorCode.KAFKA_STORAGE_ERROR, 0)}
        log._health._offline = None  # the broker of this test can stop

    run(scenario)


def test_a_partition_that_is_not_led_here_any_more_is_told(run: Any) -> None:
    async def scenario(caller: Caller, reader: Reader) -> None:
        not_led = (ErrorCode.NOT_LEADER_OR_FOLLOWER, 0)
        partitions = [caller.broker.topics.replicas.leader("clicks", number) for number in range(2)]
        partitions[0].fence()
        partitions[1].resign(ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another one leads"))
        assert told(await reader.fetch({})) == {0: not_led, 1: not_led}
        partitions[0].unfence()
        assert told(await reader.fetch({}))[1] == not_led
        assert 0 not in told(await reader.fetch({}))

    run(scenario)


def test_a_log_that_begins_later_is_told(run: Any) -> None:
    async def scenario(caller: Caller, reader: Reader) -> None:
        caller.append(b"value")
        assert told(await reader.fetch({0: 1})) == {0: (0, 0)}
        assert told(await reader.fetch({})) == {}
        await caller.broker.topics.replicas.leader("clicks", 0).delete_records_before(1)
        response = await reader.fetch({})
        assert told(response) == {0: (0, 0)}
        assert response.responses[0].partitions[0].log_start_offset == 1

    run(scenario)


def test_another_offset_and_another_isolation_are_read_anew(run: Any) -> None:
    async def scenario(caller: Caller, reader: Reader) -> None:
        caller.append(b"value")
        assert told(await reader.fetch({0: 1})) == {0: (0, 0)}
        assert told(await reader.fetch({0: 0})) == {0: (0, size_of(caller))}
        assert told(await reader.fetch({0: 7})) == {0: (ErrorCode.OFFSET_OUT_OF_RANGE, 0)}
        await reader.fetch({0: 1})
        reader.session_id = reader.epoch = 0
        response = await reader.fetch({0: 1}, isolation_level=IsolationLevel.READ_COMMITTED)
        assert response.responses[0].partitions[0].aborted_transactions == []
        assert told(await reader.fetch({}, isolation_level=IsolationLevel.READ_UNCOMMITTED)) == {}

    run(scenario)


def test_a_partition_that_is_not_followed_any_more_is_forgotten(run: Any) -> None:
    async def scenario(caller: Caller, reader: Reader) -> None:
        assert told(await reader.fetch({}, forgotten=(1,))) == {}
        caller.append(b"value")
        assert told(await reader.fetch({})) == {0: (0, size_of(caller))}
        session = caller.broker.fetch_sessions._sessions[reader.session_id]
        assert {where.partition for where in session.caught_up._known} <= {0, 2}

    run(scenario)


def test_only_so_many_are_remembered() -> None:
    known = CaughtUp()
    anything: Any = object()
    for number in range(2 * CAUGHT_UP_MAX + 1):
        known.note(FetchKey("t", ZERO_UUID, number), anything, anything, anything)
        assert len(known._known) <= CAUGHT_UP_MAX
