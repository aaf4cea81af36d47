"""GetTelemetrySubscriptions (key 71): return the metrics that a client must push, and the push interval (KIP-714).

A client without an instance id sends zeros, and receives a new id.
"""

from __future__ import annotations

from barnabas.protocol.declare import BOOLEAN, INT8, INT16, INT32, STRING, UUID, array, field, message


@message(api_key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    client_instance_id: bytes = field(UUID)


@message(api_key=71, versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
    client_instance_id: bytes = field(UUID)
    subscription_id: int = field(INT32)
    accepted_compression_types: list[int] = field(array(INT8))
    push_interval_ms: int = field(INT32)
    telemetry_max_bytes: int = field(INT32)
    delta_temporality: bool = field(BOOLEAN)
    requested_metrics: list[str] = field(array(STRING))
