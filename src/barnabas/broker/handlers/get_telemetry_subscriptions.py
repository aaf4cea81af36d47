"""GetTelemetrySubscriptions, version 0: the metrics that the broker requests with the settings `telemetry.*`.

All clients get the same subscription. A second request within the interval gets THROTTLING_QUOTA_EXCEEDED. As in Kafka,
counters are requested as deltas: a client may change brokers, and the deltas of all brokers add up.

The API is advertised if the broker serves `/metrics`, the extra `barnabas[otel]` is installed, and `telemetry.metrics`
is not empty.
"""

from __future__ import annotations

from barnabas.broker.client_telemetry import COMPRESSIONS, ClientTelemetry
from barnabas.broker.pipeline.call import Call, serves
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)


@serves(GetTelemetrySubscriptionsRequest, ends_with_client=True)
def get_telemetry_subscriptions(
    telemetry: ClientTelemetry, request: GetTelemetrySubscriptionsRequest, call: Call
) -> GetTelemetrySubscriptionsResponse:
    found = telemetry.subscribe(request.client_instance_id, call.client_id)
    is_good = found.error is ErrorCode.NONE
    return GetTelemetrySubscriptionsResponse(
        error_code=found.error,
        client_instance_id=found.client_instance_id,
        subscription_id=found.subscription_id,
        accepted_compression_types=list(COMPRESSIONS) if is_good else [],
        push_interval_ms=telemetry.interval_ms if is_good else 0,
        telemetry_max_bytes=telemetry.bytes_max if is_good else 0,
        delta_temporality=is_good,
        requested_metrics=list(telemetry.metrics) if is_good else [],
    )
