"""A fetch that waits is told what comes, also what comes in the same turn of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from barnabas.broker import delayed_fetch
from barnabas.broker.broker import Broker
from barnabas.broker.handlers.fetch import fetch
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.settings.static import BrokerConfig
from barnabas.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.records import BatchBuilder
from tests.support.fake_link import begun, call_of
from tests.support.log_steps import append_now
from tests.support.steps import at_once

CALL = call_of(fetch, 11)
LONG_MS = 60_000
TIMEOUT_S = 60

Run = Callable[[Callable[[Broker], Coroutine[Any, Any, None]]], None]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    async def with_broker(scenario: Callable[[Broker], Coroutine[Any, Any, None]]) -> None:
        broker = Broker(BrokerConfig(port=0, data=str(tmp_path / "data")))
        await broker.start()
        try:
            await broker.topic_admin.create("clicks", 1, {})
            async with asyncio.timeout(TIMEOUT_S):
                await scenario(broker)
        finally:
            await broker.stop()

    return lambda scenario: asyncio.run(with_broker(scenario))


def request_to_fetch(min_bytes: int) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    topics = [FetchTopic(topic="clicks", partitions=[wanted])]
    return FetchRequest(max_wait_ms=LONG_MS, min_bytes=min_bytes, max_bytes=1_000_000, topics=topics)


def begin_to_fetch(broker: Broker, min_bytes: int = 1) -> Any:
    """Ask for more than there is; what comes back has not begun to wait."""
    waiting = begun(fetch.bind(broker.parts).handle(request_to_fetch(min_bytes), CALL))
    assert not isinstance(waiting, FetchResponse)
    return waiting


def append(broker: Broker) -> int:
    """Append one batch; return its size."""
    builder = BatchBuilder()
    builder.append(1_000, None, b"value")
    batch = builder.build()
    append_now(broker.topics.replicas.leader("clicks", 0), batch)
    return len(batch)


def fetched_bytes(response: FetchResponse) -> int:
    return len(response.responses[0].partitions[0].records)


def test_what_is_appended_before_the_wait_begins_is_not_missed(run: Run) -> None:
    async def scenario(broker: Broker) -> None:
        waiting = begin_to_fetch(broker)
        size = append(broker)
        assert fetched_bytes(at_once(await waiting)) == size

    run(scenario)


def test_what_is_too_little_before_the_wait_begins_counts_towards_enough(run: Run) -> None:
    async def scenario(broker: Broker) -> None:
        size = append(broker)
        waiting = asyncio.ensure_future(begin_to_fetch(broker, 3 * size))
        append(broker)
        await asyncio.sleep(0)
        assert not waiting.done()
        append(broker)
        assert fetched_bytes(at_once(await waiting)) == 3 * size

    run(scenario)


def test_a_topic_that_goes_before_the_wait_begins_is_told(run: Run) -> None:
    async def scenario(broker: Broker) -> None:
        waiting = begin_to_fetch(broker)
        await broker.topic_admin.delete("clicks")
        response = at_once(await waiting)
        assert response.responses[0].partitions[0].error_code == 3

    run(scenario)


def test_a_wait_that_is_broken_off_before_it_has_begun_leaves_nobody_watching(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delayed_fetch, "SOURCES_PER_PAUSE", 1)
    done: list[str] = []
    monkeypatch.setattr(LeaderReplica, "watch", lambda *_: done.append("watched"))
    monkeypatch.setattr(LeaderReplica, "unwatch", lambda *_: done.append("unwatched"))

    async def scenario(broker: Broker) -> None:
        steps = fetch.bind(broker.parts).handle(request_to_fetch(1), CALL).steps
        next(steps)
        assert done == ["watched"]
        steps.close()
        assert done == ["watched", "unwatched"]

    run(scenario)


def test_what_is_appended_before_the_wait_begins_is_read_once(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[bool] = []
    read = LeaderReplica.read

    def noted(partition: LeaderReplica, *arguments: Any, **named: Any) -> Any:
        result = read(partition, *arguments, **named)
        found.append(bool(result.batches))
        return result

    monkeypatch.setattr(LeaderReplica, "read", noted)

    async def scenario(broker: Broker) -> None:
        waiting = begin_to_fetch(broker)
        append(broker)
        at_once(await waiting)
        assert found == [False, True]

    run(scenario)
