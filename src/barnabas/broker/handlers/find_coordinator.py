"""FindCoordinator, versions 0 to 6: with one broker, it coordinates every group.

Transactions are not served. A request for their coordinator is answered with TRANSACTIONAL_ID_AUTHORIZATION_FAILED and
a message that says why: it is the only error for this request that every client takes as final. After any other,
librdkafka asks again until its timeout. Share groups (version 6, KIP-932) are answered with INVALID_REQUEST.
"""

from __future__ import annotations

from barnabas.broker.api import Context, Steps, is_pause_due, serves
from barnabas.broker.identity import Identity
from barnabas.errors import ErrorCode
from barnabas.protocol.messages.find_coordinator import (
    GROUP_KEY,
    SHARE_KEY,
    TRANSACTION_KEY,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

FIRST_VERSION_WITH_SEVERAL_KEYS = 4

_REFUSALS = {
    TRANSACTION_KEY: (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactions are not served"),
    SHARE_KEY: (ErrorCode.INVALID_REQUEST, "share groups are not served"),
}


@serves(FindCoordinatorRequest, ends_with_client=True)
def find_coordinator(
    identity: Identity, request: FindCoordinatorRequest, context: Context
) -> Steps[FindCoordinatorResponse]:
    """Tell which broker coordinates."""
    if context.version >= FIRST_VERSION_WITH_SEVERAL_KEYS:
        coordinators = []
        for number, key in enumerate(request.coordinator_keys):
            if is_pause_due(number):
                yield
            coordinators.append(_coordinator(identity, key, request.key_type, context))
        return FindCoordinatorResponse(coordinators=coordinators)
    found = _coordinator(identity, request.key, request.key_type, context)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _coordinator(identity: Identity, key: str, key_type: int, context: Context) -> Coordinator:
    if key_type != GROUP_KEY:
        code, message = _REFUSALS.get(key_type, (ErrorCode.INVALID_REQUEST, f"there is no key type {key_type}"))
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
    host, port = identity.address_for(context.peer)
    return Coordinator(
        key=key, node_id=identity.node_id, host=host, port=port, error_code=ErrorCode.NONE, error_message=None
    )
