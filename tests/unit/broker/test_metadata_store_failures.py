"""A tree or a log that cannot be read or written is answered with an error code; the connection stays."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.broker.handlers.describe_groups import describe_groups
from barnabas.broker.handlers.list_groups import list_groups
from barnabas.broker.handlers.metadata import metadata
from barnabas.broker.handlers.offset_fetch import offset_fetch
from barnabas.broker.identity import Identity
from barnabas.broker.metadata_image import MetadataImage
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.broker.quotas.enforcement import MutationQuotas, ThrottleCounts
from barnabas.broker.settings.static import BrokerConfig
from barnabas.coordination.values import BrokerEndpoint
from barnabas.errors import ApiError, CoordinationError, ErrorCode
from barnabas.protocol.codec import encode_bytes
from barnabas.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.protocol.messages.list_groups import ListGroupsRequest
from barnabas.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.rates import Windows
from tests.support.fake_link import begun, call_of


async def fail(*_arguments: object) -> None:
    raise CoordinationError("the disk is full")


async def nobody_to_ask(*_arguments: object) -> None:
    pass


def refuse(*_arguments: object) -> None:
    raise ApiError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk is full")


PARTS = SimpleNamespace(
    offsets=SimpleNamespace(committed=refuse, group_ids=refuse),
    topics=SimpleNamespace(get=lambda _name: None, image=MetadataImage()),
    topic_admin=SimpleNamespace(create_with_defaults=fail),
    groups=SimpleNamespace(group_ids=list, error_of=lambda _name: ErrorCode.COORDINATOR_NOT_AVAILABLE),
    settings=SimpleNamespace(config=BrokerConfig()),
    identity=Identity(0, "c", (BrokerEndpoint("PLAINTEXT", "here", 1),)),
    propagation=SimpleNamespace(until_known=nobody_to_ask),
    scheduler=CooperativeScheduler(lambda: 0.0),
    mutations=MutationQuotas(Windows(), lambda: 0.0, lambda: 0.0, ThrottleCounts()),
)


def ask(served: Any, request: Any, version: int) -> Any:
    """Return the answer, which can be written in that version."""

    async def answer() -> Any:
        return await begun(served.bind(PARTS).handle(request, call_of(served, version, None)))

    response = asyncio.run(answer())
    encode_bytes(response, version)
    return response


def test_a_topic_that_cannot_be_made_is_told_by_its_code() -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name="t")], allow_auto_topic_creation=True)
    [topic] = ask(metadata, request, 9).topics
    assert topic.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


@pytest.mark.parametrize("version", [1, 7])
def test_offsets_of_one_group_are_not_available(version: int) -> None:
    request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0])])
    response = ask(offset_fetch, request, version)
    assert response.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert response.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_offsets_of_several_groups_are_not_available() -> None:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=topics) for name in "gh"])
    groups = ask(offset_fetch, request, 8).groups
    assert [group.error_code for group in groups] == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 2


def test_groups_are_not_listed() -> None:
    assert ask(list_groups, ListGroupsRequest(), 4).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_groups_are_not_described() -> None:
    [group] = ask(describe_groups, DescribeGroupsRequest(groups=["g"]), 5).groups
    assert group.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
