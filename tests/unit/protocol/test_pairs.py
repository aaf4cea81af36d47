"""The response and the name of an API follow from its request."""

from __future__ import annotations

from barnabas.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.protocol.pairs import api_name, response_of


def test_response_and_name_follow_from_the_request() -> None:
    assert response_of(HeartbeatRequest) is HeartbeatResponse
    assert api_name(HeartbeatRequest) == "Heartbeat"
