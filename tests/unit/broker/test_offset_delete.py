"""Offsets of what a group reads are not deleted, in whatever state the group is."""

from __future__ import annotations

import asyncio
from pathlib import Path

from barnabas.errors import ErrorCode
from barnabas.groups.requests import JoinRequest
from barnabas.groups.subscriptions import encode_subscription
from barnabas.model import OffsetAndMetadata, TopicPartition
from barnabas.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from barnabas.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from tests.support.in_process_broker import Caller, run_with_broker

READS_CLICKS = encode_subscription(ConsumerProtocolSubscription(topics=["clicks"]), 1)


AT_7 = OffsetAndMetadata(7)


def delete(
    folder: Path, *, protocol_type: str = "consumer", metadata: bytes = READS_CLICKS, joins: bool = True
) -> tuple[ErrorCode, dict[str, int], list[str]]:
    """Delete offsets of two topics while a member joins; return the errors, and the topics deleted in."""
    responses: list[OffsetDeleteResponse] = []
    left: list[str] = []

    async def scenario(caller: Caller) -> None:
        groups, offsets = caller.broker.groups, caller.broker.offsets
        await groups.ensure_topic()
        await offsets.commit("g", {TopicPartition(name, 0): AT_7 for name in ("clicks", "views")})
        if joins:
            request = JoinRequest(
                client_id="app",
                session_timeout_ms=10_000,
                rebalance_timeout_ms=10_000,
                protocol_type=protocol_type,
                protocols=(("range", metadata),),
            )
            joining = asyncio.ensure_future(groups.join("g", request))
            assert not joining.done()
        wanted = [
            OffsetDeleteRequestTopic(name=name, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
            for name in ("clicks", "views")
        ]
        responses.append(await caller.call(OffsetDeleteRequest(group_id="g", topics=wanted)))
        left.extend(where.topic for where in offsets.committed("g"))

    run_with_broker(folder, scenario, group_initial_rebalance_delay_ms=60_000, offsets_topic_num_partitions=2)
    [response] = responses
    errors = {topic.name: topic.partitions[0].error_code for topic in response.topics}
    return ErrorCode(response.error_code), errors, [name for name in ("clicks", "views") if name not in left]


def test_what_a_rebalancing_group_reads_is_kept(tmp_path: Path) -> None:
    error, errors, deleted = delete(tmp_path)
    assert error is ErrorCode.NONE
    assert errors == {"clicks": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "views": ErrorCode.NONE}
    assert deleted == ["views"]


def test_subscriptions_that_nobody_understands_protect_everything(tmp_path: Path) -> None:
    _, errors, deleted = delete(tmp_path, metadata=b"mine")
    assert set(errors.values()) == {ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC}
    assert deleted == []


def test_members_that_are_no_consumers_protect_everything(tmp_path: Path) -> None:
    assert delete(tmp_path, protocol_type="connect") == (ErrorCode.NON_EMPTY_GROUP, {}, [])


def test_a_group_without_members_protects_nothing(tmp_path: Path) -> None:
    _, _, deleted = delete(tmp_path, joins=False)
    assert deleted == ["clicks", "views"]


def test_a_subscription_with_a_wrong_version_protects_the_topics_that_it_names(tmp_path: Path) -> None:
    _, errors, deleted = delete(tmp_path / "none", metadata=bytes.fromhex("0001 00000000 00000000"))
    assert (set(errors.values()), deleted) == ({ErrorCode.NONE}, ["clicks", "views"])
    of_version_0 = encode_subscription(ConsumerProtocolSubscription(topics=["clicks"], user_data=b""), 0)
    _, errors, deleted = delete(tmp_path / "clicks", metadata=b"\x00\x03" + of_version_0[2:])
    assert errors == {"clicks": ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, "views": ErrorCode.NONE}
    assert deleted == ["views"]
