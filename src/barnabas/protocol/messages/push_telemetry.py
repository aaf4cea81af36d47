"""PushTelemetry (key 72): send the metrics of a client to a broker, as OpenTelemetry's `MetricsData` in Protobuf
(KIP-714).
"""

from __future__ import annotations

from barnabas.protocol.declare import BOOLEAN, BYTES, INT8, INT16, INT32, UUID, field, message


@message(api_key=72, versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: bytes = field(UUID)
    subscription_id: int = field(INT32)
    terminating: bool = field(BOOLEAN)
    compression_type: int = field(INT8)
    metrics: bytes = field(BYTES)


@message(api_key=72, versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: int = field(INT32, default=0)
    error_code: int = field(INT16)
