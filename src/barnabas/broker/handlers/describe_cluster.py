"""DescribeCluster, versions 0 to 2.

Barnabas has no fenced brokers. Everyone may see the brokers, because clients need their addresses.
"""

from __future__ import annotations

from barnabas.broker.authorized_operations import ON_CLUSTER
from barnabas.broker.identity import Identity, addresses
from barnabas.broker.pipeline.call import Call, serves
from barnabas.broker.topics import Topics
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.describe_cluster import (
    BROKER_ENDPOINTS,
    CONTROLLER_ENDPOINTS,
    DescribeClusterBroker,
    DescribeClusterRequest,
    DescribeClusterResponse,
)


@serves(DescribeClusterRequest, ends_with_client=True)
def describe_cluster(
    topics: Topics, identity: Identity, request: DescribeClusterRequest, call: Call
) -> DescribeClusterResponse:
    """List the brokers of the cluster."""
    if request.endpoint_type != BROKER_ENDPOINTS:
        is_known = request.endpoint_type == CONTROLLER_ENDPOINTS
        return DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this cluster has no controllers; request brokers (endpoint type 1)",
            endpoint_type=request.endpoint_type,
            cluster_id="",
            brokers=[],
        )
    response = DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        cluster_id=identity.cluster_id,
        controller_id=topics.image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=each.id, host=each.host, port=each.port, rack=each.rack)
            for each in addresses(topics.image, identity, call.connection)
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ON_CLUSTER
    return response
