"""FindCoordinator, versions 0 to 4: with one broker, it coordinates every group. Transactions are not served."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.broker.api import Context, serves
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import (
    GROUP_KEY,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

if TYPE_CHECKING:
    from barnabas.broker.broker import Broker

FIRST_VERSION_WITH_SEVERAL_KEYS = 4


@serves(FindCoordinatorRequest)
def find_coordinator(broker: Broker, request: FindCoordinatorRequest, context: Context) -> FindCoordinatorResponse:
    """Tell which broker coordinates."""
    if context.version >= FIRST_VERSION_WITH_SEVERAL_KEYS:
        keys = request.coordinator_keys
        return FindCoordinatorResponse(
            coordinators=[_coordinator(broker, key, request.key_type, context) for key in keys]
        )
    found = _coordinator(broker, request.key, request.key_type, context)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(broker: Broker, key: str, key_type: int, context: Context) -> Coordinator:
    if key_type != GROUP_KEY:
        message = "transactions are not served; this broker coordinates groups only"
        return Coordinator(
            key=key, node_id=-1, host="", port=-1, error_code=ErrorCode.INVALID_REQUEST, error_message=message
        )
    host, port = broker.address_for(context.peer)
    return Coordinator(
        key=key, node_id=broker.node_id, host=host, port=port, error_code=ErrorCode.NONE, error_message=None
    )
