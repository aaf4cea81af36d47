"""The messages of KIP-714 as bytes, written by hand by Kafka's protocol guide."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.protocol.codec import decode, encode_bytes
from barnabas.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from barnabas.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

ID = bytes(range(16))
ID_HEX = "000102030405060708090a0b0c0d0e0f"
NO_TAGS = "00"

MESSAGES = [
    (GetTelemetrySubscriptionsRequest(client_instance_id=ID), ID_HEX + NO_TAGS),
    (
        GetTelemetrySubscriptionsResponse(
            throttle_time_ms=1,
            error_code=89,
            client_instance_id=ID,
            subscription_id=-2,
            accepted_compression_types=[4, 3],
            push_interval_ms=300_000,
            telemetry_max_bytes=1_048_576,
            delta_temporality=True,
            requested_metrics=["*"],
        ),
        "00000001 0059" + ID_HEX + "fffffffe 030403 000493e0 00100000 01 02022a" + NO_TAGS,
    ),
    (
        PushTelemetryRequest(
            client_instance_id=ID, subscription_id=7, terminating=True, compression_type=4, metrics=b"\x0a\x00"
        ),
        ID_HEX + "00000007 01 04 030a00" + NO_TAGS,
    ),
    (PushTelemetryResponse(throttle_time_ms=0, error_code=118), "00000000 0076" + NO_TAGS),
]


@pytest.mark.parametrize(("message", "encoded"), MESSAGES, ids=lambda each: type(each).__name__)
def test_message_has_these_bytes(message: Any, encoded: str) -> None:
    wanted = bytes.fromhex(encoded)
    assert encode_bytes(message, 0) == wanted
    assert decode(type(message), wanted, 0) == message
