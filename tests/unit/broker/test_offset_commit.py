"""OffsetCommit: what is answered where a topic is deleted while its offsets are on their way to the log."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from barnabas.broker.handlers.offset_commit import offset_commit
from barnabas.broker.settings.static import BrokerConfig
from barnabas.broker.turns import Turns
from barnabas.errors import ErrorCode
from barnabas.model import OffsetAndMetadata, TopicPartition
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.steps import at_once


class OffsetsWithout:
    """A store that finds one topic gone."""

    def __init__(self, gone: str) -> None:
        self._gone = gone

    def commit(
        self, _group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> asyncio.Future[set[TopicPartition]]:
        stored: asyncio.Future[set[TopicPartition]] = asyncio.get_running_loop().create_future()
        stored.set_result({where for where in offsets if where.topic == self._gone})
        return stored


def test_a_topic_that_is_gone_by_the_time_of_the_write_is_refused_and_the_others_are_not() -> None:
    parts = SimpleNamespace(
        settings=SimpleNamespace(config=BrokerConfig()),
        groups=SimpleNamespace(check_commit=lambda *_: ErrorCode.NONE, has_place=True),
        offsets=OffsetsWithout("clicks"),
        topics=SimpleNamespace(has_partition=lambda _where: True),
        turns=Turns(lambda: 0.0),
    )
    at_7 = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata=None)
    topics = [OffsetCommitRequestTopic(name=name, partitions=[at_7]) for name in ("clicks", "orders")]
    context: Any = SimpleNamespace(version=9)
    request = OffsetCommitRequest(group_id="g", topics=topics)

    async def answer() -> Any:
        return at_once(offset_commit.bind(parts).handle(request, context))

    response = asyncio.run(answer())
    errors = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    assert errors == {"clicks": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "orders": ErrorCode.NONE}
