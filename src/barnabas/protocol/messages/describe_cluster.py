"""DescribeCluster (key 60): return the brokers and the controller (KIP-700).

Version 1 can return the controllers instead (KIP-919), version 2 can include fenced brokers (KIP-1073).
"""

from __future__ import annotations

from barnabas.protocol.declare import BOOLEAN, INT8, INT16, INT32, STRING, array, field, message, nullable, struct
from barnabas.protocol.messages.metadata import OPERATIONS_UNKNOWN

BROKER_ENDPOINTS, CONTROLLER_ENDPOINTS = 1, 2


@message(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterRequest:
    include_cluster_authorized_operations: bool = field(BOOLEAN)
    endpoint_type: int = field(INT8, since=1, default=BROKER_ENDPOINTS)
    include_fenced_brokers: bool = field(BOOLEAN, since=2, default=False)


@struct
class DescribeClusterBroker:
    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(nullable(STRING), default=None)
    is_fenced: bool = field(BOOLEAN, since=2, default=False)


@message(api_key=60, versions="0-2", flexible="0+")
class DescribeClusterResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    error_message: str | None = field(nullable(STRING), default=None)
    endpoint_type: int = field(INT8, since=1, default=BROKER_ENDPOINTS)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(INT32, default=OPERATIONS_UNKNOWN)
