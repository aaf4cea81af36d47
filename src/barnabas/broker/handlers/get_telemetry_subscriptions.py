"""GetTelemetrySubscriptions, version 0: the metrics that the settings `telemetry.*` ask clients for.

All clients are asked for the same metrics. A client that asks again before its interval is over gets
THROTTLING_QUOTA_EXCEEDED. Counters are wanted as deltas, as in Kafka: a client changes brokers, and the deltas that
each of them has add up.

The API is advertised where the broker serves `/metrics`, the extra `barnabas[otel]` is installed, and
`telemetry.metrics` is not empty.
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
