"""OffsetCommit: what is answered where a topic is deleted, or the group changes, while offsets are on their way."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from barnabas.broker.handlers.offset_commit import STORED_TOGETHER, offset_commit
from barnabas.broker.pipeline.call import ENTRIES_PER_STEP
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.settings.static import BrokerConfig
from barnabas.errors import ErrorCode
from barnabas.groups.requests import JoinRequest, LeavingMember, SyncRequest
from barnabas.model import OffsetAndMetadata, TopicPartition
from barnabas.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.support.fake_link import begun
from tests.support.in_process_broker import Caller, run_with_broker

A_JOIN = JoinRequest(
    session_timeout_ms=10_000, rebalance_timeout_ms=10_000, protocol_type="consumer", protocols=(("range", b""),)
)


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
        groups=SimpleNamespace(check_commit=lambda *_: ErrorCode.NONE, has_topic=True),
        offsets=OffsetsWithout("clicks"),
        topics=SimpleNamespace(has_partition=lambda _where: True),
        scheduler=CooperativeScheduler(lambda: 0.0),
        commit_templates=None,
    )
    at_7 = OffsetCommitRequestPartition(partition_index=0, committed_offset=7, committed_metadata=None)
    topics = [OffsetCommitRequestTopic(name=name, partitions=[at_7]) for name in ("clicks", "orders")]
    call: Any = SimpleNamespace(version=9)
    request = OffsetCommitRequest(group_id="g", topics=topics)

    async def answer() -> Any:
        return begun(offset_commit.bind(parts).handle(request, call))

    response = asyncio.run(answer())
    errors = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    assert errors == {"clicks": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "orders": ErrorCode.NONE}


def test_commit_of_many_partitions_is_stored_whole(tmp_path: Path) -> None:
    async def scenario(caller: Caller) -> None:
        count = 3 * STORED_TOGETHER + 1
        await caller.broker.topic_admin.create("wide", count, {})
        partitions = [
            OffsetCommitRequestPartition(partition_index=number, committed_offset=number, committed_metadata="")
            for number in range(count + 2)
        ]
        topics = [OffsetCommitRequestTopic(name="wide", partitions=partitions)]
        response = await caller.call(OffsetCommitRequest(group_id="g", topics=topics), 9)
        errors = [each.error_code for each in response.topics[0].partitions]
        assert errors == [ErrorCode.NONE] * count + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
        fetched = await caller.call(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8)
        found = {each.partition_index: each.committed_offset for each in fetched.groups[0].topics[0].partitions}
        assert found == {number: number for number in range(count)}

    run_with_broker(tmp_path, scenario, offsets_topic_num_partitions=2)


def test_what_changes_while_others_have_their_turn_is_checked_again(tmp_path: Path) -> None:
    """A commit of many partitions pauses: meanwhile its topic may be deleted, or its group go on without the member."""
    count = 3 * ENTRIES_PER_STEP

    async def scenario(caller: Caller) -> None:
        broker = caller.broker
        await broker.groups.ensure_topic()
        await broker.groups.wait_until_loaded()
        await broker.topic_admin.create("wide", count, {})
        await broker.topic_admin.create("gone", count, {})

        def begin(topic: str, **member: Any) -> Any:
            request = OffsetCommitRequest(
                group_id="g",
                topics=[
                    OffsetCommitRequestTopic(name=name, partitions=[at(number) for number in range(count)])
                    for name in ("wide", topic)
                ],
                **member,
            )
            call: Any = SimpleNamespace(version=9)
            return offset_commit.bind(broker.parts).handle(request, call).steps

        def at(number: int) -> OffsetCommitRequestPartition:
            return OffsetCommitRequestPartition(partition_index=number, committed_offset=7, committed_metadata=None)

        async def end(steps: Any) -> dict[str, set[int]]:
            found = await broker.scheduler.finish(steps)
            response = found if isinstance(found, OffsetCommitResponse) else await found.later
            return {topic.name: {each.error_code for each in topic.partitions} for topic in response.topics}

        steps = begin("gone")
        for _ in range(5):  # into the second topic
            next(steps)
        await broker.topic_admin.delete("gone")
        errors = await end(steps)
        assert errors == {"wide": {ErrorCode.NONE}, "gone": {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}}
        assert {where.topic for where in broker.offsets.committed("g")} == {"wide"}

        await broker.offsets.delete_group("g")
        joined = await broker.groups.join("g", A_JOIN)
        sync = SyncRequest(member_id=joined.member_id, generation=1, assignments={joined.member_id: b""})
        await broker.groups.sync("g", sync)
        steps = begin("clicks", member_id=joined.member_id, generation_id_or_member_epoch=1)
        next(steps)
        broker.groups.leave("g", [LeavingMember(joined.member_id)])
        errors = await end(steps)
        assert errors["wide"] == {ErrorCode.UNKNOWN_MEMBER_ID}
        assert list(broker.offsets.committed("g")) == []

    run_with_broker(tmp_path, scenario, offsets_topic_num_partitions=1)
