"""FindCoordinator, versions 0 to 6: the coordinator of a group is the leader of its `__consumer_offsets` partition.

The first request for a group creates the topic; the response is sent when the topic exists.

Transactions are not supported. The error for a transaction coordinator must be fatal for all clients, and its message
must not suggest a missing permission (docs/decisions/006-transactional-ids.md). From version 3, the error is
UNSUPPORTED_VERSION: clients show the message, or the name of the error. In the older versions, which librdkafka uses,
the error is TRANSACTIONAL_ID_AUTHORIZATION_FAILED. It is the only error that librdkafka treats as fatal and shows with
its message. Share groups (version 6, KIP-932) get INVALID_REQUEST.
"""

from __future__ import annotations

import contextlib

from barnabas.broker.group_service import GroupService
from barnabas.broker.identity import Identity, address_of
from barnabas.broker.pipeline.call import Call, LaterReply, Reply, Steps, is_pause_due, serves
from barnabas.broker.pipeline.scheduler import CooperativeScheduler
from barnabas.errors import ApiError, ErrorCode
from barnabas.protocol.messages.find_coordinator import (
    GROUP_KEY,
    SHARE_KEY,
    TRANSACTION_KEY,
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

FIRST_VERSION_WITH_SEVERAL_KEYS = 4

FIRST_VERSION_WITHOUT_LIBRDKAFKA = 3

NO_TRANSACTIONS = "this broker does not support transactions; no permission is missing"


@serves(FindCoordinatorRequest, ends_with_client=True)
def find_coordinator(
    groups: GroupService,
    identity: Identity,
    scheduler: CooperativeScheduler,
    request: FindCoordinatorRequest,
    call: Call,
) -> Steps[FindCoordinatorResponse | Reply]:
    """Return the coordinator of each key."""
    if request.key_type == GROUP_KEY and not groups.has_topic:
        return LaterReply(_prepare_and_find(groups, identity, scheduler, request, call))
    return (yield from _find(groups, identity, request, call))


async def _prepare_and_find(
    groups: GroupService,
    identity: Identity,
    scheduler: CooperativeScheduler,
    request: FindCoordinatorRequest,
    call: Call,
) -> FindCoordinatorResponse:
    with contextlib.suppress(
        ApiError
    ):  # Ignore the error here: without the topic, the lookup of the coordinator returns an error.
        await groups.ensure_topic()
    return await scheduler.finish(_find(groups, identity, request, call))


def _find(
    groups: GroupService, identity: Identity, request: FindCoordinatorRequest, call: Call
) -> Steps[FindCoordinatorResponse]:
    if call.version >= FIRST_VERSION_WITH_SEVERAL_KEYS:
        coordinators = []
        for number, key in enumerate(request.coordinator_keys):
            if is_pause_due(number):
                yield
            coordinators.append(_coordinator(groups, identity, key, request.key_type, call))
        return FindCoordinatorResponse(coordinators=coordinators)
    found = _coordinator(groups, identity, request.key, request.key_type, call)
    return FindCoordinatorResponse(
        error_code=found.error_code,
        error_message=found.error_message,
        node_id=found.node_id,
        host=found.host,
        port=found.port,
    )


def _refusal(key_type: int, version: int) -> tuple[ErrorCode, str]:
    if key_type == TRANSACTION_KEY:
        is_old = version < FIRST_VERSION_WITHOUT_LIBRDKAFKA
        code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED if is_old else ErrorCode.UNSUPPORTED_VERSION
        return code, NO_TRANSACTIONS
    if key_type == SHARE_KEY:
        return ErrorCode.INVALID_REQUEST, "share groups are not supported"
    return ErrorCode.INVALID_REQUEST, f"key type {key_type} is unknown"


def _coordinator(groups: GroupService, identity: Identity, key: str, key_type: int, call: Call) -> Coordinator:
    if key_type != GROUP_KEY:
        code, message = _refusal(key_type, call.version)
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
    coordinator = groups.coordinator_of(key)
    address = address_of(coordinator, groups.image, identity, call.connection)
    if address is None:
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, f"group {key!r} has no coordinator at present"
        return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=code, error_message=message)
    return Coordinator(
        key=key,
        node_id=address.id,
        host=address.host,
        port=address.port,
        error_code=ErrorCode.NONE,
        error_message=None,
    )
