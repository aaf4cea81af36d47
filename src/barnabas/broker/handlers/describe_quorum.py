"""DescribeQuorum, versions 0 to 2: return UNSUPPORTED_VERSION, because a Barnabas cluster has no KRaft quorum.

Kafka's clients raise UnsupportedVersionException and do not retry, as with a Kafka cluster on ZooKeeper. The response
of version 2 contains the reason as text.
"""

from __future__ import annotations

from barnabas.broker.pipeline.call import Call, serves
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse


@serves(DescribeQuorumRequest, ends_with_client=True)
def describe_quorum(request: DescribeQuorumRequest, call: Call) -> DescribeQuorumResponse:
    return DescribeQuorumResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        error_message="this cluster has no KRaft quorum; DescribeCluster lists its brokers",
        topics=[],
    )
