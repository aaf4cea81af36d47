"""PushTelemetry, version 0: metrics of a client, which `/metrics` of this broker shows.

A push is refused with INVALID_REQUEST after a terminating one, THROTTLING_QUOTA_EXCEEDED before the interval is over,
UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE beyond `telemetry.max.bytes` (compressed or
decompressed), and INVALID_RECORD where it cannot be decoded. Histograms and summaries are left out; Kafka's clients
push none.
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
