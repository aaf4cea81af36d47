"""Offsets of what a group reads are not deleted, in whatever state the group is."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from barnabas.broker.group_shell import GroupShell
from barnabas.broker.handlers.offset_delete import offset_delete
from barnabas.broker.settings.static import BrokerConfig
from barnabas.clock import ManualClock
from barnabas.errors import ErrorCode
from barnabas.groups.requests import JoinRequest
from barnabas.groups.subscriptions import encode_subscription
from barnabas.model import TopicPartition
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)

READS_CLICKS = encode_subscription(ConsumerProtocolSubscription(topics=["clicks"]), 1)


class Offsets:
    """Remembers what was deleted."""

    def __init__(self) -> None:
        self.deleted: list[TopicPartition] = []

    async def group_ids(self) -> list[str]:
        return ["g"]

    async def delete(self, _group_id: str, partitions: list[TopicPartition]) -> None:
        self.deleted += partitions


def delete(
    *, protocol_type: str = "consumer", metadata: bytes = READS_CLICKS, joins: bool = True
) -> tuple[ErrorCode, dict[str, int], list[str]]:
    """Delete offsets of two topics while a member joins; return the errors, and the topics deleted in."""

    async def run() -> tuple[OffsetDeleteResponse, Offsets]:
        groups, offsets = GroupShell(BrokerConfig(group_initial_rebalance_delay_ms=100), ManualClock()), Offsets()
        if joins:
            request = JoinRequest(
                client_id="app",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type=protocol_type,
                protocols=(("range", metadata),),
            )
            assert not groups.join("g", request).done()
        topics = SimpleNamespace(has_partition=lambda _where: True)
        parts = SimpleNamespace(groups=groups, offsets=offsets, topics=topics)
        wanted = [
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for name in ("clicks", "orders")
        ]
        context: Any = None
        response: OffsetDeleteResponse
        response = await offset_delete.bind(parts).handle(OffsetDeleteRequest(group_id="g", topics=wanted), context)
        groups.close()
        return response, offsets

    response, offsets = asyncio.run(run())
    errors = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    return ErrorCode(response.error_code), errors, [where.topic for where in offsets.deleted]


def test_what_a_rebalancing_group_reads_is_kept() -> None:
    error, errors, deleted = delete()
    assert error is ErrorCode.NONE
    assert errors == {"clicks": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "orders": ErrorCode.NONE}
    assert deleted == ["orders"]


def test_subscriptions_that_nobody_understands_protect_everything() -> None:
    _, errors, deleted = delete(metadata=b"mine")
    assert set(errors.values()) == {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert deleted == []


def test_members_that_are_no_consumers_protect_everything() -> None:
    assert delete(protocol_type="connect") == (ErrorCode.NON_EMPTY_GROUP, {}, [])


def test_a_group_without_members_protects_nothing() -> None:
    _, _, deleted = delete(joins=False)
    assert deleted == ["clicks", "orders"]
