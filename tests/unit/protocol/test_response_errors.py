"""The error code of a response is its own, or else the first one within it."""

from __future__ import annotations

import pytest

from barnabas.protocol.apis import declared_apis
from barnabas.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.protocol.messages.find_coordinator import Coordinator, FindCoordinatorResponse
from barnabas.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.protocol.response_errors import error_reader


def test_own_error_code_comes_before_those_within() -> None:
    partition = PartitionData(partition_index=0, error_code=3, high_watermark=-1, records=b"")
    topic = FetchableTopicResponse(topic="t", partitions=[partition])
    response = FetchResponse(error_code=0, responses=[topic])
    assert error_reader(FetchResponse, 7)(response) == 0
    assert error_reader(FetchResponse, 6)(response) == 3  # which has no error code of its own


def test_first_error_code_within_is_found_behind_empty_lists() -> None:
    broker = MetadataResponseBroker(node_id=1, host="h", port=1)
    partition = MetadataResponsePartition(error_code=5, partition_index=0, leader_id=1, replica_nodes=[], isr_nodes=[])
    topics = [MetadataResponseTopic(error_code=code, name="t", partitions=[partition]) for code in (0, 3)]
    read = error_reader(MetadataResponse, 9)
    assert read(MetadataResponse(brokers=[broker], topics=topics)) == 0
    assert read(MetadataResponse(brokers=[broker], topics=topics[1:])) == 3
    assert read(MetadataResponse(brokers=[broker], topics=[])) == 0


def test_version_says_where_the_error_code_is() -> None:
    response = FindCoordinatorResponse(error_code=15, coordinators=[Coordinator(error_code=16)])
    assert error_reader(FindCoordinatorResponse, 3)(response) == 15
    assert error_reader(FindCoordinatorResponse, 4)(response) == 16


@pytest.mark.parametrize("api", declared_apis().values(), ids=lambda api: api.name)
def test_every_response_in_every_version_can_be_read(api) -> None:
    for version in api.versions:
        assert callable(error_reader(api.response, version))
