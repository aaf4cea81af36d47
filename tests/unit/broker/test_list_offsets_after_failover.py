"""A new leader tells no end of a partition that is before the one that clients knew (KIP-207)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.handlers.list_offsets import list_offsets
from barnabas.broker.leader_replica import LeaderReplica
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.settings.topic_config import topic_config
from barnabas.clock import ManualClock
from barnabas.errors import ErrorCode
from barnabas.model import TopicPartition
from barnabas.protocol.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.records import BatchBuilder
from barnabas.replication.in_sync import RemoteReplicas
from barnabas.storage import Log, LogConfig, OsFileSystem

CLICKS = TopicPartition("clicks", 0)
TIME_MS = 1_000

Ask = Callable[..., tuple[ErrorCode, int]]


class _Scheduler:
    async def pause(self) -> None:
        """There is nothing else to do."""


@pytest.fixture
def new_leader(tmp_path: Path) -> Iterator[LeaderReplica]:
    """It has three records, of which it knows that one is on all replicas."""
    log = Log.open(tmp_path / "clicks-0", CLICKS, LogConfig(), ManualClock(), OsFileSystem())
    for number in range(3):
        builder = BatchBuilder()
        builder.append_many(TIME_MS + number, [b"value"])
        log.append(bytes(builder.build()), 3)
    log.hold_high_watermark()
    log.move_high_watermark(1)
    followers = RemoteReplicas(1, 4, (1, 2), (1, 2), log_end_offset=3, high_watermark=1, now_s=0.0)
    yield LeaderReplica(CLICKS, log, 4, topic_config(BrokerConfig(), {}), leader=1, followers=followers)
    log.abandon()


@pytest.fixture
def ask(new_leader: LeaderReplica) -> Ask:
    def ask_for(timestamp: int, version: int = 7) -> tuple[ErrorCode, int]:
        wanted = ListOffsetsTopic(
            name="clicks", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
        )
        replicas: Any = SimpleNamespace(leader=lambda _topic, _number: new_leader)
        call: Any = SimpleNamespace(version=version)
        scheduler: Any = _Scheduler()
        request = ListOffsetsRequest(replica_id=-1, topics=[wanted])
        serve: Any = list_offsets.function
        answer = asyncio.run(serve(replicas, scheduler, request, call))
        (found,) = answer.topics[0].partitions
        return ErrorCode.of(found.error_code), found.offset

    return ask_for


@pytest.mark.parametrize(("timestamp", "offset"), [(LATEST_TIMESTAMP, 3), (MAX_TIMESTAMP, 2), (TIME_MS + 1, 1)])
def test_end_is_not_available_until_the_followers_have_fetched(ask, new_leader, timestamp, offset) -> None:
    assert ask(timestamp) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    new_leader.on_follower_fetch(2, -1, 3, 1.0)
    assert ask(timestamp) == (ErrorCode.NONE, offset)


def test_old_versions_are_told_what_they_know(ask) -> None:
    assert ask(LATEST_TIMESTAMP, 4) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert ask(LATEST_TIMESTAMP, 5) == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)


def test_what_is_known_to_be_exposed_is_told_meanwhile(ask) -> None:
    assert ask(EARLIEST_TIMESTAMP) == (ErrorCode.NONE, 0)
    assert ask(TIME_MS) == (ErrorCode.NONE, 0)
