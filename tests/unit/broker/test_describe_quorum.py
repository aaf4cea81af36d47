"""DescribeQuorum is answered with an error that clients do not retry."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.errors import ErrorCode
from barnabas.protocol.messages.describe_quorum import (
    DescribeQuorumPartition,
    DescribeQuorumRequest,
    DescribeQuorumTopic,
)
from tests.support.in_process_broker import Caller, run_with_broker

REASON = "this cluster has no KRaft quorum; DescribeCluster lists its brokers"


@pytest.mark.parametrize(("version", "message"), [(0, ""), (1, ""), (2, REASON)])
def test_cluster_without_quorum_answers_unsupported_version(tmp_path: Path, version: int, message: str) -> None:
    async def scenario(caller: Caller) -> None:
        partitions = [DescribeQuorumPartition(partition_index=0)]
        topic = DescribeQuorumTopic(topic_name="__cluster_metadata", partitions=partitions)
        response = await caller.call(DescribeQuorumRequest(topics=[topic]), version)
        assert (response.error_code, response.error_message) == (ErrorCode.UNSUPPORTED_VERSION, message)
        assert response.topics == response.nodes == []

    run_with_broker(tmp_path, scenario)
