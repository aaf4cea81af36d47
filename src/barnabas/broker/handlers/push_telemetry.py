"""PushTelemetry, version 0: store the metrics that a client pushes. This broker exports them at `/metrics`.

The errors are INVALID_REQUEST after a terminating push, THROTTLING_QUOTA_EXCEEDED within the interval,
UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE above `telemetry.max.bytes` (compressed or
decompressed), and INVALID_RECORD for undecodable data. Histograms and summaries are ignored, because Kafka's clients do
not push them.
"""

from __future__ import annotations

from barnabas.broker.client_telemetry import ClientTelemetry
from barnabas.broker.pipeline.call import Call, Steps, serves
from barnabas.broker.settings.static import TELEMETRY_BYTES_MAX
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse


@serves(PushTelemetryRequest, bytes_max=2 * TELEMETRY_BYTES_MAX)
def push_telemetry(
    telemetry: ClientTelemetry, request: PushTelemetryRequest, call: Call
) -> Steps[PushTelemetryResponse]:
    error = yield from telemetry.push(
        request.client_instance_id,
        call.client_id,
        request.subscription_id,
        request.compression_type,
        request.metrics,
        is_terminating=request.terminating,
    )
    return PushTelemetryResponse(error_code=error)
